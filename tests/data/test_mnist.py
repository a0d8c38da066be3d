"""MNIST's idx files: read with or without .gz, and only if they are the published ones."""

import gzip
import shutil

import numpy as np
import pytest
import torch

from fedcm.data import load_dataset
from fedcm.errors import UserError


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("gzipped", [False, True])
def test_idx_files_are_read_with_or_without_gz_from_both_folders(tiny_mnist, tmp_path, folder, gzipped):
    folder_path = tmp_path / "data" / folder
    folder_path.mkdir(parents=True)
    for file in tiny_mnist.iterdir():
        content = file.read_bytes()
        (folder_path / f"{file.name}{'.gz' if gzipped else ''}").write_bytes(
            gzip.compress(content) if gzipped else content
        )
    data = load_dataset("mnist", tmp_path / "data")
    assert data.train.features.shape == (6, 1, 28, 28)
    assert data.train.features.dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    assert data.train.features.flatten()[:3].tolist() == list(
        (tiny_mnist / "train-images-idx3-ubyte").read_bytes()[16:19]
    )
    assert data.test is not None
    assert data.test.size == 2
    assert data.classes == 10


def test_a_truncated_extended_or_different_file_is_rejected(tiny_mnist, tmp_path):
    folder_path = tmp_path / "mnist"
    shutil.copytree(tiny_mnist, folder_path)
    file = folder_path / "t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    for content, message in (
        (whole[:-1], "got 1,583"),
        (whole + b"x", "got more"),
        (b"\0\0\x09" + whole[3:], "another header"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "it is another file"),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=message):
            load_dataset("mnist", tmp_path)
    file.unlink()
    (folder_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        load_dataset("mnist", tmp_path)


def test_missing_files_are_reported_with_the_command_to_run(tmp_path):
    with pytest.raises(UserError, match="run `fedcm data prepare fashion-mnist`"):
        load_dataset("fashion-mnist", tmp_path)


def test_the_images_are_writable_without_a_warning(tiny_mnist, tmp_path, recwarn):
    shutil.copytree(tiny_mnist, tmp_path / "mnist")
    load_dataset("mnist", tmp_path).train.features.zero_()
    assert len(recwarn) == 0
    assert np.frombuffer((tmp_path / "mnist" / "train-images-idx3-ubyte").read_bytes(), np.uint8).any()
