"""Numbers in sentences, from the pages that the benchmarks write."""

from quotes import Quote, read_row

MEASURED = "benchmarks/RESULTS.md"
FEDERATION = "docs/guides/federation.md"
FEATURES = "Augmentation, structured batches and local optimisers"


def get_bare_loop(model: str) -> float:
    """Return the time of a round over that of a bare loop."""
    return read_row(MEASURED, "Against the bare loop", f"{model} |", 1)[0]


def get_percent_more(title: str, row: str) -> float:
    """Return by how many percent something takes longer."""
    return 100 * (read_row(MEASURED, title, f"{row} |", 1)[0] - 1)


def get_overhead(row: str) -> float:
    """Return the overhead of a federation's round in seconds."""
    return read_row("benchmarks/FEDERATION.md", "", row, 3)[0]


QUOTES = [
    Quote("README.md", r"takes ([\d.]+) of the time for a 64-channel CNN", lambda: get_bare_loop("cnn")),
    Quote("README.md", r"CNN, ([\d.]+) for LeNet", lambda: get_bare_loop("lenet")),
    Quote("README.md", r"LeNet and ([\d.]+) for softmax", lambda: get_bare_loop("linear")),
    Quote("README.md", r"FedCM costs about (\d+) % more", lambda: get_percent_more("FedCM's overhead", "lenet")),
    Quote(
        "docs/guides/cifar-augmentation.md",
        r"Crops and flips add (\d+) %",
        lambda: get_percent_more(FEATURES, "crop + flip"),
    ),
    Quote(FEDERATION, r"work, ([\d.]+) s for a tiny model", lambda: get_overhead("softmax")),
    Quote(
        FEDERATION,
        r"model, ([\d.]+) s for ResNet-18 \((\d+) MiB down",
        lambda: (get_overhead("ResNet-18, 11.2"), read_row("benchmarks/FEDERATION.md", "", "ResNet-18, 11.2", 2)[0]),
    ),
    Quote(FEDERATION, r"and ([\d.]+) s with all links in bfloat16", lambda: get_overhead("ResNet-18, all links")),
    Quote(
        "docs/decisions/0014-secure-aggregation.md",
        r"short texts, ([\d.]+) MiB per site at (\d+) sites",
        lambda: (read_row("benchmarks/SECURE_AGGREGATION.md", "", "LeNet | 30 | 0", 7)[0], 30),
    ),
]
