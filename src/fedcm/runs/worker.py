"""The processes that share a command's work, when another program started them: one leads, the others do their part."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

from fedcm.errors import Stopped, UserError, WorkerFailed, WriteFailed
from fedcm.runs import handshake
from fedcm.runs.running import follow
from fedcm.runs.torchrun import Launch, follows, join, launched
from fedcm.runs.worker_pool import given_data, noting
from fedcm.runs.worker_pool import join as join_crew
from fedcm.system.memory import keep_freed_memory
from fedcm.system.notices import silence_in_worker

Asked = Callable[[], bool]

_FIRST_WORD = 5.0  # seconds: torchrun ends all as soon as one has left, and the first is to tell before that


@contextmanager
def sharing(data_dir: Path | None, stop_requested: Asked) -> Iterator[Launch | None]:
    """Inside, this process leads, alone or those that torchrun started; one that is led leaves with its exit code."""
    keep_freed_memory()
    if not launched():
        yield None
        return
    if follows():
        sys.exit(_led_by_first(data_dir, stop_requested))
    launch = join(stop_requested)
    try:
        yield launch
        handshake.end(launch.group)
    except (UserError, OSError) as refusal:
        with suppress(UserError, WorkerFailed):  # where it came from another process all know it, and are gone
            handshake.refuse(launch.group, str(refusal))
        raise
    finally:
        launch.group.close()


def _led_by_first(data_dir: Path | None, stop_requested: Asked) -> int:
    """All the runs of a command; whatever goes wrong is told by the first process."""
    code = _followed(data_dir, stop_requested)
    deadline = time.monotonic() + _FIRST_WORD
    while code and not stop_requested() and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


def _followed(data_dir: Path | None, stop_requested: Asked) -> int:
    silence_in_worker()
    group = None
    try:
        with redirect_stdout(sys.stderr):  # what a user's own code prints
            group = join(stop_requested).group
            while follow(group, data_dir, stop_requested):
                pass
        return 0
    except UserError:
        return 2
    except Stopped:
        return 130
    except (WriteFailed, WorkerFailed):
        return 1
    finally:
        if group is not None:
            group.close()


def serve(run: Path, data_dir: Path | None, stop_requested: Asked) -> None:
    """A crew's worker: one run, and whatever goes wrong is told by the first process."""
    keep_freed_memory()
    silence_in_worker()
    group = None
    try:
        group = join_crew()
        follow(group, data_dir, stop_requested, noting(run, group.rank), given_data())
    except (UserError, WriteFailed, WorkerFailed):
        pass
    finally:
        if group is not None:
            group.close()
