"""Write the results of a run to its folder: checkpoints, the summary, the trained model, the manifest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.core.metrics import Metrics
from fedcm.core.privacy.budget import EPSILON
from fedcm.core.stopping import BestRound
from fedcm.errors import UserError
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.privacy.settings import get_delta, get_sampling
from fedcm.runs.build import TrainingSetup
from fedcm.runs.checkpoint import (
    Checkpoint,
    clear_checkpoints_after,
    list_checkpoints,
    read_newest_checkpoint,
    write_checkpoint,
)
from fedcm.runs.evidence.manifest import FORMAT, HAS_MANIFEST, mark_open, remove_manifest, write_manifest
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import hash_params, summarise
from fedcm.system.callbacks import Notify


@final
@dataclass(frozen=True)
class RunRecorder:
    """Writes the results of one run, and reads its newest checkpoint for a resume.

    Attributes:
        folder: The run's folder.
        setup: The objects that train.
        states: The client states.
    """

    folder: RunFolder
    setup: TrainingSetup
    states: ClientStatesInFile

    def load_checkpoint(self, notify: Notify, latest: int | None = None) -> Checkpoint | None:
        """Read the newest complete checkpoint and restore the client states.

        Args:
            notify: Called with one sentence about each damaged checkpoint that is skipped.
            latest: The largest number of rounds that the checkpoint may have; any by default.

        Returns:
            The checkpoint; None if the run has none.

        Raises:
            UserError: If all checkpoints are damaged, or the run has more rounds than the experiment.
        """
        template = self.setup.init_server()
        saved = read_newest_checkpoint(self.folder.checkpoints, template, self.states.try_restore, notify, latest)
        if saved is None and list_checkpoints(self.folder.checkpoints):
            raise UserError(
                f"no checkpoint of {str(self.folder.path)!r} is complete; start a new run with "
                f"`fedcm run {self.folder.experiment}`"
            )
        if saved is not None and saved.next_round > self.setup.plan.rounds:
            raise UserError(
                f"rounds must be at least {saved.next_round}, the number that the run {self.folder.name!r} has "
                f"finished, got {self.setup.plan.rounds}"
            )
        return saved

    def clear_leftovers(self, next_round: int) -> None:
        """Remove what an earlier, interrupted session wrote after the checkpoint before `next_round`."""
        remove_manifest(self.folder.path)  # first: it vouches for the files that change now
        self.folder.summary.unlink(missing_ok=True)
        self.folder.clear_leftovers()
        clear_checkpoints_after(self.folder.checkpoints, next_round)
        self.folder.truncate_metrics(next_round)
        self.folder.model.unlink(missing_ok=True)  # of a shorter run
        results = self.folder.read_client_results()
        if results is None or results["round"] >= next_round:
            self.folder.client_results.unlink(missing_ok=True)
        if (best := self.folder.read_best_round()) is None or best >= next_round:  # it is written again if it is right
            self.folder.best.unlink(missing_ok=True)

    def save(self, next_round: int, server: Any) -> None:
        """Write a checkpoint, after all metrics are on the disk."""
        self.folder.flush_metrics()
        state = Checkpoint(next_round, server, self.states.save())
        write_checkpoint(self.folder.checkpoints, state, self.setup.experiment.checkpoints.keep)

    def finish(self, server: Any) -> None:
        """Write the model, the summary and the manifest of a finished run."""
        self.folder.write_model(self._collect_tensors(server))
        self._end("finished", server)

    def save_best_model(self, round: int, server: Any) -> None:
        """Write the model of the best round so far."""
        self.folder.write_best_model(self._collect_tensors(server), round)

    def _collect_tensors(self, server: Any) -> dict[str, Tensor]:
        """Return the parameters and buffers of the model, by name."""
        model = self.setup.problem.bind_initial_personal(server.params)
        tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def record_divergence(self, server: Any, reason: str) -> None:
        """Write the summary and the manifest of a run that diverged."""
        self._end("diverged", server, {"reason": reason})

    def _end(self, outcome: str, server: Any, more: dict[str, str] | None = None) -> None:
        mark_open(self.folder.path)
        self.folder.write_summary(self._summarise(outcome, server) | (more or {}))
        if self.folder.metrics.is_file():
            self.folder.flush_metrics()
        write_manifest(self.folder.path)

    def _summarise(self, outcome: str, server: Any) -> dict[str, Any]:
        experiment = self.setup.experiment
        lines, plan = self.folder.read_metrics(), self.setup.plan
        stop = plan.find_stop(len(lines), lines)
        best = BestRound(self.setup.best_by, lines) if self.setup.best_by is not None else None
        traits = {name: own._asdict() for name, own in self.setup.runner.metrics.traits.items()}
        return {
            "name": self.folder.name,
            "outcome": outcome,
            "algorithm": get_algorithm_name(experiment.algorithm),
            "seed": experiment.seed,
            "parameters": self.setup.problem.size,
            **summarise(lines, experiment.evaluation.targets, traits),
            **({"privacy": self._describe_privacy(lines)} if plan.budget is not None else {}),
            **({"best_round": best.round} if best is not None else {}),
            **({"stopped_early": stop._asdict()} if stop is not None and outcome == "finished" else {}),
            "params_sha256": hash_params(server.params),
            HAS_MANIFEST: FORMAT,
        }

    def _describe_privacy(self, lines: Sequence[Metrics]) -> dict[str, Any]:
        """Return ε that the rounds spent, and what it is for."""
        privacy = self.setup.experiment.privacy
        return {
            EPSILON: lines[-1][EPSILON] if lines else 0.0,
            "delta": get_delta(privacy),
            "adjacency": get_sampling(self.setup.experiment).adjacency,
            "noise_multiplier": privacy.noise_multiplier,
            "budget": privacy.epsilon,
        }
