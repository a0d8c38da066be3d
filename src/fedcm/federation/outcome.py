"""How a federated run stands, told by the server while it goes on and left behind when it is over."""

from typing import Any, Literal

from pydantic import Field

from fedcm.config.schema import Section

RESULT = "fedcm"  # the folder of a job's results that is ours
LOG = "federation.log"  # in it: what happened, a line each


class Outcome(Section):
    run: str
    state: Literal["starting", "running", "finished", "stopped", "paused", "diverged", "failed"]
    rounds: int = 0
    metrics: dict[str, Any] = Field(default={})  # of the last round
    sites: list[str] = Field(default=[])  # of the run
    absent: list[str] = Field(default=[])  # sites of the run that its job does not reach
    why: str = ""
    lines: list[str] = Field(default=[])  # of its log, the last of those since this job began

    @property
    def over(self) -> bool:
        return self.state not in ("starting", "running")

    def at(self, **changes: Any) -> "Outcome":
        return self.model_copy(update=changes)
