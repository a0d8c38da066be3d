"""A Weights & Biases run, offline in the run's folder unless WANDB_MODE says otherwise: `wandb sync` sends it.

An offline run cannot be taken up again, so a resume writes it anew under the id that the run's folder keeps. Online,
the server says which rounds it has, and these are passed over.
"""

import os
import secrets
import shutil
from typing import final

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it reports its errors home, offline too

import wandb

from fedcm.trackers.tracker import Flat, Point, TrackedRun


@final
class WeightsAndBiases:
    def begin(self, run: TrackedRun) -> None:
        folder = run.folder.absolute() / "wandb"
        folder.mkdir(exist_ok=True)
        for old in folder.glob("offline-run-*"):
            shutil.rmtree(old)
        kept = folder / "run-id"
        if not kept.exists():
            kept.write_text(f"{secrets.token_hex(8)}\n", encoding="utf-8")
        offline = os.environ.get("WANDB_MODE", "offline") == "offline"
        self.run = wandb.init(
            dir=folder.parent,
            project=os.environ.get("WANDB_PROJECT") or str(run.settings["name"]),
            name=run.name,
            id=kept.read_text(encoding="utf-8").strip(),
            mode="offline" if offline else None,
            resume=None if offline else "allow",
            config=run.settings,
            reinit="create_new",  # one that was given up before is not gone on with
            settings=wandb.Settings(
                silent=offline,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )

    def round(self, point: Point) -> None:
        if point.round >= self.run.starting_step:
            self.run.log(point.values, step=point.round)

    def end(self, summary: Flat | None) -> None:
        if summary is not None:
            self.run.summary.update({f"summary/{key}": value for key, value in summary.items()})
        finished = summary is not None and summary["outcome"] == "finished"
        self.run.finish(exit_code=0 if finished else 1)
        wandb.teardown()  # an offline run may still be on its way to the disk: this waits
