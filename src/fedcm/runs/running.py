"""The rounds of a run that are left, led by the first process, which alone writes them down, and followed by others."""

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from fedcm.algorithms.registry import algorithm_name
from fedcm.core.algorithm import Round
from fedcm.core.executor import Executor
from fedcm.core.round_loop import FinishedRound, Metrics, run_rounds
from fedcm.data.dataset import Dataset
from fedcm.errors import Diverged, Stopped, UserError, WorkerFailed, WriteFailed
from fedcm.executors.diagnosis import diagnose
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.local import LocalExecutor
from fedcm.executors.process_group import ProcessGroup, to_worker_failure
from fedcm.runs import checkpoint, handshake
from fedcm.runs.checkpoint import Checkpoint
from fedcm.runs.folder import RunFolder
from fedcm.runs.handshake import Start
from fedcm.runs.starting import Asked, Run, file_states
from fedcm.runs.summary import params_sha256, summarise
from fedcm.system.faults import add_note, find_user_code

AtWorkOn = Callable[[int, int], None]


def drive(run: Run, executor: Executor | None = None) -> Generator[Metrics, None, None]:
    """Run the rounds that are left, writing everything down; gives each round's metrics when it is done.

    Clients train in this process and those that share its work, or wherever an executor has them train.
    """
    group = run.group
    try:
        run.folder.summary.unlink(missing_ok=True)  # of an end that it comes to again
        run.folder.clear_leftovers()
        checkpoint.clear_after(run.folder.checkpoints, run.first)
        run.folder.keep_metrics(run.first)
        if run.crew is not None:
            group = run.crew.gather()
            handshake.offer(group, run.assembly, run.folder.path.parent)
        if executor is not None:
            pass
        elif group is None:
            executor = LocalExecutor(run.assembly.runner, run.states, run.stop_requested)
        else:
            handshake.start(group, Start(run.folder.path, run.first, run.server, run.states.save()))
            executor = DistributedExecutor(run.assembly.runner, run.states, group, run.stop_requested)
        with run.crew.watched() if run.crew is not None else nullcontext():
            yield from _rounds(run, executor)
        _finish(run)
    except WorkerFailed as failure:
        raise WorkerFailed(run.crew.why(str(failure)) if run.crew is not None else str(failure)) from None
    except OSError as error:  # a full disk, most often
        if find_user_code(error) is not None:  # in the user's own code
            raise to_worker_failure(error, "the run failed") from error
        raise WriteFailed(str(error)) from error
    except (Diverged, UserError, Stopped):
        raise
    except Exception as error:
        raise to_worker_failure(error, "the run failed") from error
    finally:
        if run.crew is not None:
            if group is not None:
                group.close()
            run.crew.dismiss()
        run.folder.unlock()


def follow(
    group: ProcessGroup,
    data_dir: Path | None,
    stop_requested: Asked,
    at_work_on: AtWorkOn = lambda round, client: None,
    dataset: Dataset | None = None,
) -> bool:
    """A worker's part in one run that the first process leads and writes down; False when no run is to come."""
    assembly = handshake.accept(group, data_dir, dataset)
    if assembly is None:
        return False
    start = handshake.started(group, assembly)
    states = file_states(assembly, RunFolder(start.path))
    states.restore(start.states)
    executor = DistributedExecutor(assembly.runner, states, group, stop_requested, at_work_on)
    try:
        with suppress(Stopped, Diverged):  # the first process tells
            for _ in run_rounds(assembly.algorithm, executor, assembly.plan, start.server, start.first):
                pass
    except (UserError, WriteFailed, WorkerFailed):
        raise
    except Exception as error:  # of the user's algorithm, say; the first process may not come to it
        failure = to_worker_failure(error, "the run failed")
        group.alarm(f"worker {group.rank}: {failure}")
        raise failure from error
    return True


def _rounds(run: Run, executor: Executor) -> Iterator[Metrics]:
    assembly, settings = run.assembly, run.assembly.experiment.checkpoints
    saved = run.first
    try:
        for done in run_rounds(assembly.algorithm, executor, assembly.plan, run.server, run.first):
            metrics = done.metrics | _diagnosed(run, done)
            run.folder.append(metrics)
            run.server, run.first = done.server, done.index + 1
            if run.first % settings.every == 0 or run.first == run.rounds:
                _save(run, settings.keep)
                saved = run.first
            yield metrics
    except Stopped:
        if run.first > saved:
            _save(run, settings.keep)
        raise
    except Diverged as reason:
        run.folder.write_summary(_summary(run, "diverged") | {"reason": str(reason)})
        raise


def _diagnosed(run: Run, done: FinishedRound) -> Metrics:
    if run.diagnosis is None or not run.diagnosis.due(done.index):
        return {}
    plan, following = run.assembly.plan, done.index + 1
    round = Round(following, plan.schedule.client(following), plan.schedule.server_lr, 0, plan.population, math.nan)
    try:
        found = diagnose(run.assembly.runner, run.states, done.server, round, stop_requested=run.stop_requested)
    except Stopped:  # the next round is told to stop; this one is done
        return {}
    except Exception as error:
        add_note(error, f"the diagnosis after round {done.index} failed")
        raise
    return {"diagnosis": found}


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
