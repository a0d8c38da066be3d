"""The state of a training between two rounds: everything that the next round depends on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self, final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcm.api.arguments import AnyPath, to_path
from fedcm.config.sections import Experiment
from fedcm.data.federated import ArrayData
from fedcm.errors import UserError
from fedcm.executors.client_states import ClientStates
from fedcm.runs.build import TrainingSetup
from fedcm.runs.checkpoint import rebuild_state
from fedcm.runs.identity import hash_settings
from fedcm.system.code_hash import reject_other_functions
from fedcm.system.files import atomic_write
from fedcm.system.storage.tensor_files import save_tensors

_FORMAT = 1
_CONSTANTS = "constants"  # the checksum of frozen parameters and buffers


@final
@dataclass(frozen=True)
class RunState:
    """The state of a training after some rounds. Pass it to `fedcm.train(…, resume_from=state)` to continue.

    Attributes:
        next_round: The number of finished rounds.
        server: The algorithm's server state, by field.
        clients: The states of clients that have one: by client, then by field.
        settings_sha256: Identifies the settings that the finished rounds depend on.
        data_sha256: Identifies the data; empty for clients on demand.
        watched: The metrics of the finished rounds that an early end and the best model depend on.
        best_params: The parameters of the best round, if there are validation data.
        functions_sha256: Identifies the code of functions that are Python objects, such as a loss; by their use.
    """

    next_round: int
    server: dict[str, Tensor]
    clients: dict[int, dict[str, Tensor]]
    settings_sha256: str
    data_sha256: dict[str, str]
    watched: tuple[dict[str, Any], ...] = ()
    best_params: Tensor | None = None
    functions_sha256: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def _capture(cls, setup: TrainingSetup, next_round: int, server: Any, states: ClientStates) -> Self:
        """Copy the state of a training."""
        clients = {client: _copy(states.get(client)) for client in states.list_clients()}
        sums = hash_settings(setup.experiment), _hash_data(setup)
        return cls(next_round, _copy(server), clients, *sums, functions_sha256=dict(setup.functions_sha256))

    def _check_next_round(self) -> None:
        """Raise a UserError if the number of finished rounds is not one."""
        if isinstance(self.next_round, bool) or not isinstance(self.next_round, Integral) or self.next_round < 0:
            raise UserError(f"next_round of resume_from must be a whole number, at least 0, got {self.next_round!r}")

    def _check_clients(self, population: int) -> None:
        """Raise a UserError if there is a state of a client that does not exist."""
        for client in self.clients:
            if isinstance(client, bool) or not isinstance(client, Integral) or not 0 <= client < population:
                raise UserError(
                    f"clients of resume_from must be numbers from 0 to {population - 1}, because there are "
                    f"{population} clients, got {client!r}"
                )

    def _restore_server(self, setup: TrainingSetup, template: Any) -> Any:
        """Return the algorithm's server state.

        Raises:
            UserError: If the state comes from other settings, data or another model.
        """
        server = rebuild_state(self.server, template)
        if server is None:
            raise UserError("resume_from must come from this algorithm and model, and its tensors have other shapes")
        if self.settings_sha256 != hash_settings(setup.experiment):
            self._reject_other_horizon(setup.experiment)
            raise UserError("resume_from must come from a training with the same settings, and they differ")
        reject_other_functions(self.functions_sha256, setup.functions_sha256, "a training")
        current = _hash_data(setup)
        if _CONSTANTS not in self.data_sha256:  # a state of an older version
            current.pop(_CONSTANTS, None)
        if self.data_sha256 != current:
            raise UserError(
                "resume_from must come from a training with the same data, weights and frozen parameters, and their "
                "checksums differ"
            )
        return server

    def _reject_other_horizon(self, experiment: Experiment) -> None:
        """Raise a UserError if the settings differ only because a schedule depends on the number of rounds."""
        ended = experiment.model_copy(update={"rounds": self.next_round})
        if self.next_round and self.settings_sha256 == hash_settings(ended):
            raise UserError(
                f"resume_from comes from a training of {self.next_round} rounds, and a schedule of a learning rate "
                "depends on this number; give the schedule of both trainings the same `over`, such as the number of "
                "all rounds"
            )

    def _restore_clients(self, states: ClientStates) -> None:
        """Store the client states.

        Raises:
            UserError: If they are not those of this algorithm and model.
        """
        if self.clients:
            cohort = np.array(sorted(self.clients))
            initial = states.get(int(cohort[0]))
            restored = {}
            for client, fields in self.clients.items():
                if (state := rebuild_state(fields, initial)) is None:
                    raise UserError(
                        "resume_from must come from this algorithm and model, and the state of client "
                        f"{client} has other fields or shapes"
                    )
                restored[client] = state
            states.prepare(cohort, 0)
            checksums = [float(states.put(client, restored[client])) for client in cohort.tolist()]
            states.commit(cohort, checksums)

    def save(self, path: AnyPath) -> None:
        """Write the state to a safetensors file."""
        tensors = {f"server.{name}": field for name, field in self.server.items()}
        for client, fields in self.clients.items():
            tensors |= {f"client.{client}.{name}": field for name, field in fields.items()}
        if self.best_params is not None:
            tensors["best.params"] = self.best_params
        notes: dict[str, Any] = {
            "format": _FORMAT,
            "next_round": self.next_round,
            "settings_sha256": self.settings_sha256,
        }
        if self.watched:
            notes["watched"] = list(self.watched)
        if self.functions_sha256:
            notes["functions_sha256"] = dict(self.functions_sha256)
        notes["tensors_sha256"] = _hash_tensors(tensors)
        with atomic_write(to_path("path", path)) as temporary:
            save_tensors(tensors, temporary, {"fedcm": json.dumps(notes | {"data_sha256": self.data_sha256})})

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a state that `save` wrote.

        Raises:
            UserError: If the file is not such a state.
        """
        file_path = to_path("path", path)
        server: dict[str, Tensor] = {}
        clients: dict[int, dict[str, Tensor]] = {}
        best: Tensor | None = None
        try:
            with safe_open(file_path, "pt") as file:
                notes = json.loads(file.metadata()["fedcm"])
                if notes["format"] != _FORMAT:
                    raise ValueError(f"its format is {notes['format']!r}, this version reads {_FORMAT}")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is not a dict
            if notes["tensors_sha256"] != _hash_tensors(tensors):
                raise ValueError("its tensors have another checksum")
            for key, tensor in tensors.items():
                kind, _, rest = key.partition(".")
                if kind == "server":
                    server[rest] = tensor
                elif kind == "best":
                    best = tensor
                else:
                    client, _, name = rest.partition(".")
                    clients.setdefault(int(client), {})[name] = tensor
            watched = tuple(notes.get("watched", ()))
            sums, functions = (notes["settings_sha256"], notes["data_sha256"]), notes.get("functions_sha256", {})
            return cls(notes["next_round"], server, clients, *sums, watched, best, functions)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{str(file_path)!r} must be a state that RunState.save wrote ({error})") from None


def _hash_data(setup: TrainingSetup) -> dict[str, str]:
    """Checksums of the model's constants, and of data in memory; clients on demand would have to be made for it."""
    constants = setup.problem.hash_constants()
    data = setup.checksums if isinstance(setup.runner.data, ArrayData) else {}
    return data | ({_CONSTANTS: constants} if constants is not None else {})


def _hash_tensors(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _copy(message: Any) -> dict[str, Tensor]:
    return {name: field.detach().clone() for name, field in zip(message._fields, message, strict=True)}
