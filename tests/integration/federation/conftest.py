"""A federation made once for all its tests; each gets a copy of the kits, and whatever it starts ends with it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet, fleet_of, provision


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server, five sites and an admin."""
    return provision(tmp_path_factory.mktemp("provisioned") / "federation")


@pytest.fixture(scope="module")
def shared(kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """For tests that run one after another and spoil nothing; nobody is started yet."""
    with fleet_of(kits, tmp_path_factory.mktemp("fleet") / "federation") as fleet:
        yield fleet


@pytest.fixture
def fleet(kits: Path, tmp_path: Path) -> Iterator[Fleet]:
    """For one test alone; nobody is started yet."""
    with fleet_of(kits, tmp_path / "federation") as fleet:
        yield fleet


@pytest.fixture
def dealt(tmp_path: Path) -> Callable[..., list[str]]:
    """Deals an experiment's data out to a fleet's sites: `dealt(path, fleet, "a", "b")`; settings for the same bits."""

    def deal_out(experiment: Path, fleet: Fleet, *sites: str) -> list[str]:
        from fedcm.config.experiment import load_experiment
        from fedcm.federation.provision.deal import deal

        files, settings = deal(load_experiment(experiment), sites, tmp_path / "dealt")
        fleet.deal(files[0].parent, sites)
        return [word for setting in settings for word in ("--set", setting)]

    return deal_out
