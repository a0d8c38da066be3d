"""Evaluation at the sites: the scores of the simulation, bad and missing answers, limits, resuming."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, parameters, run_all, simulate

from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.server.run import RunRequest, run_federation

EVALUATION: dict[str, Any] = {"every": 2, "clients": 0.2}
PERSONAL: dict[str, Any] = {"name": "mlp", "hidden": [8], "personal": ["3.*"]}


def read_results(run: Path) -> dict[str, Any]:
    return json.loads((run / "client_results.json").read_text())


def list_scores(run: Path, *words: str) -> list[dict[str, Any]]:
    """Return what the metrics say about evaluations, by round; the keys begin with one of the words."""
    return [{key: value for key, value in line.items() if key.startswith(words)} for line in metrics(run)]


def assert_same_scores(chosen: Experiment, tmp_path: Path) -> Path:
    """Run a federation and the simulation, and compare every score bit for bit."""
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    made = tmp_path / "simulated"
    assert read_results(run) == read_results(made)
    words = ("clients_", "personal_", "test_")
    assert list_scores(run, *words) == list_scores(made, *words)
    assert [bool(scores) for scores in list_scores(run, "clients_")] == [False, True, False, True]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (run, made)]
    assert summaries[0]["clients"] == summaries[1]["clients"]
    return run


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_the_scores_of_sites_are_those_of_the_simulations_clients(algorithm: str, tmp_path: Path) -> None:
    run = assert_same_scores(make_experiment(algorithm, evaluation=EVALUATION), tmp_path)
    results = read_results(run)
    assert results["clients"] == [0, 1, 2]
    assert len(set(results["values"])) > 1
    assert metrics(run)[-1]["clients_accuracy_mean"] == float(np.mean(results["values"]))


def test_held_back_test_data_are_not_trained_on(tmp_path: Path) -> None:
    chosen, without = make_experiment(evaluation=EVALUATION), make_experiment()
    folder = write_kits(chosen, tmp_path)
    channel = InProcessChannel(folder, make_federated(chosen))
    run = run_all(channel, chosen)
    trained = run_all(InProcessChannel(folder, make_federated(without)), without, name="without")
    assert parameters(run) != parameters(trained)
    for site in SITES:
        parts, size = channel.sites[site].parts, len(np.load(tmp_path / "dealt" / f"{site}.npz")["y"])
        assert len(parts.tests) == math.floor(0.2 * size)
        assert sorted([*parts.training, *parts.tests]) == list(range(size))
    assert not (trained / "client_results.json").exists()


@pytest.mark.parametrize("weights", ["clients", "examples"])
def test_a_personalised_evaluation_gives_the_scores_of_the_simulation(weights: str, tmp_path: Path) -> None:
    """The steps of a site's own depend on the round's learning rate, so a schedule must reach the sites too."""
    client = {"epochs": 1, "batch_size": 20, "lr": 0.3, "schedule": {"kind": "cosine"}, "clip": 0.5}
    split = {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6}
    evaluation = EVALUATION | {"personalise": 2}
    chosen = make_experiment(
        "fedavg", client=client, evaluation=evaluation, split=split, server={"weights": weights, "lr": 1.0}
    )
    results = read_results(assert_same_scores(chosen, tmp_path))
    assert results["personal"] != results["values"]


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_sites_are_evaluated_with_their_own_personal_layers(algorithm: str, tmp_path: Path) -> None:
    """With half of the sites per round, some are evaluated with the layers of an earlier round."""
    chosen = make_experiment(
        algorithm,
        model=PERSONAL,
        evaluation=EVALUATION | {"personalise": 1},
        participation={"kind": "independent", "probability": 0.5},
    )
    run = assert_same_scores(chosen, tmp_path)
    assert list_scores(run, "test_") == [{}, {}, {}, {}], "the server's model has no personal layers"


def test_the_headline_metric_is_evaluated_at_the_sites(tmp_path: Path) -> None:
    evaluation = EVALUATION | {"metrics": ["top2", "accuracy"]}
    run = assert_same_scores(make_experiment(evaluation=evaluation), tmp_path)
    assert read_results(run)["metric"] == "top2"


def test_a_server_without_test_data_still_has_the_scores_of_sites(tmp_path: Path) -> None:
    chosen = make_experiment(evaluation=EVALUATION | {"metrics": ["top3"]})
    folder = write_kits(chosen, tmp_path)
    (folder / "server" / "server.toml").unlink()
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert set(list_scores(run, "test_", "clients_")[-1]) == {
        f"clients_top3_{name}" for name in ("mean", "std", "p10", "worst")
    }


def test_a_resumed_run_has_the_same_scores(tmp_path: Path) -> None:
    """The server dies after a round whose evaluation made the sites read their personal layers."""
    chosen = make_experiment("scaffold", rounds=5, model=PERSONAL, evaluation=EVALUATION | {"every": 1})
    folder = write_kits(chosen, tmp_path)
    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    channel = InProcessChannel(folder, make_federated(chosen))
    rounds = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
    for _ in range(3):
        next(rounds)
    rounds.close()
    again = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(again) == parameters(whole)
    assert list_scores(again, "clients_") == list_scores(whole, "clients_")
    assert read_results(again) == read_results(whole)


def test_a_round_that_is_lost_in_its_evaluation_is_repeated_to_the_same_bits(tmp_path: Path) -> None:
    chosen = make_experiment("scaffold", model=PERSONAL, evaluation=EVALUATION | {"every": 1})
    folder = write_kits(chosen, tmp_path)
    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")

    def die(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        if fields["round"] == 2 and site == "b":
            raise RuntimeError("the server dies")
        return fields, arrays

    with pytest.raises(Exception, match="the server dies"):
        run_all(InProcessChannel(folder, make_federated(chosen), spoil_scores=die), chosen)
    again = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(again) == parameters(whole)
    assert list_scores(again, "clients_") == list_scores(whole, "clients_")


BAD: dict[str, tuple[Any, str]] = {
    "nan": (lambda w: w | {"value": math.nan}, "its score is nan"),
    "infinite": (lambda w: w | {"value": math.inf}, "its score is inf"),
    "above one": (lambda w: w | {"value": 1.5}, "its score is 1.5"),
    "negative": (lambda w: w | {"value": -0.1}, "its score is -0.1"),
    "a list": (lambda w: w | {"value": [0.5, 0.5]}, r"its score is [0.5, 0.5]"),
    "a truth": (lambda w: w | {"value": True}, "its score is True"),
    "an array": (lambda w: w | {"value": np.zeros(3)}, "its score is"),
    "a bad second score": (lambda w: w | {"personal": math.nan}, "its score is nan"),
    "no second score": (lambda w: {key: w[key] for key in w if key != "personal"}, "must have 'personal'"),
    "a wrong round": (lambda w: w | {"round": 7}, "answers round 7"),
    "another run": (lambda w: w | {"run": "ab" * 16}, "answers round"),
    "more keys": (lambda w: w | {"junk": "x" * 10**6}, "unknown keys"),
    "an error": (lambda w: {"refused": "I have a headache"}, "it reports: I have a headache"),
    "silence": (lambda w: None, "it did not answer in time"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_score_is_left_out_and_a_line_names_the_site(kind: str, tmp_path: Path) -> None:
    bad, reason = BAD[kind]
    chosen = make_experiment(rounds=2, evaluation=EVALUATION | {"personalise": 1})
    folder, lines = write_kits(chosen, tmp_path), list[str]()

    def spoil(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        spoiled = bad(fields) if site == "b" else fields
        return None if spoiled is None else (spoiled, arrays)

    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")
    run = run_all(InProcessChannel(folder, make_federated(chosen), spoil_scores=spoil), chosen, lines)
    assert parameters(run) == parameters(whole), "the round itself counts"
    assert [line for line in lines if line.startswith("round 1: b is left out of the evaluation: ") and reason in line]
    everyone, some = read_results(whole), read_results(run)
    assert some["clients"] == [0, 2]
    assert some["values"] == [everyone["values"][client] for client in (0, 2)]
    assert metrics(run)[-1]["clients_accuracy_worst"] == min(some["values"])


def test_a_score_that_is_not_defined_counts_as_in_a_simulation(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation=EVALUATION)
    channel = InProcessChannel(
        write_kits(chosen, tmp_path),
        make_federated(chosen),
        spoil_scores=lambda site, w, a: (w | {"value": None} if site == "a" else w, a),
    )
    results = read_results(run_all(channel, chosen))
    assert results["clients"] == [0, 1, 2]
    assert results["values"][0] is None


def test_an_evaluation_without_a_quorum_has_no_result(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation=EVALUATION, federation={"quorum": 0.9})
    lines: list[str] = []
    channel = InProcessChannel(
        write_kits(chosen, tmp_path),
        make_federated(chosen),
        spoil_scores=lambda site, w, a: None if site == "b" else (w, a),
    )
    run = run_all(channel, chosen, lines)
    assert "round 1 has no results of sites: 2 of 3 sites answered, 3 needed" in lines
    assert set(list_scores(run, "clients_")[-1].values()) == {None}
    assert read_results(run)["clients"] == []


def test_a_site_can_keep_its_scores_to_itself(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation=EVALUATION)
    folder, lines = write_kits(chosen, tmp_path), list[str]()
    (folder / "b" / "site.toml").write_text('[data]\nsource = "../dealt/b.npz"\n[limits]\nscores = false\n')
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, lines)
    assert parameters(run) == simulate(chosen, tmp_path), "it trains like the others"
    assert read_results(run)["clients"] == [0, 2]
    assert any("b is left out of the evaluation: it reports: this site gives no scores" in line for line in lines)


def test_absent_and_small_sites_are_named(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation=EVALUATION)
    folder, lines = write_kits(chosen, tmp_path), list[str]()
    limits = "[limits]\nmax_examples = 4\n"
    (folder / "a" / "site.toml").write_text(f'[data]\nsource = "../dealt/a.npz"\n{limits}')
    channel = InProcessChannel(folder, make_federated(chosen))
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    rounds = run_federation(request, make_federated(chosen), channel, lines.append, lambda: False, lambda: None)
    next(rounds)
    channel.absent = {"c"}
    assert next(rounds)["missed"] == ["c"]
    assert list(rounds) == []
    assert any(line.startswith("a has too few examples to hold back a share of 0.2") for line in lines)
    assert "round 1: c is left out of the evaluation: it is not connected" in lines
    assert read_results(folder / "server" / "runs" / "r")["clients"] == [1]
    assert channel.asked[-2:] == [("evaluate", ["b"]), ("finish", ["a", "b"])]


def test_a_share_that_no_site_can_hold_back_is_rejected(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation=EVALUATION | {"clients": 0.0001})
    folder = write_kits(make_experiment(), tmp_path)
    with pytest.raises(UserError, match=r"^evaluation\.clients must hold back at least one example of a site"):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert not (folder / "server" / "runs" / "r").exists()


def test_personalise_needs_test_data_of_sites(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, evaluation={"every": 2, "personalise": 1})
    with pytest.raises(UserError, match=r"evaluation\.personalise = 1 needs clients with test data of their own"):
        run_all(InProcessChannel(write_kits(make_experiment(), tmp_path), make_federated(chosen)), chosen)
