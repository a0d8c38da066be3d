"""The page needs nothing but itself, runs no code that a run's name brings, and is refused in a sentence."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_digests import made, paper_grid, paper_sweep
from scenes import Answer, stopped_after, whole

from fedcm.reports.claims.answer import answer
from fedcm.reports.digest import Diagnoses, Digest, write_digest
from fedcm.reports.html.page import page
from fedcm.reports.story import told
from fedcm.reports.writing import write_extras

EVIL = "<script>alert('x')</script>\"'&</td>"


def html_of(*runs: Digest, stamp: str | None = None) -> str:
    """The page without plotly.js, which is not ours to look into."""
    whole_page = page(told(runs, [], datetime(2026, 1, 1, tzinfo=UTC)), stamp)
    return re.sub(r"<script>/\*\*\n\* plotly.*?</script>", "", whole_page, flags=re.DOTALL)


def data_of(html: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found.group(1))


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_but_itself() -> None:
    html = html_of(made(), made("fedavg"))
    assert Tags(html).addresses == ["data:,"]
    assert "@import" not in html
    assert "url(" not in html


def test_text_of_runs_is_escaped_everywhere() -> None:
    plain, evil = (
        html_of(
            made(name=text, labels={text: text}, experiment=text, options={"note": text}, source=text), made("fedavg")
        )
        for text in ("a", EVIL)
    )
    assert EVIL not in evil
    assert Tags(evil).found == Tags(plain).found
    assert EVIL in str(data_of(evil)["cells"]).replace("\\'", "'")


def test_the_table_holds_the_runs_numbers_and_the_published_ones() -> None:
    html = html_of(made(accuracy=0.8, published=81.25), made(accuracy=0.9, seed=2), made("fedavg", 0.5))
    text = re.sub(r"<[^>]+>", " ", html)
    assert re.search(r"85\.00\s+± 7\.07", text)
    assert "81.25" in text
    assert re.search(r"<b>85\.00</b>", html)
    assert "FedCM has the highest test accuracy in this table (one seed in part): 85.00 ± 7.07 %" in text


def test_every_table_has_a_caption_and_headed_columns() -> None:
    html = html_of(*paper_grid())
    assert html.count("<table") == html.count("<caption") + 1  # the numbers of the curves are filled in by the script
    assert not re.search(r"<th(?![^>]*scope)(?!ead)", html)
    assert len(re.findall(r"<h1", html)) == 1


def test_without_an_evaluation_there_is_a_page_which_says_so() -> None:
    html = html_of(made(accuracy=None))
    assert "Nothing has been evaluated yet" in html


def test_only_a_live_page_looks_for_another() -> None:
    assert data_of(html_of(made()))["stamp"] is None
    assert data_of(html_of(made(), stamp="7"))["stamp"] == "7"


def test_the_answer_is_a_sentence() -> None:
    (group,) = told(paper_grid(), [], datetime.now(UTC)).groups
    assert answer(group) == "Highest test accuracy in this table (one seed): FedCM in all 4 cells."


def test_figures_and_tables_for_papers_are_written(tmp_path: Path) -> None:
    write_extras(told([*paper_grid(), *paper_sweep()], [], datetime.now(UTC)), tmp_path)
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert figures[:2] == ["digits-mlp-accuracy.pdf", "digits-mlp-accuracy.png"]
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "figures").iterdir())
    suffixes = {path.suffix for path in (tmp_path / "tables").iterdir()}
    assert suffixes == {".tex", ".md", ".csv"}


def test_runs_nested_folders_and_digests_make_one_report(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    whole(experiment(rounds=3), tmp_path / "runs" / "deep" / "deeper", "one")
    write_digest(made(name="other"), tmp_path / "other.json")
    said = fedcm("report", tmp_path / "runs", tmp_path / "other.json", "-o", tmp_path / "out")
    assert (said.code, said.out) == (0, f"report: {tmp_path / 'out' / 'index.html'}\n")
    html = (tmp_path / "out" / "index.html").read_text()
    assert ">one<" in html
    assert ">other<" in html


def test_a_damaged_run_is_named_and_left_out(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    whole(experiment(rounds=2), tmp_path / "runs", "good")
    for name, file in (("no-lines", "metrics.jsonl"), ("no-toml", "experiment.toml")):
        path = whole(experiment(rounds=2), tmp_path / "runs", name)
        (path / file).write_text("{{{\n")
    said = fedcm("report", tmp_path / "runs", "-o", tmp_path / "out")
    assert said.code == 0
    assert said.err.count("left out: ") == 2
    assert "no-lines" in said.err
    assert "no-toml" in said.err
    assert "Left out:" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing"], "there is no run, folder or digest 'missing'"),
        (["."], "there are no runs and no digests"),
        (["broken.json"], "is not a run's digest"),
        ([".", "--live", "--digests", "d"], "give one of them"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    fedcm: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "broken.json" in words:
        Path("broken.json").write_text("nothing")
    said = fedcm("report", *words, "-o", "out")
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert not Path("out").exists()


def test_a_report_of_digests_loads_no_torch(tmp_path: Path) -> None:
    write_digest(made(), tmp_path / "made.json")
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


def test_a_live_report_follows_a_run_and_ctrl_c_leaves_a_whole_page(
    experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = stopped_after(4, experiment(), tmp_path / "runs", "growing")
    out = tmp_path / "out"
    words = [sys.executable, "-m", "fedcm", "report", "--live", str(tmp_path / "runs"), "-o", str(out)]
    live = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = appeared(out / "stamp.js", "")
        line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
        with (path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line | {"round": 4, "test_accuracy": 0.125, "test_loss": 1.0}) + "\n")
        appeared(out / "stamp.js", first)
        assert "12.50" in (out / "index.html").read_text()
        live.send_signal(signal.SIGINT)
        _, err = live.communicate(timeout=60)
    finally:
        live.kill()
    assert live.returncode == 0, err
    assert data_of((out / "index.html").read_text())["stamp"] is None
    assert "over" in (out / "stamp.js").read_text()
    assert list((out / "figures").iterdir())


def appeared(path: Path, before: str) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()) != before:
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} did not change")


def test_diagnoses_stand_beside_the_curves_that_they_explain() -> None:
    found = {"momentum_cosine": [0.125, 0.5], "drift": [1e-3, None], "unknown": [1.0, 2.0]}
    watched = made(name="watched", diagnoses=Diagnoses(round=[10, 20], found=found))
    text = html_of(watched, made("fedavg"))
    assert "Why: drift, noise and momentum" in text
    assert text.index('id="curves"') < text.index('id="diagnosis"') < text.index('id="costs"')
    assert "Does the momentum point uphill?" in text
    assert "0.125" in text
    section = text[text.index('id="diagnosis"') : text.index('id="costs"')]
    assert section.index("The curve") < section.index("Does the momentum"), "the curve itself comes first"
    assert "Does the control point uphill?" not in text, "no run has one"
    assert 'id="diagnosis"' not in html_of(made())
