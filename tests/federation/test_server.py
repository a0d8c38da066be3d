"""A run at the server: the simulation's bits, lost sites, bad replies, resuming."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scenes import finish_session
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits

from fedcm.errors import Stopped, UserError
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.runs.folder import RunFolder
from fedcm.runs.session import Session


def run_all(
    channel: InProcessChannel, chosen: Any, lines: list[str] | None = None, resume: bool = False, name: str = "r"
) -> Path:
    """Run all rounds and return the run's folder."""
    server = channel.folder / "server"
    log = [] if lines is None else lines
    request = RunRequest(server, name, "lead@example.org", resume)
    for _ in run_federation(request, make_federated(chosen), channel, log.append, lambda: False, lambda: None):
        pass
    return server / "runs" / name


def parameters(run: Path) -> str:
    return json.loads((run / "summary.json").read_text())["params_sha256"]


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def simulate(chosen: Any, folder: Path) -> str:
    finish_session(Session.start(chosen, folder, "simulated"))
    return parameters(folder / "simulated")


@pytest.mark.parametrize("algorithm", ["fedcm", "fedavg", "fedadam", "scaffold", "feddyn"])
def test_a_federation_ends_with_the_bits_of_the_simulation(algorithm: str, tmp_path: Path) -> None:
    chosen = make_experiment(algorithm, participation={"kind": "independent", "probability": 0.7})
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)


@pytest.mark.parametrize("unit", ["steps", "epochs"])
def test_unequal_work_gives_the_bits_of_the_simulation(unit: str, tmp_path: Path) -> None:
    """Each site draws its own number, and the server rejects a reply with another one."""
    client = {unit: {"kind": "uniform", "low": 1, "high": 5}, "batch_size": 50, "lr": 0.1}
    chosen = make_experiment("fednova", client=client)
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    assert any("steps_least" in line for line in metrics(run))
    assert [line["steps"] for line in metrics(run)] == [line["steps"] for line in metrics(tmp_path / "simulated")]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"stragglers": {"deadline": 5.0}}, r"federation\.deadline, so \[stragglers\] must be left out"),
        ({"availability": {"kind": "day-night", "period": 4, "share": 0.5}}, r"\[availability\] must be left out"),
        (
            {"client": {"steps": {"kind": "file", "path": "x.csv"}}},
            r"client\.steps must be a number or kind",
        ),
    ],
)
def test_conditions_of_simulations_are_rejected(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_federated(make_experiment(**tables))


def test_weights_by_examples_give_the_bits_of_the_simulation(tmp_path: Path) -> None:
    table = {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6}
    chosen = make_experiment("fedavg", split=table, server={"weights": "examples"})
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    chosen = make_experiment("scaffold", rounds=5)
    folder = write_kits(chosen, tmp_path)
    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")
    channel = InProcessChannel(folder, make_federated(chosen))
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    rounds = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
    next(rounds)
    next(rounds)
    rounds.close()  # the server dies after two rounds
    assert parameters(run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)) == parameters(
        whole
    )


def test_a_round_that_the_server_lost_changes_nothing_at_a_site(tmp_path: Path) -> None:
    """The site has answered and written its new state, and the server dies before the round counts."""
    chosen = make_experiment("scaffold", rounds=4)
    folder = write_kits(chosen, tmp_path)
    whole = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="whole")

    def dies(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        if fields["round"] == 2 and site == "a":  # the last to answer
            raise Stopped
        return fields, arrays

    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), dies), chosen)
    assert parameters(run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)) == parameters(
        whole
    )


@pytest.mark.parametrize("lost", [{"b": {1}}, {"a": {0, 2}, "c": {1}}])
def test_the_servers_control_stays_the_mean_of_the_sites_when_replies_are_lost(
    lost: dict[str, set[int]], tmp_path: Path
) -> None:
    """A reply is lost on the way: the site has trained, the server has not counted it."""
    chosen = make_experiment("scaffold", rounds=4, federation={"quorum": 0.3})

    def swallowed(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        return None if fields["round"] in lost.get(site, ()) else (fields, arrays)

    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), swallowed), chosen)
    control = load_file(run / "checkpoints" / "round-000004.safetensors")["server.control"].double()
    identity = json.loads((run / "federation.json").read_text())["id"]
    counted = {
        site: max(line["round"] for line in metrics(run) if SITES.index(site) in line["clients"]) for site in SITES
    }
    own = [
        load_file(tmp_path / site / "state" / identity / f"round-{counted[site]:06d}.safetensors")["control"].double()
        for site in SITES
    ]
    assert torch.allclose(control, torch.stack(own).mean(0), rtol=0, atol=1e-6 * float(control.abs().max()))


def nan(fields: Any, arrays: Any) -> Any:
    return fields, {name: np.full_like(array, np.nan) for name, array in arrays.items()}


def infinite(fields: Any, arrays: Any) -> Any:
    arrays = {name: array.copy() for name, array in arrays.items()}
    next(iter(arrays.values()))[0] = np.inf
    return fields, arrays


def second_infinite(fields: Any, arrays: Any) -> Any:
    """The second of SCAFFOLD's two vectors alone: nothing of the first may stay in the mean."""
    first, second = arrays
    return fields, {first: arrays[first], second: np.full_like(arrays[second], np.inf)}


BAD = {
    "nan": (nan, "not finite"),
    "infinite": (infinite, "not finite"),
    "its second vector infinite": (second_infinite, "not finite"),
    "a wrong shape": (lambda w, a: (w, {name: array[:-1] for name, array in a.items()}), "must be"),
    "two dimensions": (lambda w, a: (w, {name: array[None] for name, array in a.items()}), "must be"),
    "a wrong dtype": (lambda w, a: (w, {name: array.astype(np.float64) for name, array in a.items()}), "must be"),
    "no array": (lambda w, a: (w, dict.fromkeys(a, "junk")), "must be"),
    "a wrong round": (lambda w, a: (w | {"round": w["round"] - 1}, a), "answers round"),
    "another run": (lambda w, a: (w | {"run": "ab" * 16}, a), "answers round"),
    "no steps": (lambda w, a: (w | {"steps": 0}, a), "local steps"),
    "an array for a round": (lambda w, a: (w | {"round": np.zeros(3)}, a), "answers round"),
    "an array for steps": (lambda w, a: (w | {"steps": np.zeros(3)}, a), "cannot be read"),
    "a lie about its steps": (lambda w, a: (w | {"steps": 10**9}, a), "but its data require"),
    "a huge loss": (lambda w, a: (w | {"loss": 1.7e308}, a), "loss"),
    "no loss": (lambda w, a: (w | {"loss": float("nan")}, a), "loss"),
    "nothing in it": (lambda w, a: ({}, {}), "answers round None"),
    "a field too many": (lambda w, a: (w, a | {"more": np.zeros(3, np.float32)}), "must be"),
    "more fields": (lambda w, a: (w | {"junk": "x" * 10**6}, a), "unknown keys"),
    "junk": (lambda w, a: (w, {"junk": np.zeros(10**6, np.uint8)}), "must be"),
    "an error": (lambda w, a: ({"refused": "I have a headache"}, {}), "headache"),
    "silence": (lambda w, a: None, "did not answer in time"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_counts_as_none_and_a_line_names_the_site(kind: str, tmp_path: Path) -> None:
    bad, reason = BAD[kind]
    chosen = make_experiment("scaffold", rounds=2, federation={"drop_after": 9})
    folder, lines = write_kits(chosen, tmp_path), list[str]()
    without = InProcessChannel(folder, make_federated(chosen), lambda site, w, a: None if site == "b" else (w, a))
    spoiled = InProcessChannel(folder, make_federated(chosen), lambda site, w, a: bad(w, a) if site == "b" else (w, a))
    expected = parameters(run_all(without, chosen, name="without"))
    run = run_all(spoiled, chosen, lines)
    assert parameters(run) == expected
    assert [line for line in lines if line.startswith("round 1: b ") and reason in line]
    assert [line["missed"] for line in metrics(run)] == [["b"], ["b"]]
    assert [line["clients"] for line in metrics(run)] == [[0, 2], [0, 2]]


def test_a_norm_above_the_bound_does_not_count(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=1, federation={"norm_bound": 1e-6})
    lines: list[str] = []
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen, lines)
    assert metrics(run)[0]["cohort"] == 0
    assert sum("above federation.norm_bound = 1e-06" in line for line in lines) == 3


def test_a_round_without_a_quorum_changes_nothing(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=3, federation={"quorum": 0.9})
    lines: list[str] = []
    silent = InProcessChannel(
        write_kits(chosen, tmp_path),
        make_federated(chosen),
        lambda site, w, a: None if (site, w["round"]) == ("b", 1) else (w, a),
    )
    run = run_all(silent, chosen, lines)
    assert [line["cohort"] for line in metrics(run)] == [3, 0, 3]
    assert metrics(run)[1]["update_norm"] == 0
    assert any("round 1 changes nothing: 2 of 3 sites answered, 3 needed" in line for line in lines)


def test_too_many_rounds_without_a_quorum_stop_the_run(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=9, federation={"give_up_after": 2, "drop_after": 99})
    folder = write_kits(chosen, tmp_path)
    with pytest.raises(Stopped, match="2 rounds in a row"):
        run_all(
            InProcessChannel(folder, make_federated(chosen), lambda site, w, a: None if w["round"] > 2 else (w, a)),
            chosen,
        )
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert [line["cohort"] for line in metrics(run)] == [3, 3, 3, 0, 3, 3, 3, 3, 3]


def test_a_site_that_misses_rounds_is_left_out_and_asked_again_later(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=8, federation={"drop_after": 2, "retry_after": 3})
    lines: list[str] = []
    channel = InProcessChannel(
        write_kits(chosen, tmp_path),
        make_federated(chosen),
        lambda site, w, a: None if site == "b" and w["round"] < 4 else (w, a),
    )
    run = run_all(channel, chosen, lines)
    assert [line["asked"] for line in metrics(run)] == [3, 3, 2, 2, 2, 3, 3, 3]
    assert any("b missed 2 rounds in a row and is asked again in round 5" in line for line in lines)
    assert "b is back" in lines


def test_a_site_that_is_not_connected_is_not_waited_for_and_may_come_later(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=4, federation={"drop_after": 9})
    channel, lines = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), list[str]()
    channel.absent = {"c"}
    request = RunRequest(tmp_path / "server", "r", "lead@example.org", resume=False)
    rounds = run_federation(request, make_federated(chosen), channel, lines.append, lambda: False, lambda: None)
    assert next(rounds)["missed"] == ["c"]
    channel.absent = set()
    assert [line["missed"] for line in rounds] == [[], [], []]
    assert ("describe", ["c"]) in channel.asked
    assert any(line.startswith("c is missing at the start") for line in lines)


def test_a_run_needs_the_quorum_to_begin_and_gives_the_reasons(tmp_path: Path) -> None:
    chosen = make_experiment()
    folder = write_kits(chosen, tmp_path)
    for site in ("a", "b"):
        (folder / site / "site.toml").write_text(
            f'[data]\nsource = "../dealt/{site}.npz"\n[limits]\nexperiments = ["x"]\n'
        )
    with pytest.raises(
        UserError, match=r"1 described their data \(.*a: it reports: this site allows the experiments x"
    ):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert not (folder / "server" / "runs" / "r").exists()


def test_a_run_is_not_started_twice(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=1)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    with pytest.raises(UserError, match="exists already"):
        run_all(channel, chosen)


def test_rounded_links_halve_the_recorded_bytes(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2, federation={"downlink": "bfloat16", "momentum": "float16", "uplink": "bfloat16"})
    plain = make_experiment(rounds=2)
    folder = write_kits(chosen, tmp_path)
    rounded = metrics(run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="rounded"))
    whole = metrics(run_all(InProcessChannel(folder, make_federated(plain)), plain, name="whole"))
    for key in ("bytes_down", "bytes_up"):
        assert [2 * line[key] for line in rounded] == [line[key] for line in whole]
    assert rounded[1]["update_norm"] == pytest.approx(whole[1]["update_norm"], rel=0.05)
    assert rounded[1]["update_norm"] != whole[1]["update_norm"]


def test_only_the_owner_resumes_a_run(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    had: list[str] = []
    stranger = RunRequest(tmp_path / "server", "r", "somebody@example.org", resume=True)
    with pytest.raises(UserError, match=r"only lead@example\.org, who began the run"):
        next(run_federation(stranger, make_federated(chosen), channel, print, lambda: False, lambda: had.append("it")))
    assert not had, "a job must not publish another admin's run"


@pytest.mark.parametrize(
    "change",
    [
        {"client": {"epochs": 1, "batch_size": 50, "lr": 0.9}},
        {"federation": {"uplink": "float16"}},
        {"participation": {"kind": "fixed", "clients": 2}},
        {"seed": 6},
    ],
    ids=["rate", "link", "cohort", "seed"],
)
def test_a_resume_with_another_experiment_raises(change: dict[str, Any], tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    with pytest.raises(UserError, match="only be resumed with the experiment and the sites that it began with"):
        run_all(channel, make_experiment(rounds=2, **change), resume=True)
    run = run_all(channel, make_experiment(rounds=2, federation={"deadline": 5, "quorum": 0.1}), resume=True)
    assert len(metrics(run)) == 2, "how long to wait for whom may change"


def test_a_resume_with_other_sites_raises(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=2)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    fewer = make_federated(chosen)
    fewer = fewer.model_copy(update={"federation": fewer.federation.model_copy(update={"sites": ["a", "b"]})})
    request = RunRequest(tmp_path / "server", "r", "lead@example.org", resume=True)
    with pytest.raises(UserError, match="the sites that it began with"):
        next(run_federation(request, fewer, channel, print, lambda: False, lambda: None))


def test_a_round_waits_for_the_quorum(tmp_path: Path) -> None:
    """Two of three go away after the first round and come back: the second round waits for them."""
    chosen = make_experiment(rounds=3, federation={"quorum": 0.9, "deadline": 60})
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    request = RunRequest(tmp_path / "server", "r", "lead@example.org", resume=False)
    rounds = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
    next(rounds)
    channel.absent = {"a", "b"}
    threading.Timer(1.0, channel.absent.clear).start()
    assert [line["cohort"] for line in rounds] == [3, 3]


def test_a_stop_works_between_rounds_and_while_waiting_for_sites(tmp_path: Path) -> None:
    chosen, stop = make_experiment(rounds=3, federation={"deadline": 600}), threading.Event()
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    request = RunRequest(tmp_path / "server", "r", "lead@example.org", resume=False)
    rounds = run_federation(request, make_federated(chosen), channel, print, stop.is_set, lambda: None)
    next(rounds)
    channel.absent = {"a", "b", "c"}
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Stopped, match="an admin stopped it"):
        next(rounds)
    channel.absent = set()
    assert len(metrics(run_all(channel, chosen, resume=True))) == 3


def test_the_wait_for_a_site_that_missed_before_is_shorter(tmp_path: Path) -> None:
    """Once it is left out because it was silent, the metrics list it as lost, so that a new job may include it."""
    chosen = make_experiment(rounds=4, federation={"drop_after": 2, "retry_after": 5, "wait": 600})
    waits: list[float] = []

    class Waiting(InProcessChannel):
        def ask(self, task: Any, fields: Any, arrays: Any, sites: Any, deadline: Any) -> Any:
            yield from super().ask(task, fields, arrays, sites, deadline)
            if task == "train":
                waits.append(deadline.remaining)

    channel = Waiting(
        write_kits(chosen, tmp_path), make_federated(chosen), lambda site, w, a: None if site == "b" else (w, a)
    )
    run = run_all(channel, chosen)
    assert waits[0] > 500, "a site that never missed gets all of federation.wait"
    assert waits[1] <= 5, "one that missed gets as long again as the others took"
    assert [line.get("lost") for line in metrics(run)] == [None, ["b"], ["b"], ["b"]]


def test_slow_descriptions_get_the_whole_deadline_if_the_quorum_needs_them(tmp_path: Path) -> None:
    """After a resume every site restarts its training process; federation.wait is only for the other sites."""
    chosen = make_experiment(rounds=3, federation={"wait": 1, "quorum": 0.6, "deadline": 77})
    folder = write_kits(chosen, tmp_path)
    waits: list[float] = []

    class Slow(InProcessChannel):
        def ask(self, task: Any, fields: Any, arrays: Any, sites: Any, deadline: Any) -> Any:
            if task == "describe":
                waits.append(deadline.remaining)
            yield from super().ask(task, fields, arrays, sites, deadline)

    rounds = run_federation(
        RunRequest(folder / "server", "r", "lead@example.org", resume=False),
        *(make_federated(chosen), InProcessChannel(folder, make_federated(chosen)), print, lambda: False, lambda: None),
    )
    next(rounds)
    rounds.close()
    run = run_all(Slow(folder, make_federated(chosen)), chosen, resume=True)
    assert waits[0] > 70
    assert [line["cohort"] for line in metrics(run)] == [3, 3, 3]


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_is_closed_if_a_line_cannot_be_logged(resume: bool, tmp_path: Path) -> None:
    chosen = make_experiment()
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    request = RunRequest(tmp_path / "server", "r", "lead@example.org", resume)
    if resume:
        rounds = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
        next(rounds)
        rounds.close()

    def fail(line: str) -> None:
        if line.startswith("run r "):
            raise RuntimeError("the log is gone")

    with pytest.raises(RuntimeError, match="the log is gone") as caught:
        next(run_federation(request, make_federated(chosen), channel, fail, lambda: False, lambda: None))
    assert caught.tb is not None  # as long as the error is handled, its frames hold the session
    assert not RunFolder(request.path).is_locked()
