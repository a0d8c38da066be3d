"""Which sources are mutated, and which tests must notice.

The golden runs (tests/anchors) are not among the tests: they would notice almost anything, and say little about whether
a rule is tested for what it means.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Sources, below src/fedcm, and the tests that a mutant of them must fail, quickest first."""

    group: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]


_UNIT = "tests/test_{}.py"

TARGETS = (
    Target(
        "algorithms",
        tuple(f"algorithms/{name}.py" for name in ("fedavg", "fedcm", "fedadam", "scaffold", "feddyn")),
        ("tests/identities", "tests/test_contract.py"),
    ),
    Target("core", ("aggregate.py",), ("tests/test_aggregate.py", "tests/test_training.py")),
    Target(
        "core",
        ("algorithm.py", "client.py", "problem.py"),
        ("tests/test_problem.py", "tests/test_training.py", "tests/test_contract.py", "tests/identities"),
    ),
    Target("core", ("losses.py", "stacked.py"), ("tests/test_stacked.py", "tests/test_label_shapes.py")),
    Target("core", ("evaluate.py",), ("tests/test_evaluate.py", "tests/test_label_shapes.py")),
    Target("core", ("training.py", "schedule.py", "sampling.py"), ("tests/test_training.py", "tests/test_sampling.py")),
    Target("data/partition", ("data/partition.py", "data/batches.py"), ("tests/data",)),
    Target(
        "runs",
        ("summary.py", "checkpoint.py", "wiring.py", "assembly.py"),
        ("tests/test_summary.py", "tests/test_checkpoint.py", "tests/test_running.py"),
    ),
    Target("report/claims", ("report/claims.py",), ("tests/test_report_claims.py",)),
)
