"""The server that forks the runs of a sweep: commands, exit codes, signals, and the end of the server."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedcm.sweeps.fork_server import ForkServer

HEAVY = """
import os
with open(os.environ["IMPORTS"], "a") as file:
    file.write("imported\\n")
"""
COMMAND = """
import os, sys, time
import heavy
from fedcm.system.processes import call_on_parent_exit

if __name__ == "__main__":
    word = sys.argv[1]
    print(f"{word} {sys.argv[2:]} {os.getsid(0) == os.getpid()}", file=sys.stderr)
    print("not a message of the server")
    if word == "orphan":
        call_on_parent_exit(lambda: os._exit(7))
    if word == "fail":
        raise ValueError("no luck")
    if word in ("sleep", "orphan"):
        time.sleep(60)
    sys.exit({"say": "a sentence", "number": 3}.get(word))
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "heavy.py").write_text(HEAVY)
    (tmp_path / "forked_command.py").write_text(COMMAND)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IMPORTS", str(tmp_path / "imports"))
    with ForkServer(["heavy"]) as server:
        yield server


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("word", "code"), [("end", 0), ("number", 3), ("say", 1), ("fail", 1)])
def test_a_command_has_arguments_messages_and_an_exit_code(
    server: ForkServer, tmp_path: Path, word: str, code: int
) -> None:
    command = server.start("forked_command", [word, "--set", "α=1"], tmp_path / "messages")
    assert command.wait(timeout=60) == code
    assert command.poll() == command.returncode == code
    messages = (tmp_path / "messages").read_text()
    assert messages.startswith(f"{word} ['--set', 'α=1'] True\n"), "it leads a session of its own"
    assert ("no luck" in messages) == (word == "fail")


def test_modules_are_imported_once_for_all_commands(server: ForkServer, tmp_path: Path) -> None:
    commands = [server.start("forked_command", ["number"], tmp_path / str(index)) for index in range(3)]
    assert [command.wait(timeout=60) for command in commands] == [3, 3, 3]
    assert (tmp_path / "imports").read_text() == "imported\n"


def test_a_signal_ends_one_command_and_not_the_others(server: ForkServer, tmp_path: Path) -> None:
    one, other = (server.start("forked_command", ["sleep"], tmp_path / name) for name in "ab")
    one.kill()
    assert one.wait(timeout=60) == -signal.SIGKILL
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    assert other.wait(timeout=60) == -signal.SIGTERM
    other.send_signal(signal.SIGTERM)  # nobody is there any more


def test_commands_notice_the_end_of_the_server(server: ForkServer, tmp_path: Path) -> None:
    command = server.start("forked_command", ["orphan"], tmp_path / "messages")
    wait_for(lambda: (tmp_path / "messages").read_text().startswith("orphan"))
    server.close()
    wait_for(lambda: not Path(f"/proc/{command.pid}").exists())
    assert command.wait(timeout=60) == 1, "nobody knows its exit code"


def test_a_killed_server_is_an_error_at_the_next_start(server: ForkServer, tmp_path: Path) -> None:
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(OSError, match=r"killed|Broken pipe"):
        server.start("forked_command", ["end"], tmp_path / "messages")
