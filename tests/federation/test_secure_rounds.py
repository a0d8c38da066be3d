"""Whole runs with secure aggregation and sites in this process: the plain run's bits, and what the server sees."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from secure_parties import write_identity
from sites_here import SITES, InProcessChannel, Spoil, make_experiment, make_federated, write_kits
from test_secure_protocol import compute_chi_square
from test_server import metrics, parameters, run_all, simulate

from fedcm.config.sections import Experiment
from fedcm.errors import Stopped, UserError
from fedcm.federation.frames import Arrays
from fedcm.federation.site.trainer import SiteTrainer

Answer = tuple[Mapping[str, Any], Arrays]
STEPS = ("advertise", "share", "mask", "confirm", "unmask")
STEP_KEYS = {"advert": "advertise", "shares": "share", "signature": "confirm", "revealed": "unmask"}


def secure(algorithm: str = "fedcm", rounds: int = 3, federation: dict[str, Any] | None = None, **tables: Any) -> Any:
    more = {"secure_aggregation": True} | (federation or {})
    return make_experiment(algorithm, rounds, federation=more, **tables)


def make_open(chosen: Experiment) -> Experiment:
    """Return the same experiment without secure aggregation."""
    changes = {"secure_aggregation": False, "threshold": None}
    return chosen.model_copy(update={"federation": chosen.federation.model_copy(update=changes)})


def write_all_kits(chosen: Experiment, folder: Path) -> Path:
    write_kits(chosen, folder)
    for site in SITES:
        write_identity(folder / site, site)
    return folder


def name_step(fields: Mapping[str, Any], arrays: Arrays) -> str:
    """Return the step that an answer belongs to."""
    if "masked" in arrays:
        return "mask"
    return next((step for key, step in STEP_KEYS.items() if key in fields), "train")


def losing(site: str, at: str, round: int = 1) -> Callable[[str, dict[str, Any], Arrays], Answer | None]:
    """A channel's `spoil` by which a site answers nothing in one round from a step on."""
    order = ("train", *STEPS)

    def spoil(name: str, fields: dict[str, Any], arrays: Arrays) -> Answer | None:
        late = order.index(name_step(fields, arrays)) >= order.index(at)
        return None if (name == site and fields.get("round") == round and late) else (fields, arrays)

    return spoil


@pytest.mark.parametrize("algorithm", ["fedcm", "fedavg", "scaffold", "fedexp"])
def test_a_secure_run_ends_with_the_bits_of_the_plain_run_and_the_simulation(algorithm: str, tmp_path: Path) -> None:
    chosen = secure(algorithm)
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    plain = run_all(InProcessChannel(folder, make_federated(make_open(chosen))), make_open(chosen), name="plain")
    assert parameters(run) == parameters(plain) == simulate(make_open(chosen), tmp_path)
    for ours, theirs in zip(metrics(run), metrics(plain), strict=True):
        assert {key: ours[key] for key in ("clients", "missed", "steps")} == {
            key: theirs[key] for key in ("clients", "missed", "steps")
        }
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-6)
        assert ours["bytes_up"] > 2 * theirs["bytes_up"]  # 8 bytes for each entry, and the keys
        assert ours["bytes_down"] > theirs["bytes_down"]


@pytest.mark.parametrize(
    "tables",
    [
        {
            "server": {"weights": "examples"},
            "split": {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6},
        },
        {
            "server": {"weights": "examples"},
            "split": {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6},
            "federation": {"max_examples": 400},
        },
        {
            "server": {"weights": "examples"},
            "split": {"kind": "dirichlet-by-label", "clients": 3, "concentration": 0.6},
            "data": {"validation": 0.2},
        },
        {"engine": {"precision": "float64", "stack": 1, "layout": "channels_last", "compile": "off"}},
        {"client": {"steps": {"kind": "uniform", "low": 1, "high": 5}, "batch_size": 50, "lr": 0.1}},
    ],
    ids=["weights", "bounded-weights", "weights-and-validation", "float64", "unequal-steps"],
)
def test_weights_precision_and_unequal_work_keep_the_bits(tables: dict[str, Any], tmp_path: Path) -> None:
    chosen = secure("fedavg", rounds=2, **tables)
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert parameters(run) == run_plain(folder, chosen)


class GrowingChannel(InProcessChannel):
    """A channel to three sites; b describes nine tenths of its examples at first, and all of them later."""

    descriptions = 0

    def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Any:
        answer = super()._answer(task, fields, arrays, site)
        if task == "describe" and site == "b" and answer is not None:
            self.descriptions += 1
            if self.descriptions == 1:
                return {**answer[0], "examples": answer[0]["examples"] * 9 // 10}, answer[1]
        return answer


@pytest.mark.parametrize(("data", "numbers"), [({}, (479, 431)), ({"validation": 0.2}, (307, 276))], ids=str)
def test_a_site_with_more_examples_than_at_first_does_not_count(
    data: dict[str, float], numbers: tuple[int, int], tmp_path: Path
) -> None:
    """Its masked report would have a larger weight than the server divides by."""
    tables = {"client": {"steps": 3, "batch_size": 20, "lr": 0.1}, "data": data}
    chosen = secure("fedavg", server={"weights": "examples"}, federation={"threshold": 2}, **tables)
    folder, lines = write_all_kits(chosen, tmp_path), list[str]()
    run = run_all(GrowingChannel(folder, make_federated(chosen)), chosen, lines)
    assert [line["missed"] for line in metrics(run)] == [["b"]] * 3
    now, first = numbers
    reason = f"b does not count: it has {now} training examples now and had {first} at first"
    assert any(reason in line for line in lines)
    spoil: Spoil = lambda site, fields, arrays: None if site == "b" else (fields, arrays)  # noqa: E731
    assert parameters(run) == run_plain(folder, chosen, spoil)


def run_plain(folder: Path, chosen: Experiment, spoil: Spoil | None = None) -> str:
    """Run an experiment without secure aggregation and return the checksum of its parameters."""
    plain = make_open(chosen)
    return parameters(run_all(InProcessChannel(folder, make_federated(plain), spoil), plain, name="plain"))


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
@pytest.mark.parametrize("at", ["train", "advertise", "share", "mask"])
def test_a_site_lost_before_its_masked_report_gives_the_plain_round_over_the_others(
    algorithm: str, at: str, tmp_path: Path
) -> None:
    chosen = secure(algorithm, federation={"threshold": 2})
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen), losing("b", at)), chosen)
    plain = run_all(
        InProcessChannel(folder, make_federated(make_open(chosen)), losing("b", "train")),
        make_open(chosen),
        name="plain",
    )
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert parameters(run) == parameters(plain)


@pytest.mark.parametrize("at", ["confirm", "unmask"])
def test_a_site_lost_after_its_masked_report_counts(at: str, tmp_path: Path) -> None:
    chosen = secure("scaffold", federation={"threshold": 2})
    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), losing("b", at)), chosen)
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2]] * 3
    assert parameters(run) == simulate(make_open(chosen), tmp_path)


@pytest.mark.parametrize("at", ["train", *STEPS])
def test_a_round_with_fewer_sites_than_the_threshold_changes_nothing(at: str, tmp_path: Path) -> None:
    """By default three sites have the threshold 3."""
    chosen, lines = secure(rounds=2), list[str]()
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen), losing("b", at)), chosen, lines)
    once = secure(rounds=1)
    before = run_all(InProcessChannel(folder, make_federated(once)), once, name="before")
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2], []]
    assert parameters(run) == parameters(before)
    assert [line for line in lines if line.startswith("round 1 changes nothing")]
    assert metrics(run)[1]["missed"] == ["b"] or at in ("unmask", "confirm")


class Recorder(InProcessChannel):
    """Keeps everything that the server receives, and what the sites would have sent without masks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received: list[tuple[str, Mapping[str, Any], Arrays]] = []
        self.secrets: list[np.ndarray] = []

    def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Answer | None:
        if task == "secure" and fields["step"] == "mask":
            rounds = self.sites[site].secure
            assert rounds._trained is not None
            self.secrets.append(rounds._encode(rounds._trained))
            self.secrets += [field.numpy().copy() for field in rounds._trained.report]
        answer = super()._answer(task, fields, arrays, site)
        if answer is not None:
            self.received.append((site, *answer))
        return answer


def count_pieces(channel: Recorder, written: bytes = b"") -> int:
    """Return how many pieces of the reports are in what the server received or wrote; a piece has four numbers."""
    sent = b"".join(array.tobytes() for _, _, arrays in channel.received for array in arrays.values())
    texts, found = json.dumps([fields for _, fields, _ in channel.received]), 0
    for secret in channel.secrets:
        for start in range(0, len(secret) - 4, 4):
            piece = secret[start : start + 4]
            if np.count_nonzero(piece) == 4:
                data = piece.tobytes()
                found += data in sent or data in written or data.hex() in texts
    return found


def test_the_server_sees_no_report_and_writes_none(tmp_path: Path) -> None:
    """Everything that the server receives, and every file that it writes, is searched for parts of the reports."""
    chosen = secure("scaffold", rounds=2)
    channel = Recorder(write_all_kits(chosen, tmp_path), make_federated(chosen))
    before = {path for path in (tmp_path / "server").rglob("*") if path.is_file()}
    run_all(channel, chosen)
    assert len(channel.secrets) == 2 * 3 * 3  # per round and site: the integers, and two vectors
    files = [path for path in (tmp_path / "server").rglob("*") if path.is_file() and path not in before]
    written = b"".join(path.read_bytes() for path in files)
    assert len(files) > 5
    assert count_pieces(channel, written) == 0
    assert {key for _, fields, _ in channel.received for key in fields} <= {
        *("run", "round", "steps", "examples", "seconds", "advert", "shares", "signature", "revealed"),
        *("shape", "kind", "classes", "sums", "versions", "weights"),  # of the description before the first round
    }
    masked = [arrays["masked"] for _, _, arrays in channel.received if arrays]
    assert len(masked) == 6
    for vector in masked:
        assert compute_chi_square(vector.tobytes()) < 400  # 255 degrees of freedom
    integers = [secret for secret in channel.secrets if secret.dtype == np.uint64]
    assert min(compute_chi_square(vector.tobytes()) for vector in integers) > 1000  # not so without masks


def test_the_recorder_finds_reports_that_are_not_masked(tmp_path: Path) -> None:
    """The statistic of the test above tells the reports of a plain run from masked ones."""
    chosen = make_experiment(rounds=1)
    channel = Recorder(write_all_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    arrays = [array for _, _, arrays in channel.received for array in arrays.values()]
    assert len(arrays) == 3
    assert all(compute_chi_square(array.tobytes()) > 1000 for array in arrays)


@pytest.mark.parametrize("place", ["arrays", "texts", "files"])
@pytest.mark.parametrize("kind", ["integers", "vector"])
def test_the_search_finds_a_report_that_is_planted(kind: str, place: str, tmp_path: Path) -> None:
    """The search for pieces of reports finds one that is put among what the server receives or writes."""
    chosen, written = secure("fedavg", rounds=1), b""
    channel = Recorder(write_all_kits(chosen, tmp_path), make_federated(chosen))
    run_all(channel, chosen)
    assert count_pieces(channel) == 0
    report = next(secret for secret in channel.secrets if (secret.dtype == np.uint64) == (kind == "integers"))
    if place == "arrays":
        channel.received.append(("b", {}, {"masked": report}))
    elif place == "texts":
        channel.received.append(("b", {"shares": {"a": report.tobytes().hex()}}, {}))
    else:
        written = b"before" + report.tobytes() + b"after"
    assert count_pieces(channel, written) > 50


def test_a_restarted_site_is_lost_for_the_round_and_back_in_the_next(tmp_path: Path) -> None:
    chosen, lines = secure(federation={"threshold": 2}), list[str]()
    channel = InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen))

    def restart(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if site == "b" and fields["round"] == 1 and name_step(fields, arrays) == "advertise":
            del channel.sites["b"]  # the next request gets a new process
        return fields, arrays

    channel.spoil = restart
    run = run_all(channel, chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert [line for line in lines if "b does not count" in line and "may have been restarted" in line]


@pytest.mark.parametrize("at", ["mask", "confirm", "unmask"])
def test_a_server_that_dies_in_a_round_repeats_it_to_the_same_bits(at: str, tmp_path: Path) -> None:
    chosen = secure("scaffold", rounds=3)
    folder = write_all_kits(chosen, tmp_path)

    def die(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if fields["round"] == 1 and site == "a" and name_step(fields, arrays) == at:  # the last to answer
            raise Stopped
        return fields, arrays

    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), die), chosen)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(run) == simulate(make_open(chosen), tmp_path)


def test_a_round_is_never_summed_over_two_sets_of_sites(tmp_path: Path) -> None:
    """The server gets the sum of round 1, claims that it was lost, and repeats the round without one site."""
    chosen, lines = secure(rounds=2, federation={"threshold": 2}), list[str]()
    folder = write_all_kits(chosen, tmp_path)

    def die(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if fields["round"] == 1 and site == "a" and name_step(fields, arrays) == "unmask":
            raise Stopped
        return fields, arrays

    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), die), chosen)
    again = InProcessChannel(folder, make_federated(chosen), losing("b", "mask"))
    run = run_all(again, chosen, lines, resume=True)
    assert [line["clients"] for line in metrics(run)] == [[0, 1, 2], []]
    assert [line for line in lines if "round 1 has no sum" in line]


def test_a_broadcast_that_differs_between_sites_gives_no_sum(tmp_path: Path) -> None:
    """A server that sends one site a model of its own, to recognise its report in the sum."""
    chosen, lines = secure(rounds=1, federation={"give_up_after": 9}), list[str]()

    class Unequal(InProcessChannel):
        def _answer(self, task: str, fields: dict[str, Any], arrays: Arrays, site: str) -> Answer | None:
            if task == "train" and site == "b":
                arrays = {name: array + 1e-3 for name, array in arrays.items()}
                arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
            return super()._answer(task, fields, arrays, site)

    run = run_all(Unequal(write_all_kits(chosen, tmp_path), make_federated(chosen)), chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[]]
    assert [line for line in lines if "another model than most sites" in line]


def test_a_site_checks_its_report_itself(tmp_path: Path) -> None:
    chosen, lines = secure(rounds=1, federation={"norm_bound": 1e-6, "give_up_after": 9}), list[str]()
    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen)), chosen, lines)
    assert sum("above federation.norm_bound = 1e-06" in line for line in lines) == 3
    assert [line["clients"] for line in metrics(run)] == [[]]


def test_wrong_masked_reports_change_nothing(tmp_path: Path) -> None:
    chosen, lines = secure(rounds=1, federation={"give_up_after": 9}), list[str]()

    def spoil(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        return fields, {name: array[::-1].copy() for name, array in arrays.items()} if site == "b" else arrays

    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), spoil), chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[]]
    assert [line for line in lines if "the sum of the reports is out of range" in line]


@pytest.mark.parametrize(
    ("federation", "limit", "accepted"),
    [
        ({}, 2, False),
        ({"secure_aggregation": True}, 3, True),
        ({"secure_aggregation": True}, 4, False),
        ({"secure_aggregation": True, "threshold": 2}, 3, False),
        ({"secure_aggregation": True, "threshold": 2}, 2, True),
    ],
)
def test_a_site_can_insist_on_secure_aggregation(
    federation: dict[str, Any], limit: int, accepted: bool, tmp_path: Path
) -> None:
    chosen = make_experiment(federation=federation)
    folder = write_all_kits(chosen, tmp_path)
    with (folder / "a" / "site.toml").open("a") as file:
        file.write(f"[limits]\nsecure_sites = {limit}\n")
    text = InProcessChannel(folder, make_federated(chosen)).text
    if accepted:
        SiteTrainer(folder / "a", text, 0, 3)
    else:
        with pytest.raises(UserError, match=r"only with secure aggregation over at least \d sites"):
            SiteTrainer(folder / "a", text, 0, 3)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"federation": {"secure_aggregation": True, "uplink": "float16"}}, 'uplink must be "exact"'),
        ({"federation": {"threshold": 2}}, "set secure_aggregation = true as well"),
        ({"federation": {"secure_aggregation": True, "threshold": 1}}, "threshold"),
        ({"federation": {"secure_aggregation": True, "threshold": 4}}, "at least 4 sites in every sum"),
        (
            {"federation": {"secure_aggregation": True}, "participation": {"kind": "fixed", "clients": 2}},
            "but a round has 2",
        ),
    ],
)
def test_what_secure_aggregation_excludes_is_rejected(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_federated(make_experiment(**tables))


def run_under_two_ids(chosen: Experiment, folder: Path, spoil: Spoil | None, lines: list[str]) -> tuple[Path, Path]:
    """Run the same experiment twice with the same kits; the second run has another id."""
    first = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="x")
    return first, run_all(InProcessChannel(folder, make_federated(chosen), spoil), chosen, lines, name="y")


def test_a_training_is_never_summed_over_two_sets_of_sites_under_two_run_ids(tmp_path: Path) -> None:
    """The server gets the sum of round 0 over all sites, and asks for it again in a new run without one of them."""
    chosen, lines = secure(rounds=2, federation={"threshold": 2}), list[str]()
    folder = write_all_kits(chosen, tmp_path)
    first, second = run_under_two_ids(chosen, folder, losing("b", "mask", round=0), lines)
    assert [line["clients"] for line in metrics(first)] == [[0, 1, 2]] * 2
    assert [line["clients"] for line in metrics(second)] == [[], [0, 1, 2]]  # only round 0 is lost
    assert [line for line in lines if "round 0 has no sum" in line]
    for site in SITES:
        file = folder / site / "state" / "sums.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert len(json.loads(file.read_text())) == 3


def test_a_renamed_experiment_with_another_deadline_is_the_same_training(tmp_path: Path) -> None:
    chosen = secure("fedavg", rounds=1, federation={"threshold": 2})
    folder = write_all_kits(chosen, tmp_path)
    run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="x")
    settings = chosen.federation.model_copy(update={"deadline": 77})
    renamed = chosen.model_copy(update={"name": "other", "federation": settings})
    again = InProcessChannel(folder, make_federated(renamed), losing("c", "train", round=0))
    assert [line["clients"] for line in metrics(run_all(again, renamed, name="y"))] == [[]]


def test_a_training_is_never_summed_with_two_bounds_on_the_weights(tmp_path: Path) -> None:
    """The reports are the same, so sums with other weights would be further equations for them."""
    chosen = secure("fedavg", rounds=1, server={"weights": "examples"})
    folder = write_all_kits(chosen, tmp_path)
    run_all(InProcessChannel(folder, make_federated(chosen)), chosen, name="x")
    bounded = chosen.model_copy(update={"federation": chosen.federation.model_copy(update={"max_examples": 100})})
    again = InProcessChannel(folder, make_federated(bounded))
    assert [line["clients"] for line in metrics(run_all(again, bounded, name="y"))] == [[]]


def test_a_new_run_over_the_same_sites_gives_the_same_bits(tmp_path: Path) -> None:
    chosen = secure(rounds=2)
    first, second = run_under_two_ids(chosen, write_all_kits(chosen, tmp_path), None, [])
    assert parameters(first) == parameters(second)


@pytest.mark.parametrize("damage", ["junk", "[]", "folder"])
def test_damaged_sums_of_all_runs_are_one_sentence(damage: str, tmp_path: Path) -> None:
    """They are not forgotten: the site reveals nothing more."""
    chosen, lines = secure(rounds=1, federation={"give_up_after": 9}), list[str]()
    folder = write_all_kits(chosen, tmp_path)
    file = folder / "b" / "state" / "sums.json"
    if damage == "folder":
        file.mkdir(parents=True)
    else:
        file.parent.mkdir()
        file.write_text(damage)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[]]
    assert [line for line in lines if "must say what this site revealed in all runs, but is damaged" in line]
