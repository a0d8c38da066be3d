"""Log a run to Weights & Biases: by default offline in the run's folder (WANDB_MODE), for `wandb sync`.

An offline log cannot be continued, so a resume writes it again under the id that is stored in the run's folder. Online,
the server reports which rounds it has, and these are skipped.
"""

import os
import secrets
import shutil
from typing import final

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb sends error reports even if it is offline

import wandb

from fedcm.trackers.tracker import FlatTable, RoundValues, TrackedRun


@final
class WeightsAndBiases:
    """Logs a run to Weights & Biases."""

    def begin(self, run: TrackedRun) -> None:
        """Start a run under the id of an earlier start, in place of that one if it was offline."""
        folder = run.folder.absolute() / "wandb"
        folder.mkdir(exist_ok=True)
        for old in folder.glob("offline-run-*"):
            shutil.rmtree(old)
        id_file = folder / "run-id"
        if not id_file.exists():
            id_file.write_text(f"{secrets.token_hex(8)}\n", encoding="utf-8")
        offline = os.environ.get("WANDB_MODE", "offline") == "offline"
        self.run = wandb.init(
            dir=folder.parent,
            project=os.environ.get("WANDB_PROJECT") or str(run.settings["name"]),
            name=run.name,
            id=id_file.read_text(encoding="utf-8").strip(),
            mode="offline" if offline else None,
            resume=None if offline else "allow",
            config=run.settings,
            reinit="create_new",  # never continue a run that this process opened before
            settings=wandb.Settings(
                silent=offline,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )

    def log_round(self, point: RoundValues) -> None:
        """Log one round, unless the server has it."""
        if point.round >= self.run.starting_step:
            self.run.log(point.values, step=point.round)

    def end(self, summary: FlatTable | None) -> None:
        """Log the summary of a run that has ended, and wait until all is written."""
        if summary is not None:
            self.run.summary.update({f"summary/{key}": value for key, value in summary.items()})
        finished = summary is not None and summary["outcome"] == "finished"
        self.run.finish(exit_code=0 if finished else 1)
        wandb.teardown()  # waits until an offline run is on the disk
