"""The contestants: their environments, workloads and settings."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = ROOT / ".peers"  # one virtual environment per peer

OURS = "fedcm"
OWN = "fedcm-own-model"  # with the model as the peers have it, which is what users bring


@dataclass(frozen=True)
class Setting:
    """How many processes, and how many threads in each."""

    processes: int
    threads: int  # per process

    def __str__(self) -> str:
        return f"{self.processes} × {self.threads}"


ONE, TWO, FOUR, SOLE = Setting(1, 2), Setting(2, 1), Setting(4, 1), Setting(1, 1)


@dataclass(frozen=True)
class Peer:
    """Another framework."""

    package: str
    tried: tuple[Setting, ...]
    best: dict[str, tuple[Setting, ...]]  # by workload: the fastest, and those close to it
    needs: str = "torch numpy"  # installed first, in the versions of constraints.txt

    @property
    def workloads(self) -> list[str]:
        return list(self.best)


# Tried once on a quiet machine of two cores with `--settings all --turns 1`, seconds per round
# (s1 = 1 × 1, s2 = 1 × 2, p2 = 2 × 1, p4 = 4 × 1); `best` is the fastest and, if a round takes seconds,
# those within a fifth of it:
#   lenet   pfl s1 0.706, s2 0.475, p2 0.392   flower s2 1.021, p2 0.721, p4 0.836   fedlab s1 0.759, s2 0.560, p2 0.506
#   cnn     pfl s1 6.310, s2 3.084, p2 3.637   flower s2 5.790, p2 3.971, p4 4.087   fedlab s1 5.842, s2 3.359, p2 3.294
#   linear  pfl s1 0.151, s2 0.155, p2 0.101   flower s2 1.719, p2 0.890, p4 0.677   fedlab s1 0.112, s2 0.145, p2 0.270
#           fedjax s1 0.105, s2 0.115
PEERS = {
    "pfl": Peer("pfl", (SOLE, ONE, TWO), {"lenet": (TWO,), "cnn": (ONE, TWO), "linear": (TWO,)}),
    "flower": Peer("flwr", (ONE, TWO, FOUR), {"lenet": (TWO,), "cnn": (TWO,), "linear": (FOUR,)}),
    "fedlab": Peer("fedlab", (SOLE, ONE, TWO), {"lenet": (TWO,), "cnn": (ONE, TWO), "linear": (SOLE,)}),
    "fedjax": Peer("fedjax", (SOLE, ONE), {"linear": (SOLE,)}, needs=""),
}


def get_python(name: str) -> Path:
    """Return the path of the peer's Python."""
    return PLACE / name / "bin" / "python"


def prepare(name: str) -> None:
    """Create the peer's virtual environment, or recreate it if its requirements changed."""
    wanted = HERE / "requirements" / f"{name}.txt"
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    text = wanted.read_text() + "\n".join(pin for pin in pins if pin.split("==")[0] in PEERS[name].needs.split())
    stamp = PLACE / name / "installed.txt"
    if stamp.exists() and stamp.read_text() == text:
        return
    print(f"{name}: setting up {PLACE / name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE / name)], check=True)
    pip = [str(get_python(name)), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    if PEERS[name].needs:
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *PEERS[name].needs.split()], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(wanted)], check=True)
    stamp.write_text(text)


def read_version(name: str) -> str:
    """Return the installed version of the peer."""
    words = f"from importlib.metadata import version; print(version({PEERS[name].package!r}))"
    done = subprocess.run([str(get_python(name)), "-c", words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
