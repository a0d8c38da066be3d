"""One federation for all tests; each test gets a copy of the kits, and its processes end with it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet, fleet_of, provision


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of a server, five sites and an admin."""
    return provision(tmp_path_factory.mktemp("provisioned") / "federation")


@pytest.fixture(scope="module")
def shared(kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet for the tests of one module, which change nothing; nothing is started yet."""
    with fleet_of(kits, tmp_path_factory.mktemp("fleet") / "federation") as fleet:
        yield fleet


@pytest.fixture
def fleet(kits: Path, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet for one test; nothing is started yet."""
    with fleet_of(kits, tmp_path / "federation") as fleet:
        yield fleet


@pytest.fixture
def dealt(tmp_path: Path) -> Callable[..., list[str]]:
    """A function that deals data out, `dealt(path, fleet, "a", "b")`, and returns the settings for the same bits."""

    def deal_out(experiment: Path, fleet: Fleet, *sites: str) -> list[str]:
        from fedcm.config.experiment import load_experiment_file
        from fedcm.federation.provision.deal import deal

        files, settings = deal(load_experiment_file(experiment), sites, tmp_path / "dealt")
        fleet.deal(files[0].parent, sites)
        return [word for setting in settings for word in ("--set", setting)]

    return deal_out
