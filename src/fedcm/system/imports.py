"""Import the user's own code by its name, `package.module:name`, with the current folder on the path."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcm.errors import UserError, suggest
from fedcm.system.error_messages import describe_error


def names_python_object(text: str) -> bool:
    """Return whether a text has the form `package.module:name`, which `import_object` requires.

    >>> names_python_object("my_models:Net"), names_python_object("cuda:0")
    (True, False)
    """
    module_name, colon, name = text.partition(":")
    return bool(colon) and all(word.isidentifier() for word in [*module_name.split("."), *name.split(".")])


def iterate_code(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting of a table, with its path, that could name the user's own code.

    >>> list(iterate_code({"model": {"name": "my_models:Net"}, "data": {"source": "digits"}}))
    [('model.name', 'my_models:Net')]
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from iterate_code(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for part in value:
            yield from iterate_code(part, path)
    elif isinstance(value, str) and names_python_object(value):
        yield path, value


def import_object(path: str) -> Any:
    """Import the object named by `package.module:name`.

    >>> import_object("math:sqrt")(9.0)
    3.0

    Raises:
        UserError: If the path has another form, the import fails, or the module has no such name.
    """
    if not names_python_object(path):
        raise UserError(f"a Python object must be written as package.module:name, got {path!r}")
    module_name, _, name = path.partition(":")
    value: Any = _import_module(module_name, path)
    for word in name.split("."):
        if not hasattr(value, word):
            public = [known for known in dir(value) if not known.startswith("_") and _is_defined_in(value, known)]
            where = getattr(value, "__file__", None) or module_name
            raise UserError(f"{path!r} does not exist: {where} has no {word!r}; {suggest(word, public)}")
        value = getattr(value, word)
    return value


def import_function(path: str, setting: str) -> Callable[..., Any]:
    """Import a function of the user.

    Args:
        path: The function, as `package.module:name`.
        setting: The setting that names it, for error messages.

    Raises:
        UserError: If it cannot be imported, or cannot be called.
    """
    function = import_object(path)
    if not callable(function):
        raise UserError(f"{setting} must name a function, got {path!r}, a {type(function).__name__}")
    return function


def _is_defined_in(module: Any, name: str) -> bool:
    """Return whether the module defines the name, rather than importing it."""
    return getattr(getattr(module, name), "__module__", None) == getattr(module, "__name__", None)


def _import_module(name: str, path: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may be newer than Python's cached listing of its folder
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _make_import_error(path, error) from error
        raise UserError(
            f"{path!r} cannot be imported: there is no module {error.name!r} in {folder} or among the installed "
            "packages; run from the folder that contains it"
        ) from error
    except (Exception, SystemExit) as error:  # importing runs the user's code, which can raise anything
        raise _make_import_error(path, error) from error


def _make_import_error(path: str, error: BaseException) -> UserError:
    return UserError(f"{path!r} cannot be imported: {describe_error(error)}")
