"""Client states on a site's own disk; a state is used only if the server says that its round counted.

A round's new state is written beside the old one. With its next message the server says which of this site's rounds
counted last. Training continues from that state, and later states, whose rounds were lost, are deleted. So the server's
mean of all client states stays correct whatever process dies.

Older states are kept, as many as `[storage]` of `site.toml` allows, because a server that is restored from a backup
resumes from an older round. With `storage.key`, states are encrypted.
"""

import re
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from fedcm.errors import UserError
from fedcm.federation.experiment import KEPT_STATES
from fedcm.federation.kit import SITE_FILE
from fedcm.federation.settings import SiteStorageSection
from fedcm.federation.site.state_cipher import StateCipher, StateName
from fedcm.federation.terms import NEVER
from fedcm.system.files import atomic_write, write_bytes
from fedcm.system.storage.tensor_files import save_tensors

_PLAIN, _SEALED = ".safetensors", ".sealed"
_DEFAULTS = SiteStorageSection()


@final
class SiteStates:
    """The states of one site in one run."""

    def __init__(
        self,
        folder: Path,
        initial: Any,
        storage: SiteStorageSection = _DEFAULTS,
        client: int = 0,
        cipher: StateCipher | None = None,
    ) -> None:
        """Use a folder.

        Args:
            folder: The folder of this run's states; its name is the run's id.
            initial: The state of a client that has not taken part, which gives fields and shapes.
            storage: How many states are kept.
            client: The site's index among the run's sites.
            cipher: Encrypts the states; by default they are not encrypted.
        """
        self.folder = folder
        self.initial = initial
        self.storage = storage
        self.client = client
        self.cipher = cipher

    def load_state_after(self, counted: int) -> Any:
        """Return the state after the round that counted last, and delete states that are not needed any more.

        Raises:
            UserError: If that state is missing or damaged.
        """
        if not self.initial._fields:
            return self.initial
        rounds = self.list_rounds()
        self._delete([r for r in rounds if r > counted])
        self._delete(self._select_old([r for r in rounds if r <= counted]))
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
        fields = dict(zip(state._fields, state, strict=True))
        if self.cipher is not None:
            plain = save({name: field.detach().cpu().contiguous() for name, field in fields.items()})
            write_bytes(self._get_file(round), self.cipher.seal(plain, self._name(round)))
            return
        with atomic_write(self._get_file(round)) as temporary:
            save_tensors(fields, temporary)

    def list_rounds(self) -> list[int]:
        """Return the rounds after which there is a state, oldest first."""
        names = [re.fullmatch(rf"round-(\d+)({_PLAIN}|{_SEALED})", file.name) for file in self.folder.glob("round-*")]
        return sorted({int(name[1]) for name in names if name})

    def _read(self, round: int) -> Any:
        file = self._get_file(round)
        try:
            self._reject_other_kind(round)
            fields = self._read_fields(round)
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

    def _read_fields(self, round: int) -> dict[str, Tensor]:
        file = self._get_file(round)
        if self.cipher is not None:
            return load(self.cipher.open(file.read_bytes(), self._name(round)))
        with safe_open(file, "pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - it is not a dict

    def _reject_other_kind(self, round: int) -> None:
        """Raise ValueError if there is only a state of before `storage.key` was set, or removed."""
        kinds = [kind for kind in (_PLAIN, _SEALED) if self._get_file(round, kind).exists()]
        if kinds == [_PLAIN] and self.cipher is not None:
            raise ValueError("it is not encrypted, but storage.key is set; leave it out until this run has ended")
        if kinds == [_SEALED] and self.cipher is None:
            raise ValueError(f"it is encrypted, and storage.key in {SITE_FILE} is not set")

    def _select_old(self, rounds: list[int]) -> list[int]:
        """Return the rounds whose states are not kept: older than the newest, by number and bytes."""
        space = self.storage.megabytes * 10**6
        for number, round in enumerate(reversed(rounds)):
            files = (self._get_file(round, kind) for kind in (_PLAIN, _SEALED))
            space -= sum(file.stat().st_size for file in files if file.exists())
            if number >= self.storage.states or (number >= KEPT_STATES and space < 0):
                return rounds[: len(rounds) - number]
        return []

    def _delete(self, rounds: list[int]) -> None:
        for round in rounds:
            for kind in (_PLAIN, _SEALED):
                self._get_file(round, kind).unlink(missing_ok=True)

    def _name(self, round: int) -> StateName:
        return StateName(self.folder.name, self.client, round)

    def _get_file(self, round: int, kind: str | None = None) -> Path:
        own = _PLAIN if self.cipher is None else _SEALED
        return self.folder / f"round-{round:06d}{kind or own}"
