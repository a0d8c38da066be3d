"""Client states on a site's own disk; a state is used only if the server says that its round counted.

A round's new state is written beside the old one. With its next message the server says which of this site's rounds
counted last. Training continues from that state, and later states, whose rounds were lost, are deleted. So the server's
mean of all client states stays correct whatever process dies.

Older states are kept, as many as `[storage]` of `site.toml` allows, because a server that is restored from a backup
resumes from an older round.
"""

import re
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcm.errors import UserError
from fedcm.federation.experiment import KEPT_STATES
from fedcm.federation.settings import SiteStorageSection
from fedcm.federation.terms import NEVER
from fedcm.system.files import atomic_write
from fedcm.system.tensor_files import save_tensors

_DEFAULTS = SiteStorageSection()


@final
class SiteStates:
    """The states of one site in one run."""

    def __init__(self, folder: Path, initial: Any, storage: SiteStorageSection = _DEFAULTS) -> None:
        """Use a folder.

        Args:
            folder: The folder of this run's states.
            initial: The state of a client that has not taken part, which gives fields and shapes.
            storage: How many states are kept.
        """
        self.folder = folder
        self.initial = initial
        self.storage = storage

    def load_state_after(self, counted: int) -> Any:
        """Return the state after the round that counted last, and delete states that are not needed any more.

        Raises:
            UserError: If that state is missing or damaged.
        """
        if not self.initial._fields:
            return self.initial
        rounds = self.list_rounds()
        for late in (r for r in rounds if r > counted):
            self._get_file(late).unlink(missing_ok=True)
        for old in self._select_old([r for r in rounds if r <= counted]):
            self._get_file(old).unlink(missing_ok=True)
        return self.read_state_after(counted)

    def read_state_after(self, counted: int) -> Any:
        """Return the same state and delete nothing, because the server may lose the round after this one.

        Raises:
            UserError: If that state is missing or damaged.
        """
        return self.initial if counted == NEVER or not self.initial._fields else self._read(counted)

    def save(self, round: int, state: Any) -> None:
        """Write the state after a round; nothing if the algorithm has no client state."""
        if not self.initial._fields:
            return
        with atomic_write(self._get_file(round)) as temporary:
            save_tensors(dict(zip(state._fields, state, strict=True)), temporary)

    def _read(self, round: int) -> Any:
        file = self._get_file(round)
        try:
            with safe_open(file, "pt") as tensors:
                fields: dict[str, Tensor] = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            if {name: field.shape for name, field in fields.items()} != {
                name: field.shape for name, field in zip(self.initial._fields, self.initial, strict=True)
            }:
                raise ValueError("it has other fields")
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(
                f"this site needs its state after round {round}, but cannot read {str(file)!r} ({error}); restore the "
                "file from a backup of the kit, or leave this run"
            ) from None
        return type(self.initial)(
            **{name: fields[name].to(getattr(self.initial, name)) for name in self.initial._fields}
        )

    def _select_old(self, rounds: list[int]) -> list[int]:
        """Return the rounds whose states are not kept: older than the newest, by number and bytes."""
        space = self.storage.megabytes * 10**6
        for number, round in enumerate(reversed(rounds)):
            space -= self._get_file(round).stat().st_size
            if number >= self.storage.states or (number >= KEPT_STATES and space < 0):
                return rounds[: len(rounds) - number]
        return []

    def list_rounds(self) -> list[int]:
        """Return the rounds after which there is a state, oldest first."""
        names = [re.fullmatch(r"round-(\d+)\.safetensors", file.name) for file in self.folder.glob("round-*")]
        return sorted(int(name[1]) for name in names if name)

    def _get_file(self, round: int) -> Path:
        return self.folder / f"round-{round:06d}.safetensors"
