"""The contestants: where each lives, which works it does, and the settings tried for it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = ROOT / ".peers"  # one virtual environment a peer

OURS = "fedcm"


@dataclass(frozen=True)
class Setting:
    processes: int
    threads: int  # a process

    def __str__(self) -> str:
        return f"{self.processes} × {self.threads}"


ONE, TWO, FOUR, SOLE = Setting(1, 2), Setting(2, 1), Setting(4, 1), Setting(1, 1)


@dataclass(frozen=True)
class Peer:
    package: str
    tried: tuple[Setting, ...]
    best: dict[str, Setting]  # by work: the one of the tried that had the shortest median round (`--settings all`)
    needs: str = "torch numpy"  # installed first, in the versions of constraints.txt

    def works(self) -> list[str]:
        return list(self.best)


PEERS = {
    "pfl": Peer("pfl", (SOLE, ONE, TWO), {"lenet": TWO, "cnn": TWO, "linear": TWO}),
    "flower": Peer("flwr", (ONE, TWO, FOUR), {"lenet": TWO, "cnn": TWO, "linear": TWO}),
    "fedlab": Peer("fedlab", (SOLE, ONE, TWO), {"lenet": TWO, "cnn": TWO, "linear": SOLE}),
    "fedjax": Peer("fedjax", (SOLE, ONE), {"linear": ONE}, needs=""),
}


def python(name: str) -> Path:
    return PLACE / name / "bin" / "python"


def prepare(name: str) -> None:
    """The peer's virtual environment, made anew when what it must hold has changed."""
    wanted = HERE / "requirements" / f"{name}.txt"
    text = wanted.read_text() + (ROOT / "constraints.txt").read_text()
    done = PLACE / name / "installed.txt"
    if done.exists() and done.read_text() == text:
        return
    print(f"{name}: setting up {PLACE / name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE / name)], check=True)
    pip = [str(python(name)), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    if PEERS[name].needs:
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *PEERS[name].needs.split()], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(wanted)], check=True)
    done.write_text(text)


def version(name: str) -> str:
    words = f"from importlib.metadata import version; print(version({PEERS[name].package!r}))"
    told = subprocess.run([str(python(name)), "-c", words], capture_output=True, text=True, check=True)
    return told.stdout.strip()
