"""Rules about the source tree that a machine can check: layers, start-up, dependencies, names."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedcm"

# from the bottom to the top: a module imports from its own layer or from a lower one
LAYERS = (
    ("errors", "rng"),
    ("system",),
    ("data", "models"),
    ("core",),
    ("algorithms", "executors"),
    ("config",),
    ("privacy",),
    ("runs",),
    ("trackers",),
    ("sweeps", "advice"),
    ("tuning",),
    ("reports", "theory", "federation"),
    ("api",),
    ("cli",),
)
HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of a layer: the layer's part and the file."""
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).with_suffix("").parts[0]
        if part not in ("__init__", "__main__"):
            yield part, path


def imports(path: Path) -> Iterator[str]:
    """The dotted names of the modules that a file imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not used"
            if node.module == "fedcm":
                yield from (f"fedcm.{name.name}" for name in node.names if name.name != "__version__")
            else:
                yield node.module or ""


def parts_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("fedcm.")}


def test_every_part_has_a_layer() -> None:
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__"} == set(HEIGHT)


@pytest.mark.parametrize("part", HEIGHT)
def test_a_module_imports_only_from_its_layer_or_below(part: str) -> None:
    for own, path in modules():
        if own == part:
            above = {other for other in parts_imported(path) if HEIGHT[other] > HEIGHT[part]}
            assert not above, f"{path.relative_to(SOURCE)} imports {above}"


def test_only_the_command_line_imports_theory() -> None:
    users = {part for part, path in modules() if "theory" in parts_imported(path)}
    assert users <= {"theory", "cli"}


SHARED_BY_COMMANDS = {"__init__", "main", "app", "options", "session", "archive_question", "run_watch"}


def test_a_command_imports_no_other_command() -> None:
    files = [path for path in (SOURCE / "cli").rglob("*.py") if path.stem not in SHARED_BY_COMMANDS]
    files = [path for path in files if path.parent.stem != "terminal"]
    commands = {".".join(("fedcm", *path.relative_to(SOURCE).with_suffix("").parts)) for path in files}
    assert len(commands) > 30
    for path in files:
        assert not commands & set(imports(path)), path


ROLES = {
    "admin": {"server", "site", "serve", "check"},
    "server": {"site", "admin", "serve", "check", "provision"},
    "site": {"server", "admin", "serve", "check", "provision"},
    "provision": {"server", "site", "admin", "serve", "check"},
}


@pytest.mark.parametrize("role", ROLES)
def test_the_roles_of_a_federation_do_not_import_each_other(role: str) -> None:
    for path in (SOURCE / "federation" / role).glob("*.py"):
        used = {name.split(".")[2] for name in imports(path) if name.startswith("fedcm.federation.")}
        assert not used & ROLES[role], path


def test_no_folder_has_more_than_about_a_dozen_modules() -> None:
    for folder in {path.parent for _, path in modules()}:
        count = len([path for path in folder.glob("*.py") if path.stem != "__init__"])
        assert count <= 15, f"{folder.relative_to(SOURCE)} has {count} modules"


def test_class_names_are_used_once() -> None:
    seen: dict[str, Path] = {}
    messages = {"ServerState", "Broadcast", "ClientState", "Report"}  # every algorithm has its own four
    messages |= {"LocalState", "NodeState", "Survey"}  # and some have these
    for _, path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in messages:
                assert node.name not in seen, f"{node.name} is in {path} and in {seen[node.name]}"
                seen[node.name] = path


def test_an_algorithm_imports_only_the_contract_and_what_algorithms_share() -> None:
    shared = {f"fedcm.algorithms.{name}" for name in ("bases", "messages", "orthogonalisation", "vectors")}
    allowed = {"fedcm.core.algorithm", "fedcm.algorithms.adaptive.server", *shared}
    files = [path for path in (SOURCE / "algorithms").glob("*/*.py") if path.stem != "__init__"]
    assert len(files) > 30
    for path in files:
        assert {name for name in imports(path) if name.startswith("fedcm")} <= allowed, path
        assert len(path.read_text().splitlines()) <= 95, path


def test_help_and_import_do_not_load_torch() -> None:
    code = (
        "import sys, fedcm, fedcm.cli.main\n"
        "sys.argv = ['fedcm', '--help']\n"
        "try: fedcm.cli.main.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'matplotlib', 'plotly', 'pydantic', 'tensorboard', 'mlflow', 'wandb'}\n"
        "heavy |= {'nvflare', 'cryptography'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_only_its_own_module_imports_a_trackers_package() -> None:
    for _, path in modules():
        words = {word for name in imports(path) if not name.startswith("fedcm") for word in name.split(".")}
        assert words & {"tensorboard", "mlflow", "wandb"} <= ({path.stem} if path.parent.stem == "trackers" else set())


def test_only_the_federation_imports_flare() -> None:
    for part, path in modules():
        if any(name.split(".")[0] == "nvflare" for name in imports(path)):
            assert part == "federation", path


def test_only_official_cifar_files_are_unpickled() -> None:
    users = {
        path.relative_to(SOURCE).as_posix()
        for _, path in modules()
        if any(word in path.read_text() for word in ("import pickle", "torch.load(", "allow_pickle=True"))
    }
    in_a_message = "models/weights.py"  # tests/models/test_weights.py shows that it reads no pickle
    assert users <= {"core/contract/violations.py", "data/sources/cifar_official.py", in_a_message}


def test_no_module_has_a_name_that_says_nothing() -> None:
    banned = {"utils", "helpers", "common", "base", "manager", "handler", "wrapper", "misc"}
    assert not banned & {path.stem for _, path in modules()}
