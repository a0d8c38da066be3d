"""A party that floods the server, or stalls, is slowed down or disconnected by name; the others do not notice."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path

import grpc
import psutil
import pytest
from fleet import Fleet, experiment_file, lines, until
from intruder import Intruder, hello, pings
from test_gate import list_connected, read_alarms

pytestmark = pytest.mark.federation

Dealt = Callable[..., list[str]]


@pytest.fixture
def two(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> Path:
    """The sites a and b are connected; an experiment for them."""
    experiment = experiment_file(tmp_path / "e.toml", split={"kind": "iid", "clients": 2})
    dealt(experiment, fleet, "a", "b")
    fleet.start("a", "b")
    return experiment


def run_with_two(fleet: Fleet, experiment: Path) -> None:
    done = fleet.run(experiment, "r", "--sites", "a,b")
    assert done.code == 0, done.err + fleet.collect_output()
    assert [line["missed"] for line in lines(fleet.at_server("r"))] == [[]] * 4


def expect_alarm(fleet: Fleet, sentence: str) -> None:
    until(lambda: sentence in read_alarms(fleet), f"the alarm {sentence!r}", fleet.collect_output)
    assert f"ALARM: {sentence}" in fleet.running["server"].output


def test_messages_in_a_loop_are_delayed_and_a_run_of_others_ends(fleet: Fleet, two: Path) -> None:
    with Intruder(fleet.site("c")).connect(chain([hello("c")], pings())) as answers:
        reader = threading.Thread(target=drain, args=(answers,), daemon=True)
        reader.start()
        expect_alarm(fleet, "c sends more than 500 messages per second; they are delayed")
        run_with_two(fleet, two)


def drain(answers: Iterator[object]) -> None:
    with suppress(grpc.RpcError):
        for _ in answers:
            pass


def test_connections_in_a_loop_are_refused_and_another_site_connects(fleet: Fleet, two: Path) -> None:
    intruder, stop = Intruder(fleet.site("c")), threading.Event()

    def connect_in_a_loop() -> None:
        while not stop.is_set():
            with suppress(grpc.RpcError), intruder.connect([hello("c")]) as answers:
                next(answers, None)

    threads = [threading.Thread(target=connect_in_a_loop, daemon=True) for _ in range(4)]
    for one in threads:
        one.start()
    expect_alarm(fleet, "c opens connections again and again; new ones are refused for now")
    fleet.start_site("d")
    run_with_two(fleet, two)
    assert list_connected(fleet) == ["a", "b", "d"]
    stop.set()
    for one in threads:
        one.join()


def test_connections_that_stall_do_not_hold_up_the_others(fleet: Fleet, two: Path) -> None:
    intruder, never = Intruder(fleet.site("c")), threading.Event()

    def say_nothing() -> Iterator[bytes]:
        never.wait()
        yield from ()

    def say_name_and_stop() -> Iterator[bytes]:
        yield hello("c")
        never.wait()

    with ExitStack() as stack:
        stack.callback(never.set)
        sockets = [stack.enter_context(intruder.open_socket()) for _ in range(150)]
        sockets += [stack.enter_context(intruder.begin_handshake(share)) for share in (0.5, 1.0) for _ in range(75)]
        stack.enter_context(intruder.connect(say_name_and_stop()))
        for _ in range(10):
            stack.enter_context(intruder.connect(say_nothing()))
        fleet.start_site("d")
        run_with_two(fleet, two)
        assert list_connected(fleet) == ["a", "b", "d"]
        expect_alarm(fleet, "c opened a connection and did not say its name; it was closed")
        for one in sockets:
            one.settimeout(240)
            with suppress(ConnectionError):  # closed with an error, or
                while one.recv(2**16):  # with an end
                    pass


def test_a_run_continues_without_a_site_that_reads_nothing_any_more(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 2}
    experiment = experiment_file(tmp_path / "e.toml", rounds=6, federation=links)
    dealt(experiment, fleet, "a", "b", "c")
    fleet.start("a", "b", "c")
    site = fleet.running["c"]
    stopped = [site.process, *site.process.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        done = fleet.run(experiment, "r", "--sites", "a,b,c")
        assert done.code == 0, done.err + fleet.collect_output()
        assert [line["clients"] for line in lines(fleet.at_server("r"))] == [[0, 1]] * 6
    finally:
        for process in stopped:
            with suppress(psutil.Error):
                process.resume()
    until(lambda: list_connected(fleet) == ["a", "b", "c"], "c is back", fleet.collect_output)
