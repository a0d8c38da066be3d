"""One run of a sweep as a process of its own: `fedcm run` or `fedcm resume`.

The process ends with the process that started it, even if that is killed: it saves its rounds first, and its folder
stays locked until then.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, final

from fedcm.config.experiment import to_toml
from fedcm.sweeps.fork_server import ForkServer
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.callbacks import Notify
from fedcm.system.error_messages import is_debugging
from fedcm.system.processes import is_fork_safe, make_child_environment

_IMPORTED_ONCE = (
    "fedcm.__main__",
    "fedcm.api.runs",
    "torch._dynamo",
)  # torch.func imports the last one when it is used


class CommandProcess(Protocol):
    """A started command: the part of `subprocess.Popen` that a sweep uses, which forked commands have too.

    Attributes:
        returncode: The exit code; None as long as the process runs, and negative after a signal.
    """

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code; None if the process still runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal to the process."""
        ...

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        ...


@final
@dataclass(frozen=True)
class RunProcess:
    """A run in progress in a process of its own."""

    process: CommandProcess
    stderr: Path  # the file with its messages


@final
class RunLauncher:
    """Starts the runs of a sweep, each in a process of its own. Use it in a `with` block.

    On Linux the processes are forks of one that has imported torch already, so that a short run does not spend most of
    its time on imports. The bits are the same.

    Attributes:
        scratch: A temporary folder for the experiments' files and the messages of the runs.
    """

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fedcm-")))
        self._server = self._stack.enter_context(ForkServer(_IMPORTED_ONCE)) if is_fork_safe() else None
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, task: SweepTask, data_dir: Path | None, workers: int, track: Sequence[str]) -> RunProcess:
        """Start or resume the run of a task.

        Args:
            task: The task; its outcome says whether the run was stopped before.
            data_dir: Folder of prepared datasets.
            workers: Processes of the run.
            track: Names of trackers.
        """
        if task.outcome == "stopped":
            words = ["resume", str(task.folder.path)]
        else:
            experiment = self.scratch / f"{task.run.name}.toml"
            experiment.write_text(to_toml(task.run.experiment), encoding="utf-8")
            words = ["run", str(experiment), "--name", task.run.name, "--runs-dir", str(task.folder.path.parent)]
            words += ["--fresh", "--archive", str(task.archive)] if task.archive is not None else []
        words += [word for name in track for word in ("--track", name)]
        words += ["--workers", str(workers)] + ([] if data_dir is None else ["--data-dir", str(data_dir)])
        task.remember_replaced_folder()
        stderr = self.scratch / f"{task.run.name}.txt"
        process = self._start_command(words, stderr)
        task.outcome = "running"
        return RunProcess(process, stderr)

    def _start_command(self, words: Sequence[str], stderr: Path) -> CommandProcess:
        """Start `fedcm` with these arguments."""
        if self._server is not None:
            return self._server.start("fedcm", words, stderr)
        with stderr.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "fedcm", *words],
                env=os.environ | make_child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )


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
