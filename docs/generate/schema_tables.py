"""Write the tables of the settings reference from the schema's source, without importing it.

The source is read with `ast`, because importing the schema imports torch. Public class names are unique in the project
(tests/test_architecture.py), so a class is found by its name wherever its module is.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from field_comments import read_field_texts

_WORDS = {"int": "integer", "float": "number", "str": "string", "bool": "true or false", "Any": "any value"}
# Types that the schema leaves to a function.
_CHECKED_BY_CODE = {
    "engine.stack": ('`"auto"` or an integer', "1 to 4096"),
    "client.schedule": ("[schedule](#schedule)", ""),
    "client.step_schedule": ("[schedule](#schedule)", ""),
    "server.schedule": ("[schedule](#schedule)", ""),
    "server.mean": ("[mean](#mean)", ""),
    "client.optimizer": ("[optimizer](#optimizer)", ""),
}
_CHECKED_BY_CODE |= dict.fromkeys(("client.epochs", "client.steps"), ("integer or table", "≥ 1, ≤ 10⁹"))
_DEFAULTS = {".name": "the file's name", "server.mean": '`"plain"`'}  # filled in when the file is read
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Setting(NamedTuple):
    """One key of an experiment."""

    name: str
    kind: str
    limits: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Schema:
    """The schema of experiments, read from the source tree.

    Args:
        source: The folder of the package, `src/fedcm`.
        prose: The text of docs/experiments.md. A key's row there has its meaning; for keys without a row it is the
            comment beside the field.
    """

    source: Path
    prose: str

    def read_sections(self) -> dict[str, list[Setting]]:
        """Return the settings of every section with fixed keys; the key "" has those outside any section."""
        found = {"": self._read_settings("Experiment", "", only=("name", "rounds", "seed"))}
        for section, name in self._find_mapping("SECTIONS").items():
            found[section] = self._read_settings(name, section)
        found["stragglers"] = self._read_settings("Stragglers", "stragglers")
        found["grid"] = self._read_settings("ExperimentGrid", "grid")
        found["grid.exceptions"] = self._read_settings("GridException", "grid.exceptions")
        return found

    def read_model(self) -> list[Setting]:
        """Return the reserved keys of `[model]`."""
        return [setting for setting in self._read_settings("ModelSection", "model") if setting.name != "options"]

    def read_choices(self) -> dict[str, dict[str, tuple[str, list[Setting]]]]:
        """Return, for every section with a choice in it, the choices with a sentence and their settings."""
        tables = {
            "split": self._find_mapping("SPLITS"),
            "participation": self._find_mapping("PARTICIPATION"),
            "topology": self._find_mapping("TOPOLOGIES"),
            "schedule": self._find_mapping("SCHEDULES"),
            "optimizer": self._find_mapping("OPTIMIZERS"),
            "availability": self._find_mapping("AVAILABILITY"),
            "attack": self._find_mapping("ATTACKS"),
            "mean": self._find_mapping("MEANS"),
            "algorithm": {name: kind for group in self.read_groups().values() for name, kind in group.items()},
        }
        found = {}
        for section, table in tables.items():
            kinds = table.items()
            found[section] = {
                name: (self._read_summary(kind), self._read_settings(kind, section)) for name, kind in kinds
            }
        return found

    def read_groups(self) -> dict[str, dict[str, str]]:
        """Return the groups of algorithms: the names and classes of each."""
        groups = self._find_dict("GROUPS")
        items = [(key, group) for key, group in zip(groups.keys, groups.values, strict=True) if key]
        return {ast.literal_eval(key): _read_names(group) for key, group in items if isinstance(group, ast.Dict)}

    def write_markdown(self) -> str:
        """Return the body of the reference page."""
        sections, choices = self.read_sections(), self.read_choices()
        parts = ["## Top level", "", *_write_table(sections.pop(""))]
        grid = {name: sections.pop(name) for name in ("grid", "grid.exceptions")}
        keys = [key for key in _ORDER if key in sections or key in choices]
        keys += [key for key in (*sections, *choices) if key not in keys]
        for key in keys:
            heading, anchor = _INNER_TABLES.get(key, (f"`[{key}]`", key))
            parts += ["", f"## {heading}", "", f"[Explained in the guide](../experiments.md#{anchor}).", ""]
            if key in sections:
                parts += _write_table(sections[key])
                continue
            for name, (summary, settings) in choices[key].items():
                parts += [
                    "",
                    f"### `{'name' if key in ('algorithm', 'optimizer') else 'kind'} = {json.dumps(name)}`",
                    "",
                ]
                parts += [f"{summary} [Equations](../algorithms/{name}.md)." if key == "algorithm" else summary, ""]
                parts += _write_table(settings) if settings else ["No settings."]
        parts += [
            "",
            "## `[model]`",
            "",
            "[Explained in the guide](../experiments.md#model). All keys that are not in this",
        ]
        parts += ["table are keyword arguments of the model's factory.", "", *_write_table(self.read_model())]
        for name, settings in grid.items():
            brackets = f"[[{name}]]" if "." in name else f"[{name}]"
            parts += ["", f"## `{brackets}`", "", "[Explained in the guide](../experiments.md#grid).", ""]
            parts += _write_table(settings)
        return "\n".join(parts) + "\n"

    @cached_property
    def _modules(self) -> list[tuple[str, ast.Module]]:
        texts = [path.read_text(encoding="utf-8") for path in sorted(self.source.rglob("*.py"))]
        return [(text, ast.parse(text)) for text in texts]

    def _find_class(self, name: str) -> tuple[str, ast.Module, ast.ClassDef]:
        for text, module in self._modules:
            for node in module.body:
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return text, module, node
        raise LookupError(f"there is no class {name} in {self.source}")

    def _find_mapping(self, name: str) -> dict[str, str]:
        """Return a module-level dict of names and classes, as written."""
        return _read_names(self._find_dict(name))

    def _find_dict(self, name: str) -> ast.Dict:
        for _, module in self._modules:
            if isinstance(value := _list_assignments(module).get(name), ast.Dict):
                return value
        raise LookupError(f"there is no dict {name} in {self.source}")

    def _read_summary(self, name: str) -> str:
        """Return the first sentence of a class, or of the module to which the class refers."""
        _, module, node = self._find_class(name)
        text = ast.get_docstring(node) or ""
        if not text or "see the module's docstring" in text:
            text = ast.get_docstring(module) or ""
        first = " ".join(text.split("\n\n")[0].split())
        return first if first.endswith(".") else f"{first}."

    def _read_settings(self, name: str, section: str, only: tuple[str, ...] = ()) -> list[Setting]:
        text, module, node = self._find_class(name)
        texts = read_field_texts(text).get(name, {})
        settings = []
        for field in node.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            key = field.target.id
            if key.startswith("_") or _is_class_variable(field) or (only and key not in only):
                continue
            kind, limits = self._describe_type(field.annotation, module)
            path = f"{section}.{key}"
            default, more = ("", "") if path in _DEFAULTS else _describe_default(field.value)
            limits = ", ".join(part for part in (limits, more) if part)
            if path in _CHECKED_BY_CODE:
                kind, limits = _CHECKED_BY_CODE[path]
            row = self._find_row(section, key)
            if default == "none" and len(row) == 3 and row[1]:
                default = row[1]  # what happens without the key
            default = _DEFAULTS.get(path, default)
            meaning = row[-1] if row else texts.get(key, "")
            settings.append(Setting(key, kind, limits, default, _capitalise(meaning)))
        return settings

    def _find_row(self, section: str, key: str) -> list[str]:
        """Return the cells of the key's row in docs/experiments.md, with links as they are in reference/."""
        if section:
            outer, _, inner = section.partition(".")
            chapter = self.prose.partition(f"## `[{outer}]`")[2].partition("\n## ")[0]
            before, _, after = chapter.partition(f"`[[{section}]]`")
            chapter = after if inner else before
        else:
            chapter = self.prose.partition("\n## ")[0]
        lines = [line for line in chapter.splitlines() if line.startswith("| `")]
        rows = [line for line in lines if re.search(rf"`{key}[.`]", line.split("|")[1])]
        if not rows:
            return []
        row = re.sub(r"\]\((?![a-z]+:)(#)?", lambda link: "](../experiments.md#" if link[1] else "](../", rows[0])
        return [cell.strip() for cell in row.strip("| ").split("|")]

    def _describe_type(self, node: ast.expr, module: ast.Module) -> tuple[str, str]:
        """Return the words for a type, and those for its limits."""
        match node:
            case ast.Constant(value=str(text)):
                return self._describe_type(ast.parse(text, mode="eval").body, module)
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
                return self._describe_type(left, module)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                (one, limits), (other, more) = self._describe_type(left, module), self._describe_type(right, module)
                return f"{one} or {other}", limits or more
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *metadata])):
                kind, limits = self._describe_type(inner, module)
                more = [_describe_limits(item) for item in metadata if isinstance(item, ast.Call)]
                return kind, ", ".join(part for part in (limits, *more) if part)
            case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
                options = values.elts if isinstance(values, ast.Tuple) else [values]
                return ", ".join(f"`{json.dumps(ast.literal_eval(option))}`" for option in options), ""
            case ast.Subscript(value=ast.Name(id="list" | "Sequence"), slice=inner):
                kind, limits = self._describe_type(inner, module)
                return f"list of {_make_plural(kind)}", limits and f"each {limits}"
            case ast.Subscript(value=ast.Name(id="dict" | "Mapping"), slice=ast.Tuple(elts=[_, inner])):
                kind, limits = self._describe_type(inner, module)
                return (
                    "table" if kind == "any value" else f"table of {_make_plural(kind)}"
                ), limits and f"each {limits}"
            case ast.Name(id=name) if name in _WORDS:
                return _WORDS[name], ""
            case ast.Name(id=name):
                return self._describe_type(self._find_alias(name, module), module)
            case _:
                return f"`{ast.unparse(node)}`", ""

    def _find_alias(self, name: str, module: ast.Module) -> ast.expr:
        for known in (module, *(other for _, other in self._modules)):
            if name in (assignments := _list_assignments(known)):
                return assignments[name]
        return ast.parse("dict[str, Any]", mode="eval").body  # another section: a table with its own keys


# Tables inside a section, and where the guide explains them.
_INNER_TABLES = {
    "schedule": ("Schedule", "schedules"),
    "optimizer": ("Optimizer", "local-optimisers"),
    "mean": ("Mean", "means"),
}
_ORDER = ("data", "split", "participation", "topology", "availability", "attack", "stragglers", "algorithm")
_ORDER += ("client", "server", "mean", "schedule", "optimizer", "evaluation", "checkpoints", "engine")


def _read_names(mapping: ast.Dict) -> dict[str, str]:
    items = zip(mapping.keys, mapping.values, strict=True)
    return {ast.literal_eval(key): ast.unparse(kind) for key, kind in items if key}


def _list_assignments(module: ast.Module) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def _is_class_variable(field: ast.AnnAssign) -> bool:
    return ast.unparse(field.annotation).startswith("ClassVar")


def _make_plural(kind: str) -> str:
    """Return the plural of a type's words.

    >>> _make_plural("string or list of strings")
    'strings or lists of strings'
    """
    if kind.startswith("list of "):
        return f"lists of {kind.removeprefix('list of ')}"
    if kind.startswith("table"):
        return f"tables{kind.removeprefix('table')}"
    if " or " in kind and kind != "true or false":
        return " or ".join(map(_make_plural, kind.split(" or ")))
    return kind if "`" in kind else f"{kind}s"


def _capitalise(text: str) -> str:
    """Return the text with a capital letter, unless its first word is a symbol or a name in code."""
    return text[:1].upper() + text[1:] if text[:1].isascii() and text.split(" ")[0].rstrip(",;:").isalpha() else text


def _list_keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _describe_limits(call: ast.Call) -> str:
    """Return the limits that a `Field(…)` sets."""
    if ast.unparse(call.func) != "Field":
        return ""
    found = []
    for key, value in _list_keywords(call).items():
        match key:
            case "gt":
                found.append(f"> {_format_number(value)}")
            case "ge":
                found.append(f"≥ {_format_number(value)}")
            case "lt":
                found.append(f"< {_format_number(value)}")
            case "le":
                found.append(f"≤ {_format_number(value)}")
            case "min_length":
                found.append("not empty" if ast.literal_eval(value) == 1 else f"at least {_format_number(value)} long")
            case "max_length":
                found.append(f"at most {_format_number(value)} characters")
            case "pattern":
                found.append(f"matches `{ast.literal_eval(value)}`".replace("|", "\\|"))
    return ", ".join(found)


def _format_number(node: ast.expr) -> str:
    match node:
        case ast.BinOp(left=ast.Constant(value=base), op=ast.Pow(), right=ast.Constant(value=power)):
            return f"{base}{str(power).translate(_SUPERSCRIPTS)}"
        case ast.Constant(value=float(value)) if value >= 1e5 and f"{value:e}".startswith("1.000000e"):
            return f"10{str(round(len(f'{value:.0f}') - 1)).translate(_SUPERSCRIPTS)}"
    return ast.unparse(node)


def _describe_default(node: ast.expr | None) -> tuple[str, str]:
    """Return the words for a default, and the limits that stand beside it in `Field(default=…, ge=…)`."""
    if node is None:
        return "required", ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Field", "field"):
        keywords = _list_keywords(node)
        if "default" not in keywords:
            return ("" if "default_factory" in keywords else "required"), _describe_limits(node)
        return _format_value(ast.literal_eval(keywords["default"])), _describe_limits(node)
    return _format_value(ast.literal_eval(node)), ""


def _format_value(value: Any) -> str:
    if value is None or value in ([], {}):
        return "none"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _write_table(settings: list[Setting]) -> Iterator[str]:
    """Return the lines of a table; without the column of ranges if no key has one."""
    limited = any(setting.limits for setting in settings)
    yield f"| key | meaning | type | {'range | ' if limited else ''}default |"
    yield f"|---|---|---|{'---|' if limited else ''}---|"
    for setting in settings:
        limits = f"{setting.limits} | " if limited else ""
        yield f"| `{setting.name}` | {setting.meaning} | {setting.kind} | {limits}{setting.default} |"
