"""An admin's session with the server: submitting a run, asking how it stands, fetching what came out.

What the engine raises becomes one of two things: `UnreachableError`, after which one may try again, or a refusal.
"""

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

from fedcm.errors import UserError
from fedcm.federation.admin.job import experiment_in
from fedcm.federation.kit import Kit

OVER = "FINISHED"  # how the engine's words for a job that is over begin
_COMMAND_TIMEOUT = 30.0  # seconds

Result = TypeVar("Result")


class UnreachableError(UserError):
    """The server did not answer."""


class EngineError(UserError):
    """The server answered, and did not do what it was asked."""


class Job(NamedTuple):
    id: str
    run: str
    state: str  # the engine's word
    submitted: str
    by: str  # the admin whose it is

    @property
    def over(self) -> bool:
        return self.state.startswith(OVER)


@final
class Admin:
    """`with admin_of(kit) as admin:`"""

    def __init__(self, session: Any, kit: Kit) -> None:
        self._session = session
        self.kit = kit

    def connected(self) -> list[str]:
        """The sites that are there now."""
        found = self._do(self._session.get_system_info)
        return sorted(client.name for client in found.client_info)

    def submit(self, job: Path) -> str:
        return self._do(lambda: self._session.submit_job(str(job.absolute())))

    def jobs(self, run: str | None = None) -> list[Job]:
        """Newest first; of one run, or of all."""
        listed = self._do(lambda: self._session.list_jobs(detailed=True, reverse=True))
        found = [
            Job(
                job["job_id"],
                job.get("job_name", job.get("name", "")),
                job["status"],
                _time(job.get("submit_time")),
                job.get("submitter_name", ""),
            )
            for job in listed
        ]
        found.sort(key=lambda job: job.submitted, reverse=True)
        return [job for job in found if run in (None, job.run)]

    def newest(self, run: str) -> Job:
        """Of this admin's own: somebody else's of that name is another run."""
        found = [job for job in self.jobs(run) if job.by == self.kit.name]
        if not found:
            raise UserError(
                f"{self.kit.name} has no run {run!r} at {self.kit.host}; `fedcm federation status` lists all runs"
            )
        return found[0]

    def state(self, job: str) -> str:
        return self._meta(job)["status"]

    def experiment(self, job: str) -> str:
        """The TOML that a job was submitted with."""
        try:
            return experiment_in(self._meta(job))
        except (LookupError, TypeError):
            raise UserError(f"the job {job} must be one that `fedcm federation run` submitted, and is not") from None

    def _meta(self, job: str) -> dict[str, Any]:
        return self._do(lambda: self._session.get_job_meta(job))

    def ask(self, job: str, what: str) -> dict[str, Any] | None:
        """What a run that goes on says of itself; None when it does not go on."""
        from fedcm.federation.server.controller import ASK

        try:
            return self._do(lambda: self._session.do_app_command(job, ASK, {"what": what}))
        except EngineError:
            return None

    def abort(self, job: str) -> None:
        """One that does not run any more stays as it is."""
        with contextlib.suppress(EngineError):
            self._do(lambda: self._session.abort_job(job))

    def results(self, job: str, destination: Path) -> Path:
        """The folder with a job's definition and, once it is over, its results."""
        return Path(self._do(lambda: self._session.download_job_result(job, str(destination))))

    def _do(self, command: Callable[[], Result]) -> Result:
        from nvflare.fuel.flare_api import api_spec

        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the engine's own words
                return command()
        except (api_spec.NoConnection, api_spec.SessionClosed, ConnectionError) as error:
            raise UnreachableError(f"the server {self.kit.host} does not answer ({error})") from None
        except api_spec.AuthorizationError as error:
            raise UserError(f"{self.kit.name} is not allowed to do this in {self.kit.federation}: {error}") from None
        except UnreachableError:
            raise
        except Exception as error:  # the engine has a dozen kinds, of which some are plain RuntimeErrors
            raise EngineError(f"the server {self.kit.host} refuses: {' '.join(str(error).split())}") from None


def _time(given: Any) -> str:
    """Of the server's clock, in UTC."""
    try:
        return datetime.fromtimestamp(float(given), UTC).isoformat(sep=" ", timespec="seconds")
    except (TypeError, ValueError):
        return str(given or "")


@contextlib.contextmanager
def admin_of(kit: Kit, seconds: float = 10.0) -> Iterator[Admin]:
    if kit.kind != "admin":
        raise UserError(f"an admin's kit must be given, and {str(kit.path)!r} is the kit of the {kit.kind} {kit.name}")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write to the terminal by itself
    try:
        from nvflare.fuel.flare_api import api_spec
        from nvflare.fuel.flare_api.flare_api import new_secure_session
        from nvflare.fuel.utils.config_service import ConfigService
    except ImportError:
        raise UserError("a federation needs the engine: pip install 'fedcm[federation]'") from None

    logging.getLogger().setLevel(logging.CRITICAL)  # what matters comes as an exception
    # unless told where, the engine looks for settings in and below the current folder, and runs what they name
    ConfigService.initialize(section_files={}, config_path=[str(kit.path.absolute())])
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
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
        raise UserError(f"the server {kit.host} does not let {kit.name} in: {error}") from None
    except Exception as error:  # such as a certificate that the engine itself does not take
        raise UserError(
            f"no session can be opened with the kit {str(kit.path)!r} ({type(error).__name__}: {error}); "
            f"`fedcm federation check {kit.path}` tells more"
        ) from None
    try:
        yield Admin(session, kit)
    finally:
        with contextlib.suppress(Exception):
            session.close()


@contextlib.contextmanager
def downloaded(admin: Admin, job: str) -> Iterator[Path]:
    """A job's folder, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="fedcm-") as place:
        yield admin.results(job, Path(place))
