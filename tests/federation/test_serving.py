"""A kit is served until somebody asks for its end, and nothing of it survives that; with a stand-in for the engine."""

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
from fedcm.federation.serve.serving import Supervision, engine_command, serve
from fedcm.federation.serve.unit import unit_text

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
from fedcm.federation.readiness import only_one
from fedcm.federation.serve.serving import Patience, Supervision
from fedcm.runs.progress import say
from fedcm.errors import UserError
kit, grace, healthy = read_kit(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
patience = Patience(delays=(0.01, 0.02, 0.03), healthy=healthy, grace=grace)
try:
    with only_one(kit.path) as lock:
        sys.exit(Supervision(kit, ["sh", str(kit.path / "engine.sh")], say, patience, lock).run())
except UserError as refusal:
    print(refusal, file=sys.stderr)
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
    """What should have been refused does not go on for ever instead."""
    monkeypatch.setattr(Supervision, "run", lambda _: pytest.fail("it was started"))


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

    def ended(self) -> tuple[int, str]:
        """The exit code, and what was said."""
        said = self.process.communicate(timeout=20)[1]
        return self.process.returncode, said


Start = Callable[..., Served]


@pytest.fixture
def start(kit: Kit) -> Iterator[Start]:
    """Serves the kit with a stand-in that does something first, and then something else."""
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
    """Fails when it does not come true."""
    end = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def starts(served: Served) -> int:
    return len(served.appears("starts").read_text().splitlines())


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_engine_and_all_that_it_started(start: Start, number: int) -> None:
    served = start()
    pids = served.all()
    assert alive(pids) == pids
    served.process.send_signal(number)
    code, said = served.ended()
    assert (code, alive(pids)) == (0, [])
    assert said.splitlines()[-1] == "stopped"


def test_an_engine_that_does_not_heed_is_ended_when_its_time_is_up(start: Start) -> None:
    served = start(first=DEAF, grace=1)
    pids = served.all()
    served.process.terminate()
    assert served.ended()[0] == 0
    assert alive(pids) == []


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    served = start(first=DEAF, grace=600)
    pids = served.all()
    served.process.terminate()
    assert served.process.stderr is not None
    while "once more" not in served.process.stderr.readline():
        pass
    assert alive(pids) == pids
    served.process.terminate()
    assert served.ended()[0] == 0
    assert alive(pids) == []


def test_nothing_survives_a_command_that_is_killed(start: Start) -> None:
    served = start(first=DEAF)
    pids = served.all()
    served.process.kill()
    until(lambda: not alive(pids))


def test_a_kit_counts_as_served_until_the_last_of_its_processes_is_gone(start: Start) -> None:
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


def test_ctrl_c_reaches_the_command_alone(start: Start) -> None:
    served = start(first=f"trap 'echo yes > {HERE}/interrupted' INT")
    pids = served.all()
    os.killpg(served.process.pid, signal.SIGINT)
    assert served.ended()[0] == 0
    assert alive(pids) == []
    assert not (served.kit / "interrupted").exists()


def test_a_keeper_leaves_nothing_and_tells_how_the_engine_ended(kit: Kit) -> None:
    then = f"until [ -s {HERE}/job.pid ] && [ -s {HERE}/training.pid ]; do sleep 0.02; done; kill -9 $$"
    (kit.path / "engine.sh").write_text(ENGINE.format(kit=kit.path, first="", then=then))
    words = [sys.executable, "-m", "fedcm.federation.serve.keeper", "5", "sh", str(kit.path / "engine.sh")]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as keeper:
        assert keeper.wait() == 128 + signal.SIGKILL
    assert alive([int((kit.path / f"{who}.pid").read_text()) for who in ("engine", "job", "training")]) == []


def test_nothing_survives_a_keeper_that_is_killed_and_the_engine_is_started_again(start: Start) -> None:
    served = start()
    pids = served.all()
    keeper = psutil.Process(pids[0]).ppid()
    for name in ("engine", "job", "training"):
        (served.kit / f"{name}.pid").unlink()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not alive(pids))
    assert not set(served.all()) & set(pids)
    served.process.terminate()
    code, said = served.ended()
    assert code == 0
    assert "the engine was ended by SIGKILL; starting again in 0.01 s" in said


def test_what_an_engine_leaves_behind_is_ended_before_the_next_one_starts(start: Start) -> None:
    served = start(
        first="for who in job training; do"
        f" [ -s {HERE}/$who.pid ] && kill -0 $(cat {HERE}/$who.pid) && echo $who >> {HERE}/survivors; done;"
        f" rm -f {HERE}/job.pid {HERE}/training.pid",
        then=f"until [ -s {HERE}/job.pid ] && [ -s {HERE}/training.pid ]; do sleep 0.02; done; exit 5",
    )
    until(lambda: starts(served) >= 3)
    served.process.terminate()
    assert served.ended()[0] == 0
    assert not (served.kit / "survivors").exists()


def test_an_engine_that_dies_is_started_again_later_each_time(start: Start) -> None:
    served = start(first=f'if [ "$(wc -l < {HERE}/starts)" -lt 6 ]; then echo "OSError: no luck"; exit 7; fi')
    pids = served.all()
    served.process.terminate()
    code, said = served.ended()
    assert (code, alive(pids)) == (0, [])
    deaths = [line for line in said.splitlines() if "starting again" in line]
    assert [line.split("again in ")[1].split(" s")[0] for line in deaths] == ["0.01", "0.02", "0.03", "0.03", "0.03"]
    assert all("the engine left with code 7: OSError: no luck" in line for line in deaths)
    assert "OSError: no luck" in (served.kit / "last_words.txt").read_text()


def test_the_delays_begin_anew_after_a_time_of_health(start: Start) -> None:
    served = start(first=f'if [ "$(wc -l < {HERE}/starts)" -lt 4 ]; then exit 7; fi', healthy=0)
    served.all()
    served.process.terminate()
    said = served.ended()[1]
    assert said.count("starting again in 0.01 s") == said.count("starting again") == 3


def test_a_configuration_that_the_engine_does_not_take_is_not_tried_for_ever(start: Start) -> None:
    served = start(first="echo 'ConfigError: no such component'; exit 103")
    code, said = served.ended()
    assert code == 2
    assert "does not take this kit's configuration: ConfigError: no such component" in said
    assert starts(served) == 1


def test_an_admins_shutdown_is_heeded(start: Start) -> None:
    served = start(first=f"touch {HERE}/shutdown.fl; exit 0")
    assert served.ended()[0] == 0
    assert starts(served) == 1


def test_what_is_temporary_stays_in_the_kit_and_goes(start: Start) -> None:
    served = start(first=f"env > {HERE}/environment", OMP_NUM_THREADS="3", TMPDIR="/elsewhere")
    served.all()
    found = dict(line.split("=", 1) for line in served.appears("environment").read_text().splitlines() if "=" in line)
    (served.kit / "tmp" / "left").write_text("over")
    served.process.terminate()
    assert served.ended()[0] == 0
    assert found["TMPDIR"] == str(served.kit / "tmp")
    assert (found["MALLOC_ARENA_MAX"], found["OMP_NUM_THREADS"]) == ("4", "3")
    assert found["HOME"] == os.environ["HOME"]
    assert list((served.kit / "tmp").iterdir()) == []


@pytest.mark.usefixtures("never")
def test_a_kit_is_served_once(start: Start, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    served = start()
    served.all()
    monkeypatch.setattr(readiness, "_WAIT_FOR_LAST", 0.0)
    assert readiness.is_served(kit.path)
    with pytest.raises(UserError, match="is being served by another process"):
        serve(kit.path, "site", print)
    served.process.terminate()
    served.ended()
    assert not readiness.is_served(kit.path)


@pytest.mark.usefixtures("never")
def test_a_kit_of_another_kind_is_refused_with_the_command_for_it(kit: Kit, tmp_path: Path, root: Root) -> None:
    with pytest.raises(UserError, match=r"given a server's kit.* is a site's; start it with `fedcm federation site"):
        serve(kit.path, "server", print)
    admin = make_kit(tmp_path / "admin", "admin", root, 8003)
    with pytest.raises(UserError, match=r"is an admin's$"):
        serve(admin.path, "site", print)
    with pytest.raises(UserError, match="there is no kit"):
        serve(tmp_path / "none", "site", print)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("file", ["client.crt", "client.key", "rootCA.pem"])
def test_a_kit_without_its_papers_is_refused(kit: Kit, file: str) -> None:
    (kit.path / "startup" / file).unlink()
    with pytest.raises(UserError, match=f"must hold its .*{file}"):
        serve(kit.path, "site", print)


@pytest.mark.usefixtures("never")
def test_a_port_that_somebody_else_listens_at_is_refused(tmp_path: Path, root: Root) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        port = other.getsockname()[1]
        server = make_kit(tmp_path / "server", "server", root, port)
        with pytest.raises(UserError, match=f"ports for itself, and at {port} another process listens"):
            serve(server.path, "server", print)


@pytest.mark.usefixtures("never")
def test_without_the_extra_packages_it_says_how_to_install_them(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedcm\[federation\]'"):
        serve(kit.path, "site", print)


def test_the_engine_is_started_in_its_own_words(kit: Kit, tmp_path: Path, root: Root) -> None:
    site, server = engine_command(kit), engine_command(make_kit(tmp_path / "server", "server", root, 8002))
    told = ["--set", "secure_train=true", "uid=berlin", "org=charite", "config_folder="]
    assert site[3:] == ["fedcm.federation.site.engine_site", "-m", str(kit.path), "-s", "fed_client.json", *told]
    assert server[3] == "nvflare.private.fed.app.server.server_train"
    assert server[6:] == ["-s", "fed_server.json", *told[:2], *told[3:]]


LINE = "2026-11-16 14:37:19,461 - {} - {} - {}"
ABOUT = "[identity=hospitals, run=47556f49-0115-43b0-99c9-d3116487dc2b, wf=train] - "
JOB = "47556f49-0115-43b0-99c9-d3116487dc2b"


@pytest.mark.parametrize(
    ("logger", "level", "message", "told"),
    [
        ("root", "INFO", "Server started", "listens at port 8002, and at port 8003 to admins"),
        (
            "ClientManager",
            "INFO",
            "Client: New client berlin@10.0.0.7 joined. Sent token.  Total clients: 2",
            "site berlin is connected, 2 in all",
        ),
        ("ClientManager", "INFO", "Client Name:berlin left.  Total clients: 0", "site berlin has left, 0 in all"),
        (
            "JobRunner",
            "INFO",
            f"[identity=server, run=?] - Started run: {JOB} for clients: berlin,paris",
            "job 47556f49 starts with berlin,paris",
        ),
        (
            "ServerEngine",
            "INFO",
            f"Job: {JOB} child process exit with return code 101",
            "job 47556f49 has ended before its end (code 101)",
        ),
        ("FederatedTraining", "INFO", f"{ABOUT}round 3: paris does not count", "round 3: paris does not count"),
        ("FederatedTraining", "WARNING", "no room", "no room"),
        ("CoreCell", "ERROR", "[ME=server O=? D=berlin] cannot send to 'berlin'", "error: cannot send to 'berlin'"),
        ("conn_manager", "INFO", "Connector [CH00001 PASSIVE grpc://0:8002] is starting", None),
        ("ClientManager", "INFO", "Client: New admin a@b.org@10.0.0.7 joined. Sent token.  Total clients: 2", None),
    ],
)
def test_the_log_tells_what_matters(
    tmp_path: Path, root: Root, logger: str, level: str, message: str, told: str | None
) -> None:
    log = EngineLog(make_kit(tmp_path / "kit", "server", root, 8002))
    assert log.told(LINE.format(logger, level, message)) == told


def test_the_log_of_a_site_tells_once_that_the_server_is_away_and_once_that_it_is_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("fedcm.federation.serve.engine_log.time.monotonic", lambda: now[0])
    log = EngineLog(kit)

    def told(message: str, logger: str = "conn_manager", level: str = "INFO") -> str | None:
        return log.told(LINE.format(logger, level, message))

    away = "[ME=berlin O=? D=server] cannot send to 'server': target_unreachable"
    assert "no answer from the server at localhost:8002" in (told(away, "CoreCell", "ERROR") or "")
    assert told(away, "CoreCell", "ERROR") is None
    assert told("Connection [CN00004 N/A => localhost:8002] is created: PID: 7") is None
    assert told("Connection [CN00004 Not Connected] is closed PID: 7") is None
    now[0] = 100
    assert log.while_quiet() is None
    assert told("Connection [CN00005 N/A => localhost:8002] is created: PID: 7") is None
    assert log.while_quiet() is None
    now[0] = 110
    assert log.while_quiet() == "the server at localhost:8002 answers again"
    assert log.while_quiet() is None


def test_the_same_error_is_told_again_only_after_a_while(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fedcm.federation.serve.engine_log.time.monotonic", lambda: now[0])
    log, line = EngineLog(kit), LINE.format("Anything", "ERROR", "it broke")
    assert [log.told(line), log.told(line)] == ["error: it broke", None]
    now[0] = 100
    assert log.told(line) == "error: it broke"


def test_a_unit_keeps_to_the_kit_and_leaves_the_end_to_the_command(kit: Kit) -> None:
    lines = unit_text(kit.path).splitlines()
    for line in ("Type=exec", "Restart=on-failure", "KillMode=mixed", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert line in lines
    assert f"ReadWritePaths={kit.path}" in lines
    assert f"ExecStart={sys.executable} -m fedcm federation site {kit.path}" in lines


def test_a_unit_hides_devices_from_a_server_alone(kit: Kit, tmp_path: Path, root: Root) -> None:
    server = make_kit(tmp_path / "server", "server", root, 8002)
    assert "PrivateDevices=yes" in unit_text(server.path)
    assert "PrivateDevices" not in unit_text(kit.path)


def test_a_unit_is_for_those_who_serve(tmp_path: Path, root: Root, kit: Kit) -> None:
    with pytest.raises(UserError, match="admins need no service"):
        unit_text(make_kit(tmp_path / "admin", "admin", root, 8003).path)
    with pytest.raises(UserError, match="must be a user of this machine"):
        unit_text(kit.path, "nobody-of-this-name")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["plain", "with a space, 50% and $HOME"])
def test_systemd_takes_the_unit(tmp_path: Path, root: Root, name: str) -> None:
    made = make_kit(tmp_path / name, "site", root, 8002)
    unit = tmp_path / "fedcm-site.service"
    unit.write_text(unit_text(made.path, "root"))
    answer = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (answer.returncode, str(unit.name) in answer.stderr) == (0, False), answer.stderr
