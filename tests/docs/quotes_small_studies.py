"""Numbers in sentences about Shakespeare's plays, augmentation, LoRA and rounding, from recorded files."""

import re
from statistics import mean

import augmentation_table
import text_tables
from page_numbers import ROOT
from quotes import Quote, read_row

TEXT, AUGMENTED, TUNED = (f"docs/guides/{name}.md" for name in ("text", "cifar-augmentation", "fine-tuning"))
FEDERATION, ROUNDING = "docs/guides/federation.md", "benchmarks/ROUNDING.md"


def get_transformer() -> list[float]:
    """Return the perplexities of the transformer, then those of the LSTM after as many rounds."""
    (transformer,) = text_tables.list_runs("fedcm", "transformer", text_tables.SHORT)
    (lstm,) = text_tables.list_runs("fedcm", "lstm", text_tables.LONG)
    place = lstm.curve.round.index(text_tables.SHORT)
    columns = ("validation_perplexity", "test_perplexity")
    late = [lstm.curve.get_column(name)[place] for name in columns]
    return [*(text_tables.get_last(transformer, name) for name in columns), *(value for value in late if value)]


def get_costs() -> list[float]:
    """Return what augmentation costs in points of validation accuracy by schedule, then what the cosine costs."""
    found = {key: mean_validation(key) for key in augmentation_table.read_runs()}
    kinds, augments = ("constant", "cosine"), ("none", "crop, flip")
    by_kind = [found["none", kind] - found["crop, flip", kind] for kind in kinds]
    return [*by_kind, *(found[augment, "constant"] - found[augment, "cosine"] for augment in augments)]


def mean_validation(key: tuple[str, str]) -> float:
    """Return a validation accuracy of the table in %."""
    return augmentation_table.get_validation(augmentation_table.read_runs()[key])


def get_chosen_test() -> float:
    """Return the test accuracy in % of the run with the best validation accuracy."""
    run = max(augmentation_table.read_runs().values(), key=augmentation_table.get_validation)
    assert run.accuracy
    return 100 * run.accuracy["mean_last"]


def read_lora(pattern: str) -> list[float]:
    """Return the numbers in what the example printed."""
    text = (ROOT / "results" / "printed" / "fine-tuning.txt").read_text(encoding="utf-8")
    found = re.search(pattern, text)
    assert found, pattern
    return [float(number.replace(",", "")) for number in found.groups()]


def get_saved_bytes() -> float:
    """Return how many times fewer bytes LoRA sends."""
    (full,) = read_lora(r"full: .* trained, ([\d,]+) bytes")
    (few,) = read_lora(r"LoRA: .* trained, ([\d,]+) bytes")
    return full / few


def get_rounding_losses(column: int = 3) -> list[float]:
    """Return by how many points an accuracy falls with rounded momentum, and with all messages rounded."""
    exact, *others = (
        read_row(ROUNDING, "Rounded messages, cifar10", f"cifar10 | {links} ", column)[0]
        for links in ("exact", "momentum bfloat16", "all bfloat16")
    )
    return [exact - other for other in others]


def get_visits() -> float:
    """Return how often a client took part on average."""
    found = {
        run.participation.mean_cohort * run.participation.rounds / run.participation.population
        for run in augmentation_table.read_runs().values()
        if run.participation and run.participation.population
    }
    return mean(found)


QUOTES = [
    Quote(
        TEXT,
        r"then ([\d.]+) on the validation data and ([\d.]+) on the test data, against ([\d.]+) and ([\d.]+) for",
        get_transformer,
    ),
    Quote(AUGMENTED, r"test accuracy of the same row, ([\d.]+) %", get_chosen_test),
    Quote(
        AUGMENTED, r"augmentation costs ([\d.]+) and ([\d.]+) points and the cosine ([\d.]+) and ([\d.]+\d)", get_costs
    ),
    Quote(TUNED, r"LoRA sends (\d+) times fewer bytes", get_saved_bytes),
    Quote(AUGMENTED, r"took part ([\d.]+) times on average", get_visits),
    Quote(
        AUGMENTED,
        r"Together they took (\d+) minutes",
        lambda: sum(run.summary["seconds"] for run in augmentation_table.read_runs().values()) / 60,
    ),
    Quote(
        TUNED,
        r"take ([\d.]+) minutes of CPU time",
        lambda: [seconds / 60 for seconds in read_lora(r"\((\d+) s of CPU time\)")],
    ),
    Quote(FEDERATION, r"accuracy is ([\d.]+) and ([\d.]+) points lower; in the mean", get_rounding_losses),
    Quote(FEDERATION, r"differs by at most ([\d.]+) points", lambda: max(map(abs, get_rounding_losses(4)))),
]
