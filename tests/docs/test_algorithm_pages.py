"""The pages of the algorithms agree with the code, are complete, and their examples run."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
from algorithm_pages import FOLDER, SHORT, fill_in, make_pages, read_facts
from diagrams import draw_family
from scenes import finish_session, read_lines

from fedcm.algorithms import ALGORITHMS, GROUPS
from fedcm.config.experiment import read_experiment
from fedcm.runs.session import Session

ROOT = Path(__file__).parents[2]
SECTIONS = ("Equations", "Facts", "Settings", "Identities", "When to use it", "Sources and differences", "Example")

QUICK = ("fedcm", "mime", "fedmuon", "qg-dsgdm")  # the examples of the other pages run with the slow tests


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    return make_pages()


def read_page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text()


def test_every_algorithm_has_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *ALGORITHMS}


@pytest.mark.slow
def test_generated_parts_agree_with_the_code(pages: dict[Path, str]) -> None:
    assert len(pages) == len(ALGORITHMS) + 2
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name}: run `python docs/generate/algorithm_pages.py`"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_page_is_complete(name: str) -> None:
    text = read_page(name)
    assert re.findall(r"^## (.*)$", text, re.M) == list(SECTIONS)
    for title, chapter in zip(SECTIONS, re.split(r"^## .*$", text, flags=re.M)[1:], strict=True):
        written = re.sub(r"<!--.*?-->", "", chapter, flags=re.DOTALL).strip()
        assert len(written) > 20, title


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_default_has_a_source(name: str) -> None:
    chapter = read_page(name).partition("<!-- end settings -->")[2].partition("## Identities")[0]
    origins = " ".join(line for line in re.split(r"\n(?=- )", chapter) if line.startswith("- `"))
    for field in dataclasses.fields(ALGORITHMS[name]):
        assert f"`{field.name}`" in origins, field.name


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS]
)
def test_example_runs_as_written_and_learns(name: str, tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", read_page(name), re.M | re.DOTALL)
    experiment = tomllib.loads(text) | {"name": name}
    assert set(experiment["algorithm"]) == {"name", *(field.name for field in dataclasses.fields(ALGORITHMS[name]))}
    experiment["engine"] = {"stack": 1, "layout": "channels_last", "compile": "off"}  # saves the time of autotune
    finish_session(Session.start(read_experiment(experiment), tmp_path, "run"))
    assert read_lines(tmp_path / "run")[-1]["test_accuracy"] > 0.7


def test_index_has_every_group_and_the_number_of_algorithms() -> None:
    text = read_page("index")
    assert f"{len(ALGORITHMS)} federated algorithms in eight groups" in text
    assert len(GROUPS) == 8
    assert set(SHORT) == set(ALGORITHMS)
    assert f"all {len(ALGORITHMS)} algorithms" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.slow
def test_family_tree_shows_every_algorithm_once() -> None:
    drawn = re.findall(r'<text class="name"[^>]*>(.*?)</text>', draw_family())
    titles = [facts.title.removesuffix(" with majority vote") for facts in read_facts()]
    assert sorted(drawn) == sorted(titles)


def test_missing_markers_raise() -> None:
    with pytest.raises(LookupError, match="'a' must be on the page once, got 0"):
        fill_in("text", {"a": "new"})
