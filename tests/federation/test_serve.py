"""The supervisor stops and restarts the engine and leaves no process behind; a script stands in for the engine."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from made_kits import Root, make_kit

from fedcm.errors import UserError
from fedcm.federation import readiness
from fedcm.federation.kit import Kit
from fedcm.federation.serve.engine_log import EngineLog
from fedcm.federation.serve.supervisor import Supervisor, make_engine_command, serve
from fedcm.federation.serve.unit import make_unit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through Linux")

# an engine with a job in a session of its own, which has training in a session of its own
ENGINE = """
echo started >> {kit}/starts
{first}
setsid sh -c 'echo $$ > {kit}/job.pid
  setsid sh -c "echo \\$\\$ > {kit}/training.pid; exec sleep 600" & exec sleep 600' &
echo $$ > {kit}/engine.pid
{then}
"""
HERE = '"${0%/*}"'  # the kit, in a stand-in
WAITS = "while :; do sleep 600 & wait $!; done"
DEAF = "trap '' TERM"

COMMAND = """
import sys
from pathlib import Path
from fedcm.federation.kit import read_kit
from fedcm.federation.readiness import lock_kit
from fedcm.federation.serve.supervisor import Supervisor, SupervisorTimes
from fedcm.api.progress import say
from fedcm.errors import UserError
kit, grace, healthy = read_kit(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
times = SupervisorTimes(delays=(0.01, 0.02, 0.03), healthy=healthy, grace=grace)
try:
    with lock_kit(kit.path) as lock:
        sys.exit(Supervisor(kit, ["sh", str(kit.path / "engine.sh")], say, times, lock).run())
except UserError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


@pytest.fixture(scope="module")
def root() -> Root:
    return Root()


@pytest.fixture
def kit(tmp_path: Path, root: Root) -> Kit:
    return make_kit(tmp_path / "kit", "site", root, 8002)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail instead of running for ever if something was not rejected."""
    monkeypatch.setattr(Supervisor, "run", lambda _: pytest.fail("it was started"))


@dataclass
class Served:
    process: subprocess.Popen[str]
    kit: Path

    def pid(self, who: str) -> int:
        return int(self.appears(f"{who}.pid").read_text())

    def all(self) -> list[int]:
        return [self.pid(who) for who in ("engine", "job", "training")]

    def appears(self, name: str) -> Path:
        path = self.kit / name
        until(lambda: path.is_file() and bool(path.read_text().strip()))
        return path

    def wait(self) -> tuple[int, str]:
        """Wait for the end and return the exit code and the output."""
        output = self.process.communicate(timeout=20)[1]
        return self.process.returncode, output


Start = Callable[..., Served]


@pytest.fixture
def start(kit: Kit) -> Iterator[Start]:
    """A function that serves the kit with a script that runs `first` and then `then`."""
    served: list[Served] = []

    def begin(first: str = "", then: str = WAITS, grace: int = 10, healthy: float = 60, **more: str) -> Served:
        (kit.path / "engine.sh").write_text(ENGINE.format(kit=kit.path, first=first, then=then))
        words = [sys.executable, "-c", COMMAND, str(kit.path), str(grace), str(healthy)]
        environment = os.environ | more
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
        served.append(Served(process, kit.path))
        return served[-1]

    yield begin
    for one in served:
        one.process.kill()
        one.process.communicate()


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition, and fail if it does not become true."""
    end = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def starts(served: Served) -> int:
    return len(served.appears("starts").read_text().splitlines())


def alive(pids: list[int]) -> list[int]:
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end between two looks
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_engine_and_all_that_it_started(start: Start, number: int) -> None:
    served = start()
    pids = served.all()
    assert alive(pids) == pids
    served.process.send_signal(number)
    code, output = served.wait()
    assert (code, alive(pids)) == (0, [])
    assert output.splitlines()[-1] == "stopped"


def test_an_engine_that_ignores_the_signal_is_killed_after_the_grace_time(start: Start) -> None:
    served = start(first=DEAF, grace=1)
    pids = served.all()
    served.process.terminate()
    assert served.wait()[0] == 0
    assert alive(pids) == []


def test_a_second_signal_kills_the_engine_at_once(start: Start) -> None:
    served = start(first=DEAF, grace=600)
    pids = served.all()
    served.process.terminate()
    assert served.process.stderr is not None
    while "once more" not in served.process.stderr.readline():
        pass
    assert alive(pids) == pids
    served.process.terminate()
    assert served.wait()[0] == 0
    assert alive(pids) == []


def test_no_process_survives_a_killed_command(start: Start) -> None:
    served = start(first=DEAF)
    pids = served.all()
    served.process.kill()
    until(lambda: not alive(pids))


def test_a_kit_is_locked_until_its_last_process_has_ended(start: Start) -> None:
    served = start()
    pids = served.all()
    keeper = psutil.Process(pids[0]).parent()
    assert keeper is not None
    keeper.suspend()
    try:
        served.process.kill()
        served.process.wait()
        assert readiness.is_served(served.kit)
        assert alive(pids) == pids
    finally:
        keeper.resume()
    until(lambda: not readiness.is_served(served.kit))
    assert alive(pids) == []


def test_ctrl_c_reaches_only_the_command(start: Start) -> None:
    served = start(first=f"trap 'echo yes > {HERE}/interrupted' INT")
    pids = served.all()
    os.killpg(served.process.pid, signal.SIGINT)
    assert served.wait()[0] == 0
    assert alive(pids) == []
    assert not (served.kit / "interrupted").exists()


def test_the_keeper_leaves_no_process_and_returns_how_the_engine_ended(kit: Kit) -> None:
    then = f"until [ -s {HERE}/job.pid ] && [ -s {HERE}/training.pid ]; do sleep 0.02; done; kill -9 $$"
    (kit.path / "engine.sh").write_text(ENGINE.format(kit=kit.path, first="", then=then))
    words = [sys.executable, "-m", "fedcm.federation.serve.keeper", "5", "sh", str(kit.path / "engine.sh")]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as keeper:
        assert keeper.wait() == 128 + signal.SIGKILL
    assert alive([int((kit.path / f"{who}.pid").read_text()) for who in ("engine", "job", "training")]) == []


def test_no_process_survives_a_killed_keeper_and_the_engine_is_restarted(start: Start) -> None:
    served = start()
    pids = served.all()
    keeper = psutil.Process(pids[0]).ppid()
    for name in ("engine", "job", "training"):
        (served.kit / f"{name}.pid").unlink()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not alive(pids))
    assert not set(served.all()) & set(pids)
    served.process.terminate()
    code, output = served.wait()
    assert code == 0
    assert "the engine was killed by SIGKILL; restart in 0.01 s" in output


def test_leftover_processes_are_ended_before_a_restart(start: Start) -> None:
    served = start(
        first="for who in job training; do"
        f" [ -s {HERE}/$who.pid ] && kill -0 $(cat {HERE}/$who.pid) && echo $who >> {HERE}/survivors; done;"
        f" rm -f {HERE}/job.pid {HERE}/training.pid",
        then=f"until [ -s {HERE}/job.pid ] && [ -s {HERE}/training.pid ]; do sleep 0.02; done; exit 5",
    )
    until(lambda: starts(served) >= 3)
    served.process.terminate()
    assert served.wait()[0] == 0
    assert not (served.kit / "survivors").exists()


def test_an_engine_that_dies_is_restarted_with_growing_delays(start: Start) -> None:
    served = start(first=f'if [ "$(wc -l < {HERE}/starts)" -lt 6 ]; then echo "OSError: no luck"; exit 7; fi')
    pids = served.all()
    served.process.terminate()
    code, output = served.wait()
    assert (code, alive(pids)) == (0, [])
    deaths = [line for line in output.splitlines() if "restart in" in line]
    assert [line.split("restart in ")[1].split(" s")[0] for line in deaths] == ["0.01", "0.02", "0.03", "0.03", "0.03"]
    assert all("the engine exited with code 7: OSError: no luck" in line for line in deaths)
    assert "OSError: no luck" in (served.kit / "last_words.txt").read_text()


def test_the_delays_start_again_after_a_healthy_time(start: Start) -> None:
    served = start(first=f'if [ "$(wc -l < {HERE}/starts)" -lt 4 ]; then exit 7; fi', healthy=0)
    served.all()
    served.process.terminate()
    output = served.wait()[1]
    assert output.count("restart in 0.01 s") == output.count("restart in") == 3


def test_a_configuration_that_the_engine_rejects_is_not_retried(start: Start) -> None:
    served = start(first="echo 'ConfigError: no such component'; exit 103")
    code, output = served.wait()
    assert code == 2
    assert "rejects this kit's configuration: ConfigError: no such component" in output
    assert starts(served) == 1


def test_a_shutdown_by_an_admin_is_not_a_crash(start: Start) -> None:
    served = start(first=f"touch {HERE}/shutdown.fl; exit 0")
    assert served.wait()[0] == 0
    assert starts(served) == 1


def test_temporary_files_are_kept_in_the_kit_and_removed(start: Start) -> None:
    served = start(first=f"env > {HERE}/environment", OMP_NUM_THREADS="3", TMPDIR="/elsewhere")
    served.all()
    found = dict(line.split("=", 1) for line in served.appears("environment").read_text().splitlines() if "=" in line)
    (served.kit / "tmp" / "left").write_text("over")
    served.process.terminate()
    assert served.wait()[0] == 0
    assert found["TMPDIR"] == str(served.kit / "tmp")
    assert (found["MALLOC_ARENA_MAX"], found["OMP_NUM_THREADS"]) == ("4", "3")
    assert found["HOME"] == os.environ["HOME"]
    assert list((served.kit / "tmp").iterdir()) == []


@pytest.mark.usefixtures("never")
def test_a_kit_is_served_by_one_command_at_a_time(start: Start, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    served = start()
    served.all()
    monkeypatch.setattr(readiness, "_LOCK_PATIENCE", 0.0)
    assert readiness.is_served(kit.path)
    with pytest.raises(UserError, match="is being served by another process"):
        serve(kit.path, "site", print)
    served.process.terminate()
    served.wait()
    assert not readiness.is_served(kit.path)


@pytest.mark.usefixtures("never")
def test_a_kit_of_another_kind_raises_and_names_the_right_command(kit: Kit, tmp_path: Path, root: Root) -> None:
    with pytest.raises(UserError, match=r"needs a server's kit.* is a site's; start it with `fedcm federation site"):
        serve(kit.path, "server", print)
    admin = make_kit(tmp_path / "admin", "admin", root, 8003)
    with pytest.raises(UserError, match=r"is an admin's$"):
        serve(admin.path, "site", print)
    with pytest.raises(UserError, match="there is no kit"):
        serve(tmp_path / "none", "site", print)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("file", ["client.crt", "client.key", "rootCA.pem"])
def test_a_kit_without_key_or_certificate_raises(kit: Kit, file: str) -> None:
    (kit.path / "startup" / file).unlink()
    with pytest.raises(UserError, match=f"must contain its .*{file}"):
        serve(kit.path, "site", print)


@pytest.mark.usefixtures("never")
def test_a_taken_port_raises(tmp_path: Path, root: Root) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        port = other.getsockname()[1]
        server = make_kit(tmp_path / "server", "server", root, port)
        with pytest.raises(UserError, match=f"ports must be free, but another process listens at {port}"):
            serve(server.path, "server", print)


@pytest.mark.usefixtures("never")
def test_without_the_engine_the_error_says_how_to_install_it(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcm.federation.engine.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedcm\[federation\]'"):
        serve(kit.path, "site", print)


def test_the_command_line_of_the_engine(kit: Kit, tmp_path: Path, root: Root) -> None:
    site, server = make_engine_command(kit), make_engine_command(make_kit(tmp_path / "server", "server", root, 8002))
    options = ["--set", "secure_train=true", "uid=berlin", "org=charite", "config_folder="]
    assert site[3:] == ["fedcm.federation.site.engine", "-m", str(kit.path), "-s", "fed_client.json", *options]
    assert server[3] == "fedcm.federation.gate.engine"
    assert server[6:] == ["-s", "fed_server.json", *options[:2], *options[3:]]


LINE = "2026-11-16 14:37:19,461 - {} - {} - {}"
CONTEXT = "[identity=hospitals, run=47556f49-0115-43b0-99c9-d3116487dc2b, wf=train] - "
JOB = "47556f49-0115-43b0-99c9-d3116487dc2b"


@pytest.mark.parametrize(
    ("logger", "level", "message", "shown"),
    [
        ("root", "INFO", "Server started", "Server started"),
        (
            "ClientManager",
            "INFO",
            "Client: New client berlin@10.0.0.7 joined. Sent token.  Total clients: 2",
            "Client: New client berlin@10.0.0.7 joined. Sent token.  Total clients: 2",
        ),
        (
            "ClientManager",
            "INFO",
            "Client Name:berlin left.  Total clients: 0",
            "Client Name:berlin left.  Total clients: 0",
        ),
        (
            "JobRunner",
            "INFO",
            f"[identity=server, run=?] - Started run: {JOB} for clients: berlin,paris",
            f"Started run: {JOB} for clients: berlin,paris",
        ),
        (
            "ServerEngine",
            "INFO",
            f"Job: {JOB} child process exit with return code 101",
            f"Job: {JOB} child process exit with return code 101",
        ),
        ("FederatedTraining", "INFO", f"{CONTEXT}round 3: paris does not count", "round 3: paris does not count"),
        ("FederatedTraining", "WARNING", "no room", "no room"),
        ("CoreCell", "ERROR", "[ME=server O=? D=berlin] cannot send to 'berlin'", "error: cannot send to 'berlin'"),
        ("CoreCell", "ERROR", f"cannot send to 'server.{JOB}'", None),
        ("CoreCell", "ERROR", "Traceback (most recent call last)", None),
        ("conn_manager", "INFO", "Connector [CH00001 PASSIVE grpc://0:8002] is starting", None),
        ("ClientManager", "INFO", "Client: New admin a@b.org@10.0.0.7 joined. Sent token.  Total clients: 2", None),
    ],
)
def test_an_operator_sees_what_begins_ends_and_fails_in_the_words_of_the_engine(
    tmp_path: Path, root: Root, logger: str, level: str, message: str, shown: str | None
) -> None:
    log = EngineLog(make_kit(tmp_path / "kit", "server", root, 8002))
    assert log.filter_line(LINE.format(logger, level, message)) == shown


def test_a_site_that_cannot_reach_the_server_is_pointed_to_check_once_per_minute(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("fedcm.federation.serve.engine_log.time.monotonic", lambda: now[0])
    log = EngineLog(kit)
    line = LINE.format("CoreCell", "ERROR", "[ME=berlin O=? D=server] cannot send to 'server': target_unreachable")
    hint = f"no answer from the server at localhost:8002; trying again; see `fedcm federation check {kit.path}`"
    assert [log.filter_line(line), log.filter_line(line)] == [hint, None]
    now[0] = 100
    assert log.filter_line(line) == hint


def test_the_same_error_is_shown_once_per_minute(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fedcm.federation.serve.engine_log.time.monotonic", lambda: now[0])
    log, line = EngineLog(kit), LINE.format("Anything", "ERROR", "it broke")
    assert [log.filter_line(line), log.filter_line(line)] == ["error: it broke", None]
    now[0] = 100
    assert log.filter_line(line) == "error: it broke"


def test_a_unit_is_confined_to_the_kit(kit: Kit) -> None:
    lines = make_unit(kit.path).splitlines()
    for line in ("Type=exec", "Restart=on-failure", "KillMode=mixed", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert line in lines
    assert f"ReadWritePaths={kit.path}" in lines
    assert f"ExecStart={sys.executable} -m fedcm federation site {kit.path}" in lines


def test_a_unit_hides_devices_only_from_a_server(kit: Kit, tmp_path: Path, root: Root) -> None:
    server = make_kit(tmp_path / "server", "server", root, 8002)
    assert "PrivateDevices=yes" in make_unit(server.path)
    assert "PrivateDevices" not in make_unit(kit.path)


def test_a_unit_for_an_admin_or_an_unknown_user_raises(tmp_path: Path, root: Root, kit: Kit) -> None:
    with pytest.raises(UserError, match="admins need no service"):
        make_unit(make_kit(tmp_path / "admin", "admin", root, 8003).path)
    with pytest.raises(UserError, match="must be a user of this machine"):
        make_unit(kit.path, "nobody-of-this-name")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["plain", "with a space, 50% and $HOME"])
def test_systemd_accepts_the_unit(tmp_path: Path, root: Root, name: str) -> None:
    made = make_kit(tmp_path / name, "site", root, 8002)
    unit = tmp_path / "fedcm-site.service"
    unit.write_text(make_unit(made.path, "root"))
    answer = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (answer.returncode, str(unit.name) in answer.stderr) == (0, False), answer.stderr
