"""Reports in Python."""

from collections.abc import Iterable
from pathlib import Path

from fedcm.api.arguments import AnyPath, to_optional_path, to_path
from fedcm.api.progress import say
from fedcm.api.saved_run import Run
from fedcm.reports.write import write_report


def report(
    runs: Run | AnyPath | Iterable[Run | AnyPath],
    output: AnyPath = "report",
    *,
    data_dir: AnyPath | None = None,
) -> Path:
    """Write a page about runs: tables, curves, costs and settings, with figures and tables for papers.

    Args:
        runs: Runs, folders of runs, or digests.
        output: The report's folder.
        data_dir: Folder of prepared datasets, for the label mixes.

    Returns:
        The path of the page. Open it in a browser.

    Raises:
        UserError: If a path does not exist, or there is no run to report.

    >>> import fedcm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> runs = [fedcm.run("demo", overrides={"rounds": 2, "algorithm.name": name}, runs_dir=folder)
    ...         for name in ("fedavg", "fedcm")]
    >>> fedcm.report(runs, f"{folder}/report").name
    'index.html'
    """
    listed = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    paths = [one.path if isinstance(one, Run) else to_path("runs", one) for one in listed]
    return write_report(paths, to_path("output", output), to_optional_path("data_dir", data_dir), notify=say)
