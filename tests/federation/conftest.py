"""A plan, and a federation that is made from it once per test file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedcm.federation.plan import FederationPlan, read_plan
from fedcm.federation.provision.folder import create_federation

PLAN = {
    "name": "hospitals",
    "organisation": "charite",
    "sites": ["berlin", "paris"],
    "admins": ["lead@example.org"],
    "server": {"host": "localhost", "port": 18002, "also": ["127.0.0.1", "fl.example.org"]},
}


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a plan with changes, `plan_file(sites=["rome"])`; keys set to None are left out."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "PLAN.toml"
        path.write_text(tomli_w.dumps({key: value for key, value in (PLAN | changes).items() if value is not None}))
        return path

    return write


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> FederationPlan:
    path = tmp_path_factory.mktemp("plan") / "PLAN.toml"
    path.write_text(tomli_w.dumps(PLAN))
    return read_plan(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder as the user's home and for temporary files."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, plan: FederationPlan, home: Path) -> Path:
    """An organiser's folder with all kits."""
    folder = tmp_path_factory.mktemp("made") / "hospitals"
    create_federation(plan, folder)
    return folder
