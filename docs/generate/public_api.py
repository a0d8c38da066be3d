"""List the public names of the package from its `__init__`, without importing it."""

import ast
from collections.abc import Iterable
from pathlib import Path

# The page of a name follows from the module that defines it: the first one that has the module or a package around it.
PAGES = (
    ("contract", ("fedcm.core.algorithm", "fedcm.core.contract")),
    ("algorithms", ("fedcm.algorithms",)),
    ("participation", ("fedcm.core.participation", "fedcm.core.conditions", "fedcm.data.work")),
    ("robustness", ("fedcm.core.aggregation", "fedcm.core.attacks")),
    ("data", ("fedcm.data",)),
    ("schedules", ("fedcm.core.schedule_kinds", "fedcm.core.local.optimizers")),
    ("errors", ("fedcm.errors", "fedcm.system.user_warnings")),
    ("training", ("fedcm.api.training",)),
    ("runs", ("fedcm",)),
)


def read_public_names(source: Path) -> dict[str, str]:
    """Return every name of `fedcm.__all__` with the module that it comes from."""
    tree = ast.parse((source / "__init__.py").read_text(encoding="utf-8"))
    homes = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {name: homes.get(name, "fedcm") for name in ast.literal_eval(node.value)}
    raise LookupError(f"{source / '__init__.py'} has no __all__")


def find_page(home: str) -> str:
    """Return the page of the API reference for a name from this module.

    >>> find_page("fedcm.algorithms"), find_page("fedcm.api"), find_page("fedcm.api.runs")
    ('algorithms', 'training', 'runs')
    """
    if home == "fedcm.api":
        return "training"
    return next(page for page, prefixes in PAGES if any(f"{home}.".startswith(f"{one}.") for one in prefixes))


def write_index(source: Path) -> str:
    """Return a table of all public names, with links."""
    rows = ["| name | defined in |", "|---|---|"]
    names = read_public_names(source)
    rows += [
        f"| [`fedcm.{name}`]({find_page(names[name])}.md#fedcm.{name}) | `{names[name]}` |" for name in _sort(names)
    ]
    return "\n".join(rows) + "\n"


def write_page(source: Path, page: str) -> str:
    """Return the mkdocstrings blocks of one page: functions first, then classes."""
    names = [name for name, home in read_public_names(source).items() if find_page(home) == page]
    return "\n".join(f"::: fedcm.{name}\n" for name in _sort(names))


def write_module_of(source: Path, class_name: str) -> str:
    """Return the mkdocstrings blocks of a module's public classes, for the module that defines this class."""
    for path in sorted(source.rglob("*.py")):
        classes = [
            node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
        ]
        if class_name in classes:
            module = ".".join(path.relative_to(source.parent).with_suffix("").parts)
            names = sorted((name for name in classes if not name.startswith("_")), key=lambda name: name != class_name)
            return "\n".join(f"::: {module}.{name}\n" for name in names)
    raise LookupError(f"there is no class {class_name} in {source}")


def _sort(names: Iterable[str]) -> list[str]:
    """Return the names of functions, then those of classes."""
    return sorted(names, key=lambda name: (name[:1].isupper(), name.lower()))
