"""Reports in Python."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.api.runs import Run
from fedcm.reports.write import write_report
from fedcm.runs.progress import say


def report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    output: str | Path = "report",
    *,
    data_dir: str | Path | None = None,
) -> Path:
    """Write a page about runs: tables, curves, costs and settings, with figures and tables for papers.

    Args:
        runs: Runs, folders of runs, or digests.
        output: The report's folder.
        data_dir: Folder of prepared datasets, for the label mixes.

    Returns:
        The path of the page. Open it in a browser.

    Raises:
        UserError: a path does not exist, or there is no run to report.

    >>> import fedcm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> runs = [fedcm.run("demo", overrides={"rounds": 2, "algorithm.name": name}, runs_dir=folder)
    ...         for name in ("fedavg", "fedcm")]
    >>> fedcm.report(runs, f"{folder}/report").name
    'index.html'
    """
    listed = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    paths = [one.path if isinstance(one, Run) else Path(one) for one in listed]
    return write_report(paths, Path(output), None if data_dir is None else Path(data_dir), warn=say)
