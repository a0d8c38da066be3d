"""Which figures docs/results.md has: one per table, for the studies that have runs."""

from collections.abc import Callable, Iterable, Sequence

from fedcm.reports.entry import Entry, average_curves
from fedcm.reports.figures.method_groups import get_method_group
from fedcm.reports.groups import get_algorithm_title
from results_page.effects import list_closest
from results_page.figures import CurveFigure, DotFigure, Figure, Points
from results_page.round_tables import FAMILY_ROUNDS, get_accuracy
from results_page.setting_tables import list_setting_rows
from results_page.study_runs import Results, StudyCell, StudyRuns
from results_page.variants import describe_fashion_cell

_GRID_TITLES = {
    "table1": "CIFAR-10, LeNet",
    "table2": "CIFAR-100, LeNet",
    "heterogeneity": "CIFAR-10, LeNet, setting II, more unequal data",
    "resnet8": "CIFAR-10, ResNet-8, setting II, Dirichlet-0.6",
    "resnet18": "CIFAR-10, ResNet-18, setting II, Dirichlet-0.6",
    "cnn": "CIFAR-10, CNN, Dirichlet-0.6",
    "shakespeare": "Shakespeare's plays, LSTM",
    "precision": "CIFAR-10, setting II, Dirichlet-0.6, float32 and bfloat16",
    "momentum": "Variants of FedCM",
}


def list_figures(results: Results) -> dict[str, Figure]:
    """Return the figures by name."""
    figures: dict[str, Figure] = {}
    for name, title in _GRID_TITLES.items():
        if panels := _list_panels(results[name].cells, lambda cell: get_algorithm_title(cell.algorithm)):
            figures[name] = CurveFigure(title, panels, _list_algorithms(results[name].cells))
    for name, title, describe in (
        ("table3", "FedCM by α: CIFAR-10, LeNet, setting II, Dirichlet-0.6", _describe_alpha),
        ("weight-decay", "FedCM by the place of weight decay", _describe_decay),
    ):
        if figure := _make_label_figure(results[name], title, describe):
            figures[name] = figure
    if figure := _make_fashion_figure(results["fashion"]):
        figures["fashion"] = figure
    dots = {
        "one-setting": _make_setting_figure(results),
        "family": _make_family_figure(results["family"]),
        "claims": _make_lead_figure(results),
    }
    return figures | {name: figure for name, figure in dots.items() if figure.rows}


def list_points(entry: Entry) -> Points:
    """Return rounds, mean accuracies in % and deviations of the runs of an entry, to four digits."""
    average = average_curves([run.curve for run in entry.counted_runs])
    columns = average.round, average.mean["test_accuracy"], average.deviation["test_accuracy"]
    return tuple(
        (float(done), round(100 * mean, 4), None if deviation is None else round(100 * deviation, 4))
        for done, mean, deviation in zip(*columns, strict=True)
        if mean is not None
    )


def _list_panels(cells: Iterable[StudyCell], describe: Callable[[StudyCell], str]) -> dict[str, dict[str, Points]]:
    panels: dict[str, dict[str, Points]] = {}
    for cell in cells:
        if cell.entry and (points := list_points(cell.entry)):
            title = ", ".join(filter(None, (cell.column, f"{cell.rounds} rounds")))
            panels.setdefault(title, {})[describe(cell)] = points
    return panels


def _list_algorithms(cells: Sequence[StudyCell]) -> dict[str, str]:
    return {get_algorithm_title(cell.algorithm): cell.algorithm for cell in cells}


def _describe_alpha(cell: StudyCell) -> str:
    return f"α = {cell.column}"


def _describe_decay(cell: StudyCell) -> str:
    return f"in the {cell.labels['decay']}, α = {cell.labels['alpha']}"


def _make_label_figure(runs: StudyRuns, title: str, describe: Callable[[StudyCell], str]) -> CurveFigure | None:
    """Return a figure with one panel and one curve per cell; None without runs."""
    curves = {describe(cell): points for cell in runs.cells if cell.entry and (points := list_points(cell.entry))}
    # a label in brackets is a setting, which gives the curves the colours of a sweep
    labels = {label: f"FedCM ({label})" for label in curves}
    panels = {f"{runs.cells[0].rounds} rounds": {labels[label]: points for label, points in curves.items()}}
    return CurveFigure(title, panels, dict.fromkeys(labels.values(), "fedcm")) if curves else None


def _make_fashion_figure(runs: StudyRuns) -> CurveFigure | None:
    """Return a figure with one panel and one curve per algorithm and setting; None without runs."""
    curves = {
        f"{get_algorithm_title(cell.algorithm)} ({describe_fashion_cell(cell)})": (cell.algorithm, points)
        for cell in runs.cells
        if cell.entry and (points := list_points(cell.entry))
    }
    panels = {f"{runs.cells[0].rounds} rounds": {label: points for label, (_, points) in curves.items()}}
    labels = {label: algorithm for label, (algorithm, _) in curves.items()}
    return CurveFigure("Fashion-MNIST, MLP, setting I, Dirichlet-0.6", panels, labels) if curves else None


def _make_setting_figure(results: Results) -> DotFigure:
    rows = {
        change: {
            get_algorithm_title(name): _make_dot(mean)
            for name, cell in row.items()
            if cell.entry and (mean := cell.entry.mean()) is not None
        }
        for change, row in (list_setting_rows(results) if results["one-setting"].has_runs else {}).items()
    }
    found = {change: row for change, row in rows.items() if row}
    return DotFigure("One setting changed at a time (diverged runs are left out)", "test accuracy in %", found)


def _make_dot(value: float) -> tuple[float, float, float]:
    """Return a value without an interval."""
    return round(value, 4), round(value, 4), round(value, 4)


def _make_family_figure(runs: StudyRuns) -> DotFigure:
    last = FAMILY_ROUNDS[-1]
    rows = {
        cell.algorithm: {get_method_group(cell.algorithm): _make_dot(value)}
        for cell in runs.cells
        if (value := get_accuracy(cell.entry, last)) is not None
    }
    return DotFigure(f"Every method after {last} rounds, nothing tuned", "test accuracy in %", rows)


def _make_lead_figure(results: Results) -> DotFigure:
    rows: dict[str, dict[str, tuple[float, float, float]]] = {}
    for effect in list_closest(results):
        contrast = effect.difference.contrast
        if effect.difference.has_diverged:
            continue
        ends = contrast.interval() or (contrast.difference, contrast.difference)
        value, low, high = (round(number, 4) for number in (contrast.difference, *ends))
        rows[f"{effect.where}: {get_algorithm_title(effect.other)}"] = {"lead": (value, low, high)}
    return DotFigure(
        "FedCM minus the best other algorithm", "points; bars: 95 % intervals over seeds", rows, zero_line=True
    )
