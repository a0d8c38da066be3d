"""Runs with other metrics than accuracy, validation data and results of single clients, from a folder to the page."""

import csv
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from made_digests import make_test_digest
from torch import nn

import fedcm
from fedcm.cli.terminal.run_table import print_runs
from fedcm.cli.terminal.score_tables import print_comparison
from fedcm.reports.claims.representatives import list_representatives
from fedcm.reports.digest import Digest, read_digest, write_digest
from fedcm.reports.document import build_document
from fedcm.reports.extraction import make_digest
from fedcm.reports.groups import group_runs
from fedcm.reports.html.metric_table import render_metric_table
from fedcm.reports.html.page import render_page
from fedcm.reports.metric import LOSS, Metric, find_headline
from fedcm.reports.write import write_figures_and_tables
from fedcm.runs.overview import make_overview
from fedcm.system.formatting import format_hundredths

DRAW = torch.Generator().manual_seed(4)
CLIENTS = [(torch.randn(30, 4, generator=DRAW), torch.randint(3, (30,), generator=DRAW)) for _ in range(4)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[fedcm.Run]:
    def distance(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return float((outputs.argmax(1) - labels).abs().double().mean())

    made = []
    for headline in ("recall", {"name": distance, "higher_is_better": False}):
        torch.manual_seed(0)
        experiment = fedcm.make_experiment(
            nn.Linear(4, 3),
            CLIENTS,
            fedcm.FedCM(),
            rounds=4,
            test=CLIENTS[0],
            validation=0.2,
            evaluate_every=2,
            metrics=[headline, "accuracy"],
            client_tests=0.3,
            personalise=1,
        )
        folder = tmp_path_factory.mktemp("runs")
        made.append(fedcm.run(experiment, runs_dir=folder, notify=lambda sentence: None))
    return made


def test_the_headline_is_the_first_metric_with_its_direction(runs: list[fedcm.Run]) -> None:
    assert [find_headline(run.summary) for run in runs] == [
        Metric("recall", higher_is_better=True, is_share=True),
        Metric("distance", higher_is_better=False),
    ]
    distances = [value for value in runs[1].metrics["test_distance"] if value is not None]
    assert runs[1].summary["metrics"]["distance"]["best"] == min(distances)


def test_a_digest_keeps_all_columns_and_results_of_clients(runs: list[fedcm.Run], tmp_path: Path) -> None:
    digest = make_digest(runs[0].folder)
    write_digest(digest, tmp_path / "run.json")
    again = read_digest(tmp_path / "run.json")
    assert again == digest
    values = [value for value in runs[0].metrics["validation_recall"] if value is not None]
    assert again.curve.get_column("validation_recall") == pytest.approx(values, rel=1e-5)
    assert again.client_results is not None
    assert again.client_results.values == pytest.approx(
        json.loads((runs[0].path / "client_results.json").read_text())["values"], rel=1e-5
    )


def test_a_digest_without_the_new_parts_has_not_grown() -> None:
    text = make_test_digest("fedavg", 0.9).model_dump_json(by_alias=True)
    assert '"scores"' not in text
    old = json.loads(text)
    del old["client_results"]
    assert Digest.model_validate_json(json.dumps(old)) == make_test_digest("fedavg", 0.9)


def test_the_page_figures_and_tables_show_the_headline(runs: list[fedcm.Run], tmp_path: Path) -> None:
    document = build_document([make_digest(runs[0].folder)], [], datetime(2026, 1, 1, tzinfo=UTC))
    page = render_page(document)
    assert "test recall in %" in page
    assert "recall over clients on their own test data" in page
    assert 'data-picture="clients 0"' in page
    write_figures_and_tables(document, tmp_path)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert any(name.endswith("-recall.png") for name in names)
    assert sum(name.startswith("clients-") and name.endswith(".png") for name in names) == 2


def test_the_page_has_a_table_of_all_metrics_on_test_and_validation_data(runs: list[fedcm.Run], tmp_path: Path) -> None:
    page = fedcm.report(runs[0], tmp_path).read_text()
    (table,) = re.findall(r"<table[^>]*><caption>[^<]*all metrics.*?</table>", page, re.DOTALL)
    summary = runs[0].summary
    for which, values in (("test", summary["metrics"]), ("validation", summary["validation"])):
        for name in ("recall", "accuracy"):
            assert f"{which} {name}, %" in table
            assert f">{format_hundredths(100 * values[name]['mean_last'])}<" in table
    assert f">{LOSS.format(summary['validation']['loss']['mean_last'])}<" in table


def test_runs_with_one_metric_have_no_table_of_all_metrics() -> None:
    (group,) = group_runs([make_test_digest("fedavg", 0.9)])
    assert render_metric_table(group) is None


def test_lower_is_better_is_written_in_tables(runs: list[fedcm.Run], capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison({"one": runs[1].summary})
    shown = capsys.readouterr().out
    assert "test distance (lower is better)" in shown
    for heading in ("validation", "worst"):
        assert heading in shown


def test_the_list_of_runs_shows_headline_and_validation(
    runs: list[fedcm.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    print_runs(make_overview([runs[0].folder], runs[0].path.parent))
    shown = capsys.readouterr().out
    assert "recall" in shown
    assert "validation" in shown


def with_validation(run: Digest, score: float) -> Digest:
    values: dict[str, Any] = {"last": score, "mean_last": score, "mean_last_rounds": 4, "best": score}
    table = {"accuracy": values | {"higher_is_better": True, "is_share": True}}
    return run.model_copy(update={"summary": run.summary | {"validation": table}})


def test_validation_chooses_the_setting_that_represents_an_algorithm() -> None:
    """The row with the best test score is not chosen."""

    def make(alpha: float, accuracy: float, validation: float | None) -> Digest:
        run = make_test_digest("fedcm", accuracy)
        algorithm = {"name": "fedcm", "alpha": alpha}
        run = run.model_copy(update={"name": f"run-{alpha}", "experiment": run.experiment | {"algorithm": algorithm}})
        return run if validation is None else with_validation(run, validation)

    (group,) = group_runs([make(0.1, 0.9, 0.5), make(0.3, 0.6, 0.8)])
    (cell,) = group.cells
    (chosen,) = list_representatives(group, cell.name, "fedcm")
    assert "0.3" in chosen.label
    (partly,) = group_runs([make(0.1, 0.9, None), make(0.3, 0.6, 0.8)])
    (default,) = list_representatives(partly, cell.name, "fedcm")
    assert "0.1" in default.label, "the default alpha, because not all rows have validation data"


def test_the_distribution_over_clients_is_in_the_files(runs: list[fedcm.Run], tmp_path: Path) -> None:
    """Mean, deviation, worst tenth and worst, of the global model and after each client's own steps."""
    write_figures_and_tables(
        build_document([make_digest(runs[0].folder)], [], datetime(2026, 1, 1, tzinfo=UTC)), tmp_path
    )
    (sheet,) = (tmp_path / "tables").glob("*-clients.csv")
    head, *rows = list(csv.reader(sheet.open()))
    assert head == ["algorithm", "model", "mean", "standard deviation", "worst 10 %", "worst"]
    for row, kind in zip(rows, ("clients", "personal"), strict=True):
        values = [runs[0].summary[kind][key] for key in ("mean", "std", "p10", "worst")]
        assert row[2:] == [format_hundredths(100 * value) for value in values]
    for suffix in (".tex", ".md"):
        text = sheet.with_suffix(suffix).read_text()
        assert "standard deviation" in text
        assert all(number in text for row in rows for number in row[2:])
    (numbers,) = csv.DictReader((tmp_path / "tables" / "numbers.csv").open())
    assert float(numbers["clients_p10"]) == pytest.approx(100 * runs[0].summary["clients"]["p10"])


def test_runs_that_do_not_evaluate_their_clients_have_no_sheet_about_them(tmp_path: Path) -> None:
    document = build_document([make_test_digest("fedavg", 0.9)], [], datetime(2026, 1, 1, tzinfo=UTC))
    write_figures_and_tables(document, tmp_path)
    assert not list((tmp_path / "tables").glob("*-clients.*"))
    (numbers,) = csv.DictReader((tmp_path / "tables" / "numbers.csv").open())
    assert numbers["clients_mean"] == ""


def test_the_title_of_the_costs_names_the_headline() -> None:
    run = make_test_digest("fedcm", 0.8)
    values = {"last": 0.8, "mean_last": 0.8, "mean_last_rounds": 4, "best": 0.8}
    metrics = {"f1": values | {"higher_is_better": True, "is_share": True}}
    curve = run.curve.model_copy(update={"scores": {"test_f1": run.curve.test_accuracy}})
    scored = run.model_copy(update={"summary": run.summary | {"metrics": metrics}, "curve": curve})
    pages = [render_page(build_document([one], [], datetime(2026, 1, 1, tzinfo=UTC))) for one in (run, scored)]
    titles = [re.findall(r'id="costs-title">([^<]*)<', page) for page in pages]
    assert titles == [["Rounds and bytes to reach an accuracy"], ["Rounds and bytes to reach a value of f1"]]
