"""Read what the source says about the fields of its classes, without importing it.

The meaning of a field is, in this order: a string under it, `Field(description=…)`, a comment behind it, or the comment
lines above it. `FieldComments` hands these texts to mkdocstrings, so that they appear in the API reference.
"""

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Any

import griffe


def read_field_texts(source: str) -> dict[str, dict[str, str]]:
    """Return the text of every documented field, by class and field.

    >>> read_field_texts('''
    ... class Client:
    ...     lr: float = 0.1  # learning rate
    ...     # passes over the data
    ...     epochs: int = 1
    ...     steps: int = 1
    ...     "Local steps."
    ... ''')
    {'Client': {'lr': 'learning rate', 'epochs': 'passes over the data', 'steps': 'Local steps.'}}
    """
    comments = _read_comments(source)
    lines = source.splitlines()
    texts: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            fields = {}
            for position, field in enumerate(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    following = node.body[position + 1] if position + 1 < len(node.body) else None
                    text = _get_string(following) or _find_description(field) or _find_comment(field, comments, lines)
                    if text:
                        fields[field.target.id] = " ".join(text.split())
            if fields:
                texts[node.name] = fields
    return texts


def fence_doctests(text: str) -> str:
    r"""Return a docstring whose doctests are fenced code blocks; those in an indented section stay as they are.

    >>> fence_doctests("Add.\n\n>>> 1 + 1\n2\n")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    return re.sub(r"(?m)^>>> .*(?:\n(?!\n).+)*", lambda block: f"```pycon\n{block[0]}\n```", text)


class FieldComments(griffe.Extension):
    """List the fields of a class in its docstring, with the comments beside them; show doctests as code.

    An algorithm without a docstring gets that of its module, which has the equations.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, agent: Any, **_: Any) -> None:
        names = [name for name, member in mod.members.items() if _is_undocumented_alias(member)]
        if names and isinstance(mod.filepath, Path):
            comments = _read_comments(mod.filepath.read_text(encoding="utf-8"))
            for name in names:
                member = mod.members[name]
                if text := comments.get(member.lineno or 0):
                    parser = getattr(agent, "docstring_parser", None)
                    member.docstring = griffe.Docstring(text, parent=member, parser=parser)  # pyright: ignore

    def on_class_members(self, *, cls: griffe.Class, agent: Any, **_: Any) -> None:
        if not isinstance(cls.filepath, Path):
            return
        text = cls.docstring.value if cls.docstring else _get_module_text(cls)
        fields = read_field_texts(cls.filepath.read_text(encoding="utf-8")).get(cls.name, {})
        for name in fields:
            if isinstance(member := cls.members.get(name), griffe.Attribute):
                member.docstring = None  # it is in the list
        if fields and not re.search(r"(?m)^(Attributes|Args):$", text):
            text = "\n".join([text, "", "Attributes:", *(f"    {name}: {meaning}" for name, meaning in fields.items())])
        if text.strip():
            cls.docstring = griffe.Docstring(text.strip(), parent=cls, parser=getattr(agent, "docstring_parser", None))


def _is_undocumented_alias(member: Any) -> bool:
    """Return whether a member is a public name for a type, such as `Vector = Tensor`."""
    return isinstance(member, griffe.Attribute) and member.name[:1].isupper() and member.docstring is None


def _get_module_text(cls: griffe.Class) -> str:
    is_algorithm = any(str(base).startswith("Algorithm[") for base in cls.bases)
    return cls.module.docstring.value if is_algorithm and cls.module.docstring else ""


def _read_comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokens
        if token.type == tokenize.COMMENT and not token.string.lstrip("# ").startswith(("noqa", "pyright", "type:"))
    }


def _get_string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def _find_description(field: ast.AnnAssign) -> str:
    for node in ast.walk(field):
        if isinstance(node, ast.keyword) and node.arg == "description" and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return ""


def _find_comment(field: ast.AnnAssign, comments: dict[int, str], lines: list[str]) -> str:
    if behind := comments.get(field.end_lineno or field.lineno):
        return behind
    above: list[str] = []
    line = field.lineno - 1
    while line in comments and lines[line - 1].lstrip().startswith("#"):
        above.insert(0, comments[line])
        line -= 1
    return " ".join(above)
