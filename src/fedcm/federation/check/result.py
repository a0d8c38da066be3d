"""One line of a check: what was checked, whether it is good, and what to do if it is not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, final

from fedcm.errors import UserError

CheckState = Literal["good", "warning", "failed"]
_MARKS: dict[CheckState, str] = {"good": "✓", "warning": "!", "failed": "✗"}


@final
@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    about: str
    state: CheckState
    message: str

    @property
    def line(self) -> str:
        """The result as a line of text."""
        return f"{_MARKS[self.state]} {self.about}: {self.message}"

    @property
    def table(self) -> dict[str, str]:
        """The result as JSON."""
        return {"about": self.about, "state": self.state, "told": self.message}


def make_success(about: str, message: str) -> CheckResult:
    """Return the result of a check that passed."""
    return CheckResult(about, "good", message)


def make_warning(about: str, message: str) -> CheckResult:
    """Return the result of a check that passed with a warning."""
    return CheckResult(about, "warning", message)


def make_failure(about: str, message: str) -> CheckResult:
    """Return the result of a check that failed."""
    return CheckResult(about, "failed", message)


def run_check(about: str, check: Callable[[], Iterator[CheckResult]]) -> Iterator[CheckResult]:
    """Yield the results of a check; if it raises UserError or OSError, yield a failure instead."""
    try:
        yield from check()
    except (UserError, OSError) as error:
        yield make_failure(about, " ".join(str(error).split()))
