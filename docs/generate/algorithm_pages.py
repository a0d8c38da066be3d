"""Write the generated parts of docs/algorithms/ from the code: `python docs/generate/algorithm_pages.py`.

A generated part is between `<!-- begin NAME -->` and `<!-- end NAME -->`. Everything else on a page is written by hand.
The pages are written into the repository, because they must be readable there, and because costs are found by running
the algorithms, which the build of the site cannot do. tests/docs/test_algorithm_pages.py fails if they are out of date.
"""

import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

from schema_tables import Schema, Setting

from fedcm.algorithms import GROUPS
from fedcm.core.algorithm import Algorithm, is_decentralised
from fedcm.core.contract.costs import RoundCosts, measure_costs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDER = DOCS / "algorithms"

# What each algorithm does, in about five words.
SHORT = {
    "fedavg": "averages after plain local steps",
    "fedprox": "pulls local steps back",
    "fednova": "normalises unequal numbers of steps",
    "fedexp": "lengthens the step when clients disagree",
    "fedswa": "lowers η_l within a round",
    "signsgd": "votes on the sign of each coordinate",
    "fedavgm": "momentum at the server",
    "slowmo": "server momentum that follows η_l",
    "fedacg": "clients start from a look-ahead model",
    "fedcm": "mixes global momentum into every step",
    "fedcm-anytime": "FedCM without a slow start, averaged",
    "mimelite": "FedCM with full-gradient momentum",
    "mime": "MimeLite with variance reduction",
    "ghbm": "momentum from the last τ models",
    "mfl": "averages the clients' local momentum",
    "fedac": "accelerated local SGD",
    "scaffold": "corrects drift with control variates",
    "fedmoswa": "FedSWA with control variates",
    "vrl-sgd": "SCAFFOLD with half the traffic",
    "feddane": "corrects to the cohort's gradient",
    "feddyn": "corrects each client's loss",
    "fedpd": "ADMM with local SGD",
    "fedsplit": "Peaceman–Rachford splitting",
    "fedsam": "local steps seek flat minima",
    "mofedsam": "FedCM with FedSAM's gradient",
    "fedlesam": "FedSAM without a second gradient",
    "fedspeed": "FedDyn with FedSAM's gradient",
    "fedsmoo": "FedSpeed with agreed perturbations",
    "fedadam": "Adam at the server",
    "fedyogi": "Yogi at the server",
    "fedadagrad": "Adagrad at the server",
    "adaalter": "Adagrad in the local steps",
    "fedlada": "FedCM with local AMSGrad",
    "fedmuon": "FedCM with orthogonalised matrices",
    "d-sgd": "gossip after local steps",
    "qg-dsgdm": "gossip with quasi-global momentum",
}


class AlgorithmFacts:
    """The facts about one algorithm that its page and the index show."""

    def __init__(self, group: str, name: str, kind: type[Algorithm[Any, Any, Any, Any]], schema: Schema) -> None:
        self.group, self.name, self.kind = group, name, kind
        self.costs = measure_costs(kind())
        self.settings = schema.read_choices()["algorithm"][name][1]
        paragraphs = inspect.getdoc(inspect.getmodule(kind)).split("\n\n")  # pyright: ignore[reportOptionalMemberAccess]
        self.title, _, summary = _join_lines(paragraphs[0]).partition(": ")
        self.summary = summary[:1].upper() + summary[1:]
        self.equations = textwrap.dedent(paragraphs[1])
        citation = _join_lines(paragraphs[-1])
        self.citation = re.sub(r"arXiv:([\d.]+\d)", r"[arXiv:\1](https://arxiv.org/abs/\1)", citation)

    @property
    def decentralised(self) -> bool:
        """Whether nodes exchange their parameters with neighbours instead of a server."""
        return is_decentralised(self.kind())


def read_facts() -> list[AlgorithmFacts]:
    """Return the facts about all bundled algorithms, in the order of `fedcm algorithms`."""
    schema = Schema(ROOT / "src" / "fedcm", "")
    return [AlgorithmFacts(group, *item, schema) for group, kinds in GROUPS.items() for item in kinds.items()]


def write_page_parts(facts: AlgorithmFacts) -> dict[str, str]:
    """Return the generated parts of an algorithm's page."""
    module = Path(inspect.getfile(facts.kind)).relative_to(ROOT / "src").as_posix()
    costs, yes = facts.costs, ("no", "yes")
    rows = {
        "group": f"[{facts.group}](index.md#{facts.group.replace(' ', '-')})",
        "vectors down, per client and round": str(costs.down),
        "vectors up, per client and round": f"{costs.up}, to each neighbour" if facts.decentralised else str(costs.up),
        "vectors of client state": str(costs.client_state),
        "exchanges per round": str(costs.exchanges),
        "gradients per local step": str(costs.gradients_per_step),
        "passes over all data, per client and round": str(costs.full_gradients),
        "needs all clients in every round": yes[facts.kind.needs_all_clients],
        "paper": facts.citation,
        "code": f"[`{module}`](../../src/{module})",
    }
    return {
        "summary": facts.summary,
        "equations": "```text\n" + facts.equations + "\n```",
        "facts": "\n".join(["| fact | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]),
        "settings": _write_settings(facts.settings),
    }


def write_index_parts(all_facts: list[AlgorithmFacts]) -> dict[str, str]:
    """Return the generated parts of the index: one table for each group."""
    lines = []
    for group in GROUPS:
        package = import_module(f"fedcm.algorithms.{group.replace(' ', '_').replace('-', '_')}")
        lines += ["", f"### {group[0].upper()}{group[1:]}", "", package.__doc__ or "", ""]
        lines += ["| name | what it does | down | up | state | extra gradient work | paper |", "|---|" + 6 * "---|"]
        for facts in (facts for facts in all_facts if facts.group == group):
            costs = facts.costs
            cells = (
                f"[`{facts.name}`]({facts.name}.md)",
                SHORT[facts.name],
                str(costs.down),
                str(costs.up),
                str(costs.client_state),
                describe_extra_work(costs),
                facts.kind.paper,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return {"tables": "\n".join(lines).strip()}


def write_experiment_parts(all_facts: list[AlgorithmFacts]) -> dict[str, str]:
    """Return the generated parts of docs/experiments.md: the settings of every algorithm."""
    lines = ["| `name` | settings | page |", "|---|---|---|"]
    for facts in all_facts:
        settings = ", ".join(f"`{setting.name}` ({setting.default.strip('`')})" for setting in facts.settings)
        lines.append(f"| `{facts.name}` | {settings} | [{facts.title}](algorithms/{facts.name}.md) |")
    return {"algorithms": "\n".join(lines)}


def describe_extra_work(costs: RoundCosts) -> str:
    """Return the gradient work beyond one gradient per local step.

    >>> describe_extra_work(RoundCosts(3, 2, 0, exchanges=2, gradients_per_step=2, full_gradients=1))
    '2 gradients per step, 1 full pass'
    """
    parts = [f"{costs.gradients_per_step} gradients per step"] if costs.gradients_per_step > 1 else []
    if costs.full_gradients:
        parts.append(f"{costs.full_gradients} full pass{'es' if costs.full_gradients > 1 else ''}")
    return ", ".join(parts) or "none"


def fill_in(text: str, parts: dict[str, str]) -> str:
    """Return the text with its generated parts replaced.

    >>> fill_in("<!-- begin a -->\\nold\\n<!-- end a -->", {"a": "new"})
    '<!-- begin a -->\\n\\nnew\\n\\n<!-- end a -->'

    Raises:
        LookupError: The text does not have the markers of a part exactly once.
    """
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, part=part: f"{match[1]}\n{part}\n\n{match[2]}", text)
        if count != 1:
            raise LookupError(f"the markers of {name!r} must be on the page once, got {count}")
    return text


def make_pages() -> dict[Path, str]:
    """Return every file with generated parts, and its text as it should be."""
    all_facts = read_facts()
    pages = {FOLDER / f"{facts.name}.md": write_page_parts(facts) for facts in all_facts}
    pages[FOLDER / "index.md"] = write_index_parts(all_facts)
    pages[DOCS / "experiments.md"] = write_experiment_parts(all_facts)
    return {path: fill_in(path.read_text(encoding="utf-8"), parts) for path, parts in pages.items()}


def _write_settings(settings: list[Setting]) -> str:
    if not settings:
        return "It has no settings of its own."
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{s.name}` | {s.kind} | {s.default} | {s.meaning} |" for s in settings]
    return "\n".join(lines)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for path, text in make_pages().items():
        path.write_text(text, encoding="utf-8")
