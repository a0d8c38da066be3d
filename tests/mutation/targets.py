"""Which sources are mutated, and which tests must fail.

The golden runs (tests/anchors) are left out: they would catch almost any mutant, but do not show that a rule is tested
for what it means.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """Sources below src/fedcm, and the tests that must fail for a mutant of them, fastest first."""

    group: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]


_SOURCE = Path(__file__).parents[2] / "src" / "fedcm"
_PAPER_ALGORITHMS = {
    "fedavg": "averaging",
    "fedcm": "client_momentum",
    "fedadam": "adaptive",
    "scaffold": "variance_reduction",
    "feddyn": "primal_dual",
}
_FAMILY = ("averaging", "server_momentum", "client_momentum", "variance_reduction", "primal_dual", "sharpness_aware")
_SHARED_TESTS = (
    "tests/core/test_contract.py",
    "tests/config/test_defaults.py",
    "tests/algorithms/test_hyperparameters.py",
)

TARGETS = (
    *(
        Target(
            "algorithms",
            (f"algorithms/{group}/{name}.py",),
            (
                f"tests/identities/test_{name}.py",
                "tests/identities/test_reference.py",
                "tests/errors/test_bad_settings.py",
                *_SHARED_TESTS,
            ),
        )
        for name, group in _PAPER_ALGORITHMS.items()
    ),
    *(
        Target(
            "family",
            tuple(
                f"algorithms/{group}/{path.name}"
                for path in sorted((_SOURCE / "algorithms" / group).glob("*.py"))
                if path.stem not in ("__init__", *_PAPER_ALGORITHMS)
            ),
            (
                "tests/identities/test_family.py",
                "tests/identities/test_origins_reference.py",
                "tests/identities/test_successors_reference.py",
                *_SHARED_TESTS,
            ),
        )
        for group in (*_FAMILY, "adaptive", "decentralised")
    ),
    Target("core", ("core/topology.py",), ("tests/core/test_topology.py",)),
    Target("executors", ("executors/gossip.py",), ("tests/executors/test_every_algorithm.py",)),
    Target("core", ("core/exact_mean.py",), ("tests/core/test_exact_mean.py",)),
    Target(
        "core",
        ("core/algorithm.py", "core/local/steps.py"),
        ("tests/core/test_round_loop.py", "tests/identities/test_reference.py", "tests/core/test_contract.py"),
    ),
    Target("core", ("core/losses.py",), ("tests/core/test_label_shapes.py",)),
    Target(
        "core",
        ("core/local/stacked.py",),
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
    Target(
        "core",
        ("core/contract/violations.py", "core/contract/templates.py", "core/contract/costs.py"),
        ("tests/core/test_contract.py",),
    ),
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
        ("runs/build.py", *(f"runs/parts/{name}.py" for name in ("engine", "plan", "problem", "tokens", "user_code"))),
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
