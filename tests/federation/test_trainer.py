"""A site's own process: its limits, and what happens when it dies."""

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
from sites_here import experiment, federated, kits

from fedcm.config.experiment import to_toml
from fedcm.errors import UserError
from fedcm.federation.site.trainer import Site
from fedcm.federation.site.training_process import Stopped, TrainingProcess
from fedcm.federation.site_settings import load_settings, reject_forbidden


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, str]:
    chosen = experiment()
    return kits(chosen, tmp_path) / "a", to_toml(federated(chosen))


def limited(kit: Path, limits: str) -> None:
    (kit / "site.toml").write_text(f'[data]\nsource = "../dealt/{kit.name}.npz"\n[limits]\n{limits}\n')


def test_a_site_uses_no_more_examples_than_it_allows(site: tuple[Path, str]) -> None:
    kit, text = site
    limited(kit, "max_examples = 7")
    assert Site(kit, text, 0, 3).describe()["examples"] == 7


def test_a_site_with_too_few_examples_does_not_take_part(site: tuple[Path, str]) -> None:
    kit, text = site
    limited(kit, "min_examples = 100000")
    with pytest.raises(UserError, match="at least 100000 examples"):
        Site(kit, text, 0, 3)


@pytest.mark.parametrize(("what", "name"), [("model", "evil_code:net"), ("algorithm", "evil_code:Method")])
def test_code_that_a_site_does_not_allow_is_not_even_imported(
    what: str, name: str, site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "evil_code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    table = tomllib.loads(text)
    table[what]["name"] = name
    with pytest.raises(UserError, match=f"runs bundled code alone, got the {what} {name!r}"):
        reject_forbidden(table, load_settings(kit).limits)
    old = f'name = "{tomllib.loads(text)[what]["name"]}"'
    head, table_text = text.split(f"[{what}]")
    with pytest.raises(UserError, match="bundled code alone"):
        Site(kit, f"{head}[{what}]{table_text.replace(old, f'name = {name!r}', 1)}", 0, 3)
    assert not (tmp_path / "ran").exists()
    limited(kit, f'code = ["{name}"]')
    reject_forbidden(table, load_settings(kit).limits)


@pytest.mark.parametrize("run", ["../../elsewhere", "", "AB" * 8, "a/b"])
def test_a_runs_identity_cannot_lead_out_of_the_kit(run: str, site: tuple[Path, str]) -> None:
    kit, text = site
    own = Site(kit, text, 0, 3)
    terms = {"shape": [1, 8, 8], "kind": "float32", "classes": 10}
    vectors = {name: np.zeros(64 * 8 + 8 + 8 * 10 + 10, np.float32) for name in ("params", "momentum")}
    with pytest.raises(UserError, match="identity must be hexadecimal"):
        own.train(run, 0, -1, terms, vectors)


def process(kit: Path, text: str, lines: list[str]) -> TrainingProcess:
    return TrainingProcess(kit, {"experiment": text, "client": 0, "population": 3}, lines.append)


def test_a_training_process_that_is_killed_is_started_again_and_asked_again(site: tuple[Path, str]) -> None:
    lines: list[str] = []
    training = process(*site, lines)
    try:
        before, _ = training.ask("describe", {}, {}, lambda: False)
        os.kill(psutil.Process().children()[-1].pid, signal.SIGKILL)
        again, _ = training.ask("describe", {}, {}, lambda: False)
        assert again == before
        assert lines == ["the training process was ended by SIGKILL and is started again"]
    finally:
        training.close()


def test_one_that_dies_every_time_is_an_answer_and_not_an_exception(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "deadly.py").write_text("import os\ndef data():\n    os._exit(3)\n")
    (kit / "site.toml").write_text('[data]\nsource = "deadly:data"\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    lines: list[str] = []
    training = process(kit, text, lines)
    words, _ = training.ask("describe", {}, {}, lambda: False)
    assert words == {"refused": "the training process left with code 3 2 times in a row"}
    training.close()


def test_the_server_is_not_told_the_files_of_a_site(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kit, text = site
    (tmp_path / "broken.py").write_text("def data():\n    return {}['ward']\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    for source, said, logged in (
        ("broken:data", "broken:data() must give data, got KeyError: 'ward'", f"({tmp_path / 'broken.py'}, line 2)"),
        (f"{tmp_path}/ward 7.npz", "there must be an .npz file at '…', got nothing there", f"{tmp_path}/ward 7.npz"),
    ):
        (kit / "site.toml").write_text(f'[data]\nsource = "{source}"\n')
        training = process(kit, text, [])
        words, _ = training.ask("describe", {}, {}, lambda: False)
        training.close()
        assert words == {"refused": said}
        assert logged in capfd.readouterr().err


def test_a_request_that_nobody_waits_for_any_more_ends_with_its_process(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, text = site
    (tmp_path / "sleepy.py").write_text("import time\ndef data():\n    time.sleep(1000)\n")
    (kit / "site.toml").write_text('[data]\nsource = "sleepy:data"\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    training, stop = process(kit, text, []), threading.Event()
    threading.Timer(3, stop.set).start()
    with pytest.raises(Stopped):
        training.ask("describe", {}, {}, stop.is_set)
    deadline = time.monotonic() + 30
    while psutil.Process().children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.Process().children()
