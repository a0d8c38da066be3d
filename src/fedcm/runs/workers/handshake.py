"""How rank 0 and its workers agree on a run before its first round.

propose_run ─► accept_run      the experiment, and what must be equal everywhere: data, versions, the model; or the end
send_start  ─► receive_start   the run's folder, its first round, the server state, the table of client states

Each step begins with all ranks agreeing that none has an error: an error in one rank is raised in all of them. Workers
wait in the first step between runs too, so rank 0 can report an error whenever no round is in progress.
"""

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcm.config.experiment import to_toml
from fedcm.errors import UserError
from fedcm.executors.process_group import ProcessGroup, WorkerStatus
from fedcm.runs.build import TrainingSetup
from fedcm.runs.identity import read_versions
from fedcm.system.error_messages import describe_failure_with_traceback

_LIBRARIES = ("fedcm", "torch", "numpy")  # their versions can change the bits
_VISIBILITY_TIMEOUT = 5.0  # seconds: a network file system may show a new file late


class StartState(NamedTuple):
    """The state that every rank begins with."""

    path: Path
    first_round: int
    server: Any
    client_states: dict[str, Tensor]
    before: list[dict[str, Any]]  # the metrics of earlier rounds that the rule for an early end depends on


def propose_run(group: ProcessGroup, setup: TrainingSetup, folder: Path) -> None:
    """On rank 0: propose a run to the workers. `folder` is the one that the run's own folder is in, or will be."""
    with _create_marker(folder, needed=bool(setup.runner.initial_state)) as marker:
        terms = {"experiment": to_toml(setup.experiment), "marker": marker, **_list_requirements(setup)}
        group.agree()
        group.broadcast_text(json.dumps(terms))
        group.agree()


def accept_run(group: ProcessGroup, build_setup: Callable[[str], TrainingSetup]) -> TrainingSetup | None:
    """On a worker: build the proposed experiment and compare it with rank 0's.

    Args:
        group: The processes of the run.
        build_setup: Builds the objects that train from the experiment's TOML.

    Returns:
        The setup; None if no run follows.
    """
    group.agree()
    text = group.broadcast_text("")
    if not text:
        return None
    terms, this_worker = json.loads(text), f"worker {group.rank} on {socket.gethostname()}"
    status, message, setup = WorkerStatus.OK, "", None
    try:
        setup = build_setup(terms["experiment"])
        _reject_differences(terms, _list_requirements(setup))
        _reject_invisible(terms["marker"])
    except (UserError, OSError) as error:
        status, message = WorkerStatus.REJECTED, f"{this_worker}: {error}"
    except Exception as error:  # in the user's own model, data or algorithm
        status, message = (
            WorkerStatus.FAILED,
            describe_failure_with_traceback(error, f"{this_worker} failed before the first round"),
        )
    group.agree(status, message)
    return setup


def send_start(group: ProcessGroup, start: StartState) -> None:
    """On rank 0: send the state that the rounds begin with."""
    group.agree()
    group.broadcast_text(str(start.path.absolute()))
    group.broadcast(torch.tensor(start.first_round))
    for field in start.server:
        group.broadcast(field)
    group.broadcast_tensors(start.client_states)
    group.broadcast_text(json.dumps(start.before))


def receive_start(group: ProcessGroup, setup: TrainingSetup) -> StartState:
    """On a worker: receive the state that the rounds begin with."""
    group.agree()
    path = Path(group.broadcast_text(""))
    first_round = int(group.broadcast(torch.tensor(0)))
    template = setup.init_server()
    server = type(template)(*[group.broadcast(field) for field in template])
    client_states = group.broadcast_tensors(None)
    return StartState(path, first_round, server, client_states, json.loads(group.broadcast_text("")))


def send_end(group: ProcessGroup) -> None:
    """On rank 0: tell the workers that no run follows."""
    group.agree()
    group.broadcast_text("")


def send_error(group: ProcessGroup, sentence: str) -> None:
    """On rank 0, instead of a proposal or a start: raise a UserError in every rank, this one included."""
    group.agree(WorkerStatus.REJECTED, sentence)


def _list_requirements(setup: TrainingSetup) -> dict[str, Any]:
    """What must be equal on every rank."""
    installed = read_versions()
    return {
        "data": setup.checksums,
        "versions": {library: installed[library] for library in _LIBRARIES},
        "parameters": setup.problem.size,
        "constants": setup.problem.hash_constants(),
    }


def _reject_differences(required: dict[str, Any], own: dict[str, Any]) -> None:
    for part, digest in required["data"].items():
        if own["data"].get(part) != digest:
            raise UserError(
                f"the data must be those of rank 0, and {part!r} has another checksum; copy the same data there, or "
                "name their folder with --data-dir"
            )
    for library, version in required["versions"].items():
        if own["versions"][library] != version:
            raise UserError(
                f"{library} must be {version} as on rank 0, got {own['versions'][library]}; install the same version "
                "on every machine"
            )
    if own["parameters"] != required["parameters"]:
        raise UserError(
            f"the model must have {required['parameters']} parameters as on rank 0, got {own['parameters']}; copy the "
            "same code there"
        )
    if own["constants"] != required["constants"]:
        raise UserError(
            "the model's frozen parameters and buffers must be those of rank 0, and have another checksum; copy the "
            "same code and weights there"
        )


@contextmanager
def _create_marker(folder: Path, *, needed: bool) -> Iterator[str]:
    """A file that every rank on a shared file system can see; empty if no client state must be shared."""
    if not needed:
        yield ""
        return
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder.absolute() / f".seen-by-all-{secrets.token_hex(8)}"
    marker.touch()
    try:
        yield str(marker)
    finally:
        marker.unlink(missing_ok=True)


def _reject_invisible(marker: str) -> None:
    deadline = time.monotonic() + _VISIBILITY_TIMEOUT
    while marker and not Path(marker).exists():
        if time.monotonic() > deadline:
            raise UserError(
                "client states are stored in the run's folder, which every worker must see, and "
                f"{str(Path(marker).parent)!r} is not shared; give a --runs-dir that all machines share"
            )
        time.sleep(0.05)
