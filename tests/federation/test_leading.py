"""A run over sites, at the server: the simulator's bits, lost sites, bad replies, and going on where it was."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sites_here import SITES, Here, experiment, federated, kits

from fedcm.errors import Stopped, UserError
from fedcm.federation.server.leading import Begun, lead
from fedcm.runs.running import drive
from fedcm.runs.starting import begin


def led(channel: Here, chosen: Any, lines: list[str] | None = None, go_on: bool = False, name: str = "r") -> Path:
    """All rounds; the run's folder."""
    server = channel.folder / "server"
    said = [] if lines is None else lines
    begun = Begun(server, name, "lead@example.org", go_on)
    for _ in lead(begun, federated(chosen), channel, said.append, lambda: False, lambda: None):
        pass
    return server / "runs" / name


def parameters(run: Path) -> str:
    return json.loads((run / "summary.json").read_text())["params_sha256"]


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def simulated(chosen: Any, folder: Path) -> str:
    run = begin(chosen, folder, "simulated")
    for _ in drive(run):
        pass
    return parameters(folder / "simulated")


@pytest.mark.parametrize("algorithm", ["fedcm", "fedavg", "fedadam", "scaffold", "feddyn"])
def test_a_federation_ends_with_the_simulators_bits(algorithm: str, tmp_path: Path) -> None:
    chosen = experiment(algorithm, participation={"kind": "independent", "probability": 0.7})
    run = led(Here(kits(chosen, tmp_path), federated(chosen)), chosen)
    assert parameters(run) == simulated(chosen, tmp_path)


def test_weights_by_examples_are_the_simulators_too(tmp_path: Path) -> None:
    table = {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6}
    chosen = experiment("fedavg", split=table, server={"weights": "examples"})
    run = led(Here(kits(chosen, tmp_path), federated(chosen)), chosen)
    assert parameters(run) == simulated(chosen, tmp_path)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    chosen = experiment("scaffold", rounds=5)
    folder = kits(chosen, tmp_path)
    whole = led(Here(folder, federated(chosen)), chosen, name="whole")
    channel = Here(folder, federated(chosen))
    begun = Begun(folder / "server", "r", "lead@example.org", go_on=False)
    rounds = lead(begun, federated(chosen), channel, print, lambda: False, lambda: None)
    next(rounds)
    next(rounds)
    rounds.close()  # the server dies after two rounds
    assert parameters(led(Here(folder, federated(chosen)), chosen, go_on=True)) == parameters(whole)


def test_a_round_that_the_server_lost_leaves_no_trace_at_a_site(tmp_path: Path) -> None:
    """The site has answered and written its new state, and the server dies before the round counts."""
    chosen = experiment("scaffold", rounds=4)
    folder = kits(chosen, tmp_path)
    whole = led(Here(folder, federated(chosen)), chosen, name="whole")

    def dies(site: str, words: dict[str, Any], arrays: Any) -> Any:
        if words["round"] == 2 and site == "a":  # the last to answer
            raise Stopped
        return words, arrays

    with pytest.raises(Stopped):
        led(Here(folder, federated(chosen), dies), chosen)
    assert parameters(led(Here(folder, federated(chosen)), chosen, go_on=True)) == parameters(whole)


@pytest.mark.parametrize("lost", [{"b": {1}}, {"a": {0, 2}, "c": {1}}])
def test_the_servers_control_stays_the_mean_of_the_sites_whatever_is_lost(
    lost: dict[str, set[int]], tmp_path: Path
) -> None:
    """A reply is lost on the way: the site has trained, the server has not counted it."""
    chosen = experiment("scaffold", rounds=4, federation={"quorum": 0.3})

    def swallowed(site: str, words: dict[str, Any], arrays: Any) -> Any:
        return None if words["round"] in lost.get(site, ()) else (words, arrays)

    run = led(Here(kits(chosen, tmp_path), federated(chosen), swallowed), chosen)
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


def nan(words: Any, arrays: Any) -> Any:
    return words, {name: np.full_like(array, np.nan) for name, array in arrays.items()}


def infinite(words: Any, arrays: Any) -> Any:
    arrays = {name: array.copy() for name, array in arrays.items()}
    next(iter(arrays.values()))[0] = np.inf
    return words, arrays


def second_infinite(words: Any, arrays: Any) -> Any:
    """The second of SCAFFOLD's two vectors alone: nothing of the first may stay in the mean."""
    first, second = arrays
    return words, {first: arrays[first], second: np.full_like(arrays[second], np.inf)}


BAD = {
    "nan": (nan, "not finite"),
    "infinite": (infinite, "not finite"),
    "its second vector infinite": (second_infinite, "not finite"),
    "a wrong shape": (lambda w, a: (w, {name: array[:-1] for name, array in a.items()}), "belongs"),
    "two dimensions": (lambda w, a: (w, {name: array[None] for name, array in a.items()}), "belongs"),
    "a wrong dtype": (lambda w, a: (w, {name: array.astype(np.float64) for name, array in a.items()}), "belongs"),
    "no array": (lambda w, a: (w, dict.fromkeys(a, "junk")), "belongs"),
    "a wrong round": (lambda w, a: (w | {"round": w["round"] - 1}, a), "answers round"),
    "another run": (lambda w, a: (w | {"run": "ab" * 16}, a), "answers round"),
    "no steps": (lambda w, a: (w | {"steps": 0}, a), "local steps"),
    "an array for a round": (lambda w, a: (w | {"round": np.zeros(3)}, a), "answers round"),
    "an array for steps": (lambda w, a: (w | {"steps": np.zeros(3)}, a), "cannot be read"),
    "a lie about its steps": (lambda w, a: (w | {"steps": 10**9}, a), "where its data make"),
    "a huge loss": (lambda w, a: (w | {"loss": 1.7e308}, a), "loss"),
    "no loss": (lambda w, a: (w | {"loss": float("nan")}, a), "loss"),
    "nothing in it": (lambda w, a: ({}, {}), "answers round None"),
    "a field too many": (lambda w, a: (w, a | {"more": np.zeros(3, np.float32)}), "belong"),
    "more words": (lambda w, a: (w | {"junk": "x" * 10**6}, a), "says more"),
    "junk": (lambda w, a: (w, {"junk": np.zeros(10**6, np.uint8)}), "belong"),
    "a refusal": (lambda w, a: ({"refused": "I have a headache"}, {}), "headache"),
    "silence": (lambda w, a: None, "did not answer in time"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_as_good_as_none_and_one_line_names_the_site(kind: str, tmp_path: Path) -> None:
    bad, why = BAD[kind]
    chosen = experiment("scaffold", rounds=2, federation={"drop_after": 9})
    folder, lines = kits(chosen, tmp_path), list[str]()
    without = Here(folder, federated(chosen), lambda site, w, a: None if site == "b" else (w, a))
    spoiled = Here(folder, federated(chosen), lambda site, w, a: bad(w, a) if site == "b" else (w, a))
    expected = parameters(led(without, chosen, name="without"))
    run = led(spoiled, chosen, lines)
    assert parameters(run) == expected
    assert [line for line in lines if line.startswith("round 1: b ") and why in line]
    assert [line["missed"] for line in metrics(run)] == [["b"], ["b"]]
    assert [line["clients"] for line in metrics(run)] == [[0, 2], [0, 2]]


def test_a_norm_above_the_bound_does_not_count(tmp_path: Path) -> None:
    chosen = experiment(rounds=1, federation={"norm_bound": 1e-6})
    lines: list[str] = []
    run = led(Here(kits(chosen, tmp_path), federated(chosen)), chosen, lines)
    assert metrics(run)[0]["cohort"] == 0
    assert sum("above federation.norm_bound = 1e-06" in line for line in lines) == 3


def test_a_round_without_a_quorum_changes_nothing_and_says_so(tmp_path: Path) -> None:
    chosen = experiment(rounds=3, federation={"quorum": 0.9})
    lines: list[str] = []
    silent = Here(
        kits(chosen, tmp_path), federated(chosen), lambda site, w, a: None if (site, w["round"]) == ("b", 1) else (w, a)
    )
    run = led(silent, chosen, lines)
    assert [line["cohort"] for line in metrics(run)] == [3, 0, 3]
    assert metrics(run)[1]["update_norm"] == 0
    assert any("round 1 changes nothing: 2 of 3 sites, 3 needed" in line for line in lines)


def test_too_many_rounds_without_a_quorum_stop_the_run_with_all_saved(tmp_path: Path) -> None:
    chosen = experiment(rounds=9, federation={"give_up_after": 2, "drop_after": 99})
    folder = kits(chosen, tmp_path)
    with pytest.raises(Stopped, match="2 rounds in a row"):
        led(Here(folder, federated(chosen), lambda site, w, a: None if w["round"] > 2 else (w, a)), chosen)
    run = led(Here(folder, federated(chosen)), chosen, go_on=True)
    assert [line["cohort"] for line in metrics(run)] == [3, 3, 3, 0, 3, 3, 3, 3, 3]


def test_a_site_that_misses_rounds_is_left_out_and_asked_again_later(tmp_path: Path) -> None:
    chosen = experiment(rounds=8, federation={"drop_after": 2, "retry_after": 3})
    lines: list[str] = []
    channel = Here(
        kits(chosen, tmp_path), federated(chosen), lambda site, w, a: None if site == "b" and w["round"] < 4 else (w, a)
    )
    run = led(channel, chosen, lines)
    assert [line["asked"] for line in metrics(run)] == [3, 3, 2, 2, 2, 3, 3, 3]
    assert any("b missed 2 rounds in a row and is asked again in round 5" in line for line in lines)
    assert "b is back" in lines


def test_a_site_that_is_not_connected_is_not_waited_for_and_may_come_later(tmp_path: Path) -> None:
    chosen = experiment(rounds=4, federation={"drop_after": 9})
    channel, lines = Here(kits(chosen, tmp_path), federated(chosen)), list[str]()
    channel.absent = {"c"}
    begun = Begun(tmp_path / "server", "r", "lead@example.org", go_on=False)
    rounds = lead(begun, federated(chosen), channel, lines.append, lambda: False, lambda: None)
    assert next(rounds)["missed"] == ["c"]
    channel.absent = set()
    assert [line["missed"] for line in rounds] == [[], [], []]
    assert ("describe", ["c"]) in channel.asked
    assert any(line.startswith("c is not there at the start") for line in lines)


def test_a_run_needs_the_quorum_to_begin_and_says_who_refused(tmp_path: Path) -> None:
    chosen = experiment()
    folder = kits(chosen, tmp_path)
    for site in ("a", "b"):
        (folder / site / "site.toml").write_text(
            f'[data]\nsource = "../dealt/{site}.npz"\n[limits]\nexperiments = ["x"]\n'
        )
    with pytest.raises(
        UserError, match=r"1 described their data \(.*a: it refused: this site allows the experiments x"
    ):
        led(Here(folder, federated(chosen)), chosen)
    assert not (folder / "server" / "runs" / "r").exists()


def test_a_run_of_that_name_is_not_begun_twice(tmp_path: Path) -> None:
    chosen = experiment(rounds=1)
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    led(channel, chosen)
    with pytest.raises(UserError, match="is there already"):
        led(channel, chosen)


def test_rounded_links_halve_the_bytes_and_the_record_says_so(tmp_path: Path) -> None:
    chosen = experiment(rounds=2, federation={"downlink": "bfloat16", "momentum": "float16", "uplink": "bfloat16"})
    plain = experiment(rounds=2)
    folder = kits(chosen, tmp_path)
    rounded = metrics(led(Here(folder, federated(chosen)), chosen, name="rounded"))
    whole = metrics(led(Here(folder, federated(plain)), plain, name="whole"))
    for key in ("bytes_down", "bytes_up"):
        assert [2 * line[key] for line in rounded] == [line[key] for line in whole]
    assert rounded[1]["update_norm"] == pytest.approx(whole[1]["update_norm"], rel=0.05)
    assert rounded[1]["update_norm"] != whole[1]["update_norm"]


def test_a_run_goes_on_for_whoever_began_it_alone(tmp_path: Path) -> None:
    chosen = experiment(rounds=2)
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    led(channel, chosen)
    had: list[str] = []
    stranger = Begun(tmp_path / "server", "r", "somebody@example.org", go_on=True)
    with pytest.raises(UserError, match="who alone can go on"):
        next(lead(stranger, federated(chosen), channel, print, lambda: False, lambda: had.append("it")))
    assert not had, "what is not this admin's must not be published by its job"


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
def test_a_run_goes_on_as_it_began_or_not_at_all(change: dict[str, Any], tmp_path: Path) -> None:
    chosen = experiment(rounds=2)
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    led(channel, chosen)
    with pytest.raises(UserError, match="must go on with the experiment and the sites that it began with"):
        led(channel, experiment(rounds=2, **change), go_on=True)
    run = led(channel, experiment(rounds=2, federation={"deadline": 5, "quorum": 0.1}), go_on=True)
    assert len(metrics(run)) == 2, "how long to wait for whom may change"


def test_other_sites_than_it_began_with_are_refused(tmp_path: Path) -> None:
    chosen = experiment(rounds=2)
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    led(channel, chosen)
    fewer = federated(chosen)
    fewer = fewer.model_copy(update={"federation": fewer.federation.model_copy(update={"sites": ["a", "b"]})})
    begun = Begun(tmp_path / "server", "r", "lead@example.org", go_on=True)
    with pytest.raises(UserError, match="the sites that it began with"):
        next(lead(begun, fewer, channel, print, lambda: False, lambda: None))


def test_rounds_are_not_spent_while_too_few_sites_are_there(tmp_path: Path) -> None:
    """Two of three go away after the first round and come back: the second round waits for them."""
    chosen = experiment(rounds=3, federation={"quorum": 0.9, "deadline": 60})
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    begun = Begun(tmp_path / "server", "r", "lead@example.org", go_on=False)
    rounds = lead(begun, federated(chosen), channel, print, lambda: False, lambda: None)
    next(rounds)
    channel.absent = {"a", "b"}
    threading.Timer(1.0, channel.absent.clear).start()
    assert [line["cohort"] for line in rounds] == [3, 3]


def test_a_stop_is_heard_between_rounds_and_while_sites_are_awaited(tmp_path: Path) -> None:
    chosen, stop = experiment(rounds=3, federation={"deadline": 600}), threading.Event()
    channel = Here(kits(chosen, tmp_path), federated(chosen))
    begun = Begun(tmp_path / "server", "r", "lead@example.org", go_on=False)
    rounds = lead(begun, federated(chosen), channel, print, stop.is_set, lambda: None)
    next(rounds)
    channel.absent = {"a", "b", "c"}
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Stopped, match="an admin asked"):
        next(rounds)
    channel.absent = set()
    assert len(metrics(led(channel, chosen, go_on=True))) == 3


def test_a_site_that_missed_before_is_not_waited_for_as_long(tmp_path: Path) -> None:
    """And once it is left out for its silence, the record says that it is lost, so that another job may take it in."""
    chosen = experiment(rounds=4, federation={"drop_after": 2, "retry_after": 5, "wait": 600})
    waits: list[float] = []

    class Waiting(Here):
        def ask(self, task: Any, words: Any, arrays: Any, sites: Any, deadline: Any) -> Any:
            yield from super().ask(task, words, arrays, sites, deadline)
            if task == "train":
                waits.append(deadline.left)

    channel = Waiting(kits(chosen, tmp_path), federated(chosen), lambda site, w, a: None if site == "b" else (w, a))
    run = led(channel, chosen)
    assert waits[0] > 500, "one that never missed has all of federation.wait"
    assert waits[1] <= 5, "one that did has as long again as the others took"
    assert [line.get("lost") for line in metrics(run)] == [None, ["b"], ["b"], ["b"]]


def test_sites_that_are_slow_to_describe_their_data_are_waited_for_where_the_quorum_needs_them(tmp_path: Path) -> None:
    """As after a resume, when every site starts its training process again: federation.wait is for the others."""
    chosen = experiment(rounds=3, federation={"wait": 1, "quorum": 0.6, "deadline": 77})
    folder = kits(chosen, tmp_path)
    waits: list[float] = []

    class Slow(Here):
        def ask(self, task: Any, words: Any, arrays: Any, sites: Any, deadline: Any) -> Any:
            if task == "describe":
                waits.append(deadline.left)
            yield from super().ask(task, words, arrays, sites, deadline)

    rounds = lead(
        Begun(folder / "server", "r", "lead@example.org", go_on=False),
        *(federated(chosen), Here(folder, federated(chosen)), print, lambda: False, lambda: None),
    )
    next(rounds)
    rounds.close()
    run = led(Slow(folder, federated(chosen)), chosen, go_on=True)
    assert waits[0] > 70
    assert [line["cohort"] for line in metrics(run)] == [3, 3, 3]
