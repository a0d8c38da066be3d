"""One line of what a check found: how it stands, and what to do where it does not stand well."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, final

from fedcm.errors import UserError

State = Literal["good", "warning", "failed"]
_MARKS: dict[State, str] = {"good": "✓", "warning": "!", "failed": "✗"}


@final
@dataclass(frozen=True)
class Finding:
    about: str
    state: State
    told: str

    @property
    def line(self) -> str:
        return f"{_MARKS[self.state]} {self.about}: {self.told}"

    @property
    def table(self) -> dict[str, str]:
        return {"about": self.about, "state": self.state, "told": self.told}


def good(about: str, told: str) -> Finding:
    return Finding(about, "good", told)


def warning(about: str, told: str) -> Finding:
    return Finding(about, "warning", told)


def failed(about: str, told: str) -> Finding:
    return Finding(about, "failed", told)


def found(about: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a look finds; one that is refused has found that."""
    try:
        yield from look()
    except (UserError, OSError) as refusal:
        yield failed(about, " ".join(str(refusal).split()))
