"""Run the rounds of a session with everything that watches them: the progress line, trackers, callbacks, diagnoses."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from fedcm.core.metrics import RoundMetrics
from fedcm.errors import Diverged
from fedcm.runs.session import Session
from fedcm.system.callbacks import Notify
from fedcm.system.formatting import format_count
from fedcm.trackers.tracker import Tracker, track

Callback = Callable[[RoundMetrics], object]  # called after every round; the run stops if it returns True


class ShowProgress(Protocol):
    """Shows the progress of rounds and passes them on."""

    def __call__(
        self, rounds: Iterator[dict[str, Any]], total: int, first: int, title: str
    ) -> Iterator[dict[str, Any]]:
        """Yield the rounds unchanged.

        Args:
            rounds: Lines of metrics.jsonl, as the rounds finish.
            total: The number of rounds of the whole run.
            first: The first round to come.
            title: The first words of the progress line.
        """
        ...


def run_session(
    session: Session,
    *,
    trackers: Sequence[type[Tracker]] = (),
    callbacks: Sequence[Callback] = (),
    diagnose_every: int | None = None,
    title: str | None = None,
    show_progress: ShowProgress | None = None,
    notify: Notify,
) -> Literal["finished", "diverged"]:
    """Run the remaining rounds of a session. The caller closes it.

    Args:
        session: The session.
        trackers: Also log every round to trackers of these classes.
        callbacks: Called with the metrics of every round. If one returns True, the run stops after the round.
        diagnose_every: Rounds between measurements of drift, noise and dissimilarity; none by default.
        title: The first words of the progress line; the run's name by default.
        show_progress: Shows a progress line; none by default.
        notify: Called with one sentence about each thing that the user should know.

    Returns:
        How the run ended.

    Raises:
        Stopped: If the user or a callback stopped the run.
        TrainingFailed: If a worker or the user's own code failed.
        WriteFailed: If the run's folder could not be written.
    """
    first, total, folder = session.next_round, session.total_rounds, session.folder
    if diagnose_every is not None and first // diagnose_every == total // diagnose_every:
        rounds_to_run = (
            f"remaining {format_count(total - first, 'round')}"
            if first
            else f"{format_count(total, 'round')} of this run"
        )
        notify(f"a diagnosis every {format_count(diagnose_every, 'round')} is never due in the {rounds_to_run}")
    finished = session.rounds(diagnose_every=diagnose_every)
    rounds = (_call_back(session, metrics, callbacks).to_dict() for metrics in finished)
    if diagnose_every is not None:
        rounds = report_cost(rounds, diagnose_every, notify)
    if show_progress is not None:
        rounds = show_progress(rounds, total, first, title or folder.name)
    try:
        for _ in track(rounds, folder, first, trackers, notify):
            pass
        if session.stop_reason is not None:
            done = format_count(session.next_round, "round")
            notify(f"the run ended early, after {done} of {total}: {session.stop_reason.reason}")
    except Diverged as reason:
        notify(f"fedcm: training diverged: {reason}; everything saved before remains. A smaller client.lr helps most.")
        return "diverged"
    return "finished"


def _call_back(session: Session, metrics: RoundMetrics, callbacks: Sequence[Callback]) -> RoundMetrics:
    for callback in callbacks:
        if _is_true(callback(metrics)):
            session.request_stop()
    return metrics


def report_cost(rounds: Iterator[dict[str, Any]], every: int, notify: Notify) -> Iterator[dict[str, Any]]:
    """Pass on the rounds; report what diagnoses cost, after the first one and at the end.

    Args:
        rounds: Lines of metrics.jsonl.
        every: Rounds between diagnoses.
        notify: Called with one sentence.
    """
    trained = spent = 0.0
    count = 0
    for done, metrics in enumerate(rounds, start=1):
        trained += metrics["seconds"]
        if "diagnosis" in metrics:
            spent += metrics["diagnosis"]["seconds"]
            count += 1
            if count == 1:
                share = _format_share(spent / (every * trained / done))
                notify(f"a diagnosis takes {spent:.2g} s; at this rate, diagnoses take {share} the time of the rounds")
        yield metrics
    if count:
        diagnoses = format_count(count, "diagnosis", "diagnoses")
        notify(f"{diagnoses} took {spent:.3g} s, {_format_share(spent / trained)} the {trained:.3g} s of the rounds")


def _format_share(share: float) -> str:
    """
    >>> _format_share(0.254), _format_share(14.1)
    ('25% of', '14 times')
    """
    return f"{share:.0%} of" if share < 2 else f"{share:.2g} times"


def _is_true(result: object) -> bool:
    """Return whether a callback returned True, not just something that is not empty."""
    return isinstance(result, bool | np.bool_) and bool(result)
