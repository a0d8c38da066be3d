"""The results and the practice page are what the digests say."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import results_tables
from results_page.figure_data import list_figures
from results_page.figures import make_note, read_note
from results_page.studies import STUDIES
from results_page.study_runs import RESULTS, Results, read_results
from study_digests import make_diverged, make_planned_digest

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.experiment import to_table
from fedcm.reports.differences import format_settings
from fedcm.reports.digest import Digest, write_digest
from fedcm.sweeps.grid import expand_grid

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMAND = "run `python docs/generate/results_tables.py`"
MARKED = re.compile(r"<!-- tables of ([\w-]+) -->(.*?)<!-- end of \1 -->", re.DOTALL)


@pytest.fixture(scope="module")
def results() -> Results:
    return read_results()


def read_page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def fill_all(results: Results) -> dict[str, str]:
    return {
        name: results_tables.fill_page(read_page(name), parts, results) for name, parts in results_tables.PAGES.items()
    }


@pytest.mark.parametrize("name", results_tables.PAGES)
def test_a_page_is_what_the_digests_say(name: str, results: Results) -> None:
    page = read_page(name)
    assert page == results_tables.fill_page(page, results_tables.PAGES[name], results), COMMAND
    assert sorted(part for part, _ in MARKED.findall(page)) == sorted(results_tables.PAGES[name])


def test_figures_are_those_of_the_digests(results: Results) -> None:
    figures = list_figures(results)
    assert {path.stem.removeprefix("results-") for path in DOCS.glob("results-*.png")} == set(figures), COMMAND
    for name, figure in figures.items():
        assert read_note(DOCS / f"results-{name}.png") == make_note(figure), f"{name}: {COMMAND}"


def test_a_figure_has_the_same_bytes_every_time(results: Results, tmp_path: Path) -> None:
    figure = list_figures(results)["resnet8"]
    for name in ("a.png", "b.png"):
        figure.draw(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_every_run_has_the_settings_of_its_study(results: Results) -> None:
    """Older digests lack settings that did not exist; those that they have must be equal, for every seed."""
    free = ("evaluation.", "checkpoints.", "seed", "name")
    for study in STUDIES:
        planned = {
            (get_algorithm_name(run.experiment.algorithm), *run.experiment.cell.labels.values()): run.experiment
            for run in expand_grid(study.path)
        }
        for run in results[study.name].digests:
            same_cell = to_table(planned[run.algorithm, *run.labels.values()])
            ours, theirs = format_settings(run.experiment), format_settings(same_cell)
            different = {path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]}
            assert {path for path in different if not path.startswith(free)} == set(), run.name


def test_every_digest_is_in_a_table(results: Results) -> None:
    for study in STUDIES:
        runs = results[study.name]
        shown = {run.name for cell in runs.cells for run in cell.runs}
        assert {run.name for run in runs.digests} <= shown
    known = {study.name for study in STUDIES} | {"demo"}
    folders = {path.parent.name for path in RESULTS.glob("*/mini-*.json")}
    assert folders <= known


def copy_results(folder: Path) -> Path:
    for study in STUDIES:
        if (RESULTS / study.name).exists():
            shutil.copytree(RESULTS / study.name, folder / study.name)
    return folder


def change_digest(path: Path, **changes: Any) -> None:
    table = json.loads(path.read_text())
    for key, value in changes.items():
        table[key] |= value
    path.write_text(json.dumps(table))


def test_another_accuracy_changes_the_page_and_the_figure(tmp_path: Path, results: Results) -> None:
    folder = copy_results(tmp_path)
    path = next((folder / "table1").glob("*-ii-dirichlet-fedcm-seed0.json"))
    old = json.loads(path.read_text())
    accuracies = [value / 2 for value in old["curve"]["test_accuracy"]]
    scores = {"mean_last": 0.25, "mean_last_rounds": 100, "last": 0.25, "best": 0.25}
    change_digest(path, curve={"test_accuracy": accuracies}, summary={"accuracy": scores})
    changed = read_results(folder)
    for name, page in fill_all(changed).items():
        assert page != read_page(name)
    before, after = list_figures(results)["table1"], list_figures(changed)["table1"]
    assert make_note(before) != make_note(after)


def test_a_run_of_another_length_than_planned_is_an_error(tmp_path: Path) -> None:
    folder = copy_results(tmp_path)
    path = next((folder / "table1").glob("*-ii-dirichlet-fedcm-seed0.json"))
    change_digest(path, experiment={"rounds": 123})
    with pytest.raises(ValueError, match=r"has 123 rounds, but table1.toml plans 500"):
        read_results(folder)


def test_a_digest_without_a_cell_is_an_error(tmp_path: Path) -> None:
    folder = copy_results(tmp_path)
    path = next((folder / "table3").glob("*.json"))
    change_digest(path, experiment={"cell": {"labels": {"alpha": "7"}}})
    with pytest.raises(ValueError, match="belongs to no cell"):
        read_results(folder)


def test_a_study_without_runs_says_how_to_run_it(tmp_path: Path) -> None:
    nothing = read_results(tmp_path)
    parts = results_tables.PAGES["results.md"]
    for study in (study for study in STUDIES if not study.shown_in):
        text = parts[study.name](nothing)
        assert f"Not run yet: `{study.shown_command}`." in text
    assert list_figures(nothing) == {}
    assert all("|" in page for page in fill_all(nothing).values())


def write_made_record(folder: Path, change: Callable[[Digest], Digest | None]) -> Results:
    """Write a digest with a made accuracy for every planned run of every study, and read them."""
    for study in STUDIES:
        (folder / study.name).mkdir()
        for k, run in enumerate(expand_grid(study.path)):
            if digest := change(make_planned_digest(run, 0.5 + 0.001 * (k % 37))):
                write_digest(digest, folder / study.name / f"{run.name}.json")
    return read_results(folder)


def diverge_first_seed(run: Digest) -> Digest:
    """Let the run with the first seed diverge before its first evaluation."""
    return make_diverged(run, evaluations=0) if run.seed == 0 else run


def diverge_fedavg(run: Digest) -> Digest:
    return make_diverged(run, evaluations=1) if run.algorithm == "fedavg" else run


def diverge_fedcm(run: Digest) -> Digest:
    return make_diverged(run, evaluations=0) if run.algorithm == "fedcm" else run


def leave_out_fedcm(run: Digest) -> Digest | None:
    return None if run.algorithm == "fedcm" else run


def change_cpu_of_first_seed(run: Digest) -> Digest:
    return run.model_copy(update={"cpu": {}}) if run.seed == 0 and run.algorithm == "fedcm" else run


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (diverge_first_seed, "diverged (round 0; 1 of 3 seeds)"),
        (diverge_fedavg, "| FedAvg diverged, FedAvg diverged, FedAvg diverged | 3 |"),
        (diverge_fedcm, "| FedCM diverged | – | – |"),
        (leave_out_fedcm, "| FedCM | not run |"),
        (change_cpu_of_first_seed, "paired over 3 seeds ‡"),
    ],
)
def test_pages_and_figures_are_made_from_any_record(
    change: Callable[[Digest], Digest | None], sign: str, tmp_path: Path
) -> None:
    record = write_made_record(tmp_path, change)
    text = "".join(part for page in fill_all(record).values() for _, part in MARKED.findall(page))
    assert sign in text
    assert not re.search(r"\b(nan|inf)\b", text)
    figures = list_figures(record)
    for name in figures.keys() & {"table3", "weight-decay", "one-setting", "claims"}:
        figures[name].draw(tmp_path / f"{name}.png")


def test_a_complete_record_fills_every_table(tmp_path: Path) -> None:
    """Every planned run of every study, with made accuracies: no cell is left, and every study has a figure."""
    complete = write_made_record(tmp_path, lambda run: run)
    pages = fill_all(complete)
    parts = [part for page in pages.values() for part in MARKED.findall(page)]
    generated = "".join(text for name, text in parts if name != "tuned")  # a tuning plans no cells
    assert "not run" not in generated.lower()
    assert "paired over 3 seeds" in generated
    own_parts = {study.name for study in STUDIES if not study.shown_in}
    assert set(list_figures(complete)) == own_parts | {"claims"}
