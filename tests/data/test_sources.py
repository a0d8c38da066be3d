"""The named sources, the data folder, and the digits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedcm.data import SOURCES, load_dataset, resolve_data_folder
from fedcm.errors import UserError


def test_the_digits_test_set_is_fixed_and_stratified():
    one, two = load_dataset("digits"), load_dataset("digits")
    assert one.test is not None
    assert two.test is not None
    assert (one.train.size, one.test.size) == (1437, 360)
    assert torch.equal(one.test.features, two.test.features)
    share = one.test.labels.bincount() / (one.train.labels.bincount() + one.test.labels.bincount())
    assert share.tolist() == pytest.approx([360 / 1797] * 10, abs=0.003)
    # the test set is part of every published result
    assert one.checksums["test_features"] == "5641ce8b737f8f520160530855ec2eceb33b8cd52dd780705025796c57510d1b"


def test_digits_are_bytes_that_normalise_to_mean_0_and_std_1():
    data = load_dataset("digits")
    assert data.train.features.shape[1:] == (1, 8, 8)
    assert data.train.features.dtype == torch.uint8
    assert (int(data.train.features.min()), int(data.train.features.max())) == (0, 16)
    assert data.normalisation is not None
    normalised = (data.train.features / data.normalisation.scale - data.normalisation.mean[0]) / data.normalisation.std[
        0
    ]
    assert float(normalised.mean()) == pytest.approx(0, abs=1e-3)
    assert float(normalised.std()) == pytest.approx(1, abs=1e-3)


def test_an_unknown_source_is_rejected_with_a_suggestion():
    with pytest.raises(UserError, match="got 'cifar11'; did you mean 'cifar1"):
        load_dataset("cifar11")
    assert set(SOURCES) == {"digits", "cifar10", "cifar100", "mnist", "fashion-mnist", "shakespeare"}


def test_paths_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clients").mkdir()
    np.savez(tmp_path / "mine.npz", x=np.ones((4, 2)), y=np.arange(4))
    np.savez(tmp_path / "clients" / "a.npz", x=np.ones((4, 2)), y=np.arange(4))
    assert load_dataset("mine.npz").train.size == 4
    assert load_dataset("clients").client_names == ("a",)


def test_the_data_folder_is_the_argument_the_variable_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCM_DATA", str(tmp_path / "set"))
    assert resolve_data_folder(Path("given")) == Path("given")
    assert resolve_data_folder(None) == tmp_path / "set"
    monkeypatch.delenv("FEDCM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert resolve_data_folder(None) == tmp_path / "cache" / "fedcm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data_folder(None) == tmp_path / ".cache" / "fedcm"
