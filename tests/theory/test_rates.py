"""`fedcm theory rates`: which experiments it runs, what it writes down, and what it refuses before it begins."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scenes import Answer

from fedcm.algorithms import FedCM, FedDyn
from fedcm.errors import UserError
from fedcm.theory.rates.measure import Found, Row, chosen, measure
from fedcm.theory.rates.plan import experiments
from fedcm.theory.rates.points import LABELS
from fedcm.theory.rates.rates_bounds import beside
from fedcm.theory.rates.rates_markdown import markdown
from fedcm.theory.rates.rates_table import as_json
from fedcm.theory.rates.slopes import Slope, Verdict
from fedcm.theory.rates.step_grids import Candidate
from fedcm.theory.theorem import bounds


def names(*only: str) -> list[str]:
    return [e.name for e in chosen(only, quick=False)]


def test_a_name_chooses_its_experiment_or_else_all_that_begin_with_it() -> None:
    assert names("nonconvex") == ["nonconvex-T", "nonconvex-K", "nonconvex-S"]
    assert names("alpha") == ["alpha"]
    assert names("clients-N", "alpha-small") == ["alpha-small", "clients-N"]
    assert names("clients") == ["clients-N", "clients-N-short"]
    assert names() == [e.name for e in experiments()]


def test_every_experiment_can_be_had_alone() -> None:
    assert all(names(e.name) == [e.name] for e in experiments())


@pytest.mark.parametrize(("name", "words"), [("noisefree", "did you mean 'noise-free'"), ("", "got an empty one")])
def test_names_that_are_none_are_refused(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        chosen([name], quick=False)


def made_row(name: str, algorithm: str, errors: list[float], verdict: Verdict = "agrees") -> Row:
    """As if measured, at small steps; the first point's best step is an edge."""
    (experiment,) = chosen([name], quick=False)
    found = [
        Found(np.full(3, error), Candidate(FedDyn(2.0), 1e-4, 0.01), ("largest η",) if number == 0 else (), 3.0)
        for number, error in enumerate(errors)
    ]
    return Row(experiment, algorithm, found, Slope(-1.0, -1.25, -0.75), experiment.proven[algorithm], None, verdict)


def test_the_markdown_has_a_row_an_experiment_with_marks_edges_and_slopes_from_point_to_point() -> None:
    rows = [
        made_row("ridge-T", "fedcm", [8e-3, 4e-3, 1e-3, 5e-4], "does not show"),
        made_row("ridge-T", "scaffold", [8e-3, 4e-3, 2e-3, 1e-3], "cannot tell"),
    ]
    line = next(line for line in markdown(rows).splitlines() if "`ridge-T`" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["`ridge-T`", "strongly convex", "T = 125 … 1000", "−1"]
    assert cells[4:8] == ["−1.00 [−1.25, −0.75] ✗", "–", "−1.00 [−1.25, −0.75] ?", "–"]
    assert cells[8:10] == ["does not show", "−1.00, −2.00, −1.00"]
    assert cells[10] == "FedCM 1 of 4 at largest η; SCAFFOLD 1 of 4 at largest η"


def test_the_clients_table_has_a_row_an_algorithm() -> None:
    text = markdown([made_row("clients-N", "feddyn", [1e-5, 2e-5, 1.5e-3])])
    assert "| `clients-N` | FedDyn | 10⁻⁵ ± 0% | 2.0·10⁻⁵ ± 0% | 1.5·10⁻³ ± 0% | 150 × |" in text
    assert "| grows | agrees | 1 of 3 at largest η |" in text


def test_bounds_stand_beside_fedcms_errors() -> None:
    row = made_row("strongly-convex-T", "fedcm", [1e-2] * 5)
    first, point = beside(row)[0], row.experiment.points[0]
    setting = point.setting(gradient_bound=3.0)  # σ_g is the same everywhere
    assert first.error == pytest.approx(1e-2)
    assert first.stated == pytest.approx(bounds.strongly_convex_bound(setting, 125, 10.0))
    expected = bounds.explicit_strongly_convex_bound(setting, 125, 10.0, 1e-4, 0.01)
    assert first.explicit == pytest.approx(expected)
    assert "÷ error" in markdown([row])
    nonconvex = beside(made_row("nonconvex-T", "fedcm", [1.0] * 5))[0]
    other = next(e for e in experiments() if e.name == "nonconvex-T").points[0]
    assert nonconvex.stated == pytest.approx(bounds.nonconvex_bound(other.setting(3.0), 125, 5.0))
    beyond = row._replace(found=[one._replace(chosen=Candidate(FedCM(0.1), 0.1, 0.5)) for one in row.found])
    assert beside(beyond)[0].explicit is None  # η_l ≤ 1/(8KL) = 1/40 is what the proof needs


def test_what_diverged_is_null_in_json() -> None:
    row = made_row("ridge-T", "fedavg", [1.0, math.inf, 1.0, 1.0], "diverged")
    record = json.loads(json.dumps(as_json(row._replace(slope=Slope(math.nan, 0.0, math.inf))), allow_nan=False))
    assert record["errors"] == [1.0, None, 1.0, 1.0]
    assert record["slope"] is None
    assert record["interval"] == [0.0, None]
    assert record["proximal"] == [2.0] * 4


def test_the_command_writes_tables_figures_and_numbers(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "noise-free", "--quick", "-o", tmp_path / "new" / "folder", "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)
    assert [row["algorithm"] for row in rows] == list(LABELS)
    assert rows[0]["verdict"] == "faster than proven"
    assert rows[0]["errors"][-1] < 1e-2 * rows[0]["errors"][0]
    (experiment,) = chosen(["noise-free"], quick=True)
    here = [float(measure(experiment, number)["fedcm"].errors.mean()) for number in range(2)]
    assert rows[0]["errors"] == pytest.approx(here, rel=1e-12)  # it does not matter which process measures
    assert rows[0]["at_the_edge_of_the_grid"] == [["η = 1/L"], ["η = 1/L"]]
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        f"theory-rates.{suffix}" for suffix in ("png", "pdf", "md", "csv", "tex", "json")
    }
    assert "| `noise-free` |" in (tmp_path / "new" / "folder" / "theory-rates.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "nonsense"), "there is no experiment 'nonsense'"),
        (("--only", ""), "got an empty one"),
        (("-o", ""), "-o needs the name of a folder"),
        (("-o", "a-file"), "-o needs a folder that can be written, got a-file"),
        (("-o", "/proc/nope"), "-o needs a folder that can be written, got /proc/nope"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_in_a_sentence_before_anything_is_measured(
    fedcm: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("")
    answer = fedcm("theory", "rates", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert "done before it" not in answer.err  # which is said when the first experiment begins
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]
