"""One-line mutants of a source file: every small change of an operator, a constant or a statement.

Not mutated: docstrings, annotations, type variables, imports, decorators, the inside of `raise` (messages are not
behaviour) and `strict=True` of zip (an assertion).
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_WORD = re.compile(r"\w[\w.-]*")  # a text with spaces is a message

Change = Callable[[ast.AST], ast.AST | None]


@final
@dataclass(frozen=True)
class Mutant:
    """A changed source; `label` says what changed and where."""

    label: str
    source: str


def mutate(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's source.

    >>> [mutant.label for mutant in mutate("def f(x):\\n    return x < 1\\n")]
    ['2: return x < 1 → return None', '2: Lt → LtE', '2: 1 → 2']
    """
    tree = ast.parse(source)
    skipped = _find_skipped(tree)
    for place, node in enumerate(ast.walk(tree)):
        if place not in skipped:
            for what, change in _list_changes(node):
                changed = copy.deepcopy(tree)
                target = next(other for k, other in enumerate(ast.walk(changed)) if k == place)
                if _replace(changed, target, change(target)):
                    label = f"{getattr(node, 'lineno', 0)}: {what}"
                    yield Mutant(label, ast.unparse(ast.fix_missing_locations(changed)))


def _find_skipped(tree: ast.AST) -> set[int]:
    """Return the positions, in the order of `ast.walk`, of nodes that are not mutated."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
            roots.append(node)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            roots.append(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            roots += node.decorator_list
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            roots.append(node.returns)
        if isinstance(node, ast.ClassDef):
            roots += node.bases
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TypeVar":
            roots.append(node)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            roots.append(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            roots.append(node)
    inside = {id(part) for root in roots for part in ast.walk(root)}
    return {k for k, node in enumerate(ast.walk(tree)) if id(node) in inside}


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST | None) -> bool:
    """Replace `old` by `new`; return whether there is a mutant. A node changed in place needs nothing more."""
    if new is old:
        return True
    if new is None:
        return False
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return True
            if isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]
                return True
    return False


def _list_changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=operators):
            for k, operator in enumerate(operators):
                other = _COMPARISONS[type(operator)]
                changed = [*operators[:k], other(), *operators[k + 1 :]]
                yield f"{type(operator).__name__} → {other.__name__}", lambda n, new=changed: _set(n, "ops", new)
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            inverse = _OPERATORS[type(operator)]
            yield f"{type(operator).__name__} → {inverse.__name__}", lambda n: _set(n, "op", inverse())
        case ast.BoolOp(op=operator):
            opposite = ast.Or if isinstance(operator, ast.And) else ast.And
            yield f"{type(operator).__name__} → {opposite.__name__}", lambda n: _set(n, "op", opposite())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"{ast.unparse(node)} → {ast.unparse(node.operand)}", lambda n: getattr(n, "operand", None)
        case ast.Constant(value=value):
            yield from _change_constant(value)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            what = f"if {ast.unparse(test)} → if not"
            yield what, _negate
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield f"{ast.unparse(node)} → return None", lambda _: ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield f"{ast.unparse(node)} → pass", lambda _: ast.Pass()
        case ast.Call(keywords=keywords) if any(keyword.arg for keyword in keywords):
            for k, keyword in ((k, keyword) for k, keyword in enumerate(keywords) if keyword.arg != "strict"):
                yield f"drop {ast.unparse(keyword)}", lambda n, k=k: _drop(n, k)
    if isinstance(node, ast.AugAssign):
        yield f"{ast.unparse(node)} → pass", lambda _: ast.Pass()
    if isinstance(node, ast.Call) and len(node.args) >= 2 and all(map(_is_plain, node.args[:2])) and _has_order(node):
        yield f"{ast.unparse(node)} → first two arguments swapped", _swap


def _change_constant(value: object) -> Iterator[tuple[str, Change]]:
    if isinstance(value, bool):
        yield f"{value} → {not value}", lambda _: ast.Constant(not value)
    elif isinstance(value, int):
        yield f"{value} → {value + 1}", lambda _: ast.Constant(value + 1)
    elif isinstance(value, float):
        other = 2 * value if value else 1.0
        yield f"{value} → {other}", lambda _: ast.Constant(other)
    elif isinstance(value, str) and _WORD.fullmatch(value):
        yield f"{value!r} → {'x' + value!r}", lambda _: ast.Constant("x" + value)


def _has_order(call: ast.Call) -> bool:
    return ast.unparse(call.func) not in ("min", "max", "torch.equal", "torch.allclose")


def _is_plain(value: ast.expr) -> bool:
    return isinstance(value, ast.Name | ast.Attribute)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _set(node: ast.AST, name: str, value: object) -> ast.AST:
    setattr(node, name, value)
    return node


def _negate(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.If | ast.IfExp | ast.While)
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _drop(node: ast.AST, keyword: int) -> ast.AST:
    assert isinstance(node, ast.Call)
    del node.keywords[keyword]
    return node


def _swap(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    node.args[:2] = node.args[1::-1]
    return node
