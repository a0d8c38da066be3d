"""Rows of settings that change the trajectory: it agrees with the literal run for both values, and the two differ."""

import math
from collections.abc import Callable
from typing import Any

import literal
import reference_origins_stateful as stateful
import torch
from bench import (
    APART,
    CLASSES,
    CLOSE,
    FEATURES,
    SIZES,
    Bench,
    Trained,
    assert_different,
    assert_literal_trajectory,
    make_clients,
)
from schema import put
from torch import Tensor

Row = Callable[[Bench, str], None]  # given the bench and the setting's name


def changes_the_trajectory(one: Any, other: Any, **base: Any) -> Row:
    """None leaves the setting out: the literal run then has the documented default."""

    def row(bench: Bench, setting: str) -> None:
        assert_different(*[_train_and_check(bench, setting, value, base) for value in (one, other)])

    return row


def changes_the_trajectory_of_every_algorithm(one: Any, other: Any, *algorithms: str) -> Row:
    def row(bench: Bench, setting: str) -> None:
        for algorithm in algorithms:
            changes_the_trajectory(one, other, algorithm={"name": algorithm})(bench, setting)

    return row


def _train_and_check(bench: Bench, setting: str, value: Any, base: dict[str, Any]) -> Trained:
    table = bench.table(**base)
    put(table, setting, value)
    trained = bench.train(table)
    assert_literal_trajectory(trained, bench.clients)
    return trained


def chooses_the_algorithm(bench: Bench, setting: str, **base: Any) -> None:
    """With its documented defaults."""
    table = bench.table(**{"rounds": 6, "algorithm": {}} | base)
    put(table, setting, None)
    trained = bench.train(table)
    assert_literal_trajectory(trained, bench.clients)
    assert trained.summary["algorithm"] == setting.split(".")[1]


def chooses_with(**base: Any) -> Row:
    return lambda bench, setting: chooses_the_algorithm(bench, setting, **base)


def changes_the_matrices(one: Any, other: Any, **base: Any) -> Row:
    """For FedMuon, whose transcription knows the matrices of a perceptron only: the trajectories differ."""

    def row(bench: Bench, setting: str) -> None:
        trained = []
        for value in (one, other):
            table = bench.table(**{"algorithm": {}} | base)
            put(table, setting, value)
            trained.append(bench.train(table))
        assert_different(*trained)

    return row


def differs_from(other: str, **base: Any) -> Row:
    def row(bench: Bench, setting: str) -> None:
        table = bench.table(**{"algorithm": {}} | base)
        put(table, setting, None)
        chosen = bench.train(table)
        assert chosen.summary["algorithm"] == setting.split(".")[1]
        assert_different(chosen, bench.train(table | {"algorithm": {"name": other}}))

    return row


def chooses_the_graph(bench: Bench, setting: str) -> None:
    """The mean of the nodes and their spread are those of gossip with the Metropolis weights of this graph."""
    weights = make_metropolis_weights(setting.split(".")[1], len(SIZES))
    table = bench.table(algorithm={"name": "d-sgd"}, participation={"kind": "everyone"}, rounds=3)
    put(table, setting, None)
    trained = bench.train(table)
    world = literal.world_of(table | {"classes": CLASSES}, bench.clients, trained.cohorts)
    start = literal.initial(table["seed"], world.shape.inputs, world.shape.classes)
    expected = stateful.dsgd(world, start, 3, mixing=weights)
    for server, line, variables in zip(trained.servers, trained.lines, expected, strict=True):
        assert float((server.params - variables["x"]).abs().max()) <= CLOSE
        nodes = variables["nodes"]
        spread = float((nodes - nodes.mean(0)).square().sum(1).mean().sqrt())
        assert abs(line["consensus_distance"] - spread) <= CLOSE


def make_metropolis_weights(kind: str, nodes: int) -> Tensor:
    offsets = {"ring": (1,), "exponential": (1, 2, 4), "complete": range(1, nodes), "torus": ()}[kind]
    pairs = {(i, (i + offset) % nodes) for i in range(nodes) for offset in offsets}
    if kind == "torus":  # six nodes: two rows of three
        rows, columns = 2, 3
        for r in range(rows):
            for c in range(columns):
                here = r * columns + c
                pairs |= {(here, (r + 1) % rows * columns + c), (here, r * columns + (c + 1) % columns)}
    edges = torch.zeros(nodes, nodes, dtype=torch.bool)
    for i, j in pairs:
        edges[i, j] = edges[j, i] = i != j
    degrees = edges.sum(1)
    weights = torch.where(edges, 1 / (1 + torch.maximum(degrees[:, None], degrees[None, :]).double()), 0.0)
    return weights + torch.diag(1 - weights.sum(1))


def draws_a_random_graph(bench: Bench, setting: str) -> None:
    """Probability 1 is the complete graph; a smaller one leaves out edges, so less is sent."""
    traffic = []
    for value in (1.0, 0.4):
        table = bench.table(algorithm={"name": "d-sgd"}, participation={"kind": "everyone"}, rounds=1)
        put(table, setting, value)
        traffic.append(bench.train(table).lines[0]["bytes_up"])
    vector = 4 * CLASSES * (FEATURES + 1)
    assert traffic[0] == 6 * 5 * vector
    assert 10 * vector <= traffic[1] < traffic[0]
    del table["topology"]["probability"]
    assert bench.train(table).lines[0]["bytes_up"] < traffic[0], "the default is 0.5"


def reads_the_graph(bench: Bench, setting: str) -> None:
    """A star: the centre has five neighbours, so ten messages are sent."""
    file = bench.folder / "star.txt"
    file.write_text("0 1 1 1 1 1\n" + "1 0 0 0 0 0\n" * 5)
    table = bench.table(algorithm={"name": "d-sgd"}, participation={"kind": "everyone"}, rounds=1)
    put(table, setting, str(file))
    assert bench.train(table).lines[0]["bytes_up"] == 10 * 4 * CLASSES * (FEATURES + 1)


def depends_on_the_seed(bench: Bench, setting: str) -> None:
    """Initial parameters and minibatches are the literal ones of each seed; the cohorts differ too."""
    one, other = (_train_and_check(bench, setting, value, {"rounds": 8}) for value in (None, 2**40 + 1))
    assert one.cohorts != other.cohorts
    assert_different(one, other)


def reads_the_source(bench: Bench, setting: str) -> None:
    others = make_clients(SIZES[::-1], seed=8)
    table = bench.table()
    put(table, setting, bench.clients_folder("others", others))
    trained = bench.train(table)
    assert_literal_trajectory(trained, others)
    assert_different(trained, bench.train(bench.table()))
    digits = bench.train(
        {key: own for key, own in bench.table().items() if key != "data"} | {"split": _TEN, "rounds": 1}
    )
    assert digits.params.numel() == 10 * (64 + 1)
    assert sum(len(labels) for _, labels in digits.clients) == 1437


_TEN = {"kind": "iid", "clients": 10}


# participation


def takes_everyone(bench: Bench, setting: str) -> None:
    table = bench.table()
    put(table, setting, None)
    chosen = bench.train(table)
    assert chosen.cohorts == [list(range(len(SIZES)))] * 4
    assert_literal_trajectory(chosen, bench.clients)
    del table["participation"]
    assert bench.train(table).cohorts == chosen.cohorts, "the default"


def draws_a_fixed_cohort(bench: Bench, setting: str) -> None:
    """The cohort is the literal draw without replacement; over many rounds all clients take part equally often."""
    for clients in (1, 4, 6):
        table = bench.table(rounds=40, participation={"kind": "fixed", "clients": clients})
        trained = bench.train(table)
        assert trained.cohorts == [draw_fixed(table["seed"], round, clients) for round in range(40)]
        assert {len(set(cohort)) for cohort in trained.cohorts} == {clients}
        times = [sum(number in cohort for cohort in trained.cohorts) for number in range(6)]
        spread = math.sqrt(40 * clients / 6 * (1 - clients / 6))
        assert max(abs(own - 40 * clients / 6) for own in times) <= 4 * spread
    assert_literal_trajectory(trained, bench.clients)


def draw_fixed(seed: int, round: int, clients: int) -> list[int]:
    draw = literal.generator(seed, literal.COHORT, round)
    return sorted(draw.choice(6, clients, replace=False, shuffle=False).tolist())


def draw_independent(seed: int, round: int, probability: float) -> list[int]:
    """Draw a binomial number of clients, without replacement."""
    draw = literal.generator(seed, literal.COHORT, round)
    clients = int(draw.binomial(6, probability))
    return sorted(draw.choice(6, clients, replace=False, shuffle=False).tolist())


def draws_independent_clients(bench: Bench, setting: str) -> None:
    for probability in (0.2, 0.9):
        table = bench.table(rounds=60, participation={"kind": "independent", "probability": probability})
        trained = bench.train(table)
        assert trained.cohorts == [draw_independent(table["seed"], round, probability) for round in range(60)]
        sizes = [len(cohort) for cohort in trained.cohorts]
        error = math.sqrt(6 * probability * (1 - probability) / 60)
        assert abs(sum(sizes) / 60 - 6 * probability) <= 4 * error
        assert len(set(sizes)) > 2, "the size of a cohort is random too"
    assert_literal_trajectory(bench.train(table | {"rounds": 5}), bench.clients)


# engine: other ways to compute the same


def rounds_client_states(bench: Bench, setting: str) -> None:
    """Client states take half the bytes, and the literal SCAFFOLD agrees if it rounds them too."""
    base = {"algorithm": {"name": "scaffold"}, "rounds": 8, "client": {"epochs": 2, "batch_size": 4, "lr": 0.05}}
    exact, rounded = (_train_and_check(bench, setting, value, base) for value in (None, "bfloat16"))
    sizes = [(trained.folder / "clients" / "states.bin").stat().st_size for trained in (exact, rounded)]
    assert sizes[0] == 2 * sizes[1]
    apart = float((exact.params - rounded.params).abs().max())
    assert apart > 10 * torch.finfo(torch.float32).eps, "rounding must have an effect"
    assert apart < APART * CLASSES
