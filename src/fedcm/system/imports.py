"""A user's own code by its name: `package.module:function`, found from the current folder."""

import importlib
import sys
from pathlib import Path
from typing import Any

from fedcm.errors import UserError, suggest
from fedcm.system.faults import describe_error


def import_path(path: str) -> Any:
    """The object that `package.module:name` names.

    >>> import_path("math:sqrt")(9.0)
    3.0
    """
    module_name, colon, name = path.partition(":")
    words = [*module_name.split("."), *name.split(".")]
    if not colon or not all(word.isidentifier() for word in words):
        raise UserError(f"a name in Python must be written as package.module:name, got {path!r}")
    found: Any = _module(module_name, path)
    for word in name.split("."):
        if not hasattr(found, word):
            public = [known for known in dir(found) if not known.startswith("_") and _own(found, known)]
            where = getattr(found, "__file__", None) or module_name
            raise UserError(f"{path!r} names nothing: {where} has no {word!r}; {suggest(word, public)}")
        found = getattr(found, word)
    return found


def _own(module: Any, name: str) -> bool:
    """Written there, rather than imported from elsewhere."""
    return getattr(getattr(module, name), "__module__", None) == getattr(module, "__name__", None)


def _module(name: str, path: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()  # the file may be younger than the last look at its folder
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _failed(path, error) from error
        raise UserError(
            f"{path!r} cannot be imported: there is no module {error.name!r} in {here} or among the installed "
            "packages; run from the folder that holds it"
        ) from error
    except (Exception, SystemExit) as error:  # the module's own code runs here: anything can come out of it
        raise _failed(path, error) from error


def _failed(path: str, error: BaseException) -> UserError:
    return UserError(f"{path!r} cannot be imported: {describe_error(error)}")
