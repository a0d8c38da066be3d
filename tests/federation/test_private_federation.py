"""Central privacy in a federation: the server clips, adds noise and releases one mean per round."""

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import finish_session
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, parameters, run_all

from fedcm.config.sections import Experiment
from fedcm.core.participation import Everyone
from fedcm.core.privacy.keystream import derive_key
from fedcm.errors import Stopped, UserError
from fedcm.federation.frames import Arrays
from fedcm.federation.site.trainer import SiteTrainer
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.privacy.key_file import FILE
from fedcm.runs import session
from fedcm.runs.session import Session

Answer = tuple[Mapping[str, Any], Arrays]
STEPS: dict[str, Any] = {"steps": 2, "batch_size": 20, "lr": 0.1}
NOISY: dict[str, Any] = {"noise_multiplier": 1.0, "clip": 0.3, "delta": 1e-3}


def private(algorithm: str = "fedcm", rounds: int = 3, privacy: dict[str, Any] | None = None, **tables: Any) -> Any:
    given: dict[str, Any] = {"client": STEPS, "participation": {"kind": "everyone"}}
    return make_experiment(algorithm, rounds, **given | {"privacy": NOISY | (privacy or {})} | tables)


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Every run gets this key in place of a random one."""

    def create(folder: Path) -> None:
        (folder / FILE).write_bytes(derive_key(3))
        (folder / FILE).chmod(0o600)

    monkeypatch.setattr(session, "create_noise_key", create)
    return derive_key(3)


def simulate_with_secret(chosen: Experiment, folder: Path) -> Path:
    privacy = chosen.privacy.model_copy(update={"secret": True})
    finish_session(Session.start(chosen.model_copy(update={"privacy": privacy}), folder, "simulated"))
    return folder / "simulated"


@pytest.mark.parametrize("algorithm", ["fedcm", "fedavg", "scaffold"])
def test_a_private_federation_has_the_bits_of_the_private_simulation_with_the_same_key(
    algorithm: str, known_key: bytes, tmp_path: Path
) -> None:
    chosen = private(algorithm)
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    simulated = simulate_with_secret(chosen, tmp_path)
    assert (run / FILE).read_bytes() == known_key
    assert parameters(run) == parameters(simulated)
    for ours, theirs in zip(metrics(run), metrics(simulated), strict=True):
        assert (ours["epsilon"], ours["update_norm"]) == (theirs["epsilon"], theirs["update_norm"])


def test_the_key_of_a_federation_is_secret_and_fresh(tmp_path: Path) -> None:
    chosen = private(rounds=1)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    runs = [run_all(channel, chosen, name=name) for name in ("one", "other")]
    keys = [(run / FILE).read_bytes() for run in runs]
    assert keys[0] != keys[1]
    assert {stat.S_IMODE((run / FILE).stat().st_mode) for run in runs} == {0o600}
    assert parameters(runs[0]) != parameters(runs[1])


def test_epsilon_is_that_of_everyone_in_every_round_and_in_the_summary(tmp_path: Path) -> None:
    """A draw of the sites amplifies nothing, because every site has the seed."""
    for name, kind in (("all", {"kind": "everyone"}), ("drawn", {"kind": "independent", "probability": 0.9})):
        chosen = private(participation=kind)
        (tmp_path / name).mkdir()
        run = run_all(InProcessChannel(write_kits(chosen, tmp_path / name), make_federated(chosen)), chosen)
        accountant = Accountant(Sampling.of(Everyone()), 1.0, 1e-3)
        expected = [accountant.compute_epsilon(count) for count in (1, 2, 3)]
        assert [line["epsilon"] for line in metrics(run)] == expected
        assert json.loads((run / "summary.json").read_text())["privacy"]["epsilon"] == expected[-1]


def test_a_run_ends_before_its_budget_is_exceeded(tmp_path: Path) -> None:
    accountant = Accountant(Sampling.of(Everyone()), 4.0, 1e-3)
    budget = (accountant.compute_epsilon(2) + accountant.compute_epsilon(3)) / 2
    chosen = private(rounds=5, privacy={"noise_multiplier": 4.0, "epsilon": budget})
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert [line["epsilon"] for line in metrics(run)] == [accountant.compute_epsilon(count) for count in (1, 2)]


def test_a_site_that_fails_does_not_change_the_divisor(known_key: bytes, tmp_path: Path) -> None:
    """With hardly any noise, the mean without one site is that of all minus its clipped report, over the same three."""
    quiet = {"noise_multiplier": 1e-6}
    chosen = private("fedavg", rounds=1, privacy=quiet, federation={"quorum": 0.3})
    folder = write_kits(chosen, tmp_path)

    def run(name: str, *silent: str) -> Any:
        def spoil(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer | None:
            return None if site in silent else (fields, arrays)

        done = run_all(InProcessChannel(folder, make_federated(chosen), spoil), chosen, name=name)
        return load_params(done, 1) - start

    start = load_initial(chosen, folder)
    whole, without, alone = run("whole"), run("without", "b"), run("alone", "a", "c")
    assert float((whole - without - alone).abs().max()) < 1e-6
    assert float(alone.norm()) <= 0.1 * (1 + 1e-5)  # the threshold 0.3 over three sites
    assert float(alone.norm()) > 0.05


def load_params(run: Path, rounds: int) -> Any:
    from safetensors.torch import load_file

    return load_file(run / "checkpoints" / f"round-{rounds:06d}.safetensors")["server.params"].double()


def load_initial(chosen: Experiment, folder: Path) -> Any:
    from fedcm.runs.build import build

    return build(chosen).problem.initial_params.double()


def test_sites_send_no_losses_and_no_sums_of_their_data(tmp_path: Path) -> None:
    chosen = private(rounds=2)
    sent: list[Mapping[str, Any]] = []

    def look(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        sent.append(fields)
        return fields, arrays

    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), look)
    run = run_all(channel, chosen)
    assert {key for fields in sent for key in fields} == {"run", "round", "steps", "examples", "seconds", "bytes"}
    assert [line["loss"] for line in metrics(run)] == [None, None]
    assert json.loads((run / "summary.json").read_text())["train_loss"] is None
    site = channel.sites["a"]
    site.data = site.data.__class__(**{**vars(site.data), "train": to_bytes(site.data.train)})
    assert site.describe()["sums"] == []
    with pytest.raises(UserError, match="gives no scores"):
        site.evaluate("ab" * 16, 0, -1, {}, {})


def to_bytes(examples: Any) -> Any:
    import torch

    return examples._replace(features=(examples.features * 16).to(torch.uint8))


def test_a_reply_with_a_loss_does_not_count(tmp_path: Path) -> None:
    chosen, lines = private(rounds=1), list[str]()

    def add_loss(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        return (fields | {"loss": 0.5} if site == "b" else fields), arrays

    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), add_loss), chosen, lines)
    assert metrics(run)[0]["missed"] == ["b"]


def test_a_long_report_is_clipped_and_keeps_no_other_from_counting(known_key: bytes, tmp_path: Path) -> None:
    """The report of one site is a thousand times as long, which `norm_ratio` would shorten in other runs."""
    chosen = private("fedavg", rounds=1, privacy={"noise_multiplier": 1e-6})
    folder, start = write_kits(chosen, tmp_path), load_initial(chosen, tmp_path)

    def shout(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        return fields, {name: array * np.float32(1000 if site == "b" else 1) for name, array in arrays.items()}

    moved = []
    for name, spoil in (("plain", None), ("loud", shout)):
        run = run_all(InProcessChannel(folder, make_federated(chosen), spoil), chosen, name=name)
        assert metrics(run)[0]["missed"] == []
        moved.append(load_params(run, 1) - start)
    assert float((moved[1] - moved[0]).norm()) <= 0.3 / 3


def test_bytes_need_a_normalisation_that_is_given(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    x, y = draw.integers(0, 256, (90, 1, 3, 4), dtype=np.uint8), draw.integers(0, 4, 90)
    np.savez(tmp_path / "bytes.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    table: dict[str, Any] = {"data": {"source": str(tmp_path / "bytes.npz")}, "model": {"name": "linear"}}
    chosen = private(rounds=1, **table)
    folder = write_kits(chosen, tmp_path)
    with pytest.raises(UserError, match=r"must report their sums, or set federation\.mean and federation\.std"):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert not (folder / "server" / "runs" / "r").exists()
    chosen = private(rounds=1, **table, federation={"mean": [0.5], "std": [0.3]})
    assert len(metrics(run_all(InProcessChannel(folder, make_federated(chosen)), chosen))) == 1


def dies_in(round: int, at: str = "a") -> Callable[[str, dict[str, Any], Arrays], Answer]:
    """A channel's `spoil` by which the server dies when the last site has answered."""

    def spoil(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        if fields["round"] == round and site == at:
            raise Stopped
        return fields, arrays

    return spoil


def test_a_lost_round_is_repeated_with_the_same_noise(known_key: bytes, tmp_path: Path) -> None:
    chosen = private("scaffold", rounds=3)
    folder = write_kits(chosen, tmp_path)
    with pytest.raises(Stopped):
        run_all(InProcessChannel(folder, make_federated(chosen), dies_in(1)), chosen)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(run) == parameters(simulate_with_secret(chosen, tmp_path))


def go_back_to(run: Path, rounds: int) -> None:
    """Remove newer checkpoints, as if the disk had damaged them."""
    for file in (run / "checkpoints").glob("round-*"):
        if int(file.stem.removeprefix("round-")) > rounds:
            file.unlink()
    for name in ("summary.json", "model.safetensors", "manifest.json"):
        (run / name).unlink(missing_ok=True)


def test_a_released_round_is_repeated_only_with_the_same_sum(tmp_path: Path) -> None:
    """Round 2 is released, and its checkpoint lost. With the same reports it has the same bits; without one site, none.

    Otherwise the difference of both results would be the report of that site, without any noise.
    """
    chosen = private(rounds=3)
    folder = write_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    whole, before = parameters(run), load_params(run, 2)
    go_back_to(run, 2)
    run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
    assert parameters(run) == whole
    go_back_to(run, 2)
    lines: list[str] = []

    def silence(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer | None:
        return None if site == "b" else (fields, arrays)

    run_all(InProcessChannel(folder, make_federated(chosen), silence), chosen, lines, resume=True)
    assert [line for line in lines if line.startswith("round 2 changes nothing: its private mean was computed before")]
    assert bool((load_params(run, 3) == before).all())
    assert metrics(run)[2]["clients"] == []


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"privacy": NOISY | {"secret": False}}, "must have a secret key"),
        ({"privacy": NOISY | {"clip_quantile": 0.5}}, "clip_quantile"),
        ({"federation": {"norm_ratio": 5.0}}, "leave norm_ratio out"),
        ({"federation": {"min_cosine": 0.0}}, "leave min_cosine out"),
        ({"federation": {"norm_bound": 2.0}}, "leave norm_bound out"),
        ({"federation": {"downlink": "bfloat16"}}, 'federation.downlink = "exact"'),
        ({"server": {"weights": "examples"}}, "clients of equal weight"),
        ({"server": {"mean": "median"}}, 'server.mean = "plain"'),
        ({"client": {"epochs": 1, "batch_size": 20, "lr": 0.1}}, "same number of local steps"),
        ({"evaluation": {"clients": 0.2}}, "evaluation.clients reveals scores"),
        ({"data": {"validation": 0.2}}, "data.validation reveals scores"),
        ({"stop": {"metric": "loss", "target": 0.1}}, "send no losses"),
        (
            {"federation": {"secure_aggregation": True, "colluding": 3}},
            "federation.colluding must be below 3",
        ),
        (
            {"federation": {"secure_aggregation": True, "threshold": 2}},
            "federation.threshold must be above 2",
        ),
        (
            {"federation": {"secure_aggregation": True}, "privacy": NOISY | {"noise_multiplier": 1e-6}},
            "privacy.noise_multiplier must be at least 2.2e-05",
        ),
        ({"federation": {"colluding": 1}}, "set secure_aggregation = true as well"),
        (
            {"federation": {"secure_aggregation": True, "colluding": 1}, "privacy": {}},
            r"no noise without \[privacy\]",
        ),
    ],
    ids=str,
)
def test_what_a_private_federation_excludes_is_rejected_in_a_sentence(tables: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"client": STEPS, "privacy": NOISY} | tables
    with pytest.raises(UserError, match=message) as error:
        make_federated(make_experiment(**given))
    assert "\n" not in str(error.value)


def test_a_robust_mean_excludes_secure_aggregation() -> None:
    with pytest.raises(UserError, match=r"cannot see single reports, so server\.mean = \"median\" cannot be computed"):
        make_federated(make_experiment(server={"mean": "median"}, federation={"secure_aggregation": True}))


def test_a_site_rejects_rounds_and_experiments_that_would_cost_more(tmp_path: Path) -> None:
    """The site checks for itself, because an admin can submit a job that was not prepared."""
    chosen = private(rounds=2)
    channel = InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen))
    run = run_all(channel, chosen)
    terms = json.loads((run / "federation.json").read_text())["terms"]
    with pytest.raises(UserError, match="has the rounds 0 to 1, got 2"):
        channel.sites["a"].train("ab" * 16, 2, -1, terms, {})
    bounded = make_federated(chosen)
    federation = bounded.federation.model_copy(update={"norm_ratio": 4.0})
    text = InProcessChannel(tmp_path, bounded.model_copy(update={"federation": federation})).text
    with pytest.raises(UserError, match="leave norm_ratio out"):
        SiteTrainer(tmp_path / "a", text, 0, len(SITES))


@pytest.mark.parametrize(
    ("privacy", "limit", "accepted"),
    [({}, 8.5, True), ({}, 8.0, False), (None, 50.0, False), ({"delta": 0.2}, 5.0, False)],
    ids=["within", "beyond", "none", "large delta"],
)
def test_a_site_can_insist_on_privacy(
    privacy: dict[str, Any] | None, limit: float, accepted: bool, tmp_path: Path
) -> None:
    """Three rounds with noise 1 cost 8.4 at δ = 1e-5, whatever δ the experiment gives."""
    chosen = make_experiment(client=STEPS) if privacy is None else private(privacy=privacy)
    folder = write_kits(chosen, tmp_path)
    with (folder / "a" / "site.toml").open("a") as file:
        file.write(f"[limits]\nepsilon = {limit}\n")
    text = InProcessChannel(folder, make_federated(chosen)).text
    if accepted:
        SiteTrainer(folder / "a", text, 0, 3)
    else:
        with pytest.raises(UserError, match=r"only in runs with \[privacy\] whose rounds cost at most epsilon"):
            SiteTrainer(folder / "a", text, 0, 3)
