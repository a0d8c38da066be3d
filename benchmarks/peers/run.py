"""Time this engine against its peers on the same FedAvg workload, each in its own virtual environment under .peers.

    python benchmarks/peers/run.py                                              everything, to benchmarks/PEERS.md
    python benchmarks/peers/run.py --works lenet                                one section of it
    python benchmarks/peers/run.py --only pfl,fedcm --works lenet --rounds 4    only printed
    python benchmarks/peers/run.py --settings all --turns 1                     all settings, only printed

The contestants take turns, so that noise affects all equally; ratios of medians come first.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from contestants import HERE, OURS, OWN, PEERS, Setting, get_python, prepare
from figures import HEAD, Figures, format_head, format_rows, format_section
from process_monitor import run_monitored

sys.path.append(str(HERE.parent))
from bare_loop import WORKERS, make_command
from pages import write_section
from workloads import WORKLOADS

ROUNDS = {"lenet": 8, "cnn": 4, "linear": 100}  # per turn; the first of each turn is not counted


def run_peer(
    name: str, setting: Setting, work: str, rounds: int, folder: Path, figures: Figures, *, memory: bool
) -> None:
    words = [str(get_python(name)), str(HERE / f"{name}_rounds.py"), work, str(write_arrays(work, folder))]
    paths = os.pathsep.join(map(str, (HERE, HERE.parent)))
    env = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": str(setting.threads)}
    run = run_monitored([*words, str(rounds), str(setting.processes), str(setting.threads)], env, memory=memory)
    result = json.loads(run.output.splitlines()[-1])
    figures.add(run.began, result["ready"], result["rounds"], run.peak)


def run_ours(name: str, work: str, rounds: int, folder: Path, figures: Figures, *, memory: bool) -> None:
    runs = folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    words = make_command(work, "fedavg", rounds, folder)
    if name == OWN:
        words += ["--set", f"model.name=plain_models:build_{work}"]
    noticed = lambda: any(path.stat().st_size for path in runs.glob("*/metrics.jsonl"))  # noqa: E731
    run = run_monitored(words, os.environ | {"PYTHONPATH": str(HERE.parent)}, noticed, memory=memory)
    lines = (runs / json.loads(run.output)["name"] / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    assert run.noticed is not None, "a run of several rounds must be noticed before it ends"
    figures.add(run.began, run.noticed - seconds[0], seconds, run.peak)


def write_arrays(work: str, folder: Path) -> Path:
    """Write the workload's data as files that a peer's processes can map; return their folder."""
    target = folder / str(WORKLOADS[work].shape)
    if not target.exists():
        make_command(work, "fedavg", 1, folder)
        target.mkdir()
        with np.load(f"{target}.npz") as data:
            for part in ("x", "y"):
                np.save(target / f"{part}.npy", data[part])
    return target


def drop_from_cache(folder: Path) -> None:
    """Make the system forget the content of files that it has just written.

    Linux caches a new file in large pieces. A process that maps it then has a whole piece in memory for every example
    that it reads, which is not so with files that are read from the disk.
    """
    for path in folder.rglob("*.np[yz]"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_contest(work: str, entries: list[tuple[str, Setting]], rounds: int, turns: int) -> list[Figures]:
    figures = [Figures() for _ in entries]
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(work, Path(folder))
        for turn in range(turns + 1):  # the first turn measures memory, the others time
            for shift in range(len(entries)):
                which = (turn + shift) % len(entries)
                name, setting = entries[which]
                if not turn:
                    drop_from_cache(Path(folder))
                if name in (OURS, OWN):
                    run_ours(name, work, rounds, Path(folder), figures[which], memory=not turn)
                else:
                    run_peer(name, setting, work, rounds, Path(folder), figures[which], memory=not turn)
                figure = f"{figures[which].median:.3f} s per round" if turn else f"{figures[which].peak / 1e6:.0f} MB"
                print(f"{work}, turn {turn}: {name} {setting}, {figure}", file=sys.stderr, flush=True)
    return figures


def list_entries(names: list[str], work: str, *, every_setting: bool) -> list[tuple[str, Setting]]:
    entries = [(name, Setting(WORKERS, 1)) for name in (OURS, OWN) if name in names]
    for name, peer in PEERS.items():
        if name in names and work in peer.workloads:
            entries += [(name, setting) for setting in (peer.tried if every_setting else peer.best[work])]
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"contestants, separated by commas: {', '.join([OURS, OWN, *PEERS])}")
    parser.add_argument("--works", help=f"workloads, separated by commas: {', '.join(ROUNDS)}")
    parser.add_argument("--rounds", type=int, help="rounds per turn; the first of each turn is not counted")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--settings", choices=("best", "all"), default="best", help="processes × threads of the peers")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [OURS, OWN, *PEERS]
    works = options.works.split(",") if options.works else list(ROUNDS)
    for name in names:
        if name not in (OURS, OWN):
            prepare(name)
    for work in works:
        competing = list_entries(names, work, every_setting=options.settings == "all")
        figures = run_contest(work, competing, options.rounds or ROUNDS[work], options.turns)
        result = list(zip(competing, figures, strict=True))
        print("\n".join([*HEAD, *format_rows(work, result)]), flush=True)
        if not (options.only or options.rounds) and options.settings == "best":
            write_section("PEERS.md", format_head(), format_section(work, result, options.turns))


if __name__ == "__main__":
    main()
