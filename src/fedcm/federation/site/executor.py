"""A site's part of a job: an executor of the engine that passes tasks to the site's own training process.

Nothing that happens there ends the engine's process: an error, a rejection and a crash are reported as answers.
"""

from pathlib import Path
from typing import Any, final

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedcm.federation.frames import REJECTED, Arrays, select_own_fields
from fedcm.federation.site.training_process import RequestAborted, TrainingProcess
from fedcm.system.error_messages import hide_paths


@final
class SiteExecutor(Executor):
    """Executes the requests of `fedcm.federation.site.trainer`; the engine creates it from a job's configuration."""

    def __init__(self, experiment: str, sites: list[str]) -> None:
        """Prepare the job; `experiment` is its TOML, `sites` are all sites of the run in the order of clients."""
        super().__init__()
        self.experiment = experiment
        self.sites = sites
        self._training: TrainingProcess | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """End the training process with the job; called by the engine."""
        if event_type == EventType.END_RUN and self._training is not None:
            self._training.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task; called by the engine."""
        try:
            request, name = from_shareable(shareable), str(fl_ctx.get_identity_name())
            fields = select_own_fields(dict(request.meta), name)
            training = self._get_training(name, fl_ctx)
            return _make_message(*training.ask(task_name, fields, dict(request.data), lambda: abort_signal.triggered))
        except RequestAborted:
            return _make_message({REJECTED: "the run was stopped"}, {})
        except Exception as error:  # an uncaught error would end the job for all sites
            self.log_exception(fl_ctx, "a task failed")
            return _make_message({REJECTED: hide_paths(f"{type(error).__name__}: {error}")}, {})

    def _get_training(self, name: str, fl_ctx: FLContext) -> TrainingProcess:
        if self._training is None:
            engine: Any = fl_ctx.get_engine()
            kit = Path(engine.get_workspace().get_root_dir()).absolute()
            open_fields = {
                "experiment": self.experiment,
                "client": self.sites.index(name),
                "population": len(self.sites),
            }
            self._training = TrainingProcess(kit, open_fields, lambda line: self.log_warning(fl_ctx, line))
        return self._training


def _make_message(fields: dict[str, Any], arrays: Arrays) -> Shareable:
    return DXO(DataKind.WEIGHT_DIFF, data=arrays, meta=fields).to_shareable()
