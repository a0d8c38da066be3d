"""FedCM's runs by α: whether the best α is near 0.1, and whether every α < 1 beats α = 1."""

from collections.abc import Sequence
from typing import NamedTuple

from fedcm.reports.claims.contrast import Contrast, compare, format_difference
from fedcm.reports.claims.verdicts import Observation, observe
from fedcm.reports.differences import list_method_settings
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import describe_conditions, describe_data_and_model, keep_one_run_per_seed
from fedcm.reports.metric import choose_metric

_NEAR = (0.03, 0.3)  # "near 0.1": between its neighbours among the paper's values of α, which are clearly worse


class AlphaSweep(NamedTuple):
    """Finished runs of FedCM that differ only in α and the seed."""

    where: str
    entries: dict[float, Entry]  # by α, in ascending order


def list_alpha_sweeps(digests: Sequence[Digest]) -> list[AlphaSweep]:
    """Return the sweeps over α among the runs."""
    by_settings: dict[tuple[tuple[str, str], ...], dict[float, list[Digest]]] = {}
    for run in digests:
        alpha = run.experiment["algorithm"].get("alpha")
        if run.algorithm == "fedcm" and isinstance(alpha, int | float):
            settings = list_method_settings(run).items()
            others = tuple(sorted(item for item in settings if item[0] != "algorithm.alpha"))
            by_settings.setdefault(others, {}).setdefault(float(alpha), []).append(run)
    sweeps = []
    for by_alpha in by_settings.values():
        metric = choose_metric((run.headline, run.test_losses) for runs in by_alpha.values() for run in runs)
        entries = {alpha: Entry(tuple(keep_one_run_per_seed(runs)), metric) for alpha, runs in sorted(by_alpha.items())}
        finished = {alpha: entry for alpha, entry in entries.items() if entry.is_comparable}
        if len(finished) > 1:
            run = next(iter(finished.values())).runs[0]
            conditions = " · ".join(describe_conditions(run).values())
            sweeps.append(AlphaSweep(f"{describe_data_and_model(run)}, {conditions}", finished))
    return sweeps


def has_value_near_optimum(sweep: AlphaSweep) -> bool:
    """Return whether a value of α near 0.1 was tried."""
    return any(map(_is_near, sweep.entries))


def observe_inner_optimum(sweep: AlphaSweep) -> Observation:
    """Compare the best inner value near 0.1 with all values that are not near 0.1 or are at an end.

    Values near 0.1 need not differ from each other: 0.05 and 0.1 may be equally good. A value far from 0.1 that is
    better than every value near it contradicts the claim.
    """
    tried = list(sweep.entries)
    inner = [alpha for alpha in tried[1:-1] if _is_near(alpha)]
    near, far = [a for a in tried if _is_near(a)], [a for a in tried if not _is_near(a)]
    refuting = tuple(tuple(_compare(sweep, alpha, other) for alpha in near) for other in far)
    if not inner:
        text = "no value near 0.1 is between two others"
        return Observation(f"{sweep.where}: {text}; by α: {_format(sweep)}", (), refuting)
    best = max(inner, key=lambda alpha: _get_gain(sweep, alpha))
    contrasts = {other: _compare(sweep, best, other) for other in tried if other not in inner}
    closest = max(contrasts, key=lambda alpha: _get_gain(sweep, alpha))
    text = f"{sweep.where}: α = {best:g} against {closest:g}, the best of those not near 0.1 or at an end"
    return Observation(
        f"{text}: {_describe(sweep, contrasts[closest])}; by α: {_format(sweep)}",
        tuple(contrasts.values()),
        refuting,
        len(inner),
    )


def observe_lead_over_alpha_one(sweep: AlphaSweep) -> Observation:
    """Compare every α < 1 with α = 1."""
    contrasts = {alpha: _compare(sweep, alpha, 1.0) for alpha in sweep.entries if alpha < 1}
    closest = min(contrasts, key=lambda alpha: _get_gain(sweep, alpha))
    text = f"{sweep.where}: α = {closest:g} against 1: {_describe(sweep, contrasts[closest])}; by α: {_format(sweep)}"
    return observe(text, list(contrasts.values()))


def _is_near(alpha: float) -> bool:
    return _NEAR[0] < alpha < _NEAR[1]


def _compare(sweep: AlphaSweep, alpha: float, other: float) -> Contrast:
    first, second = sweep.entries[alpha], sweep.entries[other]
    return compare([(1, first.list_gains()), (-1, second.list_gains())], relative=not first.metric.is_share)


def _get_gain(sweep: AlphaSweep, alpha: float) -> float:
    """Return the mean such that more is better; −∞ if a run diverged."""
    entry = sweep.entries[alpha]
    mean = entry.mean()
    return -float("inf") if mean is None else entry.metric.to_gain(mean)


def _describe(sweep: AlphaSweep, contrast: Contrast) -> str:
    return format_difference(contrast, next(iter(sweep.entries.values())).metric) or "diverged"


def _format(sweep: AlphaSweep) -> str:
    return ", ".join(f"{alpha:g}: {entry.format()}" for alpha, entry in sweep.entries.items())
