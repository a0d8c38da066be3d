"""Importing the user's own code by `package.module:name`."""

import sys
from pathlib import Path

import pytest

from fedcm.errors import UserError
from fedcm.system.imports import import_object


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty current folder; modules that a test imports from it are removed from sys.modules afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_object_of_a_module_in_the_current_folder_is_imported(folder):
    (folder / "my_package").mkdir()
    (folder / "my_package" / "models.py").write_text("class Net:\n    size = 3\n")
    assert import_object("my_package.models:Net").__name__ == "Net"
    assert import_object("my_package.models:Net.size") == 3


@pytest.mark.parametrize("path", ["models", "models.Net", ":Net", "models:", "a b:c", "models:Net:x", "../models:Net"])
def test_a_malformed_import_path_is_rejected(path):
    with pytest.raises(UserError, match=r"must be written as package\.module:name"):
        import_object(path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("path", ["no_such_module_at_all:x", "json.no_such_part:x", "no_such.module.at_all:x"])
def test_a_missing_module_is_rejected(path):
    with pytest.raises(UserError, match=r"there is no module 'n|there is no module 'json.no_such_part'"):
        import_object(path)


def test_a_missing_name_is_rejected_with_a_suggestion(folder):
    (folder / "mine_a.py").write_text("def load_wards(): ...\n")
    with pytest.raises(UserError, match="has no 'load_ward'; did you mean 'load_wards'"):
        import_object("mine_a:load_ward")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*mine_b.py, line 2\)"),
        ("x = (\n", r"SyntaxError: .*mine_b.py, line 1\)"),
        ("import package_that_is_not_there\n", "ModuleNotFoundError: No module named 'package_that_is_not_there'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_to_import_is_rejected_with_its_error(folder, code, message):
    (folder / "mine_b.py").write_text(code)
    with pytest.raises(UserError, match=message):
        import_object("mine_b:x")
