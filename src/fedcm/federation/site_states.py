"""What a site keeps between its rounds, on its own disk, and counted only when the server says so.

A round's new state is written beside the old one. With its next message the server tells which of this site's rounds
counted last: that state is the one to go on from, and every later one belongs to a round that was lost on the way. So
the server's mean of what all sites keep stays the mean of what they keep, whatever died in between.
"""

import re
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcm.errors import UserError
from fedcm.runs.checkpoint import save_tensors
from fedcm.system.files import atomic_write

NEVER = -1  # no round of this site has counted yet
SPARE = 3  # counted states that stay: the server may go back to an older checkpoint


@final
class SiteStates:
    def __init__(self, folder: Path, unseen: Any) -> None:
        """`unseen` is the algorithm's state of a client that has not taken part: the fields and shapes to be found."""
        self.folder = folder
        self.unseen = unseen

    def after(self, counted: int) -> Any:
        """The state after the round that counted last; states of rounds that did not count are dropped."""
        if not self.unseen._fields:
            return self.unseen
        rounds = self._rounds()
        for late in (r for r in rounds if r > counted):
            self._file(late).unlink(missing_ok=True)
        for old in [r for r in rounds if r <= counted][:-SPARE]:
            self._file(old).unlink(missing_ok=True)
        return self.unseen if counted == NEVER else self._read(counted)

    def keep(self, round: int, kept: Any) -> None:
        if not self.unseen._fields:
            return
        with atomic_write(self._file(round)) as temporary:
            save_tensors(dict(zip(kept._fields, kept, strict=True)), temporary)

    def _read(self, round: int) -> Any:
        file = self._file(round)
        try:
            with safe_open(file, "pt") as tensors:
                fields: dict[str, Tensor] = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            if {name: field.shape for name, field in fields.items()} != {
                name: field.shape for name, field in zip(self.unseen._fields, self.unseen, strict=True)
            }:
                raise ValueError("it has other fields")
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(
                f"this site must have what it kept after round {round} in {str(file)!r}, and cannot read it ({error}); "
                "bring the file back, or leave this run"
            ) from None
        return type(self.unseen)(**{name: fields[name].to(getattr(self.unseen, name)) for name in self.unseen._fields})

    def _rounds(self) -> list[int]:
        names = [re.fullmatch(r"round-(\d+)\.safetensors", file.name) for file in self.folder.glob("round-*")]
        return sorted(int(name[1]) for name in names if name)

    def _file(self, round: int) -> Path:
        return self.folder / f"round-{round:06d}.safetensors"
