"""Run the rounds of a session with everything that watches them: the progress line, trackers, callbacks, diagnoses."""

from collections.abc import Callable, Sequence
from typing import Literal

from fedcm.core.metrics import RoundMetrics
from fedcm.errors import Diverged
from fedcm.executors.diagnosis import Diagnosis, report_cost
from fedcm.runs.progress import say, show_progress
from fedcm.runs.session import Session
from fedcm.trackers.tracker import Tracker, track

Callback = Callable[[RoundMetrics], object]  # called after every round; the run stops if it returns True


def run_session(
    session: Session,
    *,
    trackers: Sequence[type[Tracker]] = (),
    callbacks: Sequence[Callback] = (),
    diagnose_every: int | None = None,
    title: str | None = None,
    progress: bool = True,
    notify: Callable[[str], None] = say,
) -> Literal["finished", "diverged"]:
    """Run the remaining rounds of a session and close it.

    Args:
        session: The session.
        trackers: Also log every round to trackers of these classes.
        callbacks: Called with the metrics of every round. If one returns True, the run stops after the round.
        diagnose_every: Rounds between measurements of drift, noise and dissimilarity; none by default.
        title: The first words of the progress line; the run's name by default.
        progress: Show a progress line on stderr.
        notify: Called with one sentence about each thing that the user should know.

    Returns:
        How the run ended.

    Raises:
        Stopped: the user or a callback stopped the run.
        WorkerFailed: a worker or the user's own code failed.
        WriteFailed: the run's folder could not be written.
    """
    first, total, folder = session.next_round, session.total_rounds, session.folder
    if diagnose_every is not None:
        session.diagnosis = Diagnosis(diagnose_every)
        if first // diagnose_every == total // diagnose_every:
            notify(f"a diagnosis every {diagnose_every} rounds is never due in this run, which ends after {total}")
    with session:
        rounds = (_call_back(session, metrics, callbacks).to_dict() for metrics in session.rounds())
        if diagnose_every is not None:
            rounds = report_cost(rounds, diagnose_every, notify)
        rounds = show_progress(rounds, total, first, title or folder.name, hidden=not progress)
        try:
            for _ in track(rounds, folder, first, trackers):
                pass
        except Diverged as reason:
            notify(
                f"fedcm: training diverged: {reason}; everything saved before remains. A smaller client.lr helps most."
            )
            return "diverged"
    return "finished"


def _call_back(session: Session, metrics: RoundMetrics, callbacks: Sequence[Callback]) -> RoundMetrics:
    for callback in callbacks:
        if callback(metrics) is True:
            session.request_stop()
    return metrics
