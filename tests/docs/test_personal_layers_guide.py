"""The guide to personal layers: its experiment runs on a few rounds, and its table is that of the whole run."""

import json
from pathlib import Path

import pytest

import fedcm

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "personal-layers.md"


@pytest.mark.slow
def test_the_experiment_of_the_guide_evaluates_clients_and_sends_only_the_shared_part(tmp_path: Path) -> None:
    sent = {}
    for name, personal in (("heads", ["3.*"]), ("common", [])):
        overrides = {"rounds": 2, "evaluation.every": 1, "model.personal": personal}
        run = fedcm.run("personal", overrides=overrides, runs_dir=tmp_path, name=name)
        line = run.metrics[-1]
        assert 0 <= line["clients_accuracy_worst"] <= line["clients_accuracy_p10"] <= line["clients_accuracy_mean"] <= 1
        assert ("test_accuracy" in line) == (name == "common")
        results = json.loads((run.path / "client_results.json").read_text())
        assert len(results["values"]) == 50
        sent[name] = line["bytes_up"]
        page = fedcm.report(run, tmp_path / f"report-{name}").read_text()
        assert ("mean accuracy over clients in %" in page) == (name == "heads")
    text = GUIDE.read_text()
    assert f"{sent['heads']:,} bytes" in text
    assert f"{sent['common']:,} bytes" in text


@pytest.mark.slow
def test_the_numbers_of_the_guide_are_those_of_its_commands(tmp_path: Path) -> None:
    """Within a percent, because other CPUs have other last bits."""
    runs = {
        name: fedcm.run("personal", overrides=changes, runs_dir=tmp_path, name=name).metrics[-1]
        for name, changes in (("heads", {}), ("common", {"model.personal": [], "evaluation.personalise": 2}))
    }
    assert runs["heads"]["clients_accuracy_mean"] == pytest.approx(0.9925, abs=0.01)
    assert runs["common"]["clients_accuracy_mean"] == pytest.approx(0.9467, abs=0.01)
    assert runs["common"]["personal_accuracy_mean"] == pytest.approx(0.9717, abs=0.01)
