"""Numbers in sentences about the results on CIFAR, from the recorded digests."""

from functools import cache

from quotes import Quote
from results_page.effects import list_closest
from results_page.study_runs import Results, read_results

RESULTS = "docs/results.md"


@cache
def read_all() -> Results:
    """Return all recorded runs."""
    return read_results()


def get_leads(study: str, rival: str, *columns: str, of_rival: bool = False) -> list[float]:
    """Return by how many points FedCM leads the best other method in some cells, or that method leads FedCM.

    Args:
        study: The name of the study.
        rival: The best other method in all of these cells.
        columns: The cells.
        of_rival: Whether the other method is ahead.
    """
    title = read_all()[study].study.title
    found = {(one.study, one.column): one for one in list_closest(read_all())}
    effects = [found[title, column] for column in columns]
    assert {one.other for one in effects} == {rival}
    leads = [one.difference.contrast.difference * (-1 if of_rival else 1) for one in effects]
    assert min(leads) > 0
    return leads


def round_leads(leads: list[float]) -> float:
    """Return the lead in whole points, which must be the same in all cells."""
    (lead,) = {round(lead) for lead in leads}
    return lead


def get_least_loss() -> float:
    """Return the least loss of accuracy from setting I to II among the methods but FedCM, which loses nothing."""
    runs = read_all()["table1"]
    losses = {}
    for name in runs.list_algorithms():
        for split in ("iid", "dirichlet"):
            first, second = (runs.get_entry(name, f"{setting} · {split}") for setting in ("I", "II"))
            assert first
            assert second
            before, after = first.mean(), second.mean()
            if before is not None and after is not None:  # SCAFFOLD diverges in setting II
                losses[name, split] = before - after
    assert max(losses["fedcm", split] for split in ("iid", "dirichlet")) <= 0
    return min(loss for (name, _), loss in losses.items() if name != "fedcm")


QUOTES = [
    Quote(
        RESULTS,
        r"the best other method by (\d+) points on both splits \(three",
        lambda: round_leads(get_leads("table1", "fedadam", "II · dirichlet", "II · iid")),
    ),
    Quote(
        RESULTS,
        r"SCAFFOLD leads by (\d+) points on both",
        lambda: round_leads(get_leads("table2", "scaffold", "I · iid", "I · dirichlet", of_rival=True)),
    ),
    Quote(
        RESULTS,
        r"FedDyn by ([\d.]+) points on Dirichlet and FedAdam by ([\d.]+) points on IID",
        lambda: [*get_leads("table1", "feddyn", "I · dirichlet"), *get_leads("table1", "fedadam", "I · iid")],
    ),
    Quote(RESULTS, r"each other method loses at least ([\d.]+) points", get_least_loss),
    Quote(
        RESULTS,
        r"FedAdam leads FedCM by ([\d.]+) points \(three",
        lambda: get_leads("shakespeare", "fedadam", "", of_rival=True),
    ),
    Quote(
        RESULTS,
        r"SCAFFOLD leads FedCM by ([\d.]+) points after 400",
        lambda: get_leads("resnet18", "scaffold", "no augmentation", of_rival=True),
    ),
]
