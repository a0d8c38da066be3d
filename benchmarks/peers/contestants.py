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
    best: dict[str, Setting]  # by work
    needs: str = "torch numpy"  # installed first, in the versions of constraints.txt

    def works(self) -> list[str]:
        return list(self.best)


# Tried once with `--settings all`, on a machine busy with other work, seconds a round
# (s1 = 1 × 1, s2 = 1 × 2, p2 = 2 × 1, p4 = 4 × 1):
#   linear  pfl s2 6.055, p2 0.384   flower s2 17.224, p2 0.751, p4 0.638   fedlab s1 0.115, s2 1.384, p2 0.631
#           fedjax s1 0.113, s2 0.105
#   lenet   pfl s2 5.386, p2 0.690   flower s2 13.003, p2 0.951, p4 1.031   fedlab s1 1.088, s2 8.453, p2 1.487
# `best` is this one trial's winner. cnn was tried in 2 × 1 alone, pfl's 1 × 1 not at all, and a busy machine is hard on
# several threads or processes: try again on a quiet one before believing a ratio.
PEERS = {
    "pfl": Peer("pfl", (SOLE, ONE, TWO), {"lenet": TWO, "cnn": TWO, "linear": TWO}),
    "flower": Peer("flwr", (ONE, TWO, FOUR), {"lenet": TWO, "cnn": TWO, "linear": FOUR}),
    "fedlab": Peer("fedlab", (SOLE, ONE, TWO), {"lenet": SOLE, "cnn": TWO, "linear": SOLE}),
    "fedjax": Peer("fedjax", (SOLE, ONE), {"linear": ONE}, needs=""),
}


def python(name: str) -> Path:
    return PLACE / name / "bin" / "python"


def prepare(name: str) -> None:
    """The peer's virtual environment, made anew when what it must hold has changed."""
    wanted = HERE / "requirements" / f"{name}.txt"
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    text = wanted.read_text() + "\n".join(pin for pin in pins if pin.split("==")[0] in PEERS[name].needs.split())
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
