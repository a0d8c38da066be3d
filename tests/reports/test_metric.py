"""Tables and figures show the metric that the runs have, and say over which rounds its mean is."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_digests import made, made_with_loss

from fedcm.cli.terminal.federation import federation_table
from fedcm.cli.terminal.score_tables import comparison_table
from fedcm.reports.digest import Digest, read_digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import grouped
from fedcm.reports.html.page import page
from fedcm.reports.html.page_data import page_data
from fedcm.reports.html.result_table import numbers_sheet, result_sheet, result_table
from fedcm.reports.metric import ACCURACY, LOSS, choose_metric
from fedcm.reports.story import told
from fedcm.reports.writing import write_extras

RESULTS = Path(__file__).parents[2] / "results"


def html_of(*runs: Digest) -> str:
    return page(told(runs, [], datetime(2026, 1, 1, tzinfo=UTC))).split('<script type="application/json"')[0]


@pytest.mark.parametrize(
    ("found", "metric"),
    [
        ([(1, 1), (1, 1)], ACCURACY),
        ([(1, None), (1, 1)], ACCURACY),
        ([(None, 1), (None, 1)], LOSS),
        ([(1, 1), (None, 1)], LOSS),  # all can be compared by the loss alone
        ([(1, None), (None, 1)], ACCURACY),  # nothing is common to them
        ([(None, None), (None, 1)], LOSS),  # one is not evaluated yet
        ([(None, None), (1, 1)], ACCURACY),
        ([(None, None)], ACCURACY),
        ([], ACCURACY),
    ],
)
def test_the_metric_is_what_the_evaluated_runs_have_in_common(
    found: list[tuple[object, object]], metric: object
) -> None:
    assert choose_metric(found) is metric


def test_of_a_loss_the_lowest_leads_in_every_table() -> None:
    (group,) = grouped([made_with_loss(loss=0.3), made_with_loss("fedavg", 0.2), made_with_loss("fedavg", 0.22, 2)])
    assert group.metric is LOSS
    assert group.leaders("I · dirichlet") == {"FedAvg"}
    sheet = result_sheet(group, "x")
    assert "test loss, mean of the last 4 rounds" in sheet.caption
    assert [row[1] for row in sheet.body] == ["0.3000", "0.2100 ± 0.014"]
    assert r"\textbf{0.2100 $\pm$ 0.014}" in sheet.latex()
    assert "<b>0.2100</b>" in str(result_table(group))
    assert "The lowest of a column in" in str(result_table(group))


def test_runs_with_and_without_an_accuracy_are_compared_by_the_loss_that_both_have() -> None:
    losses = {"last": 0.3, "mean_last": 0.35, "mean_last_rounds": 4, "best": 0.2}
    run = made("fedavg", 0.9)
    both = run.model_copy(update={"summary": run.summary | {"test_losses": losses}})
    (group,) = grouped([both, made_with_loss(loss=0.3)])
    assert {row.label: row.entries["I · dirichlet"].write() for row in group.rows} == {
        "FedCM": "0.3000",
        "FedAvg": "0.3500",
    }


def test_a_published_figure_is_an_accuracy_and_stands_beside_no_loss() -> None:
    assert Entry((made_with_loss(published=80.0),), LOSS).published is None
    assert Entry((made(published=80.0),)).published == 80.0


def test_ties_of_a_loss_are_those_of_the_digits_shown() -> None:
    (group,) = grouped([made_with_loss(loss=0.30001), made_with_loss("fedavg", 0.30004)])
    assert group.leaders("I · dirichlet") == {"FedCM", "FedAvg"}


def test_every_table_says_which_rounds_are_averaged() -> None:
    (group,) = grouped([made(rounds=500), made("fedavg", rounds=500)])
    sheet = result_sheet(group, "x")
    words = "test accuracy in %, mean of the last 100 rounds"
    assert words in sheet.caption
    assert words in sheet.latex().replace("\\%", "%")
    assert sheet.csv().splitlines()[0] == f'algorithm,"I · dirichlet ({words})"'
    assert words in html_text(str(result_table(group)))
    (short,) = grouped([made(rounds=30), made("fedavg", rounds=30)])
    assert "mean of the last 3 rounds" in result_sheet(short, "x").caption


def test_where_cells_average_other_rounds_every_column_says_its_own() -> None:
    (group,) = grouped([made(rounds=500), made("fedavg", rounds=500), made(rounds=200), made("fedavg", rounds=200)])
    assert result_sheet(group, "x").head == (
        "algorithm",
        "I · dirichlet · 200 rounds (mean of the last 20 rounds)",
        "I · dirichlet · 500 rounds (mean of the last 100 rounds)",
    )
    assert "mean of the last 20 or 100 rounds" in result_sheet(group, "x").caption
    head = html_text(str(result_table(group)).split("<tbody")[0])
    assert "200 rounds mean of the last 20 rounds" in head
    assert "500 rounds mean of the last 100 rounds" in head
    numbers = numbers_sheet((group,))
    column = numbers.head.index("mean_last_rounds")
    assert sorted({row[column] for row in numbers.body}) == ["100", "20"]


def html_text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_what_diverged_has_no_mean_and_so_no_rounds() -> None:
    (group,) = grouped([made(rounds=500), made("scaffold", rounds=500, state="diverged", setting="II")])
    assert group.describe_measure() == "mean of the last 100 rounds"
    assert result_sheet(group, "x").head == ("algorithm", "I · dirichlet", "II · dirichlet")
    assert Entry((made(rounds=120, state="diverged"),)).averaged_rounds == set()


def test_the_page_of_a_regression_shows_losses_everywhere() -> None:
    runs = [made_with_loss(loss=0.3), made_with_loss("fedavg", 0.2)]
    text = html_text(html_of(*runs))
    assert "Nothing has been evaluated" not in text
    assert "FedAvg has the lowest test loss in this table (one seed)" in text
    assert "test loss 0.1900" in text, "the last evaluation, in the list of runs"
    assert "in points" not in text
    (cell,) = page_data(told(runs, [], datetime.now(UTC)))["cells"]
    assert cell["metric"] == "test_loss"


def test_figures_and_tables_of_a_regression_have_names_of_their_own(tmp_path: Path) -> None:
    write_extras(told([made_with_loss(), made_with_loss("fedavg", 0.4)], [], datetime.now(UTC)), tmp_path)
    assert (tmp_path / "figures" / "digits-mlp-test-loss.png").stat().st_size > 1000
    assert (tmp_path / "tables" / "digits-mlp-test-loss.csv").exists()
    assert not list(tmp_path.rglob("*accuracy*"))


def test_a_loss_below_0_is_drawn(tmp_path: Path) -> None:
    """Of a likelihood it may be; no logarithmic axis has a place for it."""
    run = made_with_loss()
    curve = run.curve.model_copy(
        update={"test_loss": [value - 1 for value in run.curve.test_loss if value is not None]}
    )
    write_extras(told([run.model_copy(update={"curve": curve})], [], datetime.now(UTC)), tmp_path)
    assert (tmp_path / "figures" / "digits-mlp-test-loss.png").stat().st_size > 1000


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_digests_have_the_mean_that_their_length_asks_for(path: Path) -> None:
    """They were written when every mean was of the last 100 rounds."""
    old, digest = json.loads(path.read_text())["summary"], read_digest(path)
    if digest.accuracy is None:
        assert old["accuracy"] is None
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


def test_an_old_digest_of_a_short_run_without_its_curve_is_labelled_as_it_was() -> None:
    run = made(rounds=30)
    accuracy = {"last": 0.8, "best": 0.9, "mean_last_100": 0.5, "evaluations_in_last_100": 30}
    bare = run.model_copy(update={"summary": run.summary | {"accuracy": accuracy}, "curve": run.curve.__class__()})
    (group,) = grouped([bare])
    assert group.rows[0].entries["I · dirichlet"].write() == "50.00"
    assert group.describe_measure() == "mean of the last 100 rounds"


def test_a_federations_runs_are_listed_with_their_loss_where_there_is_no_accuracy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = {"round": 2, "loss": 0.5, "test_loss": 0.25, "test_accuracy": None}
    row = {"run": "a", "state": "running", "rounds": 9, "submitted": "now"}
    federation_table([row | {"last": last}, row | {"run": "b", "last": last | {"test_accuracy": 0.875}}])
    out = capsys.readouterr().out
    assert "loss 0.25" in out
    assert "87.50%" in out


def summary(rounds: int, **figures: object) -> dict[str, object]:
    costs = {"bytes_down": 1, "bytes_up": 1, "seconds": 1.0}
    return {"name": "x", "rounds": rounds, "rounds_to_accuracy": {}, "outcome": "finished", **costs, **figures}


def accuracy(mean: float, rounds: int) -> dict[str, float]:
    return {"last": 0.9, "mean_last": mean, "mean_last_rounds": rounds, "best": 0.95}


def test_the_terminals_table_heads_the_mean_with_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    comparison_table({"a": summary(400, accuracy=accuracy(0.8, 40)), "b": summary(400, accuracy=accuracy(0.7, 40))})
    out = capsys.readouterr().out
    assert "mean₄₀" in out
    assert "mean₄₀: mean of the last 40 rounds" in out


def test_runs_of_other_lengths_have_a_column_for_their_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    comparison_table({"a": summary(400, accuracy=accuracy(0.8, 40)), "b": summary(4000, accuracy=accuracy(0.7, 100))})
    lines = capsys.readouterr().out.splitlines()
    assert "meanₙ" in lines[1]
    assert lines[3].split()[:5] == ["a", "90.00%", "80.00%", "40", "95.00%"]
    assert lines[4].split()[:5] == ["b", "90.00%", "70.00%", "100", "95.00%"]


def test_the_terminals_table_of_a_regression_has_losses(capsys: pytest.CaptureFixture[str]) -> None:
    losses = {"last": 0.25, "mean_last": 0.26, "mean_last_rounds": 3, "best": 0.2}
    comparison_table({"a": summary(30, accuracy=None, test_loss=0.25, test_losses=losses)})
    out = capsys.readouterr().out
    assert "test loss (lower is better)" in out
    assert "mean₃" in out
    assert "0.2600" in out
    assert "%" not in out
