"""Write TensorBoard event files to the run's folder: `tensorboard --logdir runs` shows them.

This module does not use torch's SummaryWriter, because that writes in another thread. Here each round is on the disk at
once, as one record, and a write that fails raises an exception in this thread.
"""

import json
import shutil
import time
from typing import final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils.tensorboard import RecordWriter
from torch.utils.tensorboard.summary import hparams, text

from fedcm.core.scoring.metric_set import choose_column
from fedcm.trackers.tracker import FlatTable, RoundValues, TrackedRun

_COMPARED = ("test_loss", "loss")  # columns of TensorBoard's HPARAMS page, after the metrics


@final
class TensorBoard:
    """Logs a run to TensorBoard event files."""

    def begin(self, run: TrackedRun) -> None:
        """Start a new event file in place of an earlier one, and write the settings."""
        folder = run.folder / "tensorboard"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        now = time.time()
        self.file = (folder / f"events.out.tfevents.{now:.6f}.fedcm").open("wb")
        self.records = RecordWriter(self.file)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        # a running TensorBoard then drops what it read from the old file
        self._write(Event(wall_time=now, step=0, session_log=SessionLog(status=SessionLog.START)))
        compared, start, self.session_end = hparams(
            run.settings, dict.fromkeys((*_list_metrics(run.settings), *_COMPARED), 0)
        )
        for summary in (compared, start, _make_text("experiment", run.settings)):
            self._write(Event(wall_time=now, summary=summary))

    def log_round(self, point: RoundValues) -> None:
        """Write the numbers of one round."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._write(Event(wall_time=time.time(), step=point.round, summary=Summary(value=values)))

    def end(self, summary: FlatTable | None) -> None:
        """Write the summary of a run that has ended, and close the file."""
        if summary is not None:
            for event in (_make_text("summary", summary), self.session_end):
                self._write(Event(wall_time=time.time(), summary=event))
        self.file.close()

    def _write(self, event: Event) -> None:
        self.records.write(event.SerializeToString())
        self.file.flush()


def _list_metrics(settings: FlatTable) -> list[str]:
    """The columns of the metrics that the experiment names; accuracy by default."""
    entries = json.loads(str(settings.get("evaluation.metrics", '["accuracy"]')))
    return [f"test_{choose_column({'name': entry} if isinstance(entry, str) else entry)}" for entry in entries]


def _make_text(tag: str, table: FlatTable) -> Summary:
    return text(tag, "\n".join(f"    {key} = {json.dumps(value)}" for key, value in table.items()))
