"""The guide to Shakespeare's plays: its experiment on made-up roles, and its table on the real ones."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcm
from fedcm.data import load_dataset
from fedcm.errors import UserError

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "text.md").read_text()


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve roles who count upwards modulo 5, from different numbers."""
    folder = tmp_path_factory.mktemp("roles")
    for role in range(12):
        tokens = (np.arange(9)[None] + np.arange(10 + role)[:, None]) % 5
        np.savez(folder / f"role{role:02}.npz", x=tokens[:, :-1], y=tokens[:, 1:])
    return folder


@pytest.mark.parametrize("model", [{"model.hidden": 8}, {"model.name": "transformer", "model.width": 8}])
def test_the_experiment_of_the_guide_has_perplexity_as_its_headline(
    model: dict[str, Any], roles: Path, tmp_path: Path
) -> None:
    source = {"data.source": str(roles), "split.kind": "natural", "rounds": 2, "evaluation.every": 1}
    run = fedcm.run("shakespeare", overrides=source | model, runs_dir=tmp_path, name="made", workers=1)
    for line in run.metrics:
        assert line["validation_perplexity"] == math.exp(line["validation_loss"])
        assert 0 <= line["validation_accuracy"] <= 1
    summary = json.loads((run.path / "summary.json").read_text())
    perplexities = [line["validation_perplexity"] for line in run.metrics]
    assert summary["best_round"] == perplexities.index(min(perplexities))
    assert list(summary["validation"]) == ["loss", "perplexity", "accuracy"]


def read_row(name: str) -> list[float]:
    row = re.search(rf"^\| {name} \|(.*)\|$", GUIDE, flags=re.MULTILINE)
    assert row
    return [float(one) for one in row[1].split("|") if re.fullmatch(r" *[\d.]+ *", one)]


@pytest.mark.slow
def test_the_first_evaluation_of_the_guide_is_that_of_its_command(tmp_path: Path) -> None:
    """Within a percent, because other CPUs have other last bits."""
    try:
        load_dataset("shakespeare")
    except UserError:
        pytest.skip("the plays are not prepared")
    run = fedcm.run("shakespeare", overrides={"rounds": 20}, runs_dir=tmp_path, name="first")
    assert run.metrics[-1]["test_perplexity"] == pytest.approx(read_row("FedCM, test perplexity")[0], rel=0.01)
