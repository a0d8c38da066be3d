"""`fedcm theory rates`: experiment selection, output files, and errors before it starts."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scenes import Answer

from fedcm.algorithms import FedCM, FedDyn
from fedcm.errors import UserError
from fedcm.theory.rates.bound_ratios import compare_with_bounds
from fedcm.theory.rates.experiment import LABELS
from fedcm.theory.rates.markdown import make_markdown
from fedcm.theory.rates.measurement import PointResult, RateRow, measure_point
from fedcm.theory.rates.plan import list_experiments, select_experiments
from fedcm.theory.rates.slopes import Slope, Verdict
from fedcm.theory.rates.step_grids import StepCandidate
from fedcm.theory.rates.tables import row_to_json
from fedcm.theory.theorem import bounds


def select_names(*only: str) -> list[str]:
    return [e.name for e in select_experiments(only, quick=False)]


def test_a_name_selects_its_experiment_or_all_that_begin_with_it() -> None:
    assert select_names("nonconvex") == ["nonconvex-T", "nonconvex-K", "nonconvex-S"]
    assert select_names("alpha") == ["alpha"]
    assert select_names("clients-N", "alpha-small") == ["alpha-small", "clients-N"]
    assert select_names("clients") == ["clients-N", "clients-N-short"]
    assert select_names() == [e.name for e in list_experiments()]


def test_every_experiment_can_be_selected_alone() -> None:
    assert all(select_names(e.name) == [e.name] for e in list_experiments())


@pytest.mark.parametrize(("name", "words"), [("noisefree", "did you mean 'noise-free'"), ("", "got ''; omit --only")])
def test_unknown_name_raises(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        select_experiments([name], quick=False)


def make_row(name: str, algorithm: str, errors: list[float], verdict: Verdict = "agrees") -> RateRow:
    """Make a row as if measured, with small steps; the best step of the first point is at an edge."""
    (experiment,) = select_experiments([name], quick=False)
    results = [
        PointResult(
            np.full(3, error), StepCandidate(FedDyn(2.0), 1e-4, 0.01), ("largest η",) if number == 0 else (), 3.0
        )
        for number, error in enumerate(errors)
    ]
    return RateRow(
        experiment, algorithm, results, Slope(-1.0, -1.25, -0.75), experiment.proven[algorithm], None, verdict
    )


def test_exponent_table_has_one_row_per_experiment() -> None:
    rows = [
        make_row("ridge-T", "fedcm", [8e-3, 4e-3, 1e-3, 5e-4], "does not show"),
        make_row("ridge-T", "scaffold", [8e-3, 4e-3, 2e-3, 1e-3], "cannot tell"),
    ]
    line = next(line for line in make_markdown(rows).splitlines() if "`ridge-T`" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["`ridge-T`", "strongly convex", "T = 125 … 1000", "−1"]
    assert cells[4:8] == ["−1.00 [−1.25, −0.75] ✗", "–", "−1.00 [−1.25, −0.75] ?", "–"]
    assert cells[8:10] == ["does not show", "−1.00, −2.00, −1.00"]
    assert cells[10] == "FedCM 1 of 4 at largest η; SCAFFOLD 1 of 4 at largest η"


def test_client_table_has_one_row_per_algorithm() -> None:
    text = make_markdown([make_row("clients-N", "feddyn", [1e-5, 2e-5, 1.5e-3])])
    assert "| `clients-N` | FedDyn | 10⁻⁵ ± 0% | 2.0·10⁻⁵ ± 0% | 1.5·10⁻³ ± 0% | 150 × |" in text
    assert "| grows | agrees | 1 of 3 at largest η |" in text


def test_bounds_are_computed_for_fedcm() -> None:
    row = make_row("strongly-convex-T", "fedcm", [1e-2] * 5)
    first, point = compare_with_bounds(row)[0], row.experiment.points[0]
    setting = point.make_setting(gradient_bound=3.0)  # σ_g is the same everywhere
    assert first.error == pytest.approx(1e-2)
    assert first.stated == pytest.approx(bounds.compute_strongly_convex_bound(setting, 125, 10.0))
    expected = bounds.compute_explicit_strongly_convex_bound(setting, 125, 10.0, 1e-4, 0.01)
    assert first.explicit == pytest.approx(expected)
    assert "÷ error" in make_markdown([row])
    nonconvex = compare_with_bounds(make_row("nonconvex-T", "fedcm", [1.0] * 5))[0]
    other = next(e for e in list_experiments() if e.name == "nonconvex-T").points[0]
    assert nonconvex.stated == pytest.approx(bounds.compute_nonconvex_bound(other.make_setting(3.0), 125, 5.0))
    beyond = row._replace(results=[one._replace(best=StepCandidate(FedCM(0.1), 0.1, 0.5)) for one in row.results])
    assert compare_with_bounds(beyond)[0].explicit is None  # η_l ≤ 1/(8KL) = 1/40 is what the proof needs


def test_diverged_values_are_null_in_json() -> None:
    row = make_row("ridge-T", "fedavg", [1.0, math.inf, 1.0, 1.0], "diverged")
    record = json.loads(json.dumps(row_to_json(row._replace(slope=Slope(math.nan, 0.0, math.inf))), allow_nan=False))
    assert record["errors"] == [1.0, None, 1.0, 1.0]
    assert record["slope"] is None
    assert record["interval"] == [0.0, None]
    assert record["proximal"] == [2.0] * 4


@pytest.mark.slow
def test_the_command_writes_tables_figures_and_numbers(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("theory", "rates", "--only", "noise-free", "--quick", "-o", tmp_path / "new" / "folder", "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)
    assert [row["algorithm"] for row in rows] == list(LABELS)
    assert rows[0]["verdict"] == "faster than proven"
    assert rows[0]["errors"][-1] < 1e-2 * rows[0]["errors"][0]
    (experiment,) = select_experiments(["noise-free"], quick=True)
    expected = [float(measure_point(experiment, number)["fedcm"].errors.mean()) for number in range(2)]
    assert rows[0]["errors"] == pytest.approx(expected, rel=1e-12)  # the same in a worker process
    assert rows[0]["at_the_edge_of_the_grid"] == [["η = 1/L"], ["η = 1/L"]]
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        f"theory-rates.{suffix}" for suffix in ("png", "pdf", "md", "csv", "tex", "json")
    }
    assert "| `noise-free` |" in (tmp_path / "new" / "folder" / "theory-rates.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "nonsense"), "there is no experiment 'nonsense'"),
        (("--only", ""), "--only needs the name of an experiment"),
        (("-o", ""), "-o needs the name of a folder"),
        (("-o", "a-file"), "-o needs a writable folder, got a-file"),
        (("-o", "/proc/nope"), "-o needs a writable folder, got /proc/nope"),
    ],
    ids=str,
)
def test_bad_options_raise_before_anything_is_measured(
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
    assert "of the total done" not in answer.err  # printed when the first experiment starts
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]
