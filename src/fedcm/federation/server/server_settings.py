"""The server's own settings, in `server.toml` of its kit: the held-out examples that it evaluates on, if it has any."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedcm.config.schema import Section
from fedcm.data import load
from fedcm.data.dataset import Examples
from fedcm.federation.kit_settings import read_settings
from fedcm.federation.site_data import working_in

FILE = "server.toml"


class TestData(Section):
    source: Annotated[str, Field(min_length=1)]  # an .npz with x, y (or x_test, y_test), a folder, or a known name


class ServerLimits(Section):
    code: list[str] = Field(default=[])  # models and algorithms other than the bundled ones: "package.module:name"


class ServerSettings(Section):
    test: TestData | None = None
    limits: ServerLimits = ServerLimits()


def load_server_settings(kit: Path) -> ServerSettings:
    """What `server.toml` in a kit says; without one the server evaluates on nothing."""
    file = kit / FILE
    return read_settings(ServerSettings, file) if file.is_file() else ServerSettings()


def load_test_data(kit: Path, settings: ServerSettings) -> Examples | None:
    """What the source holds out, or all of it where it holds out nothing."""
    if settings.test is None:
        return None
    with working_in(kit):
        found = load(settings.test.source)
    return found.test or found.train
