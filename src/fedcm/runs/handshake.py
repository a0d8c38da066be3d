"""What the first process of a run hands to the others before the first round, the two sides one below the other.

offer  ─► accept    the experiment, and what must be the same everywhere: data, versions, the model's size; or the end
start  ─► started   where the run lies, its first round, the server's state, the table of what clients keep

Every step begins with all agreeing that nobody has trouble: a refusal of any process is raised in all of them. The
others wait in the first step between runs too, so the first one may refuse whenever no round is being run.
"""

import json
import secrets
import socket
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcm.config.experiment import read_experiment, to_toml
from fedcm.core.algorithm import messages
from fedcm.data.dataset import Dataset
from fedcm.errors import UserError
from fedcm.executors.process_group import ProcessGroup, Trouble
from fedcm.runs.assembly import Assembly, assemble
from fedcm.runs.folder import read_versions
from fedcm.system.faults import describe_with_trace

_SAME = ("fedcm", "torch", "numpy")  # whose versions enter the bits
_SEEN_WITHIN = 5.0  # seconds: a file system over a network may show a new file late


def offer(group: ProcessGroup, assembly: Assembly, place: Path) -> None:
    """The first process's: `place` is the folder that the run's own folder is in or will be in."""
    with _sign(place, wanted=_keeps(assembly)) as sign:
        terms = {"experiment": to_toml(assembly.experiment), "sign": sign, **_must_agree(assembly)}
        group.agree()
        group.text_from_first(json.dumps(terms))
        group.agree()


def accept(group: ProcessGroup, data_dir: Path | None, dataset: Dataset | None = None) -> Assembly | None:
    """The others': the offered experiment put together from this machine's data, or from a dataset that is there
    already; None when no run is to come."""
    group.agree()
    text = group.text_from_first("")
    if not text:
        return None
    terms, here = json.loads(text), f"worker {group.rank} on {socket.gethostname()}"
    trouble, said, assembly = Trouble.NONE, "", None
    try:
        assembly = assemble(read_experiment(tomllib.loads(terms["experiment"])), data_dir, dataset)
        _reject_differences(terms, _must_agree(assembly))
        _reject_unseen(terms["sign"])
    except (UserError, OSError) as refusal:
        trouble, said = Trouble.REFUSED, f"{here}: {refusal}"
    except Exception as error:  # of the user's own model, data or algorithm
        trouble, said = Trouble.FAILED, describe_with_trace(error, f"{here} failed before the first round")
    group.agree(trouble, said)
    return assembly


class Start(NamedTuple):
    path: Path
    first: int
    server: Any
    states: dict[str, Tensor]


def start(group: ProcessGroup, begins: Start) -> None:
    """The first process's."""
    group.agree()
    group.text_from_first(str(begins.path.absolute()))
    group.from_first(torch.tensor(begins.first))
    for field in begins.server:
        group.from_first(field)
    group.tensors_from_first(begins.states)


def started(group: ProcessGroup, assembly: Assembly) -> Start:
    """The others'."""
    group.agree()
    path = Path(group.text_from_first(""))
    first = int(group.from_first(torch.tensor(0)))
    like = assembly.algorithm.init_server(assembly.problem.initial())
    server = type(like)(*[group.from_first(field) for field in like])
    return Start(path, first, server, group.tensors_from_first(None))


def end(group: ProcessGroup) -> None:
    """The first process's: no run is to come."""
    group.agree()
    group.text_from_first("")


def refuse(group: ProcessGroup, sentence: str) -> None:
    """The first process's, instead of an offer or a start: raised in all of them, this one too."""
    group.agree(Trouble.REFUSED, sentence)


def _must_agree(assembly: Assembly) -> dict[str, Any]:
    here = read_versions()
    same = {library: here[library] for library in _SAME}
    problem = assembly.problem
    model = {"parameters": problem.size, "constants": problem.constants_sha256()}
    return {"data": assembly.checksums, "versions": same, **model}


def _reject_differences(terms: dict[str, Any], mine: dict[str, Any]) -> None:
    for part, digest in terms["data"].items():
        if mine["data"].get(part) != digest:
            raise UserError(
                f"the data must be those of the first worker, and {part!r} has another checksum; bring the same data "
                "there, or name their folder with --data-dir"
            )
    for library, version in terms["versions"].items():
        if mine["versions"][library] != version:
            raise UserError(
                f"{library} must be {version} as in the first worker, got {mine['versions'][library]}; install the "
                "same version on every machine"
            )
    if mine["parameters"] != terms["parameters"]:
        raise UserError(
            f"the model must have {terms['parameters']} parameters as in the first worker, got {mine['parameters']}; "
            "bring the same code there"
        )
    if mine["constants"] != terms["constants"]:
        raise UserError(
            "the model's frozen parameters and buffers must be those of the first worker, and have another checksum; "
            "bring the same code and weights there"
        )


def _keeps(assembly: Assembly) -> bool:
    return bool(messages(type(assembly.algorithm)).kept._fields)


@contextmanager
def _sign(place: Path, *, wanted: bool) -> Iterator[str]:
    """A file that whoever shares the file system can see; no file where clients keep nothing."""
    if not wanted:
        yield ""
        return
    place.mkdir(parents=True, exist_ok=True)
    sign = place.absolute() / f".seen-by-all-{secrets.token_hex(8)}"
    sign.touch()
    try:
        yield str(sign)
    finally:
        sign.unlink(missing_ok=True)


def _reject_unseen(sign: str) -> None:
    deadline = time.monotonic() + _SEEN_WITHIN
    while sign and not Path(sign).exists():
        if time.monotonic() > deadline:
            raise UserError(
                "what clients of this algorithm keep lies in the run's folder, which every worker must see, and "
                f"{str(Path(sign).parent)!r} is not shared; give a --runs-dir on a file system that all machines have"
            )
        time.sleep(0.05)
