"""One party cannot do something more often than its rate allows; the others are not delayed."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessagePropKey
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.client_manager import ClientManager

from fedcm.federation.gate import limited_connections
from fedcm.federation.gate.limited_connections import MAX_FRAME, MAX_OPEN, LimitedConnManager
from fedcm.federation.gate.rates import Rate, RateLimit
from fedcm.federation.gate.registration import GuardedClientManager


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_after_a_burst_a_party_waits_for_as_long_as_its_rate_says(clock: Clock) -> None:
    limit = RateLimit(Rate(per_second=10, burst=3), clock)
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 0.1]
    assert limit.take("a") == 0.2, "what two threads take adds up"
    assert limit.take("b") == 0
    clock.now += 60
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 0.1], "a pause earns no more than a burst"


def test_what_is_refused_does_not_count(clock: Clock) -> None:
    limit = RateLimit(Rate(per_second=1, burst=2), clock)
    assert [limit.allow("a") for _ in range(4)] == [True, True, False, False]
    assert limit.allow("b")
    clock.now += 1
    assert [limit.allow("a") for _ in range(2)] == [True, False]


class FakeConnection:
    def __init__(self, holder: str, number: int) -> None:
        self.name = f"{holder}-{number}"
        self.holder = holder
        self.connector = SimpleNamespace(mode=Mode.PASSIVE)
        self.closed = False

    def register_frame_receiver(self, receiver: Any) -> None:
        self.receiver = receiver

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def alarms() -> list[str]:
    return []


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, alarms: list[str]) -> LimitedConnManager:
    monkeypatch.setattr(limited_connections, "comes_from_outside", lambda _: True)
    monkeypatch.setattr(limited_connections, "read_peer_certificate", lambda one: SimpleNamespace(name=one.holder))
    made = LimitedConnManager(Endpoint("server"))
    gatekeeper: Any = SimpleNamespace(raise_alarm=alarms.append)
    made.gatekeeper = gatekeeper
    return made


def connect(manager: LimitedConnManager, holder: str, count: int) -> list[FakeConnection]:
    made = [FakeConnection(holder, number) for number in range(count)]
    for one in made:
        manager.handle_new_connection(one)
    return made


def test_a_party_has_a_limited_number_of_connections_and_an_alarm_names_it(
    manager: LimitedConnManager, alarms: list[str]
) -> None:
    made = connect(manager, "c", MAX_OPEN + 2)
    assert [one.closed for one in made] == [False] * MAX_OPEN + [True] * 2
    assert alarms == [f"c has {MAX_OPEN} connections; further ones are refused"] * 2
    assert not connect(manager, "b", 1)[0].closed
    manager.close_connection(made[0])
    assert not connect(manager, "c", 1)[0].closed


def test_a_party_that_connects_again_and_again_is_refused_for_a_while(
    manager: LimitedConnManager, alarms: list[str]
) -> None:
    refused = 0
    for number in range(100):
        one = FakeConnection("c", number)
        manager.handle_new_connection(one)
        refused += one.closed
        manager.close_connection(one)
    assert refused >= 60
    assert "c opens connections again and again; new ones are refused for now" in alarms
    assert not connect(manager, "b", 1)[0].closed


def test_a_frame_that_is_too_large_closes_the_connection_and_names_its_owner(
    manager: LimitedConnManager, alarms: list[str]
) -> None:
    (one,) = connect(manager, "c", 1)
    one.receiver.process_frame(bytes(MAX_FRAME + 1))
    assert one.closed
    assert alarms == ["c sent a message of more than 4 MiB; its connection was closed"]


def test_messages_beyond_the_rate_are_delayed_and_named(
    manager: LimitedConnManager, alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    own, sleep = threading.get_ident(), time.sleep

    def record(seconds: float) -> None:
        """Note what this thread waits for; threads of the engine sleep as ever."""
        if threading.get_ident() == own:
            slept.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", record)
    monkeypatch.setattr(manager, "_messages", RateLimit(Rate(per_second=10, burst=3), lambda: 0.0))
    (one,) = connect(manager, "c", 1)
    (other,) = connect(manager, "b", 1)
    for _ in range(5):
        one.receiver.process_frame(bytes(10))
    other.receiver.process_frame(bytes(10))
    assert slept == [0.1, 0.2]
    assert set(alarms) == {"c sends more than 500 messages per second; they are delayed"}


def test_a_party_that_logs_in_again_and_again_is_refused_for_a_while(
    alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientManager, "authenticated_client", lambda *_: "client")
    manager = GuardedClientManager("project", 1, 10)
    written: list[str] = []
    gatekeeper: Any = SimpleNamespace(
        raise_alarm=alarms.append, audit=SimpleNamespace(append=lambda event, **_: written.append(event))
    )
    manager.gatekeeper = gatekeeper

    def log_in(name: str) -> Any:
        request = Message({CellMessageHeaderKeys.CLIENT_NAME: name}, None)
        request.set_prop(MessagePropKey.ENDPOINT, Endpoint(name))
        request.set_prop(MessagePropKey.COMMON_NAME, name)
        return manager.authenticated_client(request, FLContext(), None)

    accepted = [log_in("c") for _ in range(100)]
    assert accepted.count("client") < 40
    assert written == ["joined"] * accepted.count("client"), "the others are not written one by one"
    assert set(alarms) == {"c logs in again and again; its logins are refused for now"}
    assert log_in("b") == "client"
