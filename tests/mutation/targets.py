"""Which sources are mutated, and which tests must fail.

The golden runs (tests/anchors) are left out: they would catch almost any mutant, but do not show that a rule is tested
for what it means.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Sources below src/fedcm, and the tests that must fail for a mutant of them, fastest first."""

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
                "tests/core/test_contract.py",
                "tests/config/test_defaults.py",
                "tests/algorithms/test_hyperparameters.py",
                "tests/errors/test_bad_settings.py",
            ),
        )
        for name in _ALGORITHMS
    ),
    Target("core", ("core/exact_mean.py",), ("tests/core/test_exact_mean.py",)),
    Target(
        "core",
        ("core/algorithm.py", "core/local_steps.py"),
        ("tests/core/test_round_loop.py", "tests/identities/test_reference.py", "tests/core/test_contract.py"),
    ),
    Target("core", ("core/losses.py",), ("tests/core/test_label_shapes.py",)),
    Target(
        "core",
        ("core/stacked.py",),
        ("tests/core/test_stacked.py", "tests/core/test_label_shapes.py", "tests/runs/test_autotune.py"),
    ),
    Target("core", ("core/problem.py",), ("tests/core/test_problem.py", "tests/core/test_stacked.py")),
    Target("core", ("core/evaluation.py",), ("tests/core/test_evaluation.py", "tests/core/test_label_shapes.py")),
    Target("core", ("core/round_loop.py",), ("tests/core/test_round_loop.py", "tests/core/test_participation.py")),
    Target("core", ("core/metrics.py",), ("tests/core/test_metrics.py", "tests/core/test_round_loop.py")),
    Target("core", ("core/schedule.py",), ("tests/core/test_schedule.py",)),
    Target(
        "core", ("core/participation.py",), ("tests/core/test_participation.py", "tests/errors/test_bad_settings.py")
    ),
    Target("core", ("rng.py",), ("tests/test_rng.py",)),
    Target("core", ("core/contract.py",), ("tests/core/test_contract.py",)),
    Target(
        "data/partition",
        ("data/partition.py",),
        (
            "tests/data/test_partition.py",
            "tests/data/test_partition_draws.py",
        ),
    ),
    Target("data/partition", ("data/batches.py",), ("tests/data/test_batches.py", "tests/core/test_stacked.py")),
    Target("runs", ("runs/summary.py",), ("tests/runs/test_summary.py",)),
    Target("runs", ("runs/checkpoint.py",), ("tests/runs/test_checkpoint.py", "tests/runs/test_session.py")),
    Target(
        "runs",
        ("runs/build.py",),
        ("tests/settings", "tests/core/test_label_shapes.py", "tests/core/test_model_mode.py"),
    ),
    Target("runs", ("runs/folder.py",), ("tests/runs/test_session.py", "tests/errors/test_bad_runs.py")),
    Target(
        "reports/claims",
        (
            *(
                "reports/claims/contrast.py",
                "reports/claims/verdicts.py",
                "reports/claims/paper_claims.py",
                "reports/claims/drops.py",
            ),
            *("reports/claims/representatives.py", "reports/claims/headline.py", "reports/claims/oscillation.py"),
        ),
        (
            "tests/reports/test_contrast.py",
            "tests/reports/test_claims.py",
            "tests/reports/test_alpha_claims.py",
            "tests/reports/test_headline.py",
            "tests/reports/test_oscillation.py",
        ),
    ),
)
