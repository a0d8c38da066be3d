"""An admin's session with the server: submit runs, query their state, download their results.

Every error of the engine becomes `UnreachableError`, after which one may try again, or another `UserError`.
"""

import contextlib
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.admin.job import get_experiment_text, write_job
from fedcm.federation.engine import RUN_TOPIC, require_engine
from fedcm.federation.file_modes import private_files
from fedcm.federation.kit import Kit
from fedcm.federation.outcome import RESULT, Outcome

_FINISHED = "FINISHED"  # the engine's states of jobs that are over begin with this
_COMMAND_TIMEOUT = 30.0  # seconds
_GATHER_TIMEOUT = 20.0  # seconds to wait for sites before a run is submitted again
_POLL = 0.5  # seconds between two queries

Result = TypeVar("Result")


class UnreachableError(UserError):
    """The server did not answer."""


class EngineError(UserError):
    """The server answered with an error."""


class Job(NamedTuple):
    """A job of the engine; a run that is resumed has several."""

    id: str
    run: str
    state: str  # as the engine calls it
    submitted: str
    submitter: str  # the admin

    @property
    def has_ended(self) -> bool:
        """Whether the engine has finished the job."""
        return is_final_state(self.state)


def is_final_state(state: str) -> bool:
    """Return whether this is the engine's state of a job that has ended."""
    return state.startswith(_FINISHED)


@final
class AdminSession:
    """A session of one admin, made by `open_session`."""

    def __init__(self, session: Any, kit: Kit) -> None:
        """Wrap a session of the engine."""
        self._session = session
        self.kit = kit

    def list_sites(self) -> list[str]:
        """Return the sites that are connected now."""
        info = self._call(self._session.get_system_info)
        return sorted(client.name for client in info.client_info)

    def submit_run(self, run: str, experiment: Experiment, *, resume: bool) -> str:
        """Submit a run as a new job and return the job's id; `resume` says whether the run may exist already."""
        with tempfile.TemporaryDirectory(prefix="fedcm-") as folder:
            return self.submit_job(write_job(Path(folder), run, experiment, resume=resume))

    def submit_job(self, folder: Path) -> str:
        """Submit a job's folder and return the job's id."""
        return self._call(lambda: self._session.submit_job(str(folder.absolute())))

    def list_jobs(self, run: str | None = None) -> list[Job]:
        """Return the jobs of one run, or of all runs, the newest first."""
        listed = self._call(lambda: self._session.list_jobs(detailed=True, reverse=True))
        jobs = [
            Job(
                job["job_id"],
                job.get("job_name", job.get("name", "")),
                job["status"],
                _format_time(job.get("submit_time")),
                job.get("submitter_name", ""),
            )
            for job in listed
        ]
        jobs.sort(key=lambda job: job.submitted, reverse=True)
        return [job for job in jobs if run in (None, job.run)]

    def find_newest_job(self, run: str) -> Job:
        """Return the newest job of this admin's run; another admin's run of the same name is a different run."""
        jobs = [job for job in self.list_jobs(run) if job.submitter == self.kit.name]
        if not jobs:
            raise UserError(
                f"{self.kit.name} has no run {run!r} at {self.kit.host}; `fedcm federation status` lists all runs"
            )
        return jobs[0]

    def get_state(self, job: str) -> str:
        """Return the engine's state of a job."""
        return self._get_meta(job)["status"]

    def get_experiment(self, job: str) -> str:
        """Return the TOML that a job was submitted with."""
        try:
            return get_experiment_text(self._get_meta(job))
        except (LookupError, TypeError):
            raise UserError(f"the job {job} was not submitted by `fedcm federation run`") from None

    def query_run(self, job: str, what: str) -> dict[str, Any] | None:
        """Query a running job; `what` is "state", "stop" or "pause".

        Returns:
            The fields of the run's `Outcome`; None if the job is not running.
        """
        try:
            return self._call(lambda: self._session.do_app_command(job, RUN_TOPIC, {"what": what}))
        except EngineError:
            return None

    def get_outcome(self, job: str) -> Outcome | None:
        """Return the outcome of a running or finished job; None if it is not known."""
        fields = self.query_run(job, "state")
        if fields is not None:
            return Outcome.model_validate(fields)
        return self._download_outcome(job) if is_final_state(self.get_state(job)) else None

    def abort(self, job: str) -> None:
        """End a job; one that is over stays as it is."""
        with contextlib.suppress(EngineError):
            self._call(lambda: self._session.abort_job(job))

    @contextlib.contextmanager
    def download(self, job: str) -> Iterator[Path]:
        """Download a job into a temporary folder: its definition and, once it is over, its results."""
        with tempfile.TemporaryDirectory(prefix="fedcm-") as folder:
            yield Path(self._call(lambda: self._session.download_job_result(job, folder)))

    def _download_outcome(self, job: str) -> Outcome | None:
        try:
            with self.download(job) as folder:
                for file in folder.rglob(f"{RESULT}/outcome.json"):
                    return Outcome.model_validate_json(file.read_text(encoding="utf-8"))
        except UnreachableError:
            raise
        except (UserError, ValueError):
            pass
        return None

    def _get_meta(self, job: str) -> dict[str, Any]:
        return self._call(lambda: self._session.get_job_meta(job))

    def _call(self, command: Callable[[], Result]) -> Result:
        from nvflare.fuel.flare_api import api_spec

        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the engine prints
                return command()
        except (api_spec.NoConnection, api_spec.SessionClosed, ConnectionError) as error:
            raise UnreachableError(f"the server {self.kit.host} does not answer ({error})") from None
        except api_spec.AuthorizationError as error:
            raise UserError(f"{self.kit.name} is not allowed to do this in {self.kit.federation}: {error}") from None
        except UnreachableError:
            raise
        except Exception as error:  # the engine raises many types, some of them plain RuntimeErrors
            raise EngineError(f"the server {self.kit.host} reports: {' '.join(str(error).split())}") from None


def _format_time(value: Any) -> str:
    """Format the engine's time stamp in UTC."""
    try:
        return datetime.fromtimestamp(float(value), UTC).isoformat(sep=" ", timespec="seconds")
    except (TypeError, ValueError):
        return str(value or "")


@contextlib.contextmanager
def open_session(kit: Kit, seconds: float = 10.0) -> Iterator[AdminSession]:
    """Log in with an admin's kit, waiting at most `seconds` for the server.

    Raises:
        UnreachableError: If the server does not answer.
        UserError: If it is not an admin's kit, the server rejects it, or the engine is not installed.
    """
    if kit.kind != "admin":
        raise UserError(f"an admin's kit is required, but {str(kit.path)!r} is the kit of the {kit.kind} {kit.name}")
    require_engine()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write to the terminal
    from nvflare.fuel.flare_api import api_spec
    from nvflare.fuel.flare_api.flare_api import new_secure_session
    from nvflare.fuel.utils.config_service import ConfigService

    logging.getLogger().setLevel(logging.CRITICAL)  # errors are raised as exceptions
    # by default the engine searches the current folder and those below it for settings, and runs code that they name
    ConfigService.initialize(section_files={}, config_path=[str(kit.path.absolute())])
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            private_files(),  # the engine makes folders in the kit
        ):
            session = new_secure_session(
                kit.name,
                str(kit.path.absolute()),
                timeout=seconds,
                command_timeout=_COMMAND_TIMEOUT,
                auto_login_max_tries=1,
            )
    except (api_spec.NoConnection, ConnectionError, TimeoutError) as error:
        raise UnreachableError(f"the server {kit.host}:{kit.port} does not answer ({error}); is it running?") from None
    except (api_spec.AuthenticationError, api_spec.SessionClosed) as error:
        raise UserError(f"the server {kit.host} rejects the login of {kit.name}: {error}") from None
    except Exception as error:  # for example a certificate that the engine itself rejects
        raise UserError(
            f"the kit {str(kit.path)!r} cannot open a session ({type(error).__name__}: {error}); "
            f"`fedcm federation check {kit.path}` checks it"
        ) from None
    try:
        yield AdminSession(session, kit)
    finally:
        with contextlib.suppress(Exception):
            session.close()


def await_sites(session: AdminSession, sites: Collection[str]) -> list[str]:
    """Wait until these sites are connected, for 20 s at most; return those that are not.

    The engine includes a site in a job only if it is connected when the job begins. Sites come back some seconds after
    a server that was started again.
    """
    end = time.monotonic() + _GATHER_TIMEOUT
    while (missing := sorted(set(sites) - set(session.list_sites()))) and time.monotonic() < end:
        time.sleep(_POLL)
    return missing
