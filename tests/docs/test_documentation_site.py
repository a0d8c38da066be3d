"""Build the documentation site and look at its pages."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from public_api import find_page, read_public_names

import fedcm

ROOT = Path(__file__).parents[2]
# An import of torch would fail here: the site is built from the source alone.
BUILD = """
import sys
sys.modules["torch"] = None
from mkdocs.__main__ import cli
cli(["build", "--strict", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


@pytest.mark.slow
def test_site_loads_nothing_from_other_servers(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert not re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="?(?:https?:)?//', text), path
        assert not re.findall(r'<link[^>]*\shref="?(?:https?:)?//', text), path
        assert 'data-md-component="source"' not in text, path  # it makes the browser ask api.github.com
    for path in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text()), path


@pytest.mark.slow
def test_every_public_name_has_an_entry(site: Path) -> None:
    names = read_public_names(ROOT / "src" / "fedcm")
    assert sorted(names) == sorted(fedcm.__all__)
    index = (site / "api" / "index.html").read_text()
    for name, home in names.items():
        page = (site / "api" / find_page(home) / "index.html").read_text()
        assert f'id="fedcm.{name}"' in page, name
        assert f"#fedcm.{name}" in index, name


@pytest.mark.slow
def test_diagrams_are_part_of_the_page(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert page.count('<svg xmlns="http://www.w3.org/2000/svg" class="diagram"') == 2
    assert "diagrams/" not in page


@pytest.mark.slow
def test_settings_page_is_filled_in(site: Path) -> None:
    page = (site / "reference" / "settings" / "index.html").read_text()
    assert "<!-- generated" not in page
    assert "<code>weight_decay_at</code>" in page


@pytest.mark.slow
@pytest.mark.parametrize("outside", ["CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/PEERS.md"])
def test_pages_from_outside_docs_are_on_the_site(site: Path, outside: str) -> None:
    inside = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}.get(outside, outside.removesuffix(".md"))
    title = (ROOT / outside).read_text().splitlines()[0].removeprefix("# ")
    assert title.split(":")[0] in (site / inside / "index.html").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_lists_begin_after_an_empty_line(path: Path) -> None:
    """mkdocs, unlike GitHub, takes a list right below a paragraph for part of the paragraph."""
    lines = re.sub(r"(?ms)^```.*?^```", "", path.read_text()).splitlines()
    for before, line in pairwise(lines):
        if re.match(r"([-*]|\d+\.) \S", line):
            assert not before or re.match(r"\s|([-*]|\d+\.) ", before), line
