"""Large arrays of an .npz file that are mapped instead of copied."""

import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import load_summary, read_lines, resume_run, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.data import load_dataset
from fedcm.data.sources import npz as npz_files
from fedcm.errors import UserError
from fedcm.runs.session import Session
from fedcm.system.checksum import compute_sha256
from fedcm.system.storage import mapped_files
from fedcm.system.storage.mapped_files import is_mapped, iterate_pieces, map_array

LARGE = np.random.default_rng(0).normal(size=(4096, 1100)).astype(np.float32)  # 17 MiB
LABELS = np.arange(4096) % 3


@pytest.fixture
def mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are mapped too."""
    monkeypatch.setattr(npz_files, "_LARGE", 1)


def measure_resident(name: str) -> int:
    """Return how many bytes of a mapped file are in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith(name))
    return next(1024 * int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


def is_in_file(source: Path) -> bool:
    return is_mapped(load_dataset(str(source)).train.features.numpy())


def test_a_large_array_is_mapped_and_has_the_same_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load_dataset(str(tmp_path / "a.npz"))
    assert is_mapped(data.train.features.numpy())
    assert data.mapped
    assert np.array_equal(data.train.features.numpy(), LARGE)
    assert np.array_equal(data.train.labels.numpy(), LABELS)


def test_compressed_and_small_arrays_are_copied(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=LARGE, y=LABELS)
    np.savez(tmp_path / "b.npz", x=LARGE[:100], y=LABELS[:100])
    for name in ("a.npz", "b.npz"):
        data = load_dataset(str(tmp_path / name))
        assert not is_mapped(data.train.features.numpy())
        assert not data.mapped


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_and_a_checksum_leave_no_page_of_the_file_in_memory(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load_dataset(str(tmp_path / "a.npz"))
    assert compute_sha256(data.train.features.numpy()) == compute_sha256(LARGE)
    assert measure_resident("a.npz") < LARGE.nbytes / 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_round_leaves_no_page_of_the_file_in_memory(tmp_path, experiment, monkeypatch):
    monkeypatch.setattr(mapped_files, "_released", -math.inf)
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    path = experiment(rounds=1, data={"source": str(tmp_path / "a.npz")}, split={"kind": "iid", "clients": 12})
    with Session.start(read_experiment(read_table(path)), tmp_path / "runs") as session:
        for _ in session.rounds():
            assert measure_resident("a.npz") < LARGE.nbytes / 20
        load_client(session, 0)
        assert measure_resident("a.npz") > LARGE.nbytes / 20  # what a round leaves if nothing is released


def load_client(session: Session, client: int) -> None:
    session.setup.runner.data.client(client)


@pytest.mark.usefixtures("mapping")
@pytest.mark.parametrize(
    "array",
    [
        LARGE[:50].astype(np.float64),
        np.asfortranarray(LARGE[:50]),
        LARGE[:50].astype(">f4"),
        LARGE[:50].astype(np.float16),
        LARGE[:48].reshape(48, 10, 10, 11),
        LARGE[:40, :768].reshape(40, 16, 16, 3),  # channels in the last dimension
        (LARGE[:50] > 0).astype(np.uint8),
        np.arange(100).reshape(50, 2),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_every_type_and_order_gives_the_examples_of_a_copy(array, tmp_path):
    labels = LABELS[: len(array)]
    np.savez(tmp_path / "a.npz", x_train=array, y_train=labels, x_test=array, y_test=labels)
    np.savez_compressed(tmp_path / "b.npz", x_train=array, y_train=labels, x_test=array, y_test=labels)
    mapped, copied = load_dataset(str(tmp_path / "a.npz")), load_dataset(str(tmp_path / "b.npz"))
    assert mapped.train.features.dtype == copied.train.features.dtype
    assert np.array_equal(mapped.train.features.numpy(), copied.train.features.numpy())
    assert mapped.normalisation == copied.normalisation
    assert mapped.test is not None
    assert not is_mapped(mapped.test.features.numpy())


def test_a_changed_byte_is_found(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[10**7] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be read as an .npz file.*Bad CRC-32 for file 'x.npy'"):
        load_dataset(str(tmp_path / "a.npz"))


def test_a_number_that_is_not_finite_is_found_in_any_piece(tmp_path):
    spoilt = LARGE.copy()
    spoilt[3000, 7] = np.inf
    np.savez(tmp_path / "a.npz", x=spoilt, y=LABELS)
    with pytest.raises(UserError, match="got inf in example 3000"):
        load_dataset(str(tmp_path / "a.npz"))


@pytest.mark.usefixtures("mapping")
def test_objects_are_refused_and_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[None, 1]] * 10, object), y=LABELS[:10])
    with pytest.raises(UserError, match="got Python objects, which are never loaded"):
        load_dataset(str(tmp_path / "a.npz"))


def test_pieces_are_the_whole_array_in_order(tmp_path):
    (tmp_path / "numbers").write_bytes(b"odd" + LARGE.tobytes())
    array = map_array(tmp_path / "numbers", 3, LARGE.dtype, LARGE.shape)
    assert np.array_equal(np.concatenate(list(iterate_pieces(array))), LARGE.ravel())
    assert np.array_equal(array, LARGE)
    assert [piece.tolist() for piece in iterate_pieces(np.zeros((0, 3)))] == []


def test_an_array_beyond_the_end_of_the_file_is_rejected(tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(100))
    with pytest.raises(ValueError, match="buffer is smaller"):
        map_array(tmp_path / "numbers", 3, np.dtype(np.float32), (25,))


def write_images(path: Path, generator: np.random.Generator) -> None:
    x, y = generator.normal(size=(240, 3, 16, 16)).astype(np.float32), generator.integers(0, 4, 240)
    np.savez(path, x_train=x, y_train=y, x_test=x[:80], y_test=y[:80])


@pytest.mark.usefixtures("mapping")
def test_a_run_on_a_mapped_file_has_the_bits_of_a_run_on_a_copy(experiment, tmp_path, npz, monkeypatch):
    write_images(npz, np.random.default_rng(1))
    path = experiment(rounds=4, model={"name": "lenet"})
    assert is_in_file(npz)
    mapped = run_to_end(path, tmp_path / "runs", "mapped")
    monkeypatch.setattr(npz_files, "_LARGE", 2**40)
    assert not is_in_file(npz)
    copied = run_to_end(path, tmp_path / "runs", "copied")
    assert read_lines(mapped) == read_lines(copied)
    assert load_summary(mapped)["params_sha256"] == load_summary(copied)["params_sha256"]


def overwrite(path: Path) -> None:
    """Write other numbers into the same file."""
    copy = path.with_name("other.npz")
    write_images(copy, np.random.default_rng(2))
    content, times = copy.read_bytes(), path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))


def replace(path: Path) -> None:
    """Put another file in its place."""
    copy = path.with_name("other.npz")
    write_images(copy, np.random.default_rng(2))
    copy.replace(path)


def run_with(change: Any, path: Path, npz: Path, runs: Path) -> Path:
    """Run an experiment, and change its data after the third round."""
    with Session.start(read_experiment(read_table(path)), runs, "changed") as session:
        for done, _ in enumerate(session.rounds(), 1):
            if done == 3:
                change(npz)
    return runs / "changed"


@pytest.mark.usefixtures("mapping")
def test_a_run_ends_if_its_file_is_overwritten_and_resumes_with_the_old_one(experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    path, kept = experiment(rounds=6, model={"name": "lenet"}), tmp_path / "kept.npz"
    shutil.copy(npz, kept)
    with pytest.raises(UserError, match=r"made.npz' was overwritten while its data were in use"):
        run_with(overwrite, path, npz, tmp_path / "runs")
    assert len(read_lines(tmp_path / "runs" / "changed")) == 3
    with pytest.raises(UserError, match="data"):
        resume_run(tmp_path / "runs" / "changed")
    kept.replace(npz)
    resume_run(tmp_path / "runs" / "changed")
    whole = run_to_end(path, tmp_path / "runs")
    assert read_lines(tmp_path / "runs" / "changed") == read_lines(whole)


@pytest.mark.usefixtures("mapping")
@pytest.mark.parametrize("change", [replace, Path.unlink])
def test_a_file_may_be_replaced_or_deleted_during_a_run(change, experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    path = experiment(rounds=6, model={"name": "lenet"})
    whole = run_to_end(path, tmp_path / "runs")
    changed = run_with(change, path, npz, tmp_path / "runs")
    assert read_lines(changed) == read_lines(whole)
