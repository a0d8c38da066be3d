"""Run a golden run: write its experiment, run it through the command line, read its results."""

import contextlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import tomli_w
from golden_runs import GoldenRun, Result, read_bits, read_numbers
from scenes import resume_run, run_and_stop_after, small_experiment, write_npz

from fedcm.cli import main as cli


def run_golden(run: GoldenRun, folder: Path) -> Result:
    """Run it in float32 for its bits, and in float64 for its numbers."""
    result = Result(bits=read_bits(_run(run, folder, "float32")))
    if run.portable:
        result.numbers = read_numbers(_run(run, folder, "float64"))
    return result


def write_images(path: Path) -> Path:
    """Write 240 training and 40 test images of 16×16 bytes in 4 classes."""
    generator = np.random.default_rng(0)
    y = generator.integers(4, size=280)
    x = (generator.integers(0, 120, size=(280, 3, 16, 16)) + 30 * y[:, None, None, None]).astype(np.uint8)
    np.savez(path, x_train=x[:240], y_train=y[:240], x_test=x[240:], y_test=y[240:])
    return path


def _run(run: GoldenRun, folder: Path, precision: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = str({"made": write_npz, "images": write_images}[run.source](folder / "made.npz"))
    table = small_experiment(source, **run.tables)
    engine = {"stack": 1, "layout": "channels_last", "compile": "off", "precision": precision}
    table["engine"] = engine | run.tables.get("engine", {})
    path = folder / f"{precision}.toml"
    path.write_text(tomli_w.dumps(table))
    if run.stop_after is not None:
        stopped = run_and_stop_after(run.stop_after, path, folder / "runs", precision)
        resume_run(stopped)
        return stopped
    _call("run", path, "--runs-dir", folder / "runs", "--name", precision, "--workers", run.workers)
    return folder / "runs" / precision


def _call(*words: object) -> None:
    before, sys.argv = sys.argv, ["fedcm", *map(str, words)]
    with tempfile.TemporaryFile("w+") as output:  # a real file, since the command needs a file descriptor
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                cli.main()
        except SystemExit as exit:
            if exit.code:
                output.seek(0)
                raise AssertionError(f"{' '.join(sys.argv)} failed: {output.read()}") from None
        finally:
            sys.argv = before
