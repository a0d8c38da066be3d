"""A site's end of the engine: it takes tasks and hands them to the site's own training process.

Nothing that happens there ends the engine's process: a fault, a refusal and a death are answers like any other.
"""

from pathlib import Path
from typing import Any, final

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedcm.federation.frames import Arrays
from fedcm.federation.site.training_process import Stopped, TrainingProcess
from fedcm.system.faults import hide_paths


@final
class SiteExecutor(Executor):
    def __init__(self, experiment: str, sites: list[str]) -> None:
        """`experiment` is its TOML; `sites` are all that take part, by client."""
        super().__init__()
        self.experiment = experiment
        self.sites = sites
        self._training: TrainingProcess | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.END_RUN and self._training is not None:
            self._training.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        try:
            asked, name = from_shareable(shareable), str(fl_ctx.get_identity_name())
            words: dict[str, Any] = dict(asked.meta)
            if "counted" in words:
                words["counted"] = words["counted"][name]
            training = self._training_of(name, fl_ctx)
            return _message(*training.ask(task_name, words, dict(asked.data), lambda: abort_signal.triggered))
        except Stopped:
            return _message({"refused": "the run was stopped"}, {})
        except Exception as error:  # one that left this function would end the job for everybody
            self.log_exception(fl_ctx, "a task failed")
            return _message({"refused": hide_paths(f"{type(error).__name__}: {error}")}, {})

    def _training_of(self, name: str, fl_ctx: FLContext) -> TrainingProcess:
        if self._training is None:
            engine: Any = fl_ctx.get_engine()
            kit = Path(engine.get_workspace().get_root_dir()).absolute()
            opening = {
                "experiment": self.experiment,
                "client": self.sites.index(name),
                "population": len(self.sites),
            }
            self._training = TrainingProcess(kit, opening, lambda line: self.log_warning(fl_ctx, line))
        return self._training


def _message(words: dict[str, Any], arrays: Arrays) -> Shareable:
    return DXO(DataKind.WEIGHT_DIFF, data=arrays, meta=words).to_shareable()
