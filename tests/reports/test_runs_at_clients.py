"""Runs with personal layers, which are evaluated at their clients only: tables, lists and the page show the mean."""

import csv
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import fedcm
from fedcm.cli.terminal.run_table import print_runs
from fedcm.cli.terminal.score_tables import print_comparison
from fedcm.core.metrics import describe_score
from fedcm.reports.extraction import make_digest
from fedcm.reports.groups import group_runs
from fedcm.reports.metric import Metric, find_headline
from fedcm.runs.overview import make_overview
from fedcm.system.formatting import format_hundredths

DRAW = torch.Generator().manual_seed(4)
CLIENTS = [(torch.randn(30, 4, generator=DRAW), torch.randint(3, (30,), generator=DRAW)) for _ in range(4)]


def train(folder: Path, name: str, personal: str | None) -> fedcm.Run:
    torch.manual_seed(0)
    experiment = fedcm.make_experiment(
        nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)),
        CLIENTS,
        fedcm.FedCM(),
        rounds=4,
        test=None if personal else CLIENTS[0],
        evaluate_every=2,
        metrics=["recall", "accuracy"],
        client_tests=0.3,
        personal=personal,
        stragglers=fedcm.Stragglers(deadline=100.0),
    )
    return fedcm.run(experiment, runs_dir=folder, name=name, notify=lambda sentence: None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fedcm.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: train(folder, name, personal) for name, personal in (("heads", "1.*"), ("common", None))}


def test_the_headline_is_the_mean_over_clients(runs: dict[str, fedcm.Run]) -> None:
    assert find_headline(runs["heads"].summary) == Metric("recall", True, True, over_clients=True)
    assert find_headline(runs["common"].summary) == Metric("recall", True, True)
    means = [value for value in runs["heads"].metrics["clients_recall_mean"] if value is not None]
    summary = runs["heads"].summary["clients"]
    assert (summary["last"], summary["best"], summary["mean"]) == (means[-1], max(means), means[-1])


def test_the_table_compares_all_runs_by_their_mean_over_clients(
    runs: dict[str, fedcm.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    print_comparison({name: run.summary for name, run in runs.items()})
    shown = capsys.readouterr().out
    assert "mean recall over clients: last, mean and best" in shown
    for name, run in runs.items():
        (row,) = re.findall(rf"^ *{name} +(\S+)", shown, re.MULTILINE)
        assert row == f"{100 * run.summary['clients']['mean']:.2f}%"


def test_the_list_of_runs_shows_the_mean_over_clients(
    runs: dict[str, fedcm.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    print_runs(make_overview([run.folder for run in runs.values()], runs["heads"].path.parent))
    shown = " ".join(capsys.readouterr().out.split())
    assert "over clients" in shown
    assert "or the test loss" not in shown, "both runs have a metric"


def test_progress_shows_the_mean_over_clients(runs: dict[str, fedcm.Run]) -> None:
    line = runs["heads"].metrics[-1]
    assert describe_score(line) == f"mean recall over clients {line['clients_recall_mean']:.4g}"


def test_a_report_compares_runs_with_and_without_personal_layers_in_one_table(
    runs: dict[str, fedcm.Run], tmp_path: Path
) -> None:
    """By the mean over clients, with simulated time, against which the report draws the headline."""
    page = fedcm.report(list(runs.values()), tmp_path).read_text()
    assert "mean recall over clients in %" in page
    assert "test recall in %" not in re.findall(r"<table[^>]*class=\"result\".*?</table>", page, re.DOTALL)[0]
    assert "with personal layers" in page
    assert "global model" in page
    (sheet,) = (tmp_path / "tables").glob("*-clients-recall.csv")
    rows = dict(list(csv.reader(sheet.open()))[1:])
    assert rows == {
        'FedCM (model.personal = ["1.*"])': format_hundredths(100 * runs["heads"].summary["clients"]["mean_last"]),
        "FedCM (model.personal unset)": format_hundredths(100 * runs["common"].summary["clients"]["mean_last"]),
    }


def test_runs_with_personal_layers_stay_apart_from_runs_without_results_of_clients(runs: dict[str, fedcm.Run]) -> None:
    heads, common = (make_digest(runs[name].folder) for name in ("heads", "common"))
    assert len(group_runs([heads, common])) == 1
    summary = {key: value for key, value in common.summary.items() if key != "clients"}
    assert len(group_runs([heads, common.model_copy(update={"summary": summary})])) == 2
