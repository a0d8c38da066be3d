"""Rows of settings that change what a run records, and not its trajectory."""

import json
import warnings
from typing import Any

import numpy as np
import torch
from bench import CLASSES, Bench, Trained, assert_literal_trajectory
from literal import cross_entropy, logits
from schema import put

import fedcm
from fedcm.reports.extraction import make_digest
from fedcm.rng import Purpose, make_generator
from fedcm.runs.folder import RunFolder


def names_the_run(bench: Bench, setting: str) -> None:
    for given, folder in (("small", "small-fedcm-seed11"), ("My trial 2", "my-trial-2-fedcm-seed11")):
        trained = bench.train(bench.table(name=given, rounds=1), name=None)
        assert trained.folder.name == trained.summary["name"] == folder


def counts_the_rounds(bench: Bench, setting: str) -> None:
    """A shorter run is the beginning of a longer one."""
    short, long = (bench.train(bench.table(rounds=rounds)) for rounds in (2, 5))
    assert [len(short.lines), len(long.lines)] == [2, 5]
    assert (short.saved[-1], long.saved[-1]) == ([2], [5])
    for one, other in zip(short.servers, long.servers, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert_literal_trajectory(long, bench.clients)


def evaluates_when_due(bench: Bench, setting: str) -> None:
    """The result is the literal loss and accuracy of that round's parameters on the test set."""
    x, y = bench.tested
    for every, due in ((None, [9, 10]), (4, [3, 7, 10]), (1, list(range(11)))):
        table = bench.table(rounds=11)
        put(table, setting, every)
        trained = bench.train(table)
        found = {line["round"]: line for line in trained.lines if "test_loss" in line}
        assert list(found) == due
        for round, line in found.items():
            outputs = logits(trained.servers[round].params.double(), x.double(), CLASSES)
            assert abs(line["test_loss"] - float(cross_entropy(outputs, y))) <= 1e-5
            assert line["test_accuracy"] == float((outputs.argmax(1) == y).double().mean())


def reports_when_targets_are_reached(bench: Bench, setting: str) -> None:
    for targets in (None, [0.33, 0.61, 0.99]):
        table = bench.table(rounds=12, evaluation={"every": 2})
        put(table, setting, targets)
        trained = bench.train(table)
        reported = trained.summary["rounds_to_accuracy"]
        assert reported == {str(target): _first(trained, target) for target in targets or [0.5, 0.6, 0.7, 0.8, 0.9]}
        assert {own is None for own in reported.values()} == {True, False}, "some targets are reached and some are not"


def _first(trained: Trained, target: float) -> int | None:
    reached = [line["round"] + 1 for line in trained.lines if line.get("test_accuracy", 0) >= target]
    return reached[0] if reached else None


def holds_back_validation_data(bench: Bench, setting: str) -> None:
    """The clients train on the rest, and the result is the literal loss and accuracy on what is held back."""
    source = bench.whole_file("whole")
    for share, count in ((None, 0), (0.1, 24), (0.5, 120)):
        table = bench.table(data={"source": source}, split={"kind": "iid", "clients": 5})
        put(table, setting, share)
        trained = bench.train(table)
        assert sum(len(x) for x, _ in trained.clients) == 240 - count
        line = trained.lines[-1]
        if share is None:
            assert "validation_loss" not in line
            continue
        data = trained.run.setup.runner.data
        assert data.validation_size == count
        x, y = data.validation_slice(0, count)
        rows = {tuple(row) for client, _ in trained.clients for row in client.tolist()}
        assert not rows & {tuple(row) for row in x.tolist()}, "no client trains on what is held back"
        outputs = logits(trained.params.double(), x.double(), CLASSES)
        assert abs(line["validation_loss"] - float(cross_entropy(outputs, y))) <= 1e-5
        assert line["validation_accuracy"] == float((outputs.argmax(1) == y).double().mean())
        assert trained.summary["validation"]["accuracy"]["last"] == line["validation_accuracy"]


def evaluates_these_metrics(bench: Bench, setting: str) -> None:
    """Recall averaged over classes, and labels among the two highest outputs; the targets are of the first metric."""
    x, y = bench.tested
    table = bench.table(rounds=6, evaluation={"every": 1, "targets": [0.3, 0.99]})
    put(table, setting, ["recall", "top2", {"name": "recall", "average": "micro", "label": "hits"}])
    trained = bench.train(table)
    recalls = []
    for line, server in zip(trained.lines, trained.servers, strict=True):
        outputs = logits(server.params.double(), x.double(), CLASSES)
        right = outputs.argmax(1) == y
        recalls.append(float(sum(right[y == k].double().mean() for k in y.unique()) / len(y.unique())))
        assert abs(line["test_recall"] - recalls[-1]) <= 1e-6
        assert abs(line["test_hits"] - float(right.double().mean())) <= 1e-6
        others = (outputs > outputs.gather(1, y[:, None])).sum(1)
        assert line["test_top2"] == float((others < 2).double().mean())
        assert "test_accuracy" not in line
    assert list(trained.summary["metrics"]) == ["recall", "top2", "hits"]
    assert abs(trained.summary["metrics"]["recall"]["best"] - max(recalls)) <= 1e-6
    first = next(k for k, value in enumerate(recalls, start=1) if value >= 0.3)
    assert trained.summary["rounds_to_accuracy"] == {"0.3": first, "0.99": None}


def evaluates_clients(bench: Bench, setting: str) -> None:
    """The accuracy of the model on what each client holds out, by its own permutation, weighs every client equally."""
    table = bench.table(evaluation={"every": 2})
    assert "clients_accuracy_mean" not in bench.train(table).lines[-1]
    put(table, setting, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedcm.FewExamplesWarning)
        trained = bench.train(table)
    values, kept = [], []
    for client, (x, y) in enumerate(bench.clients):
        held = make_generator(11, Purpose.CLIENT_TEST, client=client).permutation(len(x))[: int(0.4 * len(x))]
        rest = np.setdiff1d(np.arange(len(x)), held)
        kept.append((x[rest], y[rest]))
        outputs = logits(trained.params.double(), x[held].double(), CLASSES)
        values.append(float((outputs.argmax(1) == y[held]).double().mean()))
    line, results = trained.lines[-1], json.loads((trained.folder / "client_results.json").read_text())
    assert results["values"] == values
    assert line["clients_accuracy_mean"] == np.mean(values)
    assert line["clients_accuracy_std"] == np.std(values)
    assert line["clients_accuracy_p10"] == np.quantile(values, 0.1)
    assert line["clients_accuracy_worst"] == min(values)
    assert_literal_trajectory(trained, kept)


def personalises(bench: Bench, setting: str) -> None:
    """The accuracy of each client after a literal loop of SGD steps over its own training data."""
    for epochs in (1, 3):
        table = bench.table(evaluation={"every": 4, "clients": 0.4})
        put(table, setting, epochs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fedcm.FewExamplesWarning)
            trained = bench.train(table)
        values = []
        for client, (x, y) in enumerate(bench.clients):
            held = make_generator(11, Purpose.CLIENT_TEST, client=client).permutation(len(x))[: int(0.4 * len(x))]
            rest = np.setdiff1d(np.arange(len(x)), held)
            params, order = trained.params.double(), make_generator(11, Purpose.PERSONALISATION, 3, client)
            for _ in range(epochs):
                for batch in np.split(rest[order.permutation(len(rest))], range(4, len(rest), 4)):
                    params = params.detach().requires_grad_()
                    loss = cross_entropy(logits(params, x[batch].double(), CLASSES), y[batch])
                    params = params - 0.3 * torch.autograd.grad(loss, params)[0]
            outputs = logits(params.detach(), x[held].double(), CLASSES)
            values.append(float((outputs.argmax(1) == y[held]).double().mean()))
        results = json.loads((trained.folder / "client_results.json").read_text())
        assert results["personal"] == values
        assert trained.lines[-1]["personal_accuracy_mean"] == np.mean(values)
        assert results["personal"] != results["values"]


def ends_by(*values: Any, **more: Any) -> Any:
    """Compare the number of rounds with a literal loop over the metrics of the run that does not end early."""

    def row(bench: Bench, setting: str) -> None:
        usual: dict[str, Any] = {"rounds": 30, "evaluation": {"every": 1}, "client": {"epochs": 1, "lr": 0.3}}
        data = {"source": bench.source, "validation": 0.3}
        lines = bench.train(bench.table(**usual, data=data)).lines
        lengths = []
        for value in values:
            table = bench.table(**usual, data=data, stop=dict(more))
            put(table, setting, value)
            trained = bench.train(table)
            lengths.append(len(trained.lines))
            assert lengths[-1] == _count_rounds(lines, table["stop"])
            assert ("stopped_early" in trained.summary) == (lengths[-1] < 30)
            assert trained.summary["outcome"] == "finished"
            assert (trained.folder / "model.safetensors").is_file()
        assert len(set(lengths)) == len(values), "the setting has an effect"

    return row


def _count_rounds(lines: list[dict[str, Any]], stop: dict[str, Any]) -> int:
    """Count the rounds of a run with this rule, by comparing every value with all before it."""
    column, delta = stop.get("metric", "validation_accuracy"), stop.get("min_delta", 0.0)
    sign = -1 if column.endswith("loss") else 1
    gains: list[float] = [sign * line[column] for line in lines]
    best, since = gains[0], 0
    for k, gain in enumerate(gains):
        if "target" in stop and gain >= sign * stop["target"]:
            return k + 1
        if k and gain > best + delta:
            best, since = gain, 0
        elif k:
            since += 1
        if since >= stop.get("patience", 999):
            return k + 1
    return len(lines)


def saves_checkpoints_when_due(bench: Bench, setting: str) -> None:
    """Checkpoints are written when due and after the last round."""
    for every, due in ((None, [10, 11]), (4, [4, 8, 11]), (3, [3, 6, 9, 11])):
        table = bench.table(rounds=11, checkpoints={"keep": 99})
        put(table, setting, every)
        trained = bench.train(table)
        assert trained.saved == [[own for own in due if own <= done] for done in range(1, 12)]


def keeps_the_newest_checkpoints(bench: Bench, setting: str) -> None:
    for keep, kept in ((None, 3), (1, 1), (2, 2)):
        table = bench.table(rounds=6, checkpoints={"every": 1})
        put(table, setting, keep)
        trained = bench.train(table)
        assert trained.saved == [list(range(max(done - kept, 0) + 1, done + 1)) for done in range(1, 7)]


def records_the_cell_of_a_table(value: Any, shown: str) -> Any:
    def row(bench: Bench, setting: str) -> None:
        """It does not change the run, and is in the digest from which tables are made."""
        plain, placed = bench.table(), bench.table()
        put(placed, setting, value)
        one, other = (bench.train(table) for table in (plain, placed))
        assert one.summary["params_sha256"] == other.summary["params_sha256"]
        assert [getattr(make_digest(RunFolder(run.folder)), shown) for run in (one, other)] == [
            {} if isinstance(value, dict) else None,
            value,
        ]

    return row
