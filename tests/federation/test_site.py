"""A site's training process: its limits, and what happens when it dies."""

import os
import signal
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import psutil
import pytest
from sites_here import make_experiment, make_federated, write_kits

from fedcm.config.experiment import to_toml
from fedcm.errors import UserError
from fedcm.federation.settings import load_site_settings, reject_forbidden
from fedcm.federation.site.trainer import SiteTrainer
from fedcm.federation.site.training_process import RequestAborted, TrainingProcess


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, str]:
    chosen = make_experiment()
    return write_kits(chosen, tmp_path) / "a", to_toml(make_federated(chosen))


def write_limits(kit: Path, limits: str) -> None:
    (kit / "site.toml").write_text(f'[data]\nsource = "../dealt/{kit.name}.npz"\n[limits]\n{limits}\n')


def test_a_site_uses_no_more_examples_than_it_allows(site: tuple[Path, str]) -> None:
    kit, text = site
    write_limits(kit, "max_examples = 7")
    assert SiteTrainer(kit, text, 0, 3).describe()["examples"] == 7


def test_a_site_with_too_few_examples_does_not_take_part(site: tuple[Path, str]) -> None:
    kit, text = site
    write_limits(kit, "min_examples = 100000")
    with pytest.raises(UserError, match="at least 100000 examples"):
        SiteTrainer(kit, text, 0, 3)


@pytest.mark.parametrize(("what", "name"), [("model", "evil_code:net"), ("algorithm", "evil_code:Method")])
def test_code_that_a_site_does_not_allow_is_not_imported(
    what: str, name: str, site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "evil_code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    table = tomllib.loads(text)
    table[what]["name"] = name
    with pytest.raises(UserError, match=f"runs only bundled code, got the {what} {name!r}"):
        reject_forbidden(table, load_site_settings(kit).limits)
    old = f'name = "{tomllib.loads(text)[what]["name"]}"'
    head, table_text = text.split(f"[{what}]")
    with pytest.raises(UserError, match="only bundled code"):
        SiteTrainer(kit, f"{head}[{what}]{table_text.replace(old, f'name = {name!r}', 1)}", 0, 3)
    assert not (tmp_path / "ran").exists()
    write_limits(kit, f'code = ["{name}"]')
    reject_forbidden(table, load_site_settings(kit).limits)


@pytest.mark.parametrize("run", ["../../elsewhere", "", "AB" * 8, "a/b"])
def test_a_run_id_cannot_name_a_folder_outside_the_kit(run: str, site: tuple[Path, str]) -> None:
    kit, text = site
    own = SiteTrainer(kit, text, 0, 3)
    terms = {"shape": [1, 8, 8], "kind": "float32", "classes": 10}
    vectors = {name: np.zeros(64 * 8 + 8 + 8 * 10 + 10, np.float32) for name in ("params", "momentum")}
    with pytest.raises(UserError, match="id must be hexadecimal"):
        own.train(run, 0, -1, terms, vectors)


def make_process(kit: Path, text: str, lines: list[str]) -> TrainingProcess:
    return TrainingProcess(kit, {"experiment": text, "client": 0, "population": 3}, lines.append)


def test_a_killed_training_process_is_restarted_and_the_request_repeated(site: tuple[Path, str]) -> None:
    lines: list[str] = []
    training = make_process(*site, lines)
    try:
        before, _ = training.ask("describe", {}, {}, lambda: False)
        os.kill(psutil.Process().children()[-1].pid, signal.SIGKILL)
        again, _ = training.ask("describe", {}, {}, lambda: False)
        assert again == before
        assert lines == ["the training process was killed by SIGKILL and is restarted"]
    finally:
        training.close()


@pytest.mark.slow
def test_a_training_process_that_always_dies_gives_an_answer_not_an_exception(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "deadly.py").write_text("import os\ndef data():\n    os._exit(3)\n")
    (kit / "site.toml").write_text('[data]\nsource = "deadly:data"\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    lines: list[str] = []
    training = make_process(kit, text, lines)
    fields, _ = training.ask("describe", {}, {}, lambda: False)
    assert fields == {"refused": "the training process exited with code 3, 2 times in a row"}
    training.close()


@pytest.mark.slow
def test_errors_sent_to_the_server_contain_no_file_names(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kit, text = site
    (tmp_path / "broken.py").write_text("def data():\n    return {}['ward']\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    for source, message, logged in (
        ("broken:data", "broken:data() must return data, got KeyError: 'ward'", f"({tmp_path / 'broken.py'}, line 2)"),
        (f"{tmp_path}/ward 7.npz", "there must be an .npz file at '…', but there is none", f"{tmp_path}/ward 7.npz"),
    ):
        (kit / "site.toml").write_text(f'[data]\nsource = "{source}"\n')
        training = make_process(kit, text, [])
        fields, _ = training.ask("describe", {}, {}, lambda: False)
        training.close()
        assert fields == {"refused": message}
        assert logged in capfd.readouterr().err


@pytest.mark.slow
def test_an_aborted_request_ends_the_training_process(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "sleepy.py").write_text("import time\ndef data():\n    time.sleep(1000)\n")
    (kit / "site.toml").write_text('[data]\nsource = "sleepy:data"\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    before = set(psutil.Process().children())  # such as multiprocessing's tracker, which other tests may have started
    training, stop = make_process(kit, text, []), threading.Event()
    threading.Timer(3, stop.set).start()
    with pytest.raises(RequestAborted):
        training.ask("describe", {}, {}, stop.is_set)
    deadline = time.monotonic() + 30
    while set(psutil.Process().children()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(psutil.Process().children()) - before
