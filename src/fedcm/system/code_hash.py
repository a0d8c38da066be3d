"""Checksums of Python functions, so that a resume notices another function of the same name.

A function that can be imported is identified by its path. The checksum of any other, such as a lambda or a function of
a notebook, covers what it computes by itself: its bytecode, constants and names, those of functions inside it, its
default arguments, and the numbers, texts and functions that it takes from the function around it. Not covered are
functions that it calls by name, tensors, and the attributes of an object that can be called, which may change with
every call; those of torch's own losses and of frozen dataclasses are covered. Comments, line numbers and the docstring
do not count.

Another version of Python compiles other bytecode, so only checksums of one version are compared.
"""

import dis
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from fedcm.errors import UserError

_PLAIN = (int, float, complex, str, bytes, type(None))


def hash_function(function: Callable[..., Any]) -> str:
    """Return the version of Python and the sha256 of a function's code.

    >>> make = lambda factor: lambda x: factor * x
    >>> hash_function(make(2)) == hash_function(make(2)), hash_function(make(2)) == hash_function(make(3))
    (True, False)
    """
    digest = hashlib.sha256("\n".join(_describe(function)).encode()).hexdigest()
    return f"{sys.version_info.major}.{sys.version_info.minor} {digest}"


def reject_other_functions(before: Mapping[str, str], after: Mapping[str, str], what: str) -> None:
    """Raise UserError if a function has another checksum than before; a name that only one of them has is ignored.

    Args:
        before: By the function's use, its checksum when the training began.
        after: The checksums now.
        what: What is resumed, for the message.
    """
    for use in before.keys() & after.keys():
        (version, old), (current_version, new) = before[use].split(" "), after[use].split(" ")
        if version == current_version and old != new:
            raise UserError(
                f"{what} must be resumed with the {use} that it began with, and the code of this function differs; "
                "give the old function or start a new run"
            )


def _describe(function: Any) -> Iterator[str]:
    if isinstance(function, partial):
        yield f"partial {_describe_value(function.args)} {_describe_value(function.keywords)}"
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    owner = function if isinstance(function, type) or hasattr(function, "__qualname__") else type(function)
    yield f"{owner.__module__}.{owner.__qualname__}"
    is_frozen = is_dataclass(owner) and getattr(owner, "__dataclass_params__").frozen  # noqa: B009 - unknown to types
    if owner is not function and (is_frozen or owner.__module__.startswith("torch.")):
        public = {name: value for name, value in vars(function).items() if not name.startswith("_")}
        yield _describe_value({name: value for name, value in public.items() if name != "training"})
    if _can_be_imported(owner):
        return
    if isinstance(owner, FunctionType):
        yield from _describe_function(owner)
    elif isinstance(owner, type):
        for name in ("__init__", "__call__", "forward"):
            if isinstance(method := owner.__dict__.get(name), FunctionType):
                yield from _describe_function(method)


def _can_be_imported(owner: Any) -> bool:
    module = sys.modules.get(owner.__module__)
    return owner.__module__ != "__main__" and getattr(module, owner.__qualname__, None) is owner


def _describe_function(function: FunctionType) -> Iterator[str]:
    code = function.__code__
    yield from _describe_code(code, function.__doc__)
    yield f"{_describe_value(function.__defaults__)} {_describe_value(function.__kwdefaults__)}"
    rebound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_DEREF"}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name in rebound:
            continue  # a counter, for example
        try:
            yield f"{name} {_describe_value(cell.cell_contents)}"
        except ValueError:  # not assigned yet
            yield name


def _describe_code(code: CodeType, docstring: str | None = None) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_argcount}"
    has_docstring = docstring is not None and code.co_consts[:1] == (docstring,)
    constants = (None, *code.co_consts[1:]) if has_docstring else code.co_consts
    for constant in constants:
        if isinstance(constant, CodeType):
            yield from _describe_code(constant)
        else:
            yield _describe_value(constant)


def _describe_value(value: Any, depth: int = 0) -> str:
    """Describe a value by its contents if these are plain, else by its type."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if depth > 3:
        return type(value).__qualname__
    if isinstance(value, tuple):
        return f"({', '.join(_describe_value(one, depth + 1) for one in value)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_describe_value(one, depth + 1) for one in value))}}}"
    if isinstance(value, dict) and depth == 0:
        return str({str(name): _describe_value(one, depth + 1) for name, one in sorted(value.items(), key=str)})
    if isinstance(value, FunctionType):
        return hashlib.sha256("\n".join(_describe_code(value.__code__, value.__doc__)).encode()).hexdigest()
    return type(value).__qualname__
