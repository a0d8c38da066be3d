"""The house rules that a machine can hold: imports point one way, and start-up stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedcm"

# what a part of the house may import of the rest of it
MAY_IMPORT = {
    "refusal": set(),
    "chance": set(),
    "threads": set(),
    "signals": set(),
    "parent": set(),
    "processor": set(),
    "atomic": set(),
    "notices": set(),
    "faults": set(),
    "modes": {"notices", "refusal"},
    "locks": set(),
    "imports": {"faults", "refusal"},
    "settings": {"faults", "refusal"},
    "algorithm": set(),
    "algorithms": {"algorithm", "algorithms", "imports", "refusal", "settings"},
    "contract": {"algorithm", "faults"},
    "data": {"atomic", "chance", "data", "faults", "imports", "notices", "refusal"},
    "models": {"faults", "imports", "models", "refusal"},
    "losses": set(),
    "problem": {"algorithm", "data", "faults", "losses", "modes", "refusal"},
    "client": {"algorithm", "data", "problem"},
    "aggregate": set(),
    "sampling": {"chance"},
    "schedule": set(),
    "evaluate": {"algorithm", "chance", "data", "faults", "modes", "problem"},
    "replay": set(),
    "stacked": {"algorithm", "client", "data", "faults", "losses", "modes", "problem", "refusal", "replay"},
    "executors": {
        *("aggregate", "algorithm", "chance", "client", "data", "evaluate", "executors", "faults", "problem"),
        *("refusal", "stacked"),
    },
    "crew": {"data", "executors", "parent"},
    "torchrun": {"executors"},
    "federation": {
        *(
            "algorithm",
            "algorithms",
            "aggregate",
            "archive",
            "assembly",
            "atomic",
            "chance",
            "checkpoint",
            "data",
            "device",
        ),
        *("evaluate", "executors", "experiment", "federation", "memory", "models", "overrides", "parent", "progress"),
        *(
            "faults",
            "locks",
            "notices",
            "planning",
            "record",
            "refusal",
            "rehearsal",
            "running",
            "sampling",
            "settings",
            "signals",
            "starting",
            "training",
            "wiring",
        ),
    },
    "estimates": set(),
    "advice": {"estimates"},
    "probing": {
        *("advice", "algorithm", "algorithms", "assembly", "chance", "data", "diagnosis", "evaluate", "executors"),
        *("planning", "refusal", "schedule", "threads", "training"),
    },
    "diagnosis": {"algorithm", "chance", "estimates", "executors", "threads"},
    "handoff": {"data", "algorithm", "assembly", "executors", "experiment", "faults", "record", "refusal"},
    "training": {"algorithm", "executors", "faults", "sampling", "schedule", "threads"},
    "device": {"refusal", "threads"},
    "calibration": {"data", "device", "experiment", "faults", "problem", "refusal", "stacked", "threads", "training"},
    "rehearsal": {"algorithm", "data", "evaluate", "faults", "losses", "problem", "refusal", "sampling", "training"},
    "toml_values": {"refusal"},
    "labels": set(),
    "run_names": {"toml_values"},
    "archive": {"atomic"},
    "cells": {"atomic"},
    "overrides": {"algorithms", "data", "refusal", "sampling", "settings", "toml_values"},
    "experiment": {
        *("algorithm", "algorithms", "contract", "data", "models", "overrides", "refusal", "sampling", "settings"),
    },
    "checkpoint": {"atomic"},
    "record": {"archive", "atomic", "checkpoint", "locks", "processor", "refusal"},
    "summary": set(),
    "progress": set(),
    "memory": set(),
    "tracking": {"overrides", "progress", "record"},
    "trackers": {"refusal", "tracking"},
    "options": set(),
    "swept": {"experiment", "labels", "overrides", "refusal", "run_names", "toml_values"},
    "grid": {"algorithms", "experiment", "overrides", "refusal", "run_names", "settings", "swept"},
    "placement": {"experiment", "grid", "overrides", "record", "refusal"},
    "series": {
        *("algorithms", "cells", "executors", "experiment", "faults", "grid", "labels", "overrides", "parent"),
        *("placement", "record"),
    },
    "planning": {"assembly", "data", "evaluate", "experiment", "series", "threads"},
    "preflight": {"assembly", "planning", "refusal", "series"},
    "reproduction": {"refusal"},
    "theory": {"algorithm", "algorithms", "chance", "data", "parent", "refusal", "report", "theory", "threads"},
    "report": {
        *("algorithm", "algorithms", "atomic", "experiment", "models", "overrides", "planning", "progress", "record"),
        *("advice", "archive", "refusal", "report", "series"),
        *("cells", "chance", "data", "sampling", "settings", "summary"),  # for the digest of a run's folder alone
    },
}


def imported(path: Path) -> set[str]:
    """The parts of the house that a file imports, wherever in it; not those in a docstring's example."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fedcm":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedcm."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("fedcm.")}
    return found


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_point_one_way(part: str) -> None:
    files = list((SOURCE / part).rglob("*.py")) if (SOURCE / part).is_dir() else [SOURCE / f"{part}.py"]
    assert files
    for path in files:
        assert imported(path) <= MAY_IMPORT[part], path


def test_every_part_of_the_house_has_a_line_or_stands_at_its_end() -> None:
    """These put the others together, and nobody but the command line imports them."""
    last = {
        "advice_commands",
        "api",
        "assembly",
        "cli",
        "confirmation",
        "driving",
        "federation_commands",
        "grid_commands",
        "in_turn",
        "lead_commands",
        "data_commands",
        "provision_commands",
        "report_commands",
        "run_commands",
        "serve_commands",
        "running",
        "starting",
        "team",
        "theory_commands",
        "watch_commands",
        "wiring",
    }
    parts = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts - {"__init__", "__main__"} == set(MAY_IMPORT) | last


def test_an_algorithms_file_imports_nothing_but_the_contract() -> None:
    for path in (SOURCE / "algorithms").glob("*.py"):
        if path.stem not in ("__init__", "lookup"):
            assert imported(path) == {"algorithm"}, path
            assert len(path.read_text().splitlines()) <= 75, path


def test_help_and_import_do_not_load_torch() -> None:
    code = (
        "import sys, fedcm, fedcm.cli\n"
        "sys.argv = ['fedcm', '--help']\n"
        "try: fedcm.cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'matplotlib', 'plotly', 'pydantic', 'tensorboard', 'mlflow', 'wandb'}\n"
        "heavy |= {'nvflare', 'cryptography'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_trackers_package_is_imported_by_its_own_file_alone() -> None:
    for path in SOURCE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        words = {word for name in names if not name.startswith("fedcm") for word in name.split(".")}
        assert words & {"tensorboard", "mlflow", "wandb"} <= ({path.stem} if path.parent.stem == "trackers" else set())


def test_the_federations_engine_is_imported_by_the_federation_alone() -> None:
    for path in SOURCE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        if any(name.split(".")[0] == "nvflare" for name in names):
            assert path.relative_to(SOURCE).parts[0] == "federation", path


def test_nothing_is_unpickled_but_the_checked_cifar_files() -> None:
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(word in path.read_text() for word in ("import pickle", "torch.load(", "allow_pickle=True"))
    }
    assert users <= {"contract.py", "data/cifar_official.py"}


def test_names_that_say_nothing_are_not_used() -> None:
    banned = {"utils", "helpers", "common", "base", "manager", "handler", "wrapper", "misc"}
    assert not banned & {path.stem for path in SOURCE.rglob("*.py")}
