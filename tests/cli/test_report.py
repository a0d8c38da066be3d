"""The command `fedcm report`: its files, its messages, and a page that is kept current."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_digests import make_test_digest
from scenes import Answer, run_and_stop_after, run_to_end

from fedcm.reports.digest import write_digest


def test_nested_folders_and_digests_make_one_report(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    run_to_end(experiment(rounds=3), tmp_path / "runs" / "deep" / "deeper", "one")
    write_digest(make_test_digest(name="other"), tmp_path / "other.json")
    answer = fedcm("report", tmp_path / "runs", tmp_path / "other.json", "-o", tmp_path / "out")
    assert (answer.code, answer.out) == (0, f"report: {tmp_path / 'out' / 'index.html'}\n")
    html = (tmp_path / "out" / "index.html").read_text()
    assert ">one<" in html
    assert ">other<" in html


def test_damaged_run_is_reported_and_left_out(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    run_to_end(experiment(rounds=2), tmp_path / "runs", "good")
    for name, file in (("no-lines", "metrics.jsonl"), ("no-toml", "experiment.toml")):
        path = run_to_end(experiment(rounds=2), tmp_path / "runs", name)
        (path / file).write_text("{{{\n")
    answer = fedcm("report", tmp_path / "runs", "-o", tmp_path / "out")
    assert answer.code == 0
    assert answer.err.count("left out: ") == 2
    assert "no-lines" in answer.err
    assert "no-toml" in answer.err
    assert "Left out:" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing"], "there is no run, folder or digest 'missing'"),
        (["."], "there are no runs or digests"),
        (["broken.json"], "is not a run's digest"),
        ([".", "--live", "--digests", "d"], "give only one of them"),
    ],
)
def test_bad_input_raises_one_sentence(
    fedcm: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "broken.json" in words:
        Path("broken.json").write_text("nothing")
    answer = fedcm("report", *words, "-o", "out")
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("out").exists()


def test_report_about_digests_does_not_load_torch(tmp_path: Path) -> None:
    write_digest(make_test_digest(), tmp_path / "made.json")
    code = (
        "import sys, fedcm.cli.main\n"
        f"sys.argv = ['fedcm', 'report', {str(tmp_path / 'made.json')!r}, '-o', {str(tmp_path / 'out')!r}]\n"
        "try: fedcm.cli.main.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'sklearn', 'plotly'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "out" / "index.html").exists()


@pytest.mark.slow
def test_live_report_follows_a_run_until_ctrl_c(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = run_and_stop_after(4, experiment(), tmp_path / "runs", "growing")
    out = tmp_path / "out"
    live = start_live_report(tmp_path / "runs", out)
    try:
        first = wait_for_change(out / "stamp.js", "")
        line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
        with (path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line | {"round": 4, "test_accuracy": 0.125, "test_loss": 1.0}) + "\n")
        wait_for_change(out / "stamp.js", first)
        assert "12.50" in (out / "index.html").read_text()
        live.send_signal(signal.SIGINT)
        _, err = live.communicate(timeout=60)
    finally:
        live.kill()
    assert live.returncode == 0, err
    assert '"stamp":null' in (out / "index.html").read_text()
    assert "over" in (out / "stamp.js").read_text()
    assert list((out / "figures").iterdir())


@pytest.mark.slow
def test_live_report_waits_for_the_first_run(experiment: Callable[..., Path], tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    live = start_live_report(runs, out)
    try:
        assert live.stdout is not None
        assert live.stdout.readline() == f"waiting for the first run in {runs}; Ctrl-C ends it\n"
        assert not out.exists()
        run_to_end(experiment(rounds=1), runs, "first")
        assert live.stdout.readline().startswith(f"report: {out / 'index.html'}, kept current")
        wait_for_change(out / "stamp.js", "")
        assert ">first<" in (out / "index.html").read_text()
        live.send_signal(signal.SIGINT)
        _, err = live.communicate(timeout=60)
    finally:
        live.kill()
    assert live.returncode == 0, err


def test_ctrl_c_ends_a_live_report_that_waits(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    live = start_live_report(tmp_path / "runs", tmp_path / "out")
    try:
        assert live.stdout is not None
        assert "waiting for the first run" in live.stdout.readline()
        live.send_signal(signal.SIGINT)
        _, err = live.communicate(timeout=60)
    finally:
        live.kill()
    assert (live.returncode, err) == (0, "no run has started; no report was written\n")
    assert not (tmp_path / "out").exists()


def start_live_report(runs: Path, out: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "fedcm", "report", "--live", str(runs), "-o", str(out)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_change(path: Path, before: str) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()) != before:
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} did not change")
