"""An experiment run into a folder, from the start or from its newest checkpoint: the same bits either way."""

import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from fedcm import checkpoint
from fedcm.algorithms.lookup import algorithm_name
from fedcm.assembly import Assembly, assemble
from fedcm.checkpoint import Checkpoint
from fedcm.crew import Crew, given_data, join, noting
from fedcm.data.shared import share
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.executor import Diverged, Executor, Stopped
from fedcm.executors.group import Group, WorkerFailed
from fedcm.executors.local import LocalExecutor
from fedcm.executors.state_file import FileStates
from fedcm.experiment import Experiment, read, resolved, to_toml
from fedcm.overrides import read_table
from fedcm.record import Exists, RunFolder, free_name, provenance, versions
from fedcm.refusal import Refused
from fedcm.summary import params_sha256, summarise
from fedcm.training import Metrics, training

Say = Callable[[str], None]


Asked = Callable[[], bool]  # has somebody asked to stop?


@final
@dataclass
class Run:
    """A run about to go on; its folder is locked, and its crew at hand, until `drive` is done with it."""

    folder: RunFolder
    assembly: Assembly
    states: FileStates
    server: Any
    first: int
    stop_requested: Asked
    crew: Crew | None = None

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
    replace: bool = False,
    workers: int = 1,
) -> Run:
    """A new run: everything is made and checked before its folder appears (or replaces one of the same name)."""
    if name is not None and not (re.fullmatch(r"\w[\w.+=-]*", name) and len(name.encode()) <= 200):
        raise Refused(f"a run's name must be up to 200 letters, digits and . _ + = -, got {name!r}")
    assembly = assemble(experiment, data_dir)
    texts = to_toml(experiment), provenance(assembly.checksums, fingerprint(experiment))
    while True:
        path = runs_dir / (name or free_name(runs_dir, default_name(experiment)))
        try:
            folder = RunFolder.create(path, *texts, replace=replace)
            break
        except Exists:
            if name is not None:
                raise  # otherwise another process took the free name first
    server = assembly.algorithm.init_server(assembly.problem.initial())
    crew = Crew(folder.path, workers, data_dir, share(assembly.runner.data)) if workers > 1 else None
    return Run(folder, assembly, file_states(assembly, folder), server, 0, stop_requested, crew)


def resume(
    path: Path,
    data_dir: Path | None = None,
    say: Say = print,
    stop_requested: Asked = lambda: False,
    *,
    workers: int = 1,
) -> Run:
    """A run that was stopped, at its newest whole checkpoint."""
    folder = RunFolder.open(path)
    folder.lock()
    try:
        run = _resumed(folder, data_dir, say, stop_requested)
        if workers > 1:
            run.crew = Crew(folder.path, workers, data_dir, share(run.assembly.runner.data))
        return run
    except BaseException:
        folder.unlock()
        raise


def _resumed(folder: RunFolder, data_dir: Path | None, say: Say, stop_requested: Asked) -> Run:
    experiment, began = read(read_table(folder.experiment)), folder.read_provenance()
    if began.get("experiment_sha256") != fingerprint(experiment):
        raise Refused(
            f"{str(folder.experiment)!r} must be as the run began with it (but for rounds, targets and checkpoints), "
            "and was changed; start a new run with it"
        )
    before = began.get("versions", {})
    for library, version in versions().items():
        if before.get(library) != version:
            say(f"the run began with {library} {before.get(library)} and goes on with {version}: its bits may differ")
    assembly = assemble(experiment, data_dir)
    for part, digest in began["data_sha256"].items():
        if assembly.checksums.get(part) != digest:
            raise Refused(
                f"the data must be those that the run {folder.name!r} began with, and {part!r} has another checksum; "
                "bring the old data back or start a new run"
            )
    server = assembly.algorithm.init_server(assembly.problem.initial())
    states = file_states(assembly, folder)
    found = checkpoint.newest(folder.checkpoints, server, states.take, say)
    if found is None and checkpoint.exists(folder.checkpoints):
        raise Refused(
            f"no checkpoint of {str(folder.path)!r} is whole; start the run anew with `fedcm run {folder.experiment}`"
        )
    if found is None:
        return Run(folder, assembly, states, server, 0, stop_requested)
    if found.next_round > assembly.plan.rounds:
        raise Refused(
            f"the run {folder.name!r} must be resumed with at least the {found.next_round} rounds that are done, "
            f"and its experiment has {assembly.plan.rounds}"
        )
    return Run(folder, assembly, states, found.server, found.next_round, stop_requested)


def file_states(assembly: Assembly, folder: RunFolder) -> FileStates:
    settings = assembly.experiment.checkpoints
    rounds_named = settings.every * (settings.keep + 1)
    rounded = torch.bfloat16 if assembly.experiment.engine.client_states == "bfloat16" else None
    return FileStates(assembly.algorithm, assembly.problem.initial(), folder.client_states, rounds_named, rounded)


def drive(run: Run) -> Generator[Metrics, None, None]:
    """Run the rounds that are left, writing everything down; gives each round's metrics when it is done."""
    group: Group | None = None
    try:
        run.folder.summary.unlink(missing_ok=True)  # of an end that it comes to again
        run.folder.clear_leftovers()
        checkpoint.clear_after(run.folder.checkpoints, run.first)
        run.folder.keep_metrics(run.first)
        if run.crew is None:
            executor: Executor = LocalExecutor(run.assembly.runner, run.states, run.stop_requested)
        else:
            group = run.crew.gather()
            group.from_first(torch.tensor(run.first))
            for field in run.server:
                group.from_first(field)
            group.tensors_from_first(run.states.save())
            executor = DistributedExecutor(run.assembly.runner, run.states, group, run.stop_requested)
        yield from _rounds(run, executor)
        _finish(run)
    except WorkerFailed as failure:
        raise WorkerFailed(run.crew.why(str(failure)) if run.crew is not None else str(failure)) from None
    finally:
        if group is not None:
            group.close()
        if run.crew is not None:
            run.crew.dismiss()
        run.folder.unlock()


def follow(path: Path, data_dir: Path | None, stop_requested: Asked) -> None:
    """A worker's part in a run that another process began and writes down."""
    folder = RunFolder.open(path)
    assembly = assemble(read(read_table(folder.experiment)), data_dir, given_data())
    states = file_states(assembly, folder)
    group = join()
    try:
        first = int(group.from_first(torch.tensor(0)))
        template = assembly.algorithm.init_server(assembly.problem.initial())
        server = type(template)(*[group.from_first(field) for field in template])
        states.restore(group.tensors_from_first(None))
        at = noting(folder.path, group.rank)
        executor = DistributedExecutor(assembly.runner, states, group, stop_requested, at)
        for _ in training(assembly.algorithm, executor, assembly.plan, server, first):
            pass
    except (Stopped, Diverged, WorkerFailed):
        pass  # the first process tells
    finally:
        group.close()


def _rounds(run: Run, executor: Executor) -> Iterator[Metrics]:
    assembly, settings = run.assembly, run.assembly.experiment.checkpoints
    saved = run.first
    try:
        for done in training(assembly.algorithm, executor, assembly.plan, run.server, run.first):
            run.folder.append(done.metrics)
            run.server, run.first = done.server, done.index + 1
            if run.first % settings.every == 0 or run.first == run.rounds:
                _save(run, settings.keep)
                saved = run.first
            yield done.metrics
    except Stopped:
        if run.first > saved:
            _save(run, settings.keep)
        raise
    except Diverged as reason:
        run.folder.write_summary(_summary(run, "diverged") | {"reason": str(reason)})
        raise


def _save(run: Run, keep: int) -> None:
    run.folder.flush_metrics()
    state = Checkpoint(run.first, run.server, run.states.save())
    checkpoint.write(run.folder.checkpoints, state, keep)


def _finish(run: Run) -> None:
    model = run.assembly.problem.bind(run.server.params)
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    run.folder.write_model({name: tensor.detach().clone() for name, tensor in tensors.items()})
    run.folder.write_summary(_summary(run, "finished"))


def _summary(run: Run, outcome: str) -> dict[str, Any]:
    experiment = run.assembly.experiment
    return {
        "name": run.folder.name,
        "outcome": outcome,
        "algorithm": algorithm_name(experiment.algorithm),
        "seed": experiment.seed,
        "parameters": run.assembly.problem.size,
        **summarise(run.folder.read_metrics(), experiment.evaluation.targets),
        "params_sha256": params_sha256(run.server.params),
    }


def fingerprint(experiment: Experiment) -> str:
    """sha256 of all settings that the rounds already done depend on: a run may be made longer."""
    table = resolved(experiment)
    for key in ("name", "rounds", "checkpoints", "data"):  # data have checksums of their own
        del table[key]
    del table["evaluation"]["targets"]
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def default_name(experiment: Experiment) -> str:
    """Of experiment, algorithm and seed."""
    words = f"{experiment.name}-{algorithm_name(experiment.algorithm)}-seed{experiment.seed}"
    return re.sub(r"[^\w.+=-]+", "-", words).strip("-.").lower()
