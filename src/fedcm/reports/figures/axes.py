"""Readable axes: percentages, plain numbers on logarithmic axes, points in place of lines without length."""

import math
from collections.abc import Sequence
from typing import Any

from fedcm.reports.metric import Metric

_MIN_TICKS, _MAX_TICKS = 3, 8  # labelled on a logarithmic axis


def finish_axes(axes: Any) -> None:
    """Label the x axis with whole rounds, and draw a light grid and no frame at the top and right."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def label_metric_axis(axes: Any, metric: Metric) -> None:
    """Label the y axis with the metric; shares have percent signs."""
    axes.set_ylabel(metric.title)
    if metric.is_share:
        axes.yaxis.set_major_formatter(lambda value, position: f"{value:g} %")


def set_log_y(axes: Any, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, with limits around `values` and plain numbers as labels.

    The limits depend on the values only: a band of deviations that reaches towards 0 is cut off.

    Args:
        axes: Matplotlib axes.
        values: All values of the curves. If one is not above 0, the axis stays linear.
    """
    from matplotlib.ticker import FixedLocator, NullFormatter

    finite = [value for value in values if math.isfinite(value)]
    if not finite or min(finite) <= 0:
        return
    low, high = min(finite) / 1.3, max(finite) * 1.3
    ticks = choose_log_ticks(low, high)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(lambda value, position: format_tick(value))
    axes.yaxis.set_minor_formatter(NullFormatter())


def choose_log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two limits.

    These are powers of 10, with 2 and 5 or all digits if they are too few, or some of the powers if they are too many.

    >>> choose_log_ticks(0.0008, 20), choose_log_ticks(0.04, 2)
    ([0.001, 0.01, 0.1, 1.0, 10.0], [0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    >>> choose_log_ticks(0.5, 0.9), choose_log_ticks(2.11, 2.39)
    ([0.5, 0.6, 0.7, 0.8, 0.9], [2.15, 2.2, 2.25, 2.3, 2.35])
    >>> choose_log_ticks(0.5, 2e20)
    [1.0, 1000.0, 1000000.0, 1000000000.0, 1000000000000.0, 1000000000000000.0, 1e+18]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5), range(1, 10)):
        ticks = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= _MIN_TICKS:
            return inside[:: math.ceil(len(inside) / _MAX_TICKS)]
    step = _choose_step(high - low)
    return [float(f"{step * k:.6g}") for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def format_tick(value: float) -> str:
    """Format a tick as a plain number, also if it is small.

    >>> format_tick(0.00001), format_tick(0.25), format_tick(20_000.0)
    ('0.00001', '0.25', '20000')
    """
    return f"{value:.10f}".rstrip("0").rstrip(".") if 1e-6 <= abs(value) < 1e7 else f"{value:g}"


def plot_curve(axes: Any, x: Sequence[float], y: Sequence[float], **style: Any) -> None:
    """Plot a curve; a single value is drawn as a point."""
    if len(x) == 1:
        style |= {"marker": "o", "markersize": 6, "linestyle": "none"}
    axes.plot(x, y, **style)


def _choose_step(span: float) -> float:
    """Return a round step that divides a span into about five parts."""
    magnitude = 10 ** math.floor(math.log10(span / 5))
    return min((magnitude * factor for factor in (1, 2, 5, 10)), key=lambda step: abs(span / step - 5))
