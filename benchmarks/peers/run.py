"""This engine against its peers on the same work, plain FedAvg, each in a virtual environment of its own under .peers.

    python benchmarks/peers/run.py                                              everything, into benchmarks/PEERS.md
    python benchmarks/peers/run.py --works lenet                                one section of it
    python benchmarks/peers/run.py --only pfl,fedcm --works lenet --rounds 4    printed only
    python benchmarks/peers/run.py --settings all --turns 1                     every setting tried, printed only

The contestants take turns, so that a noisy machine disturbs them alike; ratios of medians come first.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from contestants import HERE, OURS, PEERS, Setting, prepare, python
from figures import HEAD, Figures, head, rows, section
from watch import watched

sys.path.append(str(HERE.parent))
from bare_loop import WORKERS, command
from pages import write_section
from works import WORKS

ROUNDS = {"lenet": 8, "cnn": 4, "linear": 100}  # a turn; the first of each turn does not count


def peer_turn(
    name: str, setting: Setting, work: str, rounds: int, folder: Path, figures: Figures, *, memory: bool
) -> None:
    words = [str(python(name)), str(HERE / f"{name}_rounds.py"), work, str(arrays(work, folder))]
    paths = os.pathsep.join(map(str, (HERE, HERE.parent)))
    env = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": str(setting.threads)}
    seen = watched([*words, str(rounds), str(setting.processes), str(setting.threads)], env, memory=memory)
    told = json.loads(seen.output.splitlines()[-1])
    figures.add(seen.began, told["ready"], told["rounds"], seen.peak)


def our_turn(work: str, rounds: int, folder: Path, figures: Figures, *, memory: bool) -> None:
    runs = folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    words = command(work, "fedavg", rounds, folder)
    noticed = lambda: any(path.stat().st_size for path in runs.glob("*/metrics.jsonl"))  # noqa: E731
    seen = watched(words, dict(os.environ), noticed, memory=memory)
    lines = (runs / json.loads(seen.output)["name"] / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    assert seen.noticed is not None, "a run of several rounds is longer than a tick"
    figures.add(seen.began, seen.noticed - seconds[0], seconds, seen.peak)


def arrays(work: str, folder: Path) -> Path:
    """The data of `command` once more, as files that a peer's processes can map."""
    target = folder / str(WORKS[work].shape)
    if not target.exists():
        command(work, "fedavg", 1, folder)
        target.mkdir()
        with np.load(f"{target}.npz") as data:
            for part in ("x", "y"):
                np.save(target / f"{part}.npy", data[part])
    return target


def contest(work: str, entries: list[tuple[str, Setting]], rounds: int, turns: int) -> list[Figures]:
    figures = [Figures() for _ in entries]
    with tempfile.TemporaryDirectory() as folder:
        arrays(work, Path(folder))
        for turn in range(turns + 1):  # the first for its memory, the others for time
            for shift in range(len(entries)):
                which = (turn + shift) % len(entries)
                name, setting = entries[which]
                if name == OURS:
                    our_turn(work, rounds, Path(folder), figures[which], memory=not turn)
                else:
                    peer_turn(name, setting, work, rounds, Path(folder), figures[which], memory=not turn)
                told = f"{figures[which].median:.3f} s a round" if turn else f"{figures[which].peak / 1e6:.0f} MB"
                print(f"{work}, turn {turn}: {name} {setting}, {told}", file=sys.stderr, flush=True)
    return figures


def entries(names: list[str], work: str, *, every_setting: bool) -> list[tuple[str, Setting]]:
    found = [(OURS, Setting(WORKERS, 1))] if OURS in names else []
    for name, peer in PEERS.items():
        if name in names and work in peer.works():
            found += [(name, setting) for setting in (peer.tried if every_setting else peer.best[work])]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"contestants, with commas: {', '.join([OURS, *PEERS])}")
    parser.add_argument("--works", help=f"with commas: {', '.join(ROUNDS)}")
    parser.add_argument("--rounds", type=int, help="a turn; the first of each turn does not count")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--settings", choices=("best", "all"), default="best", help="processes × threads of the peers")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else [OURS, *PEERS]
    works = asked.works.split(",") if asked.works else list(ROUNDS)
    for name in names:
        if name != OURS:
            prepare(name)
    for work in works:
        competing = entries(names, work, every_setting=asked.settings == "all")
        figures = contest(work, competing, asked.rounds or ROUNDS[work], asked.turns)
        result = list(zip(competing, figures, strict=True))
        print("\n".join([*HEAD, *rows(work, result)]), flush=True)
        if not (asked.only or asked.rounds) and asked.settings == "best":
            write_section("PEERS.md", head(), section(work, result, asked.turns))


if __name__ == "__main__":
    main()
