"""Tables and figures show the metric that the runs have, and say which rounds its mean averages."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_digests import make_loss_digest, make_test_digest

from fedcm.cli.terminal.federation import print_runs_table
from fedcm.cli.terminal.score_tables import print_comparison
from fedcm.reports.digest import Digest, read_digest
from fedcm.reports.document import build_document
from fedcm.reports.entry import Entry
from fedcm.reports.groups import group_runs
from fedcm.reports.html.page import render_page
from fedcm.reports.html.page_data import make_page_data
from fedcm.reports.html.result_table import make_numbers_sheet, make_result_sheet, render_result_table
from fedcm.reports.metric import ACCURACY, LOSS, Metric, choose_metric
from fedcm.reports.write import write_figures_and_tables

RESULTS = Path(__file__).parents[2] / "results"


def render(*runs: Digest) -> str:
    return render_page(build_document(runs, [], datetime(2026, 1, 1, tzinfo=UTC))).split(
        '<script type="application/json"'
    )[0]


@pytest.mark.parametrize(
    ("runs", "metric"),
    [
        ([(ACCURACY, 1), (ACCURACY, 1)], ACCURACY),
        ([(ACCURACY, None), (ACCURACY, 1)], ACCURACY),
        ([(None, 1), (None, 1)], LOSS),
        ([(ACCURACY, 1), (None, 1)], LOSS),  # only the loss is common to all
        ([(ACCURACY, None), (None, 1)], ACCURACY),  # nothing is common to all
        ([(None, None), (None, 1)], LOSS),  # one is not evaluated yet
        ([(None, None), (ACCURACY, 1)], ACCURACY),
        ([(None, None)], ACCURACY),
        ([], ACCURACY),
    ],
)
def test_metric_is_the_one_that_all_evaluated_runs_have(
    runs: list[tuple[Metric | None, object]], metric: object
) -> None:
    assert choose_metric(runs) == metric


def test_lowest_loss_leads_in_every_table() -> None:
    (group,) = group_runs(
        [make_loss_digest(loss=0.3), make_loss_digest("fedavg", 0.2), make_loss_digest("fedavg", 0.22, 2)]
    )
    assert group.metric is LOSS
    assert group.list_leaders("I · dirichlet") == {"FedAvg"}
    sheet = make_result_sheet(group, "x")
    assert "test loss, mean of the last 4 rounds" in sheet.caption
    assert [row[1] for row in sheet.body] == ["0.3000", "0.2100 ± 0.014"]
    assert r"\textbf{0.2100 $\pm$ 0.014}" in sheet.to_latex()
    assert "<b>0.2100</b>" in str(render_result_table(group))
    assert "The lowest value of a column is in" in str(render_result_table(group))


def test_runs_with_and_without_accuracy_are_compared_by_loss() -> None:
    losses = {"last": 0.3, "mean_last": 0.35, "mean_last_rounds": 4, "best": 0.2}
    run = make_test_digest("fedavg", 0.9)
    both = run.model_copy(update={"summary": run.summary | {"test_losses": losses}})
    (group,) = group_runs([both, make_loss_digest(loss=0.3)])
    assert {row.label: row.entries["I · dirichlet"].format() for row in group.rows} == {
        "FedCM": "0.3000",
        "FedAvg": "0.3500",
    }


def test_published_figure_is_not_shown_beside_a_loss() -> None:
    assert Entry((make_loss_digest(published=80.0),), LOSS).published is None
    assert Entry((make_test_digest(published=80.0),)).published == 80.0


def test_losses_tie_if_their_shown_digits_are_equal() -> None:
    (group,) = group_runs([make_loss_digest(loss=0.30001), make_loss_digest("fedavg", 0.30004)])
    assert group.list_leaders("I · dirichlet") == {"FedCM", "FedAvg"}


def test_tables_say_which_rounds_are_averaged() -> None:
    (group,) = group_runs([make_test_digest(rounds=500), make_test_digest("fedavg", rounds=500)])
    sheet = make_result_sheet(group, "x")
    words = "test accuracy in %, mean of the last 100 rounds"
    assert words in sheet.caption
    assert words in sheet.to_latex().replace("\\%", "%")
    assert sheet.to_csv().splitlines()[0] == f'algorithm,"I · dirichlet ({words})"'
    assert words in strip_tags(str(render_result_table(group)))
    (short,) = group_runs([make_test_digest(rounds=30), make_test_digest("fedavg", rounds=30)])
    assert "mean of the last 3 rounds" in make_result_sheet(short, "x").caption


def test_columns_say_which_rounds_they_average_if_they_differ() -> None:
    (group,) = group_runs(
        [
            make_test_digest(rounds=500),
            make_test_digest("fedavg", rounds=500),
            make_test_digest(rounds=200),
            make_test_digest("fedavg", rounds=200),
        ]
    )
    assert make_result_sheet(group, "x").head == (
        "algorithm",
        "I · dirichlet · 200 rounds (mean of the last 20 rounds)",
        "I · dirichlet · 500 rounds (mean of the last 100 rounds)",
    )
    assert "mean of the last 20 or 100 rounds" in make_result_sheet(group, "x").caption
    head = strip_tags(str(render_result_table(group)).split("<tbody")[0])
    assert "200 rounds mean of the last 20 rounds" in head
    assert "500 rounds mean of the last 100 rounds" in head
    numbers = make_numbers_sheet((group,))
    column = numbers.head.index("mean_last_rounds")
    assert sorted({row[column] for row in numbers.body}) == ["100", "20"]


def strip_tags(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_diverged_run_has_no_averaged_rounds() -> None:
    (group,) = group_runs(
        [make_test_digest(rounds=500), make_test_digest("scaffold", rounds=500, state="diverged", setting="II")]
    )
    assert group.describe_measure() == "mean of the last 100 rounds"
    assert make_result_sheet(group, "x").head == ("algorithm", "I · dirichlet", "II · dirichlet")
    assert Entry((make_test_digest(rounds=120, state="diverged"),)).averaged_rounds == set()


def test_page_of_a_regression_shows_losses() -> None:
    runs = [make_loss_digest(loss=0.3), make_loss_digest("fedavg", 0.2)]
    text = strip_tags(render(*runs))
    assert "Nothing has been evaluated" not in text
    assert "FedAvg has the lowest test loss in this table (one seed)" in text
    assert "test loss 0.1900" in text, "the last evaluation, in the list of runs"
    assert "in points" not in text
    (cell,) = make_page_data(build_document(runs, [], datetime.now(UTC)))["cells"]
    assert cell["metric"] == "test_loss"


def test_files_of_a_regression_are_named_by_the_loss(tmp_path: Path) -> None:
    write_figures_and_tables(
        build_document([make_loss_digest(), make_loss_digest("fedavg", 0.4)], [], datetime.now(UTC)), tmp_path
    )
    assert (tmp_path / "figures" / "digits-mlp-test-loss.png").stat().st_size > 1000
    assert (tmp_path / "tables" / "digits-mlp-test-loss.csv").exists()
    assert not list(tmp_path.rglob("*accuracy*"))


def test_negative_loss_is_drawn(tmp_path: Path) -> None:
    """A likelihood can be negative; a logarithmic axis has no place for it."""
    run = make_loss_digest()
    curve = run.curve.model_copy(
        update={"test_loss": [value - 1 for value in run.curve.test_loss if value is not None]}
    )
    write_figures_and_tables(build_document([run.model_copy(update={"curve": curve})], [], datetime.now(UTC)), tmp_path)
    assert (tmp_path / "figures" / "digits-mlp-test-loss.png").stat().st_size > 1000


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/mini-*.json")), ids=lambda path: path.stem)
def test_committed_digests_have_the_mean_for_their_length(path: Path) -> None:
    """The older ones were written when every mean was over the last 100 rounds."""
    old, digest = json.loads(path.read_text())["summary"], read_digest(path)
    if digest.accuracy is None:
        assert old["accuracy"] is None
        return
    if "mean_last" in old["accuracy"]:
        assert digest.accuracy == old["accuracy"]
        return
    assert {key: digest.accuracy[key] for key in ("last", "best")} == {
        key: old["accuracy"][key] for key in ("last", "best")
    }
    if old["rounds"] >= 500:
        assert digest.accuracy["mean_last"] == old["accuracy"]["mean_last_100"]
        assert digest.accuracy["mean_last_rounds"] == 100
    else:
        tenth = -(-old["rounds"] // 10)
        pairs = zip(digest.curve.round, digest.curve.test_accuracy, strict=True)
        late = [value for done, value in pairs if done > old["rounds"] - tenth and value is not None]
        late = late or [value for value in digest.curve.test_accuracy if value is not None][-1:]
        assert digest.accuracy["mean_last"] == pytest.approx(sum(late) / len(late))


def test_old_digest_without_a_curve_keeps_its_label() -> None:
    run = make_test_digest(rounds=30)
    accuracy = {"last": 0.8, "best": 0.9, "mean_last_100": 0.5, "evaluations_in_last_100": 30}
    bare = run.model_copy(update={"summary": run.summary | {"accuracy": accuracy}, "curve": run.curve.__class__()})
    (group,) = group_runs([bare])
    assert group.rows[0].entries["I · dirichlet"].format() == "50.00"
    assert group.describe_measure() == "mean of the last 100 rounds"


def test_federation_table_shows_the_loss_without_an_accuracy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = {"round": 2, "loss": 0.5, "test_loss": 0.25, "test_accuracy": None}
    row = {"run": "a", "state": "running", "rounds": 9, "submitted": "now"}
    print_runs_table([row | {"last": last}, row | {"run": "b", "last": last | {"test_accuracy": 0.875}}])
    out = capsys.readouterr().out
    assert "loss 0.25" in out
    assert "87.50%" in out


def test_federation_table_says_what_an_unknown_state_can_mean(capsys: pytest.CaptureFixture[str]) -> None:
    print_runs_table([{"run": "a", "state": "unknown", "submitted": "now"}])
    assert "starting, or lost" in capsys.readouterr().out


def make_summary(rounds: int, **figures: object) -> dict[str, object]:
    costs = {"bytes_down": 1, "bytes_up": 1, "seconds": 1.0}
    return {"name": "x", "rounds": rounds, "rounds_to_accuracy": {}, "outcome": "finished", **costs, **figures}


def make_accuracy(mean: float, rounds: int) -> dict[str, float]:
    return {"last": 0.9, "mean_last": mean, "mean_last_rounds": rounds, "best": 0.95}


def test_terminal_table_heads_the_mean_with_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(
        {
            "a": make_summary(400, accuracy=make_accuracy(0.8, 40)),
            "b": make_summary(400, accuracy=make_accuracy(0.7, 40)),
        }
    )
    out = capsys.readouterr().out
    assert "mean₄₀" in out
    assert "mean₄₀: mean of the last 40 rounds" in out


def test_terminal_table_has_a_column_of_rounds_if_lengths_differ(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(
        {
            "a": make_summary(400, accuracy=make_accuracy(0.8, 40)),
            "b": make_summary(4000, accuracy=make_accuracy(0.7, 100)),
        }
    )
    lines = capsys.readouterr().out.splitlines()
    assert "meanₙ" in lines[1]
    assert lines[3].split()[:5] == ["a", "90.00%", "80.00%", "40", "95.00%"]
    assert lines[4].split()[:5] == ["b", "90.00%", "70.00%", "100", "95.00%"]


def test_terminal_table_of_a_regression_has_losses(capsys: pytest.CaptureFixture[str]) -> None:
    losses = {"last": 0.25, "mean_last": 0.26, "mean_last_rounds": 3, "best": 0.2}
    print_comparison({"a": make_summary(30, accuracy=None, test_loss=0.25, test_losses=losses)})
    out = capsys.readouterr().out
    assert "test loss (lower is better)" in out
    assert "mean₃" in out
    assert "0.2600" in out
    assert "%" not in out


def test_terminal_table_has_no_bytes_down_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = make_accuracy(0.8, 40)
    with_server = make_summary(400, accuracy=accuracy)
    on_graph = with_server | {"bytes_down": 0, "bytes_up": 5}
    empty = with_server | {"bytes_down": 0, "bytes_up": 0}
    print_comparison({"a": with_server, "b": on_graph, "c": empty})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    down_up = {row[0]: row[4:-2] for row in rows if row and row[0] in ("a", "b", "c")}
    assert down_up == {"a": ["1", "B", "1", "B"], "b": ["–", "5", "B"], "c": ["0", "B", "0", "B"]}
