"""The text of a table's cells, with the number of seeds and a mark for the CPU; and tables in Markdown."""

import math
from collections.abc import Iterable, Sequence

from fedcm.reports.claims.contrast import Contrast
from fedcm.reports.digest import Digest
from fedcm.reports.entry import MAIN, Entry
from fedcm.reports.metric import ACCURACY, describe_averaged_rounds
from results_page.study_runs import StudyCell

FIRST_CPU = "Intel Xeon"  # of the digests that do not name a CPU
NOT_RUN = "not run"
NOT_PLANNED = "–"
CPU_MARK = "†"
PAIR_MARK = "‡"
PAIR_NOTE = f"{PAIR_MARK} The two runs of a seed were made on different kinds of CPU, so they are not paired exactly."


def name_cpu(run: Digest) -> str:
    """Return the kind of CPU that a run used."""
    name = run.cpu.get("model", "").partition(",")[0].replace("(R)", "")
    return FIRST_CPU if not name or name.startswith(FIRST_CPU) else name


def mark_cpu(runs: Sequence[Digest]) -> str:
    """Return the mark of a cell with runs on another CPU than the first, with their number if there are others."""
    other = sum(name_cpu(run) != FIRST_CPU for run in runs)
    share = "" if other == len(runs) else f" {other} of {len(runs)}"
    return f" {CPU_MARK}{share}" if other else ""


def explain_marks(text: str, runs: Iterable[Digest]) -> str:
    """Return a text with a sentence about the mark of the CPU; without the marks if all runs have the same CPU."""
    names = sorted({name_cpu(run) for run in runs})
    others = [name for name in names if name != FIRST_CPU]
    if not others:
        assert CPU_MARK not in text, "a marked run is not among the runs of this text"
        return text
    if len(names) == 1:
        return join_parts(text.replace(f" {CPU_MARK}", ""), f"All runs used an {names[0]}.")
    return join_parts(text, f"{CPU_MARK} On an {' or '.join(others)}; all other runs on an {FIRST_CPU}.")


def format_mean(entry: Entry) -> str:
    """Format mean ± standard deviation, or where runs diverged, with the number of seeds."""
    return f"{entry.format()}, n = {len(entry.counted_runs)}"


def format_cell(cell: StudyCell | None, best: float | None = None) -> str:
    """Format a cell with its published figure in brackets.

    Args:
        cell: The cell; None if the study does not plan it.
        best: The highest mean of the column, which is bold.
    """
    if cell is None:
        return NOT_PLANNED
    published = "" if cell.published is None else f" ({cell.published:.2f})"
    if cell.entry is None:
        return f"{NOT_RUN}{published}"
    return f"{format_entry(cell.entry, best)}{published}{mark_cpu(cell.runs)}"


def format_entry(entry: Entry, best: float | None = None) -> str:
    """Format mean ± standard deviation with the number of seeds, bold if the mean is the best."""
    text = format_mean(entry)
    if best is None or round_mean(entry) != best:
        return text
    value, _, seeds = text.partition(", n")
    return f"**{value}**, n{seeds}"


def round_mean(entry: Entry | None) -> float | None:
    """Return the mean as it is shown; None if there is none."""
    mean = entry.mean(MAIN) if entry else None
    return None if mean is None else float(ACCURACY.format(mean))


def find_best(entries: Iterable[Entry | None]) -> float | None:
    """Return the highest mean as it is shown; None if there are fewer than two entries."""
    known = [entry for entry in entries if entry]
    means = [mean for entry in known if (mean := round_mean(entry)) is not None]
    return max(means) if len(known) > 1 and means else None


def describe_rounds(entries: Iterable[Entry | None]) -> str:
    """Describe which rounds the means average."""
    return describe_averaged_rounds(count for entry in entries if entry for count in entry.averaged_rounds)


def format_interval(contrast: Contrast) -> str:
    """Format the 95 % interval of a difference."""
    ends = contrast.interval()
    if ends is None or not all(map(math.isfinite, ends)):
        return NOT_PLANNED
    return " to ".join(f"{end:.2f}" for end in ends).replace("-", "−")


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table whose columns after the first `texts` are aligned to the right."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * texts}{'---:|' * (len(header) - texts)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def join_parts(*parts: str) -> str:
    """Join paragraphs; empty ones are left out."""
    return "\n\n".join(part for part in parts if part)
