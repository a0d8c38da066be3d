"""Cohorts of more than 1,000 clients, which `metrics.jsonl` does not list: lists and reports of runs still work."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import Answer, read_lines

from fedcm.algorithms.averaging.fedavg import Broadcast, Report, ServerState
from fedcm.core.algorithm import Round
from fedcm.core.executor import RoundResult
from fedcm.core.participation import Independent
from fedcm.core.round_loop import collect_metrics
from fedcm.reports.extraction import make_digest
from fedcm.runs.folder import RunFolder

Fedcm = Callable[..., Answer]
Write = Callable[..., Path]

MANY: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "linear"},
    "client": {"epochs": 1, "batch_size": 2, "lr": 0.1},
    "engine": {"stack": 256, "layout": "channels_last", "compile": "off"},
}
ON_DEMAND = """
import torch
from fedcm.data import ClientsOnDemand

def client(number):
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(2, 6, generator=draw)
    return x, (x[:, 0] > 0).long()

def many():
    return ClientsOnDemand(population=1_100, client=client, size=2, classes=2, test=client(10**6))
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "crowd.py").write_text(ON_DEMAND)
    x = np.random.default_rng(0).normal(size=(1_500, 6)).astype(np.float32)
    np.savez(tmp_path / "many.npz", x_train=x, y_train=(x[:, 0] > 0).astype(int), x_test=x[:9], y_test=np.arange(9) % 2)


@pytest.mark.slow
@pytest.mark.usefixtures("sources")
def test_a_comparison_with_large_cohorts_writes_its_report(fedcm: Fedcm, experiment: Write) -> None:
    data, participation = {"source": "crowd:many"}, {"kind": "fixed", "clients": 1_050}
    path = experiment(**MANY | {"data": data, "split": {"kind": "natural"}, "participation": participation})
    answer = fedcm("compare", path, "--algorithms", "fedavg", "--runs-dir", "runs")
    assert answer.code == 0, answer.err
    assert "damaged" not in answer.out + answer.err
    lines = read_lines(Path("runs/small-fedavg-seed3"))
    assert [line["cohort"] for line in lines] == [1_050, 1_050]
    assert "clients" not in lines[0]
    assert Path("runs/small-report/index.html").is_file()
    assert json.loads(fedcm("runs", "--runs-dir", "runs", "--json").out)[0]["state"] == "finished"


@pytest.mark.usefixtures("sources")
def test_a_report_draws_large_cohorts_again_from_the_seed(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    participation = {"kind": "independent", "probability": 0.8}
    split = {"kind": "iid", "clients": 1_500}
    path = experiment(**MANY | {"data": {"source": "many.npz"}, "split": split, "participation": participation})
    assert fedcm("run", path, "--runs-dir", "runs", "--name", "one", "--track", "tensorboard").code == 0
    answer = fedcm("report", "runs", "--output", "page", "--digests", "digests")
    assert (answer.code, answer.err) == (0, "")
    seen = json.loads((tmp_path / "digests" / "one.json").read_text())["participation"]
    took_part = Counter(np.concatenate([Independent(0.8).cohort(1_500, 3, round) for round in range(2)]).tolist())
    assert seen["times"] == [[0, 1_500 - len(took_part)], *map(list, sorted(Counter(took_part.values()).items()))]


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize(
    ("participation", "times"),
    [({"kind": "everyone"}, [(2, 1_100)]), ({"kind": "fixed", "clients": 1_050}, [])],
)
def test_participation_is_unknown_if_the_number_of_clients_is(
    fedcm: Fedcm, experiment: Write, participation: dict[str, Any], times: list[tuple[int, int]]
) -> None:
    """The experiment does not have the number of clients, so only a cohort of all clients can be drawn again."""
    split = {"kind": "natural"}
    path = experiment(**MANY | {"data": {"source": "crowd:many"}, "split": split, "participation": participation})
    assert fedcm("run", path, "--runs-dir", "runs", "--name", "one").code == 0
    digest = make_digest(RunFolder(Path("runs/one")))
    assert (digest.participation.times, digest.participation.rounds) == (times, 2)
    assert digest.participation.mean_cohort == sum(line["cohort"] for line in read_lines(Path("runs/one"))) / 2


def test_a_federation_records_its_sites_in_every_round() -> None:
    """A federation resumes with the sites in its record, so its executor reports them with every round."""
    params, sites = torch.zeros(3), list(range(1_001))
    result = RoundResult(Report(params), 1_001, 1.0, 0.5, np.array(sites), {"clients": sites})
    round = Round(0, 0.1, 1.0, 1_001, 1_001, 1.0)
    metrics = collect_metrics(round, Broadcast(params), result, ServerState(params), ServerState(params))
    assert metrics.to_dict()["clients"] == sites
