"""What an admin does with runs: start, resume, stop, and read their state and log."""

import tomllib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import apply_overrides
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.admin.session import AdminSession, Job, UnreachableError, await_sites
from fedcm.federation.experiment import prepare_experiment
from fedcm.federation.outcome import LOG, RESULT
from fedcm.system.callbacks import Notify

CHANGEABLE = tuple(
    f"federation.{key}"
    for key in (
        "deadline",
        "quorum",
        "wait",
        "drop_after",
        "retry_after",
        "give_up_after",
        "norm_bound",
        "norm_ratio",
        "min_cosine",
        "max_examples",
    )
)
_FINAL_STATES = {
    "FINISHED:COMPLETED": "over",
    "FINISHED:EXECUTION_EXCEPTION": "failed",
    "FINISHED:ABORTED": "ended by the engine",
}


class SubmittedRun(NamedTuple):
    """A run that was submitted to the server."""

    name: str
    experiment: Experiment  # with every site named
    job: str


def start_run(
    session: AdminSession, name: str, experiment: Experiment, sites: Sequence[str], notify: Notify
) -> SubmittedRun:
    """Submit a new run.

    Args:
        session: The admin's session.
        name: The run's name.
        experiment: The experiment to run.
        sites: Which sites take part; by default those of the experiment, or all that are connected.
        notify: Called with a line per site that is not connected.

    Raises:
        UserError: If no site is connected, or the name is taken.
    """
    connected = session.list_sites()
    chosen = sorted(sites or experiment.federation.sites or connected)
    if not chosen:
        raise UserError(
            f"a run needs sites, but none is connected to {session.kit.host}; start one with `fedcm federation site`"
        )
    for site in sorted(set(chosen) - set(connected)):
        notify(f"{site} is not connected; the run begins without it if the quorum is connected")
    _reject_taken_name(session, name)
    federation = experiment.federation.model_copy(update={"sites": chosen})
    prepared = prepare_experiment(experiment.model_copy(update={"federation": federation}))
    return SubmittedRun(name, prepared, session.submit_run(name, prepared, resume=False))


def resume_run(session: AdminSession, name: str, overrides: Sequence[str], notify: Notify) -> SubmittedRun:
    """Submit a stopped or lost run again, as soon as its sites are connected.

    Args:
        session: The admin's session.
        name: The run's name.
        overrides: Changes that `reject_unchangeable` has checked.
        notify: Called with a line per site that is not connected after 20 s.
    """
    last = session.find_newest_job(name)
    if not last.has_ended and session.query_run(last.id, "state") is not None:
        raise UserError(f"the run {name!r} is running; `fedcm federation status {name}` shows its state")
    experiment = read_experiment(apply_overrides(tomllib.loads(session.get_experiment(last.id)), overrides))
    if not last.has_ended:
        session.abort(last.id)  # a job that the engine lost would block the queue for ever
    for site in await_sites(session, experiment.federation.sites):
        notify(f"{site} is not connected; the run resumes without it if the quorum is connected")
    return SubmittedRun(name, experiment, session.submit_run(name, experiment, resume=True))


def reject_unchangeable(overrides: Iterable[str]) -> None:
    """Raise UserError for an override that a resume does not allow."""
    for override in overrides:
        if override.partition("=")[0] not in CHANGEABLE:
            raise UserError(f"a resume can change only {', '.join(CHANGEABLE)}, got {override!r}")


def stop_run(session: AdminSession, name: str) -> None:
    """Stop a run after its current round."""
    job = session.find_newest_job(name)
    if job.has_ended:
        raise UserError(f"the run {name!r} has ended already ({job.state.lower()})")
    if session.query_run(job.id, "stop") is None:
        session.abort(job.id)


def read_log(session: AdminSession, name: str) -> list[str]:
    """Return the lines of a run's log, or one line that says that there is none."""
    job = session.find_newest_job(name)
    fields = session.query_run(job.id, "state")
    if fields is not None:
        return fields["lines"]
    with session.download(job.id) as folder:
        files = list(folder.rglob(f"{RESULT}/{LOG}"))
        lines = files[0].read_text(encoding="utf-8").splitlines() if files else []
    return lines or [f"there is no log of {name}: its job ended before it began ({job.state})"]


def describe_runs(session: AdminSession, name: str | None = None) -> list[dict[str, Any]]:
    """Return a row per run for `fedcm federation status`.

    How a finished run ended is downloaded only if it is named, because the download contains the model.
    """
    jobs = [session.find_newest_job(name)] if name is not None else session.list_jobs()
    newest = {job.run: job for job in reversed(jobs)}
    return [_describe_run(session, job, download=name is not None) for job in newest.values()]


def _describe_run(session: AdminSession, job: Job, *, download: bool) -> dict[str, Any]:
    try:
        outcome = session.get_outcome(job.id) if download or not job.has_ended else None
    except UnreachableError:
        raise
    except UserError:  # another admin's run, of which only the engine's state may be seen
        outcome = None
    state = _FINAL_STATES.get(job.state, job.state.lower())
    row = {"run": job.run, "state": state, "submitted": job.submitted, "job": job.id}
    if outcome is None:
        return row if job.has_ended else row | {"state": "unknown"}
    return row | {"state": outcome.state, "rounds": outcome.rounds, "why": outcome.why, "last": outcome.metrics}


def _reject_taken_name(session: AdminSession, name: str) -> None:
    """Raise UserError unless every run of this name failed before its first round."""
    for job in session.list_jobs(name):
        outcome = session.get_outcome(job.id)
        if outcome is None or outcome.state != "failed" or outcome.metrics:
            raise UserError(
                f"the run {name!r} exists already; resume it with `fedcm federation resume {name}`, or give another "
                "--name"
            )
