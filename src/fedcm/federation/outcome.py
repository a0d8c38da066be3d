"""The state of a federated run, as the server reports it during the run and stores it at the end."""

from typing import Any, Literal

from pydantic import Field

from fedcm.config.schema import Section

RESULT = "fedcm"  # our folder in the results of a job
LOG = "federation.log"  # the run's log in that folder
OUTCOME = "outcome.json"  # how the job ended, in that folder


class Outcome(Section):
    """The state of a run in one job of the engine."""

    run: str
    state: Literal["starting", "running", "finished", "stopped", "paused", "diverged", "failed"]
    rounds: int = 0
    metrics: dict[str, Any] = Field(default={})  # of the last round
    sites: list[str] = Field(default=[])  # of the run
    absent: list[str] = Field(default=[])  # sites of the run that its job does not reach
    why: str = ""
    lines: list[str] = Field(default=[])  # the last lines of the log since this job began

    @property
    def has_ended(self) -> bool:
        """Whether this job has ended its work on the run."""
        return self.state not in ("starting", "running")

    def replace(self, **changes: Any) -> "Outcome":
        """Return a copy with some fields changed."""
        return self.model_copy(update=changes)
