"""A site's engine does not go on without heartbeats."""

from typing import Any

import pytest

from fedcm.federation.site import engine


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr("os._exit", end)
    return codes


class Client:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def heartbeat(self, interval: float) -> None:
        if self.error is not None:
            raise self.error


def test_an_engine_whose_heartbeats_fail_ends_and_is_started_again(exits: list[int]) -> None:
    failing: Any = Client(RuntimeError("no engine"))
    with pytest.raises(Ended):
        engine.run_heartbeat(failing, 10)
    assert exits == [engine.LOGIN_ENDED]


def test_heartbeats_that_end_with_the_engine_are_no_error(exits: list[int]) -> None:
    engine.run_heartbeat(Client(None), 10)
    assert exits == []
