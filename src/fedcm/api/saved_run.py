"""A run on disk, as a Python object."""

from contextlib import closing
from pathlib import Path
from typing import Any, Literal, final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedcm.api.arguments import AnyPath, to_count, to_optional_path, to_path
from fedcm.api.experiments import PythonExperiment, get_builder
from fedcm.api.metrics_table import MetricsTable
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.executors.client_runner import PERSONAL
from fedcm.models.trainable import load_personal
from fedcm.runs.build import build
from fedcm.runs.checkpoint import read_newest_checkpoint
from fedcm.runs.evidence.manifest import check_evidence
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import read_current_summary
from fedcm.system.callbacks import ignore_message


@final
class Run:
    """A run on disk: its experiment, its metrics, its summary and its model.

    A finished run has a manifest of checksums. Every file that is read is compared with it first; if the file was
    changed after the run ended, a `UserError` says so.

    Args:
        path: The run's folder.
        experiment: The experiment, if the run was made of Python objects.

    Raises:
        UserError: If there is no run in this folder.
    """

    def __init__(self, path: AnyPath, experiment: Experiment | None = None) -> None:
        self.folder = RunFolder.open(to_path("path", path))
        self._experiment = experiment

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.folder.name

    @property
    def experiment(self) -> Experiment:
        """The experiment, with every default filled in and every automatic choice made."""
        if self._experiment is not None:
            return self._experiment
        check_evidence(self.folder.experiment)
        return read_experiment(read_table(self.folder.experiment))

    @property
    def outcome(self) -> str:
        """ "finished", "diverged", "running" in another process, or "stopped"."""
        return self.folder.read_outcome()

    @property
    def metrics(self) -> MetricsTable:
        """One row per finished round. `pandas.DataFrame(run.metrics)` makes a data frame of it."""
        return MetricsTable(self.folder.read_metrics())

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json; empty if the run has not ended."""
        return read_current_summary(self.folder) or {}

    def model(
        self,
        which: Literal["last", "best"] | nn.Module = "last",
        module: nn.Module | None = None,
        *,
        client: int | None = None,
        data_dir: AnyPath | None = None,
    ) -> nn.Module:
        """Return the trained model.

        Args:
            which: "last": the model after the last round. "best": the model of the best round on the validation data. A
                module here is taken as `module`.
            module: A module to load the parameters into. It is needed only for a run that was made of Python objects
                in another program.
            client: Return the model with the personal parameters of this client, if the model has any.
            data_dir: Folder of prepared datasets, which give the shape of the inputs.

        Raises:
            UserError: If the run has not finished, its file of parameters is damaged, or the model cannot be built.
        """
        if isinstance(which, nn.Module):
            which, module = "last", which
        if which not in ("last", "best"):
            raise UserError(f'which must be "last" or "best", got {which!r}')
        file = self._find_model_file(which)
        if module is None:
            module = self._build_model(to_optional_path("data_dir", data_dir))
        if not isinstance(module, nn.Module):
            raise UserError(f"module must be a torch.nn.Module, got {module!r}")
        try:
            module.load_state_dict(load_file(file))
        except SafetensorError as error:
            raise UserError(f"{str(file)!r} must be a file of parameters, and cannot be read ({error})") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"the module does not have the parameters of the run's model: {reason}") from None
        if client is not None:
            self._load_personal(module, to_count("client", client, least=0), to_optional_path("data_dir", data_dir))
        return module.eval()

    def _load_personal(self, module: nn.Module, client: int, data_dir: Path | None) -> None:
        """Load the personal parameters of a client from the newest checkpoint, in place."""
        experiment = self.experiment.without_autotune()
        setup = get_builder(experiment)(experiment, data_dir)
        names = setup.problem.personal_names
        if not names:
            raise UserError(f"all clients of the run {self.name!r} share one model, so client must be left out")
        if client >= setup.plan.population:
            raise UserError(f"client must be below {setup.plan.population}, the number of clients, got {client}")
        with closing(setup.open_client_states(self.folder.client_states)) as states:
            read_newest_checkpoint(self.folder.checkpoints, setup.init_server(), states.try_restore, ignore_message)
            load_personal(module, names, getattr(states.get(client), PERSONAL))

    def _find_model_file(self, which: str) -> Path:
        check_evidence(self.folder.best if which == "best" else self.folder.model)
        if which == "best":
            if not self.folder.best.is_file():
                raise UserError(
                    f"the run {self.name!r} has no best model, because no validation data were evaluated; set "
                    "data.validation = 0.1, for example"
                )
            return self.folder.best
        if not self.folder.model.is_file():
            raise UserError(
                f"the run {self.name!r} has no model yet, because it is {self.outcome}; resume it with fedcm.resume"
            )
        return self.folder.model

    def _build_model(self, data_dir: Path | None) -> nn.Module:
        experiment = self.experiment
        if isinstance(experiment, PythonExperiment):
            return experiment.copy_model()
        unloaded = experiment.model.model_copy(update={"weights": None})  # the run's own parameters replace them
        return build(experiment.without_autotune().model_copy(update={"model": unloaded}), data_dir).problem.model

    def __repr__(self) -> str:
        try:
            return f"<Run {self.name!r}: {self.outcome}, {len(self.metrics)} rounds>"
        except UserError:  # a damaged run has a representation too
            return f"<Run {self.name!r}: damaged>"
