"""Event files in the run's folder: `tensorboard --logdir runs` shows them.

They are written here rather than by torch's SummaryWriter: a round is one record on the disk at once, and a write that
fails is an exception in this thread, not a traceback from another one.
"""

import json
import shutil
import time
from typing import final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils.tensorboard import RecordWriter
from torch.utils.tensorboard.summary import hparams, text

from fedcm.trackers.tracker import Flat, Point, TrackedRun

_COMPARED = ("test_accuracy", "test_loss", "loss")  # columns of the page that compares settings


@final
class TensorBoard:
    def begin(self, run: TrackedRun) -> None:
        folder = run.folder / "tensorboard"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        now = time.time()
        self.file = (folder / f"events.out.tfevents.{now:.6f}.fedcm").open("wb")
        self.records = RecordWriter(self.file)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        # a TensorBoard that is open forgets what the old file said
        self._write(Event(wall_time=now, step=0, session_log=SessionLog(status=SessionLog.START)))
        compared, begun, self.ended = hparams(run.settings, dict.fromkeys(_COMPARED, 0))
        for summary in (compared, begun, _text("experiment", run.settings)):
            self._write(Event(wall_time=now, summary=summary))

    def round(self, point: Point) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._write(Event(wall_time=time.time(), step=point.round, summary=Summary(value=values)))

    def end(self, summary: Flat | None) -> None:
        if summary is not None:
            for said in (_text("summary", summary), self.ended):
                self._write(Event(wall_time=time.time(), summary=said))
        self.file.close()

    def _write(self, event: Event) -> None:
        self.records.write(event.SerializeToString())
        self.file.flush()


def _text(tag: str, table: Flat) -> Summary:
    return text(tag, "\n".join(f"    {key} = {json.dumps(value)}" for key, value in table.items()))
