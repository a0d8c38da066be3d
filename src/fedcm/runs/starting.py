"""A run about to go on: a new one in a new folder, or one that was stopped at its newest checkpoint."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from fedcm.algorithms.registry import algorithm_name
from fedcm.config.experiment import Experiment, read_experiment, to_table, to_toml
from fedcm.config.overrides import read_table
from fedcm.data.shared import share
from fedcm.errors import UserError
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.diagnosis import Diagnosis
from fedcm.executors.process_group import ProcessGroup
from fedcm.runs import checkpoint, handshake
from fedcm.runs.assembly import Assembly, assemble
from fedcm.runs.folder import RunExistsError, RunFolder, free_name, make_provenance, read_versions
from fedcm.runs.torchrun import Launch
from fedcm.runs.worker_pool import WorkerPool

Say = Callable[[str], None]
Asked = Callable[[], bool]  # has somebody asked to stop?
PutTogether = Callable[[Experiment, Path | None], Assembly]


@final
@dataclass
class Run:
    """Its folder is locked, and its crew at hand, until `running.drive` is done with it."""

    folder: RunFolder
    assembly: Assembly
    states: ClientStatesInFile
    server: Any
    first: int
    stop_requested: Asked
    crew: WorkerPool | None = None
    group: ProcessGroup | None = None  # of processes that were there before the run; they have agreed to it
    diagnosis: Diagnosis | None = None  # what is measured beside the rounds, if it is

    @property
    def rounds(self) -> int:
        return self.assembly.plan.rounds


def begin(
    experiment: Experiment,
    runs_dir: Path,
    name: str | None = None,
    data_dir: Path | None = None,
    stop_requested: Asked = lambda: False,
    *,
    archive: Path | None = None,
    workers: int = 1,
    launch: Launch | None = None,
    put_together: PutTogether = assemble,
) -> Run:
    """A new run: everything is made and checked before its folder appears. A run of the same name is moved to `archive`
    then, if that is given.

    It is shared out over so many workers on this machine, or over the processes of a launch.
    """
    if name is not None:
        reject_unusable_name(name)
    assembly = put_together(experiment, data_dir)
    if launch is not None:
        handshake.offer(launch.group, assembly, runs_dir)
    job = launch.job if launch is not None else None
    experiment = assembly.experiment
    server = assembly.algorithm.init_server(assembly.problem.initial())
    origin = make_provenance(
        assembly.checksums, fingerprint(experiment), assembly.measured, job, assembly.problem.constants_sha256()
    )
    texts = to_toml(experiment), origin
    while True:
        path = runs_dir / (name or free_name(runs_dir, default_name(experiment)))
        try:
            folder = RunFolder.create(path, *texts, archive=archive)
            break
        except RunExistsError:
            if name is not None:
                raise  # otherwise another process took the free name first
    run = Run(folder, assembly, file_states(assembly, folder), server, 0, stop_requested)
    return _shared(run, data_dir, workers, launch)


def resume(
    path: Path,
    data_dir: Path | None = None,
    say: Say = print,
    stop_requested: Asked = lambda: False,
    *,
    workers: int = 1,
    launch: Launch | None = None,
    put_together: PutTogether = assemble,
) -> Run:
    """A run that was stopped, at its newest whole checkpoint."""
    folder = RunFolder.open(path)
    folder.lock()
    try:
        run = _resumed(folder, data_dir, say, stop_requested, put_together)
        if launch is not None:
            handshake.offer(launch.group, run.assembly, path.parent)
        return _shared(run, data_dir, workers, launch)
    except BaseException:
        folder.unlock()
        raise


def _shared(run: Run, data_dir: Path | None, workers: int, launch: Launch | None) -> Run:
    if launch is not None:
        run.group = launch.group
    elif workers > 1:
        run.crew = WorkerPool(run.folder.path, workers, data_dir, share(run.assembly.runner.data))
    return run


def _resumed(
    folder: RunFolder, data_dir: Path | None, say: Say, stop_requested: Asked, put_together: PutTogether
) -> Run:
    experiment, began = read_experiment(read_table(folder.experiment)), folder.read_provenance()
    if began.get("experiment_sha256") != fingerprint(experiment):
        raise UserError(
            f"{str(folder.experiment)!r} must be as the run began with it (but for rounds, targets and checkpoints), "
            "and was changed; start a new run with it"
        )
    before = began.get("versions", {})
    for library, version in read_versions().items():
        if before.get(library) != version:
            say(f"the run began with {library} {before.get(library)} and goes on with {version}: its bits may differ")
    assembly = put_together(experiment, data_dir)
    for part, digest in began["data_sha256"].items():
        if assembly.checksums.get(part) != digest:
            raise UserError(
                f"the data must be those that the run {folder.name!r} began with, and {part!r} has another checksum; "
                "bring the old data back or start a new run"
            )
    if began.get("constants_sha256", mine := assembly.problem.constants_sha256()) != mine:
        raise UserError(
            f"the model's frozen parameters and buffers must be those that the run {folder.name!r} began with, and "
            "have another checksum; bring the old ones back or start a new run"
        )
    server = assembly.algorithm.init_server(assembly.problem.initial())
    states = file_states(assembly, folder)
    found = checkpoint.newest(folder.checkpoints, server, states.take, say)
    if found is None and checkpoint.exists(folder.checkpoints):
        raise UserError(
            f"no checkpoint of {str(folder.path)!r} is whole; start the run anew with `fedcm run {folder.experiment}`"
        )
    if found is None:
        return Run(folder, assembly, states, server, 0, stop_requested)
    if found.next_round > assembly.plan.rounds:
        raise UserError(
            f"the run {folder.name!r} must be resumed with at least the {found.next_round} rounds that are done, "
            f"and its experiment has {assembly.plan.rounds}"
        )
    return Run(folder, assembly, states, found.server, found.next_round, stop_requested)


def file_states(assembly: Assembly, folder: RunFolder) -> ClientStatesInFile:
    settings = assembly.experiment.checkpoints
    rounds_named = settings.every * (settings.keep + 1)
    rounded = torch.bfloat16 if assembly.experiment.engine.client_states == "bfloat16" else None
    return ClientStatesInFile(
        assembly.algorithm, assembly.problem.initial(), folder.client_states, rounds_named, rounded
    )


def fingerprint(experiment: Experiment) -> str:
    """sha256 of all settings that the rounds already done depend on: a run may be made longer."""
    table = to_table(experiment)
    for key in ("name", "rounds", "checkpoints", "data", "cell"):  # data have checksums of their own
        del table[key]
    del table["evaluation"]["targets"]
    links = table.pop("federation")  # but for how vectors are rounded, who waits how long changes no number
    table |= {f"federation.{key}": links[key] for key in ("downlink", "momentum", "uplink") if links[key] != "exact"}
    text = json.dumps(table, sort_keys=True, default=str)  # a model of the user's own may have dates for options
    return hashlib.sha256(text.encode()).hexdigest()


def reject_unusable_name(name: str) -> None:
    if not (re.fullmatch(r"\w[\w.+=-]*", name) and len(name.encode()) <= 200):
        raise UserError(f"a run's name must be up to 200 letters, digits and . _ + = -, got {name!r}")


def default_name(experiment: Experiment) -> str:
    """Of experiment, algorithm and seed."""
    words = f"{experiment.name}-{algorithm_name(experiment.algorithm)}-seed{experiment.seed}"
    return re.sub(r"[^\w.+=-]+", "-", words).strip("-.").lower()
