"""Hooks of mkdocs: pages from outside docs/, generated parts, and diagrams inside the page.

Markdown files stay readable on their own: links are relative paths in the repository, and diagrams are images. On the
site, links that leave docs/ lead to a page of the site or to the repository, and diagrams become part of the page, so
that they follow its light or dark scheme and their text can be selected.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from public_api import write_index, write_module_of, write_page
from schema_tables import Schema

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fedcm"

# Files outside docs/ that are pages of the site.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
PAGES |= {f"benchmarks/{path.name}": f"benchmarks/{path.name}" for path in sorted((ROOT / "benchmarks").glob("*.md"))}

_LINK = re.compile(r"(?P<open>\]\()(?P<target>[^)\s#]+)(?P<rest>(?:#[^)\s]*)?\))")
_GENERATED = re.compile(r"^<!-- generated: (?P<what>[\w ]+) -->$", re.MULTILINE)
_DIAGRAM = re.compile(r'<img (?P<attributes>[^>]*src="(?P<src>[^"]*diagrams/[\w-]+\.svg)"[^>]*)/?>')


def on_config(config: Any) -> Any:
    """Replace a folder in the navigation, such as `decisions/`, by its pages; algorithms are in their groups."""
    for section in config.nav:
        for title, entries in section.items():
            if isinstance(entries, list):
                section[title] = [_expand_folders(entry) for entry in entries]
    return config


def _expand_folders(entry: Any) -> Any:
    if isinstance(entry, dict):
        ((title, target),) = entry.items()
        if target == "algorithms/":
            groups = Schema(SOURCE, "").read_groups().items()
            pages = [{name.capitalize(): [f"{target}{page}.md" for page in group]} for name, group in groups]
            return {title: [f"{target}index.md", *pages]}
        if isinstance(target, str) and target.endswith("/"):
            return {title: sorted(f"{target}{path.name}" for path in (ROOT / "docs" / target).glob("*.md"))}
    return entry


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/."""
    for outside, inside in PAGES.items():
        if inside not in files.src_uris:
            files.append(File.generated(config, inside, abs_src_path=str(ROOT / outside)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fill in generated parts, and change links to where their targets are on the site."""
    outside = {inside: outside for outside, inside in PAGES.items() if not (ROOT / "docs" / inside).exists()}
    origin = outside.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    markdown = _GENERATED.sub(lambda match: generate(match["what"]), markdown)
    return redirect_links(markdown, origin, page.file.src_uri, config.repo_url)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Put diagrams into the page."""

    def inline(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(page.url, match["src"]))
        return (ROOT / "docs" / target).read_text(encoding="utf-8").strip()

    return _DIAGRAM.sub(inline, html)


def generate(what: str) -> str:
    """Return the text for a marker `<!-- generated: what -->`."""
    kind, _, page = what.partition(" ")
    match kind:
        case "settings":
            prose = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
            return Schema(SOURCE, prose).write_markdown()
        case "module":
            return write_module_of(SOURCE, page)
        case "api" if page == "index":
            return write_index(SOURCE)
        case "api":
            return write_page(SOURCE, page)
    raise PluginError(f"nothing generates {what!r}")


def redirect_links(markdown: str, origin: str, src_uri: str, repo_url: str) -> str:
    """Return the text with links that leave docs/ changed to pages of the site, or to the repository.

    >>> redirect_links("[cost](../../benchmarks/PEERS.md#a)", "docs/guides/x.md", "guides/x.md", "https://host/p/")
    '[cost](../benchmarks/PEERS.md#a)'
    >>> redirect_links("[code](../src/fedcm/api.py)", "docs/x.md", "x.md", "https://host/p/")
    '[code](https://host/p/blob/main/src/fedcm/api.py)'
    """

    def redirect(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:|/", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if path.startswith("docs/"):
            inside = path.removeprefix("docs/")
        elif path in PAGES:
            inside = PAGES[path]
        else:
            return f"{match['open']}{repo_url.rstrip('/')}/blob/main/{path}{match['rest']}"
        return match["open"] + posixpath.relpath(inside, posixpath.dirname(src_uri) or ".") + match["rest"]

    return _LINK.sub(redirect, markdown)
