"""Limit how many objects the engine decodes from one message.

Each small array costs the engine some 0.2 ms, so a hostile message of a few megabytes could occupy the server for a
minute. Decoding stops at the limit, the message is dropped, and its sender counts as silent.
"""

from typing import Any

from nvflare.fuel.utils.fobs import fobs

MAX_OBJECTS = 2_000  # of one message; ours have fewer than fifty


class LimitedPacker(fobs.Packer):
    """The engine's decoder of one message, which counts."""

    def __init__(self, manager: Any) -> None:
        """Start to decode a message; called by the engine."""
        super().__init__(manager)
        self.decoded = 0

    def unpack(self, obj: Any) -> Any:
        """Decode one object; called by the engine for every table in a message."""
        self.decoded += 1
        if self.decoded > MAX_OBJECTS:
            raise ValueError(f"a message may contain at most {MAX_OBJECTS} objects")
        return super().unpack(obj)


def limit_decoding() -> None:
    """Limit all messages that this process decodes from now on."""
    fobs.Packer = LimitedPacker
