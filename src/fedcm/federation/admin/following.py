"""A run that somebody watches: its rounds as they pass, its log, and another job when the engine lost the one before.

The engine neither goes on with a job after the server died nor keeps one whose process died at a site. The run itself
is safe in the server's kit after every round, so whoever follows it submits it again, and it goes on where it was.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, final

from fedcm.config.experiment import Experiment
from fedcm.errors import UserError
from fedcm.federation.admin.admin import OVER, Admin, UnreachableError, admin_of, downloaded
from fedcm.federation.admin.job import write_job
from fedcm.federation.kit import Kit
from fedcm.federation.outcome import RESULT, Outcome

Say = Callable[[str], None]

_LOOK = 0.5  # seconds between two looks at a run
_STARTING = 120.0  # seconds that a job may take until its run answers
_QUIET = 30.0  # seconds that it may be silent once it has answered
_ENDING = 120.0  # seconds that the engine may take to end a job whose run is over
_APART = 5.0  # seconds that a site is back before the run is begun again for it
_GATHERING = 20.0  # seconds that sites are waited for before a run is submitted again
_PROGRESS = 5  # rounds after which a loss is forgotten
_ABORTED = "FINISHED:ABORTED"
_GOES_ON = ("DISPATCHED", "RUNNING")  # how the engine's words for a job that goes on begin


class Passing(NamedTuple):
    """How a run stood when it was looked at."""

    outcome: Outcome
    lines: list[str]  # of its log, that were not told before


def submit(admin: Admin, run: str, experiment: Experiment, *, go_on: bool) -> str:
    """The job's identity."""
    with tempfile.TemporaryDirectory(prefix="fedcm-") as place:
        return admin.submit(write_job(Path(place), run, experiment, go_on=go_on))


def followed(
    kit: Kit, run: str, experiment: Experiment, job: str, say: Say, *, restarts: int, patience: float
) -> Iterator[Passing]:
    """Until the run is over: finished, stopped, diverged or failed; `patience` is how long the server may be away."""
    watch = _Watch(run, experiment, job, say, restarts)
    away = _Silence()
    while True:
        try:
            with admin_of(kit) as admin:
                while True:
                    outcome = watch.look(admin)
                    away.ends()
                    if outcome is not None:
                        yield Passing(outcome, watch.new_lines(outcome))
                        if outcome.over:
                            watch.settle(admin)
                            return
                    time.sleep(_LOOK)
        except UnreachableError as reason:
            if away.lasts(patience):
                raise
            say(f"{reason}; trying again")
            time.sleep(2)


@final
class _Watch:
    """One run, in whichever job it goes on."""

    def __init__(self, run: str, experiment: Experiment, job: str, say: Say, restarts: int) -> None:
        self.run = run
        self.experiment = experiment
        self.job = job
        self.say = say
        self.restarts = self.left = restarts
        self.silent = _Silence()
        self.heard = False
        self.apart = _Silence()  # a site is there, and not in the job
        self.taking_in = False
        self.taken_in = 0  # times
        self.lost_at = 0  # the round in which a job was lost last
        self.round = 0  # that was told last
        self.told: set[str] = set()

    def look(self, admin: Admin) -> Outcome | None:
        """How the run stands; None while that is not known."""
        outcome, state = outcome_of(admin, self.job), admin.state(self.job)
        if outcome is None and state == _ABORTED and not self.heard:
            return Outcome(run=self.run, state="stopped", why="it was stopped before it began")
        if outcome is None:
            may_be_silent = _QUIET if self.heard else _STARTING
            if state.startswith(OVER) or (state.startswith(_GOES_ON) and self.silent.lasts(may_be_silent)):
                self._lost(admin, state)
            return None
        self.silent.ends()
        self.heard = True
        self.round = max(outcome.metrics.get("round", 0), self.round)
        if self.round >= self.lost_at + _PROGRESS:
            self.left = self.restarts  # what went wrong is behind it
        if outcome.state == "paused":
            self.settle(admin)
            self._again(admin)
            return outcome.at(state="starting")
        if outcome.state == "running" and not self.taking_in:
            self._take_in(admin, outcome.absent)
        return outcome

    def settle(self, admin: Admin) -> None:
        """Until the engine is done with the job of a run that is over: before that it hands nothing out."""
        ending = _Silence()
        while not admin.state(self.job).startswith(OVER) and not ending.lasts(_ENDING):
            time.sleep(_LOOK)

    def new_lines(self, outcome: Outcome) -> list[str]:
        new = [line for line in outcome.lines if line not in self.told]
        self.told.update(new)
        return new

    def _take_in(self, admin: Admin, absent: list[str]) -> None:
        """The engine does not take a site that came back into a job that goes on, but into the next one it does."""
        back = sorted(set(absent) & set(admin.connected())) if absent else []
        if not back:
            self.apart.ends()
        elif self.apart.lasts(_APART * 2**self.taken_in):  # one that comes and goes is waited for ever longer
            self.say(f"{', '.join(back)} is connected again; {self.run} goes on with it in another job")
            admin.ask(self.job, "pause")
            self.taking_in = True
            self.taken_in += 1

    def _lost(self, admin: Admin, state: str) -> None:
        if not self.left:
            raise UserError(
                f"the run {self.run!r} was lost {self.restarts + 1} times; see `fedcm federation logs {self.run}`"
            )
        self.left -= 1
        self.lost_at = self.round
        self.say(f"the engine lost the job of {self.run} ({state.lower()}); it goes on in another one")
        if not state.startswith(OVER):
            admin.abort(self.job)
        self._again(admin)

    def _again(self, admin: Admin) -> None:
        """In another job, once the sites have found back to a server that was away; or in the one that was submitted
        before the answer to it was lost."""
        waiting = _Silence()
        while set(self.experiment.federation.sites) - set(admin.connected()) and not waiting.lasts(_GATHERING):
            time.sleep(_LOOK)
        newest = admin.newest(self.run)
        if newest.id != self.job and not newest.over:
            self.job = newest.id
        else:
            self.job = submit(admin, self.run, self.experiment, go_on=True)
        self.silent, self.apart, self.taking_in, self.heard = _Silence(), _Silence(), False, False


@final
class _Silence:
    """How long nothing has been heard."""

    def __init__(self) -> None:
        self.since: float | None = None

    def lasts(self, seconds: float) -> bool:
        self.since = self.since or time.monotonic()
        return time.monotonic() - self.since > seconds

    def ends(self) -> None:
        self.since = None


def outcome_of(admin: Admin, job: str) -> Outcome | None:
    """As the run says, or left behind; None when neither is to be had."""
    told = admin.ask(job, "state")
    if told is not None:
        return Outcome.model_validate(told)
    if not admin.state(job).startswith(OVER):
        return None
    return left_behind(admin, job)


def reject_taken(admin: Admin, run: str) -> None:
    """A name whose runs all failed before their first round may be used again."""
    for job in admin.jobs(run):
        outcome = outcome_of(admin, job.id)
        if outcome is None or outcome.state != "failed" or outcome.metrics:
            raise UserError(
                f"the run {run!r} is there already; `fedcm federation resume {run}`, or give another --name"
            )


def left_behind(admin: Admin, job: str) -> Outcome | None:
    """What a job that is over says of its run."""
    try:
        with downloaded(admin, job) as folder:
            for file in folder.rglob(f"{RESULT}/outcome.json"):
                return Outcome.model_validate_json(file.read_text(encoding="utf-8"))
    except UnreachableError:
        raise
    except (UserError, ValueError):
        pass
    return None
