"""The server's own settings, in `server.toml` of its kit: the held-out examples that it evaluates on, if it has any."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedcm.data import load
from fedcm.data.dataset import Examples
from fedcm.federation.site_data import working_in
from fedcm.refusal import Refused
from fedcm.settings import Section, read_section, toml_file

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
    if not file.is_file():
        return ServerSettings()
    try:
        table = toml_file(file, "settings")
        for key, kind in (("test", TestData), ("limits", ServerLimits)):
            if key in table:
                table[key] = read_section(kind, table[key], key)
        return read_section(ServerSettings, table)
    except Refused as refusal:
        raise Refused(f"{str(file)!r}: {refusal}") from None


def load_test_data(kit: Path, settings: ServerSettings) -> Examples | None:
    """What the source holds out, or all of it where it holds out nothing."""
    if settings.test is None:
        return None
    with working_in(kit):
        found = load(settings.test.source)
    return found.test or found.train
