"""Watch a run: its rounds and its log, and a new job when the engine lost the last one.

The engine does not continue a job after the server died, nor keep one whose process died at a site. But the run is
saved in the server's kit after every round. So the watching command submits it again, and it resumes where it was.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, final

from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.admin.session import (
    AdminSession,
    UnreachableError,
    await_sites,
    is_final_state,
    open_session,
)
from fedcm.federation.kit import Kit
from fedcm.federation.outcome import Outcome
from fedcm.system.callbacks import Notify

_POLL = 0.5  # seconds between two queries
_START_TIMEOUT = 120.0  # seconds from submitting a job to its first answer
_SILENCE_TIMEOUT = 30.0  # seconds between two answers of a job
_END_TIMEOUT = 120.0  # seconds in which the engine ends a job whose run is over
_RETURN_DELAY = 5.0  # seconds that a site must be connected again before the run is resubmitted for it
_RETURNS = 4  # how often the run is resubmitted for the same site
_PROGRESS = 5  # rounds after which a lost job is forgiven
_ABORTED = "FINISHED:ABORTED"
_RUNNING = ("DISPATCHED", "RUNNING")  # beginnings of the engine's states of running jobs


class RunUpdate(NamedTuple):
    """The state of a run when it was queried."""

    outcome: Outcome
    lines: list[str]  # new lines of its log


def watch_run(
    kit: Kit, run: str, experiment: Experiment, job: str, notify: Notify, *, restarts: int, patience: float
) -> Iterator[RunUpdate]:
    """Yield updates until the run is finished, stopped, diverged or failed.

    Args:
        kit: The admin's kit.
        run: The run's name.
        experiment: The run's experiment, to submit the run again.
        job: Id of the run's present job.
        notify: Called with lines about lost jobs and connections.
        restarts: How often in a row a lost run is submitted again.
        patience: Seconds that the server may be unreachable.
    """
    watch = _Watch(run, experiment, job, notify, restarts)
    unreachable = _Timer()
    while True:
        try:
            with open_session(kit) as session:
                while True:
                    outcome = watch.query(session)
                    unreachable.reset()
                    if outcome is not None:
                        yield RunUpdate(outcome, watch.take_new_lines(outcome))
                        if outcome.has_ended:
                            watch.await_end(session)
                            return
                    time.sleep(_POLL)
        except UnreachableError as error:
            if unreachable.exceeds(patience):
                raise
            watch.note_lost_server()
            notify(f"{error}; trying again")
            time.sleep(2)


@final
class _Watch:
    """One run, in whichever job it is."""

    def __init__(self, run: str, experiment: Experiment, job: str, notify: Notify, restarts: int) -> None:
        self.run = run
        self.experiment = experiment
        self.job = job
        self.notify = notify
        self.restarts = self.restarts_left = restarts
        self.silence = _Timer()  # since the job's last answer
        self.answered = False  # whether the present job has answered
        self.server_lost = False  # whether the server was unreachable since the present job was submitted
        self.returned = _Timer()  # since an absent site is connected again
        self.pausing = False  # whether the present job was asked to pause
        self.pauses = 0
        self.returns = Counter[str]()  # how often the run was resubmitted for a site
        self.lost_at = 0  # round in which a job was last lost
        self.round = 0  # last known round
        self.seen_lines: set[str] = set()

    def query(self, session: AdminSession) -> Outcome | None:
        """Return the run's outcome, None while it is not known; submit the run again if its job is lost."""
        outcome, state = session.get_outcome(self.job), session.get_state(self.job)
        if outcome is None and state == _ABORTED and not self.answered:
            return Outcome(run=self.run, state="stopped", why="it was stopped before it began")
        if outcome is None:
            timeout = _SILENCE_TIMEOUT if self.answered or self.server_lost else _START_TIMEOUT
            if is_final_state(state) or (state.startswith(_RUNNING) and self.silence.exceeds(timeout)):
                self._restart_lost_run(session, state)
            return None
        self.silence.reset()
        self.answered = True
        self.round = max(outcome.metrics.get("round", 0), self.round)
        if self.round >= self.lost_at + _PROGRESS:
            self.restarts_left = self.restarts
        if outcome.state == "paused":
            self.await_end(session)
            self._submit_again(session)
            return outcome.replace(state="starting")
        if outcome.state == "running" and not self.pausing:
            self._include_returned_sites(session, outcome.absent)
        return outcome

    def note_lost_server(self) -> None:
        """Give a silent job less time: a server that was started again does not continue its jobs."""
        self.server_lost = True
        self.silence.reset()

    def await_end(self, session: AdminSession) -> None:
        """Wait until the engine has ended the job of a run that is over; only then it gives out the results."""
        ending = _Timer()
        while not is_final_state(session.get_state(self.job)) and not ending.exceeds(_END_TIMEOUT):
            time.sleep(_POLL)

    def take_new_lines(self, outcome: Outcome) -> list[str]:
        """Return the lines of the log that were not returned before."""
        new = [line for line in outcome.lines if line not in self.seen_lines]
        self.seen_lines.update(new)
        return new

    def _include_returned_sites(self, session: AdminSession, absent: list[str]) -> None:
        """Pause the job if an absent site is connected again: the engine includes it only in a new job."""
        back = sorted(set(absent) & set(session.list_sites())) if absent else []
        back = [site for site in back if self.returns[site] < _RETURNS]
        if not back:
            self.returned.reset()
        elif self.returned.exceeds(_RETURN_DELAY * 2**self.pauses):  # wait longer for a site that comes and goes
            self.notify(f"{', '.join(back)} is connected again; {self.run} resumes with it in a new job")
            self.returns.update(back)
            for site in back:
                if self.returns[site] == _RETURNS:
                    self.notify(f"{site} was lost {_RETURNS} times; next time, {self.run} continues without it")
            session.query_run(self.job, "pause")
            self.pausing = True
            self.pauses += 1

    def _restart_lost_run(self, session: AdminSession, state: str) -> None:
        if not self.restarts_left:
            raise UserError(
                f"the run {self.run!r} was lost {self.restarts + 1} times; see `fedcm federation logs {self.run}`"
            )
        self.restarts_left -= 1
        self.lost_at = self.round
        self.notify(f"the engine lost the job of {self.run} ({state.lower()}); the run resumes in a new job")
        if not is_final_state(state):
            session.abort(self.job)
        self._submit_again(session)

    def _submit_again(self, session: AdminSession) -> None:
        """Submit a new job once the sites are connected, unless one was submitted whose answer got lost."""
        await_sites(session, self.experiment.federation.sites)
        newest = session.find_newest_job(self.run)
        if newest.id != self.job and not newest.has_ended:
            self.job = newest.id
        else:
            self.job = session.submit_run(self.run, self.experiment, resume=True)
        self.silence, self.returned, self.pausing, self.answered = _Timer(), _Timer(), False, False
        self.server_lost = False


@final
class _Timer:
    """How long something has lasted; it starts with the first question."""

    def __init__(self) -> None:
        self.since: float | None = None

    def exceeds(self, seconds: float) -> bool:
        self.since = self.since or time.monotonic()
        return time.monotonic() - self.since > seconds

    def reset(self) -> None:
        self.since = None
