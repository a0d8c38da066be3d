"""Write the report of a tuning: the page about the winners' runs, with the search that led to them."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.reports.html.page import SearchSection
from fedcm.reports.search.charts import make_charts
from fedcm.reports.search.figures import draw_search
from fedcm.reports.search.tables import make_trial_sheet, render_trial_table
from fedcm.reports.write import write_report
from fedcm.system.callbacks import Notify
from fedcm.tuning.plan import make_file_name
from fedcm.tuning.sampler import measure_importance
from fedcm.tuning.search import Search
from fedcm.tuning.winners import Winner


def write_tuning_report(
    search: Search, winners: Sequence[Winner], data_dir: Path | None = None, notify: Notify = lambda message: None
) -> Path:
    """Write the report into the tuning's folder: a page, pictures of the search, and tables.

    Args:
        search: The search, with its trials.
        winners: The result of each algorithm.
        data_dir: Folder of prepared datasets, for the label mixes.
        notify: Receives one message per run that cannot be read.

    Returns:
        The page's path.
    """
    output = search.folder / "report"
    pictures, tables = [], []
    for plan, winner in zip(search.plan.algorithms, winners, strict=True):
        importance = measure_importance(plan.space, winner.trials)
        sheet = make_trial_sheet(plan.algorithm, plan.space, winner.trials)
        sheet.write(output / "tables")
        tables.append(render_trial_table(sheet))
        if charts := make_charts(plan.algorithm, plan.space, winner.trials, importance):
            file = output / "figures" / f"search-{make_file_name(plan.algorithm)}.png"
            draw_search(charts, f"{search.plan.name}: {plan.algorithm}", file)
            pictures += [chart.to_picture() for chart in charts]
    runs = [task.folder.path for winner in winners for task in winner.tasks]
    runs = runs or [search.folder / trial.run for winner in winners for trial in winner.trials]
    section = SearchSection(pictures, tables)
    return write_report(list(dict.fromkeys(runs)), output, data_dir, notify=notify, search=section)
