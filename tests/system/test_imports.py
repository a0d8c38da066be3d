import sys
from pathlib import Path

import pytest

from fedcm.errors import UserError
from fedcm.system.imports import import_path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty current folder; modules that a test imports from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_in_the_current_folder_is_found(here):
    (here / "my_package").mkdir()
    (here / "my_package" / "models.py").write_text("class Net:\n    size = 3\n")
    assert import_path("my_package.models:Net").__name__ == "Net"
    assert import_path("my_package.models:Net.size") == 3


@pytest.mark.parametrize("path", ["models", "models.Net", ":Net", "models:", "a b:c", "models:Net:x", "../models:Net"])
def test_another_form_is_refused(path):
    with pytest.raises(UserError, match=r"must be written as package\.module:name"):
        import_path(path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("path", ["no_such_module_at_all:x", "json.no_such_part:x", "no_such.module.at_all:x"])
def test_a_missing_module_is_refused(path):
    with pytest.raises(UserError, match=r"there is no module 'n|there is no module 'json.no_such_part'"):
        import_path(path)


def test_a_missing_name_is_refused_with_the_nearest(here):
    (here / "mine_a.py").write_text("def load_wards(): ...\n")
    with pytest.raises(UserError, match="has no 'load_ward'; did you mean 'load_wards'"):
        import_path("mine_a:load_ward")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\ny = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*mine_b.py, line 2\)"),
        ("x = (\n", r"SyntaxError: .*mine_b.py, line 1\)"),
        ("import package_that_is_not_there\n", "ModuleNotFoundError: No module named 'package_that_is_not_there'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_refused_with_its_own_reason(here, code, told):
    (here / "mine_b.py").write_text(code)
    with pytest.raises(UserError, match=told):
        import_path("mine_b:x")
