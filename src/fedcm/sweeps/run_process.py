"""One run of a sweep as a process of its own: `fedcm run` or `fedcm resume`.

The process ends with the process that started it, even if that is killed: it saves its rounds first, and its folder
stays locked until then.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.config.experiment import to_toml
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.callbacks import Notify
from fedcm.system.error_messages import is_debugging
from fedcm.system.processes import make_child_environment


@final
@dataclass(frozen=True)
class RunProcess:
    """A run in progress in a process of its own."""

    process: subprocess.Popen[bytes]
    stderr: Path  # the file with its messages


def start_run_process(
    task: SweepTask, data_dir: Path | None, workers: int, track: Sequence[str], scratch: Path
) -> RunProcess:
    """Start or resume the run of a task.

    Args:
        task: The task; its outcome says whether the run was stopped before.
        data_dir: Folder of prepared datasets.
        workers: Processes of the run.
        track: Names of trackers.
        scratch: A temporary folder for the experiment's file and the messages.
    """
    command = [sys.executable, "-m", "fedcm"]
    if task.outcome == "stopped":
        command += ["resume", str(task.folder.path)]
    else:
        experiment = scratch / f"{task.run.name}.toml"
        experiment.write_text(to_toml(task.run.experiment), encoding="utf-8")
        command += ["run", str(experiment), "--name", task.run.name, "--runs-dir", str(task.folder.path.parent)]
        command += ["--fresh", "--archive", str(task.archive)] if task.archive is not None else []
    command += [word for name in track for word in ("--track", name)]
    command += ["--workers", str(workers)] + ([] if data_dir is None else ["--data-dir", str(data_dir)])
    task.remember_replaced_folder()
    stderr = scratch / f"{task.run.name}.txt"
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=os.environ | make_child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    task.outcome = "running"
    return RunProcess(process, stderr)


def read_result(task: SweepTask, child: RunProcess, notify: Notify) -> None:
    """Set the outcome of a task whose process has ended."""
    summary = task.folder.read_summary() if task.has_started else None
    if summary is not None and child.process.returncode in (0, 1):
        task.outcome, task.rounds_done = summary["outcome"], task.rounds
        task.reason = summary.get("reason", "")
        return
    lines = child.stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    task.outcome = "failed"
    if is_debugging():  # the output has the traceback
        notify(f"the output of {task.run.name}:\n" + "\n".join(lines))
    task.reason = (lines[-1] if lines else f"it exited with code {child.process.returncode}").removeprefix("fedcm: ")


def stop_processes(children: Sequence[RunProcess]) -> None:
    """Stop the processes as Ctrl-C does, so that they save; kill those that take more than a minute."""
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGINT)
    for child in children:
        try:
            child.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
