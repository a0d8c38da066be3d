"""CIFAR in the data folder: official files are prepared, and only the published data are loaded."""

import os
import shutil
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcm.data import load_dataset, resolve_data_folder
from fedcm.data.sources import cifar, cifar_official
from fedcm.errors import UserError


def test_loading_prepares_the_official_folder_in_the_data_folder(tiny10, tmp_path):
    shutil.copytree(tiny10.folder, tmp_path / "data" / tiny10.folder.name)
    data = load_dataset("cifar10", tmp_path / "data")
    assert data.train.features.shape == (15, 3, 32, 32)
    assert data.train.features.dtype == torch.uint8
    assert np.array_equal(data.train.features.reshape(15, 3072).numpy(), tiny10.parts["train"].images)
    assert data.train.labels.dtype == torch.int64
    assert data.train.labels.tolist() == tiny10.parts["train"].labels.tolist()
    assert data.test is not None
    assert data.test.size == 3
    assert data.classes == 10
    assert data.checksums["train_features"] == cifar.CIFAR_SPECS["cifar10"].sha256["train_images"]
    shutil.rmtree(tmp_path / "data" / tiny10.folder.name)
    assert torch.equal(load_dataset("cifar10", tmp_path / "data").train.features, data.train.features)


def test_loading_prepares_the_official_archive_in_the_data_folder(tiny100, tmp_path):
    (tmp_path / "data").mkdir()
    shutil.copy(tiny100.archive, tmp_path / "data")
    data = load_dataset("cifar100", tmp_path / "data")
    assert data.classes == 100
    assert data.train.labels.tolist() == tiny100.parts["train"].labels.tolist()


def test_missing_files_are_reported_with_the_command_to_run(tmp_path):
    with pytest.raises(UserError, match="run `fedcm data prepare cifar100`"):
        load_dataset("cifar100", tmp_path)


def test_changed_prepared_files_are_rejected(tiny10, tmp_path):
    folder = tmp_path / "data" / "cifar10"
    cifar.write_prepared(tiny10.parts, folder, cifar.CIFAR_SPECS["cifar10"])
    labels = np.load(folder / "train_labels.npy")
    np.save(folder / "train_labels.npy", labels[::-1])
    with pytest.raises(UserError, match="train labels must be the published ones"):
        load_dataset("cifar10", tmp_path / "data")
    (folder / "train_labels.npy").write_bytes((folder / "train_labels.npy").read_bytes()[:20])
    with pytest.raises(UserError, match=r"cannot be read.*prepare cifar10"):
        load_dataset("cifar10", tmp_path / "data")


def test_writing_into_the_loaded_images_does_not_change_the_files(tiny10, tmp_path):
    cifar.write_prepared(tiny10.parts, tmp_path / "cifar10", cifar.CIFAR_SPECS["cifar10"])
    load_dataset("cifar10", tmp_path).train.features.zero_()
    assert load_dataset("cifar10", tmp_path).train.features.any()


def test_a_pickle_is_not_read_when_its_md5_is_not_the_published_one(tiny10, trap):
    content, written_by_code = trap
    (tiny10.folder / "data_batch_2").write_bytes(content)
    with pytest.raises(UserError, match="data_batch_2 must have the md5"):
        cifar_official.read_official_files(tiny10.folder, cifar.CIFAR_SPECS["cifar10"].official)
    assert not written_by_code.exists()


def test_a_pickle_runs_no_code_even_when_its_md5_matches(tiny10, trap):
    content, written_by_code = trap
    (tiny10.folder / "test_batch").write_bytes(content)
    official = replace(cifar.CIFAR_SPECS["cifar10"].official, test={"test_batch": md5(content).hexdigest()})
    with pytest.raises(UserError, match="must contain arrays only"):
        cifar_official.read_official_files(tiny10.folder, official)
    assert not written_by_code.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_real_images_have_the_stated_mean_and_std(name):
    if "FEDCM_DATA" not in os.environ or not (resolve_data_folder() / name).is_dir():
        pytest.skip(f"no {name} in FEDCM_DATA")
    data = load_dataset(name, Path(os.environ["FEDCM_DATA"]))
    assert data.test is not None
    assert (data.train.size, data.test.size) == (50_000, 10_000)
    assert data.classes is not None
    assert data.train.labels.bincount().tolist() == [50_000 // data.classes] * data.classes
    assert data.normalisation is not None
    pixels = data.train.features.transpose(0, 1).reshape(3, -1) / 255.0
    assert pixels.double().mean(1).tolist() == pytest.approx(data.normalisation.mean, abs=6e-5)
    assert pixels.double().std(1).tolist() == pytest.approx(data.normalisation.std, abs=6e-5)
