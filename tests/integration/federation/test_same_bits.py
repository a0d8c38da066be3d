"""A federation of real processes ends with the parameters of the simulation, bit for bit."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet import SITES, Fleet, bits, experiment_file, fedcm, fleet_of, lines, provision

from fedcm.data import load_dataset
from fedcm.errors import UserError

# the last three: a scalar in the report; a state across local steps; a start that differs from the model
ALGORITHMS = ("fedcm", "fedavg", "scaffold", "fedexp", "fedsmoo", "fedpd")


Call = Callable[..., Any]  # runs a command, in this process or another


def simulate(experiment: Path, runs: Path, call: Call = fedcm) -> Path:
    """Run an experiment with `fedcm run`."""
    done = call("run", experiment, "--runs-dir", runs, "--name", "simulated")
    assert done.code == 0, done.err
    return runs / "simulated"


def deal_out(experiment: Path, folder: Path, fleet: Fleet, sites: Sequence[str], call: Call = fedcm) -> list[str]:
    """Deal data with `fedcm federation deal`, and return the settings for the bits of the simulation."""
    dealt = call("federation", "deal", experiment, "--sites", ",".join(sites), "-o", folder)
    assert dealt.code == 0, dealt.err
    fleet.deal(folder, sites)
    found = re.search(r"for the bits of the simulation: (.*)", dealt.out)
    return shlex.split(found[1]) if found else []


@pytest.mark.federation
def test_three_sites_end_with_the_bits_of_the_simulation(tmp_path: Path, fedcm: Call) -> None:
    """The files of all kits stay private, also data that were copied into them with usual modes."""
    sites, experiment = ("a", "b", "c"), experiment_file(tmp_path / "trial.toml")
    with fleet_of(provision(tmp_path / "made", sites), tmp_path / "federation") as fleet:
        settings = deal_out(experiment, tmp_path / "dealt", fleet, sites, fedcm)
        for data in (fleet.folder / "sites").glob("*/data.npz"):
            data.chmod(0o644)
        fleet.start(*sites)
        done = fleet.run(experiment, "real", *settings)
        assert done.code == 0, done.err + fleet.collect_output()
        kits = [fleet.server, fleet.admin, *map(fleet.site, sites)]
        assert {path.relative_to(fleet.folder): mode for kit in kits for path, mode in list_readable(kit)} == {}
        assert all((kit / "log.txt").is_file() for kit in kits if kit != fleet.admin)  # the engine has written there
    assert fedcm("verify", fleet.folder / "runs" / "real", fleet.at_server("real")).out.count(": intact (") == 2
    real, made = fleet.folder / "runs" / "real", simulate(experiment, tmp_path, fedcm)
    assert bits(real) == bits(made)
    assert (real / "model.safetensors").read_bytes() == (made / "model.safetensors").read_bytes()


def list_readable(folder: Path) -> list[tuple[Path, str]]:
    """Return the files and folders that group or others may use, with their modes."""
    found = [(path, path.lstat().st_mode) for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [(path, oct(mode)) for path, mode in found if mode & 0o077]


@pytest.fixture(scope="module")
def five(shared: Fleet) -> Fleet:
    return shared.start(*SITES)


@pytest.fixture(scope="module")
def digits(five: Fleet, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """An experiment over digits at five sites, and the settings for the bits of the simulation."""
    folder = tmp_path_factory.mktemp("digits")
    table = {"split": {"kind": "dirichlet", "clients": 5, "concentration": 0.6}, "rounds": 5}
    settings = deal_out(experiment_file(folder / "digits.toml", **table), folder / "dealt", five, SITES)
    return table, settings


def run_and_compare(five: Fleet, name: str, table: dict[str, Any], settings: list[str], tmp_path: Path) -> Path:
    """Run an experiment, compare it with its simulation, and return the fetched run's folder."""
    experiment = experiment_file(tmp_path / f"{name}.toml", **table)
    done = five.run(experiment, name, *settings)
    assert done.code == 0, done.err + five.collect_output()
    real, made = five.folder / "runs" / name, simulate(experiment, tmp_path)
    assert bits(real) == bits(made)
    for ours, theirs in zip(lines(real), lines(made), strict=True):
        assert {key: ours[key] for key in ("round", "clients", "loss", "steps")} == {
            key: theirs[key] for key in ("round", "clients", "loss", "steps")
        }
    return real


@pytest.mark.federation
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_five_sites_with_digits_end_with_the_bits_of_the_simulation(
    five: Fleet, digits: tuple[dict[str, Any], list[str]], algorithm: str, tmp_path: Path
) -> None:
    table, settings = digits
    run_and_compare(five, f"digits-{algorithm}", table | {"algorithm": {"name": algorithm}}, settings, tmp_path)


@pytest.mark.federation
@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_random_participation_ends_with_the_bits_of_the_simulation(
    five: Fleet, digits: tuple[dict[str, Any], list[str]], algorithm: str, tmp_path: Path
) -> None:
    table, settings = digits
    table = table | {"algorithm": {"name": algorithm}, "participation": {"kind": "independent", "probability": 0.5}}
    real = run_and_compare(five, f"now-and-then-{algorithm}", table, settings, tmp_path)
    assert len({tuple(line["clients"]) for line in lines(real)}) > 1


@pytest.mark.federation
def test_weights_by_examples_end_with_the_bits_of_the_simulation(five: Fleet, tmp_path: Path) -> None:
    table = {
        "split": {"kind": "dirichlet-by-label", "clients": 5, "concentration": 0.6},
        "participation": {"kind": "independent", "probability": 0.5},
        "algorithm": {"name": "fedavg"},
        "server": {"weights": "examples"},
    }
    settings = deal_out(experiment_file(tmp_path / "w.toml", **table), tmp_path / "dealt", five, SITES)
    run_and_compare(five, "by-examples", table, settings, tmp_path)


@pytest.fixture(scope="module")
def cifar(five: Fleet, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """500 images for each of five sites."""
    folder = tmp_path_factory.mktemp("cifar")
    try:
        whole = load_dataset("cifar10")
    except UserError as error:
        pytest.skip(f"CIFAR-10 is not prepared: {error}")
    assert whole.test is not None
    (x, y), (x_test, y_test) = ([part[:2500].numpy() for part in examples] for examples in (whole.train, whole.test))
    np.savez(folder / "cifar.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    table = {
        "rounds": 2,
        "data": {"source": str(folder / "cifar.npz")},
        "split": {"kind": "dirichlet", "clients": 5, "concentration": 0.6},
        "model": {"name": "lenet"},
        "client": {"epochs": 1, "batch_size": 50, "lr": 0.05, "weight_decay": 0.001},
        "federation": {},
    }
    settings = deal_out(experiment_file(folder / "cifar.toml", **table), folder / "dealt", five, SITES)
    return table, settings


@pytest.mark.federation
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_five_sites_with_cifar10_end_with_the_bits_of_the_simulation(
    five: Fleet, cifar: tuple[dict[str, Any], list[str]], algorithm: str, tmp_path: Path
) -> None:
    table, settings = cifar
    assert any("federation.mean" in setting for setting in settings)
    run_and_compare(five, f"cifar-{algorithm}", table | {"algorithm": {"name": algorithm}}, settings, tmp_path)


@pytest.mark.federation
def test_sites_compute_the_common_normalisation_themselves(
    five: Fleet, cifar: tuple[dict[str, Any], list[str]], tmp_path: Path
) -> None:
    run_and_compare(five, "found", cifar[0] | {"rounds": 1, "federation": {"classes": 10}}, [], tmp_path)
