"""Mutation testing: change one line of the source at a time and check that a test fails.

    make mutants                                    everything in tests/mutation/targets.py
    python tests/mutation/run.py --group algorithms
    python tests/mutation/run.py --sample 50        50 mutants per source, always the same ones
    python tests/mutation/run.py --record FILE      remember killed mutants in FILE; next time only the rest is tried

Each mutant runs on a copy of the source, in a fork of a process that has already imported torch, so a fast one takes
about a second. A mutant counts as killed if it takes longer than ten seconds plus three times the usual time.

mutmut puts all mutants of a function into one file behind a switch, which breaks dataclasses with class-level defaults
and functions whose signature is read; cosmic-ray starts a new Python for every mutant, and importing torch takes longer
than the tests.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, final

from one_line_mutants import Mutant, mutate
from targets import TARGETS, Target

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fedcm"

Outcome = Literal["passed", "failed", "too long"]
_OUTCOMES = {"passed": "survived", "too long": "killed because it took too long"}


@final
@dataclass(frozen=True)
class Job:
    target: Target
    source: str
    mutant: Mutant
    seconds: float  # after which it counts as killed

    @property
    def key(self) -> str:
        """Identifies the mutant as long as the source is the same."""
        return f"{self.source} {hashlib.sha256(self.mutant.source.encode()).hexdigest()[:16]}"


class Workbench:
    """A copy of the source in which one file at a time is changed; one per process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        shutil.copytree(SOURCE, self.folder / "fedcm", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "experiments", self.folder / "fedcm" / "experiments")
        sys.path.insert(0, str(self.folder))
        os.environ |= {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        sys.dont_write_bytecode = True
        import hypothesis  # noqa: F401
        import torch

        torch.set_num_threads(1)

    def test(self, tests: Iterable[str], seconds: float) -> Outcome:
        """Run the tests on the current source, up to the first failure."""
        child = os.fork()
        if child == 0:
            os.setsid()  # so that processes started by the tests can be killed with them
            signal.alarm(int(seconds) + 10)  # ends it even if the waiting process was killed
            self._test_in_fork(tests)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return "failed" if status else "passed"
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "too long"

    def _test_in_fork(self, tests: Iterable[str]) -> None:
        code = 1
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.chdir(ROOT)
            import pytest

            words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not federation"]
            for each in tests:  # one at a time, since conftest files of two folders share a name
                code = int(pytest.main([*words, each]))
                if code:
                    break
                for name in [name for name in sys.modules if name == "conftest"]:
                    del sys.modules[name]
        finally:
            os._exit(code)

    def try_out(self, job: Job) -> Outcome:
        path = self.folder / "fedcm" / job.source
        original = path.read_text()
        path.write_text(job.mutant.source)
        try:
            return self.test(job.target.tests, job.seconds)
        finally:
            path.write_text(original)


_bench: Workbench | None = None


def get_bench() -> Workbench:
    """Return this process's workbench."""
    global _bench
    _bench = _bench or Workbench()
    return _bench


def try_out(job: Job) -> Outcome:
    return get_bench().try_out(job)


def time_tests(target: Target) -> float:
    """Return the usual time of a target's tests, which must pass on the unchanged source."""
    began = time.monotonic()
    if get_bench().test(target.tests, 900) != "passed":
        sys.exit(f"the tests of {', '.join(target.sources)} must pass before mutants are made, but they fail")
    return time.monotonic() - began


def list_jobs(targets: Iterable[Target], sample: int | None, pool: ProcessPoolExecutor) -> list[Job]:
    targets, jobs = list(targets), []
    for target, seconds in zip(targets, pool.map(time_tests, targets), strict=True):
        for source in target.sources:
            mutants = list(mutate((SOURCE / source).read_text()))
            if sample is not None and len(mutants) > sample:
                mutants = random.Random(source).sample(mutants, sample)
            jobs += [Job(target, source, mutant, 10 + 3 * seconds) for mutant in mutants]
    return jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", help=f"one of {', '.join(dict.fromkeys(target.group for target in TARGETS))}")
    parser.add_argument("--source", help="one source, e.g. algorithms/fedcm.py")
    parser.add_argument("--sample", type=int, help="at most this many mutants per source")
    parser.add_argument("--record", type=Path, metavar="FILE", help="remember killed mutants in FILE")
    options = parser.parse_args()
    targets = [target for target in TARGETS if options.group in (None, target.group)]
    if options.source:
        targets = [Target(t.group, (options.source,), t.tests) for t in targets if options.source in t.sources]
    tried, killed = defaultdict(int), defaultdict(int)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        work = list_jobs(targets, options.sample, pool)
        dead = set(options.record.read_text().splitlines()) if options.record and options.record.exists() else set()
        for job in work:
            tried[job.target.group, job.source] += 1
            killed[job.target.group, job.source] += job.key in dead
        rest = [job for job in work if job.key not in dead]
        for k, (job, outcome) in enumerate(zip(rest, pool.map(try_out, rest), strict=True)):
            killed[job.target.group, job.source] += outcome != "passed"
            if outcome != "failed":
                print(f"{_OUTCOMES[outcome]}: {job.source}:{job.mutant.label}", flush=True)
            if outcome != "passed" and options.record:
                with options.record.open("a") as file:
                    file.write(job.key + "\n")
            if sys.stderr.isatty():
                print(f"\r{k + 1} of {len(rest)}", end="", file=sys.stderr, flush=True)
    print_table(tried, killed)


def print_table(tried: dict[tuple[str, str], int], killed: dict[tuple[str, str], int]) -> None:
    """Print the results as Markdown, for docs/testing.md."""
    print("\n| group | source | mutants | killed | |\n|---|---|---|---|---|")
    for group, source in tried:
        made, dead = tried[group, source], killed[group, source]
        print(f"| {group} | `{source}` | {made} | {dead} | {dead / made:.0%} |")
    for group in dict.fromkeys(group for group, _ in tried):
        made = sum(count for (own, _), count in tried.items() if own == group)
        dead = sum(count for (own, _), count in killed.items() if own == group)
        print(f"| **{group}** | all | {made} | {dead} | **{dead / made:.0%}** |")


if __name__ == "__main__":
    main()
