"""An experiment run into a folder, from the start or from its newest checkpoint: the same bits either way."""

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcm import checkpoint
from fedcm.algorithms.lookup import algorithm_name
from fedcm.assembly import Assembly, assemble
from fedcm.checkpoint import Checkpoint
from fedcm.executors.executor import Diverged, Stopped
from fedcm.experiment import Experiment, read, read_table, to_toml
from fedcm.record import RunFolder, free_name, provenance
from fedcm.refusal import Refused
from fedcm.summary import params_sha256, summarise
from fedcm.training import Metrics, training

Say = Callable[[str], None]


@dataclass
class Run:
    """A run about to go on."""

    folder: RunFolder
    assembly: Assembly
    server: Any
    first: int
    past: list[Metrics]

    @property
    def rounds(self) -> int:
        return self.assembly.plan.rounds


def begin(
    experiment: Experiment,
    runs_dir: Path,
    name: str | None = None,
    data_dir: Path | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Run:
    """A new run: everything is made and checked before its folder appears."""
    if name is not None and not re.fullmatch(r"[\w][\w.+=-]{0,150}", name):
        raise Refused(f"a run's name must be letters, digits and . _ + = -, got {name!r}")
    assembly = assemble(experiment, data_dir, stop_requested)
    name = name or free_name(runs_dir, default_name(experiment))
    folder = RunFolder.create(runs_dir / name, to_toml(experiment), provenance(assembly.checksums))
    return Run(folder, assembly, assembly.algorithm.init_server(assembly.problem.initial()), 0, [])


def resume(
    path: Path, data_dir: Path | None = None, say: Say = print, stop_requested: Callable[[], bool] = lambda: False
) -> Run:
    """A run that was stopped, at its newest whole checkpoint."""
    folder = RunFolder.open(path)
    assembly = assemble(read(read_table(folder.experiment)), data_dir, stop_requested)
    for part, digest in folder.read_provenance().get("data_sha256", {}).items():
        if assembly.checksums.get(part) != digest:
            raise Refused(
                f"the data must be those that the run {folder.name!r} began with, and {part!r} has another checksum; "
                "bring the old data back or start a new run"
            )
    server = assembly.algorithm.init_server(assembly.problem.initial())
    found = checkpoint.newest(folder.checkpoints, server, say)
    if found is None and checkpoint.exists(folder.checkpoints):
        raise Refused(
            f"no checkpoint of {str(path)!r} is whole; start the run anew with `fedcm run {folder.experiment}`"
        )
    if found is None:
        return Run(folder, assembly, server, 0, [])
    assembly.executor.restore_client_states(found.client_states)
    return Run(folder, assembly, found.server, found.next_round, folder.read_metrics()[: found.next_round])


def drive(run: Run) -> Generator[Metrics, None, None]:
    """Run the rounds that are left, writing everything down; gives each round's metrics when it is done."""
    with run.folder.locked():
        checkpoint.clear_leftovers(run.folder.checkpoints)
        run.folder.keep_metrics(run.first)
        yield from _rounds(run)
        _finish(run)


def _rounds(run: Run) -> Iterator[Metrics]:
    assembly, settings = run.assembly, run.assembly.experiment.checkpoints
    saved = run.first
    try:
        for done in training(assembly.algorithm, assembly.executor, assembly.plan, run.server, run.first):
            run.folder.append(done.metrics)
            run.past.append(done.metrics)
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
    state = Checkpoint(run.first, run.server, run.assembly.executor.client_states())
    checkpoint.write(run.folder.checkpoints, state, keep)


def _finish(run: Run) -> None:
    model = run.assembly.problem.bind(run.server.params)
    run.folder.write_model({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    run.folder.write_summary(_summary(run, "finished"))


def _summary(run: Run, outcome: str) -> dict[str, Any]:
    experiment = run.assembly.experiment
    return {
        "name": run.folder.name,
        "outcome": outcome,
        "algorithm": algorithm_name(experiment.algorithm),
        "seed": experiment.seed,
        "parameters": run.assembly.problem.size,
        **summarise(run.past, experiment.evaluation.targets),
        "params_sha256": params_sha256(run.server.params),
    }


def default_name(experiment: Experiment) -> str:
    words = f"{experiment.name}-{algorithm_name(experiment.algorithm).split(':')[-1]}-seed{experiment.seed}"
    return re.sub(r"[^\w.+=-]+", "-", words).strip("-.").lower()
