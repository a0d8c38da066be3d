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


_ALGORITHMS = ("fedavg", "fedcm", "fedadam", "scaffold", "feddyn")

TARGETS = (
    *(
        Target(
            "algorithms",
            (f"algorithms/{name}.py",),
            (
                f"tests/identities/test_{name}.py",
                "tests/identities/test_reference.py",
                "tests/test_contract.py",
                "tests/test_defaults.py",
                "tests/test_hyperparameters.py",
                "tests/refusals/test_bad_settings.py",
            ),
        )
        for name in _ALGORITHMS
    ),
    Target("core", ("aggregate.py",), ("tests/test_aggregate.py",)),
    Target(
        "core",
        ("algorithm.py", "client.py"),
        ("tests/test_training.py", "tests/identities/test_reference.py", "tests/test_contract.py"),
    ),
    Target("core", ("losses.py",), ("tests/test_label_shapes.py",)),
    Target(
        "core", ("stacked.py",), ("tests/test_stacked.py", "tests/test_label_shapes.py", "tests/test_calibration.py")
    ),
    Target("core", ("problem.py",), ("tests/test_problem.py", "tests/test_stacked.py")),
    Target("core", ("evaluate.py",), ("tests/test_evaluate.py", "tests/test_label_shapes.py")),
    Target("core", ("training.py",), ("tests/test_training.py", "tests/test_sampling.py")),
    Target("core", ("schedule.py",), ("tests/test_schedule.py",)),
    Target("core", ("sampling.py",), ("tests/test_sampling.py", "tests/refusals/test_bad_settings.py")),
    Target("core", ("chance.py",), ("tests/test_chance.py",)),
    Target("core", ("contract.py",), ("tests/test_contract.py",)),
    Target(
        "data/partition",
        ("data/partition.py",),
        (
            "tests/data/test_partition.py",
            "tests/data/test_partition_draws.py",
        ),
    ),
    Target("data/partition", ("data/batches.py",), ("tests/data/test_batches.py", "tests/test_stacked.py")),
    Target("runs", ("summary.py",), ("tests/test_summary.py",)),
    Target("runs", ("checkpoint.py",), ("tests/test_checkpoint.py", "tests/test_running.py")),
    Target(
        "runs", ("wiring.py", "assembly.py"), ("tests/settings", "tests/test_label_shapes.py", "tests/test_modes.py")
    ),
    Target("runs", ("record.py",), ("tests/test_running.py", "tests/refusals/test_bad_runs.py")),
    Target(
        "report/claims",
        (
            *("report/contrast.py", "report/verdicts.py", "report/claims.py", "report/drops.py"),
            *("report/standings.py", "report/answer.py", "report/oscillation.py"),
        ),
        (
            "tests/test_report_contrast.py",
            "tests/test_report_claims.py",
            "tests/test_report_alpha_claims.py",
            "tests/test_report_answer.py",
            "tests/test_report_oscillation.py",
        ),
    ),
)
