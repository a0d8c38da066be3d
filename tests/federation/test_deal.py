"""Dealing data out to sites: one file per site, and one for the test set."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scenes import Answer
from sites_here import make_experiment

from fedcm.config.experiment import to_toml
from fedcm.errors import UserError
from fedcm.federation.provision.deal import deal


@pytest.mark.parametrize("name", ["test", "Test"])
def test_a_site_cannot_have_the_file_of_the_test_set(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^a site must not be named 'test', because test.npz holds the test set"):
        deal(make_experiment(), ["a", "b", name], tmp_path / "dealt")
    assert not (tmp_path / "dealt").exists()


def test_spaces_around_the_names_of_sites_are_ignored(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text(to_toml(make_experiment()))
    answer = fedcm("federation", "deal", tmp_path / "trial.toml", "--sites", "x, y ,z,", "-o", tmp_path / "dealt")
    assert answer.code == 0, answer.err
    assert sorted(file.name for file in (tmp_path / "dealt").iterdir()) == ["test.npz", "x.npz", "y.npz", "z.npz"]
    assert all(len(np.load(tmp_path / "dealt" / f"{site}.npz")["y"]) for site in "xyz")


def test_validation_data_are_dealt_to_the_server(tmp_path: Path) -> None:
    experiment = make_experiment()
    whole = deal(experiment, ["x", "y", "z"], tmp_path / "whole")
    section = experiment.data.model_copy(update={"validation": 0.25})
    held = deal(experiment.model_copy(update={"data": section}), ["x", "y", "z"], tmp_path / "held")
    sizes = {
        folder: {file.stem: len(np.load(file)["y"]) for file in (tmp_path / folder).iterdir()}
        for folder in ("whole", "held")
    }
    assert set(sizes["held"]) == {*sizes["whole"], "validation"}
    assert len(held.files) == len(whole.files) + 1
    assert sum(sizes["held"].values()) == sum(sizes["whole"].values())
