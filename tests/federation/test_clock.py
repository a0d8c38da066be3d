"""A certificate that is not valid by this machine's clock is named in one sentence, with what the clock says."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from made_kits import DAY, NOW, Root, free_port, make_kit
from test_check import check_all, engine_listening, failures, listening, with_data

from fedcm.federation.check import clock
from fedcm.federation.check.clock import find_invalid_certificate
from fedcm.federation.kit import Kit
from fedcm.federation.serve import supervisor
from fedcm.federation.serve.engine_log import EngineLog
from fedcm.federation.serve.supervisor import Supervisor, serve

UNREACHABLE = (
    "2026-01-01 10:00:00,000 - CoreCell - ERROR - [ME=berlin O=? D=server] cannot send to 'server': target_unreachable"
)


@pytest.fixture(scope="module")
def root() -> Root:
    return Root()


@pytest.fixture
def server(tmp_path: Path, root: Root) -> Kit:
    return make_kit(tmp_path / "server", "server", root, free_port())


@pytest.fixture
def site(tmp_path: Path, root: Root, server: Kit) -> Kit:
    return with_data(make_kit(tmp_path / "site", "site", root, server.port))


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], str]:
    """A function that shifts this machine's clock and returns what it then says."""

    def shift(by: timedelta) -> str:
        monkeypatch.setattr(clock, "read_clock", lambda: NOW + by)
        return f"this machine's clock says {NOW + by:%Y-%m-%d %H:%M} UTC"

    return shift


def test_a_right_clock_has_nothing_to_say(site: Kit) -> None:
    assert find_invalid_certificate(site, ask_server=False) == ""


@pytest.mark.parametrize(
    ("shift", "words"),
    [(timedelta(hours=-26), "is not valid yet: it is valid from"), (timedelta(days=400), "has expired: it was valid")],
)
def test_a_wrong_clock_is_named_by_check_and_site(
    site: Kit, set_clock: Callable[[timedelta], str], monkeypatch: pytest.MonkeyPatch, shift: timedelta, words: str
) -> None:
    now = set_clock(shift)
    failed = check_all(site)["certificate"]
    assert (failed.state, words in failed.message, now in failed.message) == ("failed", True, True)
    said: list[str] = []
    monkeypatch.setattr(Supervisor, "run", lambda _: 0)
    assert serve(site.path, "site", said.append) == 0
    (sentence,) = [line for line in said if "certificate" in line]
    assert sentence.startswith(f"the certificate of this kit {words}")
    assert now in sentence


@pytest.mark.parametrize("up", [listening, engine_listening])
@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ({"starts": NOW - 9 * DAY, "ends": NOW - DAY}, "the certificate of the server has expired"),
        ({"starts": NOW + DAY, "ends": NOW + 9 * DAY}, "the certificate of the server is not valid yet"),
    ],
)
def test_the_servers_certificate_is_compared_too(
    tmp_path: Path, root: Root, up: Callable[[Kit], Any], dates: dict[str, Any], words: str
) -> None:
    """The site's clock is off by a day or more, and its own certificate does not show it."""
    server = make_kit(tmp_path / "server", "server", root, free_port(), **dates)
    site = with_data(make_kit(tmp_path / "site", "site", root, server.port, starts=NOW - 99 * DAY))
    with up(server):
        results = check_all(site)
        log = EngineLog(site, lambda: find_invalid_certificate(site, ask_server=True))
        shown = log.filter_line(UNREACHABLE) or ""
    assert "mutual TLS" in failures(results)
    for message in (results["mutual TLS"].message, shown):
        assert words in message
        assert "this machine's clock says" in message


def test_a_server_that_shows_no_certificate_is_not_blamed(site: Kit) -> None:
    log = EngineLog(site, lambda: find_invalid_certificate(site, ask_server=True))
    shown = log.filter_line(UNREACHABLE) or ""
    assert shown.endswith(f"see `fedcm federation check {site.path}`")


def test_the_supervisor_asks_why_a_server_is_silent(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def find(kit: Kit, *, ask_server: bool) -> str:
        asked.append(ask_server)
        return "its clock"

    monkeypatch.setattr(supervisor, "find_invalid_certificate", find)
    running = Supervisor(site, [], print, supervisor.DEFAULT_TIMES, 0)
    assert (EngineLog(site, running._explain_silence).filter_line(UNREACHABLE) or "").endswith("; its clock")
    assert asked == [True]
