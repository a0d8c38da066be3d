"""Run a federation for minutes while its processes are killed again and again, and compare the trained parameters.

    make soak                   20 minutes
    make soak MINUTES=2 SEED=7

Four sites and a server over mutual TLS, with secure aggregation. Runs follow each other, with and without client
states. In each of them, trainings, whole sites, the server's job and the server are killed at random times, until the
time is over. Every run must finish, with the parameters of an uninterrupted simulation of the sites that counted in
each round, bit for bit. The last line begins with "ok"; otherwise the exit code is 1.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fleet import Fleet, Running, bits, experiment_file, fedcm, fleet_of, provision
from killer import Killer
from replay import read_cohorts, replay

from fedcm.config.experiment import load_experiment_file
from fedcm.federation.provision.deal import deal

SITES = ("a", "b", "c", "d")
ALGORITHMS = ("scaffold", "fedcm")
ROUNDS = 25
PATIENCE = 60.0  # seconds without a new round, after which nothing is killed until there is one
STUCK = 300.0  # seconds without a new round, after which the soak fails
SECURE = {
    "classes": 10,
    "secure_aggregation": True,
    "quorum": 0.75,
    "wait": 5,
    "deadline": 60,
    "retry_after": 2,
    "give_up_after": 1000,
}
STARTED = time.monotonic()


class SoakError(Exception):
    """A run did not end as it must."""


def say(line: str) -> None:
    print(f"{time.monotonic() - STARTED:7.1f} s  {line}", flush=True)


def write_experiment(path: Path, algorithm: str, seed: int) -> Path:
    return experiment_file(
        path,
        rounds=ROUNDS,
        seed=seed,
        algorithm={"name": algorithm},
        split={"kind": "dirichlet", "clients": len(SITES), "concentration": 0.6},
        client={"epochs": 10, "batch_size": 16, "lr": 0.02},
        federation=SECURE,
    )


def watch(fleet: Fleet, command: Running, name: str, killer: Killer, until: float) -> None:
    """Kill processes until the run is finished; from the time `until` on, only let it finish."""
    killer.rest()
    rounds, changed, resumes, resting = 0, time.monotonic(), 0, False
    while command.process.poll() != 0:
        if not resting and time.monotonic() >= until:
            say("the time is over: the last run may finish")
            resting = True
        has_rest = resting or time.monotonic() - changed > PATIENCE
        killer.restart() if has_rest else killer.step()
        if fleet.rounds(name) != rounds:
            rounds, changed = fleet.rounds(name), time.monotonic()
        if command.process.poll() not in (None, 0):
            resumes += 1
            say(f"the admin's command gave up ({command.output.strip().splitlines()[-1]}); resume it")
            command = fleet.follow("resume", name)
            if resumes > 20:
                raise SoakError(f"{name} had to be resumed {resumes} times")
        if time.monotonic() - changed > STUCK:
            raise SoakError(f"{name} has had no new round for {STUCK:g} s, at round {rounds}")
        time.sleep(0.1)


def compare(fleet: Fleet, experiment: Path, name: str) -> list[list[int]]:
    """Compare a finished run with its replay and return the cohorts that counted."""
    cohorts = read_cohorts(fleet.at_server(name))
    if len(cohorts) != ROUNDS:
        raise SoakError(f"{name} has {len(cohorts)} rounds instead of {ROUNDS}")
    simulated = replay(load_experiment_file(experiment), cohorts, fleet.folder / "replayed", name)
    real, fetched = bits(fleet.at_server(name)), bits(fleet.folder / "runs" / name)
    if not real == fetched == bits(simulated):
        raise SoakError(f"{name}: the parameters differ: {real} at the server, {fetched} fetched, {bits(simulated)}")
    return cohorts


def soak(fleet: Fleet, minutes: float, seed: int) -> str:
    """Return a summary of what was survived."""
    until = time.monotonic() + 60 * minutes
    killer = Killer(fleet, SITES, random.Random(seed), say)
    sizes: Counter[int] = Counter()
    runs = 0
    while time.monotonic() < until or not runs:
        algorithm, name = ALGORITHMS[runs % len(ALGORITHMS)], f"run{runs}"
        experiment = write_experiment(fleet.folder / f"{name}.toml", algorithm, seed)
        say(f"{name} starts: {algorithm}, {ROUNDS} rounds")
        killer.restart()
        command = fleet.follow("run", experiment, "--name", name, "--sites", ",".join(SITES), "--restarts", 20)
        command.wait_for("was submitted")
        watch(fleet, command, name, killer, until)
        cohorts = compare(fleet, experiment, name)
        sizes.update(map(len, cohorts))
        say(f"{name} finished with the bits of its replay; sites per round: {' '.join(map(str, map(len, cohorts)))}")
        runs += 1
    audit = fedcm("federation", "audit", fleet.server)
    if audit.code:
        raise SoakError(f"the audit log is damaged: {audit.err or audit.out}")
    kills = ", ".join(f"{count} × {kind}" for kind, count in killer.kills.items())
    rounds = ", ".join(f"{count} with {size} sites" for size, count in sorted(sizes.items(), reverse=True))
    ends = f"{runs} run{'s' * (runs > 1)} of {ROUNDS} rounds ({rounds}) ended with the bits of simulations"
    return f"{ends}; killed: {kills or 'nothing'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long processes are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the kills and of the runs")
    parser.add_argument("--keep", type=Path, help="a new folder for the kits and logs; by default a temporary one")
    chosen = parser.parse_args()
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="fedcm-soak-"))
    try:
        kits = provision(folder / "kits", SITES)
        with fleet_of(kits, folder / "federation") as fleet:
            split = load_experiment_file(write_experiment(folder / "split.toml", ALGORITHMS[0], chosen.seed))
            files, _ = deal(split, SITES, folder / "dealt")
            fleet.deal(files[0].parent, SITES)
            fleet.start(*SITES)
            say(f"{len(SITES)} sites are connected; seed {chosen.seed}, {chosen.minutes:g} minutes")
            result = soak(fleet, chosen.minutes, chosen.seed)
    except (SoakError, AssertionError) as error:
        print(f"failed: {error}\nthe kits and logs are in {folder}", flush=True)
        return 1
    if chosen.keep is None:
        shutil.rmtree(folder)
    print(f"ok: {result}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
