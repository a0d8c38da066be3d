import gzip
import shutil

import numpy as np
import pytest
import torch

from fedcm.data import load
from fedcm.errors import UserError


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_packed_or_not_from_our_folder_or_torchvisions(tiny_mnist, tmp_path, folder, packed):
    place = tmp_path / "data" / folder
    place.mkdir(parents=True)
    for file in tiny_mnist.iterdir():
        content = file.read_bytes()
        (place / f"{file.name}{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    data = load("mnist", tmp_path / "data")
    assert data.train.features.shape == (6, 1, 28, 28)
    assert data.train.features.dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    assert data.train.features.flatten()[:3].tolist() == list(
        (tiny_mnist / "train-images-idx3-ubyte").read_bytes()[16:19]
    )
    assert data.test is not None
    assert data.test.size == 2
    assert data.classes == 10


def test_a_truncated_a_long_or_another_file_is_refused(tiny_mnist, tmp_path):
    place = tmp_path / "mnist"
    shutil.copytree(tiny_mnist, place)
    file = place / "t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    for content, words in (
        (whole[:-1], "got 1,583"),
        (whole + b"x", "got more"),
        (b"\0\0\x09" + whole[3:], "another header"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "it is another file"),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=words):
            load("mnist", tmp_path)
    file.unlink()
    (place / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        load("mnist", tmp_path)


def test_without_files_it_says_which_command_to_run(tmp_path):
    with pytest.raises(UserError, match="run `fedcm data prepare fashion-mnist`"):
        load("fashion-mnist", tmp_path)


def test_the_images_can_be_written_to_without_a_warning(tiny_mnist, tmp_path, recwarn):
    shutil.copytree(tiny_mnist, tmp_path / "mnist")
    load("mnist", tmp_path).train.features.zero_()
    assert len(recwarn) == 0
    assert np.frombuffer((tmp_path / "mnist" / "train-images-idx3-ubyte").read_bytes(), np.uint8).any()
