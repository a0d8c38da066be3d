"""Large arrays of an .npz file that are mapped instead of copied."""

import io
import math
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import load_summary, read_lines, resume_run, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.data import load_dataset, load_source
from fedcm.data.dataset import Dataset
from fedcm.data.federated import ArrayData
from fedcm.data.sources import npz as npz_files
from fedcm.errors import UserError
from fedcm.runs.session import Session, SessionOptions
from fedcm.system.checksum import compute_sha256
from fedcm.system.storage import mapped_files
from fedcm.system.storage.mapped_files import is_mapped, iterate_pieces, map_array, read_rows

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


def load(source: Path) -> Dataset:
    """Load a dataset as a run does."""
    data = load_source(str(source), may_map=True)
    assert isinstance(data, Dataset)
    return data


def is_in_file(source: Path) -> bool:
    return is_mapped(load(source).train.features.numpy())


def test_a_large_array_is_mapped_and_has_the_same_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load(tmp_path / "a.npz")
    assert is_mapped(data.train.features.numpy())
    assert data.mapped
    assert np.array_equal(data.train.features.numpy(), LARGE)
    assert np.array_equal(data.train.labels.numpy(), LABELS)


def test_a_dataset_is_copied_if_its_user_may_need_aligned_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load_dataset(str(tmp_path / "a.npz"))
    assert not is_mapped(data.train.features.numpy())
    assert not data.mapped


def test_compressed_and_small_arrays_are_copied(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=LARGE, y=LABELS)
    np.savez(tmp_path / "b.npz", x=LARGE[:100], y=LABELS[:100])
    for name in ("a.npz", "b.npz"):
        data = load(tmp_path / name)
        assert not is_mapped(data.train.features.numpy())
        assert not data.mapped


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_and_a_checksum_leave_no_page_of_the_file_in_memory(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load(tmp_path / "a.npz")
    assert compute_sha256(data.train.features.numpy()) == compute_sha256(LARGE)
    assert measure_resident("a.npz") < LARGE.nbytes / 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_round_leaves_no_page_of_a_file_with_short_rows_in_memory(tmp_path, experiment, monkeypatch):
    monkeypatch.setattr(mapped_files, "_released", -math.inf)
    np.savez(tmp_path / "a.npz", x=LARGE.reshape(4 * len(LARGE), -1), y=np.repeat(LABELS, 4))
    with start_session(tmp_path, experiment) as session:
        for _ in session.rounds():
            assert measure_resident("a.npz") < LARGE.nbytes / 20
        load_client(session, 0)
        assert measure_resident("a.npz") > LARGE.nbytes / 20  # what a round leaves if nothing is released


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_client_reads_long_rows_without_a_page_of_the_file_in_memory(tmp_path, experiment):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    with start_session(tmp_path, experiment) as session:
        data = session.setup.runner.data
        assert isinstance(data, ArrayData)
        for client in range(12):
            features, labels = data.client(client)
            rows = data.order[data.offsets[client] : data.offsets[client + 1]]
            assert np.array_equal(features.numpy(), LARGE[rows])
            assert np.array_equal(labels.numpy(), LABELS[rows])
        assert measure_resident("a.npz") < LARGE.nbytes / 20


def start_session(folder: Path, experiment: Any) -> Session:
    path = experiment(rounds=1, data={"source": str(folder / "a.npz")}, split={"kind": "iid", "clients": 12})
    return Session.start(read_experiment(read_table(path)), folder / "runs")


def load_client(session: Session, client: int) -> None:
    session.setup.runner.data.client(client)


@pytest.mark.parametrize("rows", [[], [0], [4095, 0, 17, 17]])
def test_rows_are_read_into_any_target_of_their_shape(rows, tmp_path):
    (tmp_path / "numbers").write_bytes(b"odd" + LARGE.tobytes())
    array, target = map_array(tmp_path / "numbers", 3, LARGE.dtype, LARGE.shape), np.zeros((len(rows), 1100), "f4")
    assert read_rows(array, rows, target)
    assert np.array_equal(target, LARGE[rows])
    assert read_rows(array[100:], rows[-1:], target[-1:])
    assert np.array_equal(target[-1:], LARGE[100:][rows[-1:]])


def test_short_rows_and_other_arrays_are_not_read(tmp_path):
    (tmp_path / "numbers").write_bytes(LARGE.tobytes())
    short = map_array(tmp_path / "numbers", 0, LARGE.dtype, (4400, 1023))
    long = map_array(tmp_path / "numbers", 0, LARGE.dtype, (4400, 1024))
    assert not read_rows(short, [0], np.zeros((1, 1023), "f4"))
    assert read_rows(long, [0], np.zeros((1, 1024), "f4"))
    assert not read_rows(LARGE, [0], np.zeros((1, 1100), "f4"))


def test_a_row_that_is_no_longer_in_the_file_is_an_error(tmp_path):
    (tmp_path / "numbers").write_bytes(LARGE.tobytes())
    array, target = map_array(tmp_path / "numbers", 0, LARGE.dtype, LARGE.shape), np.zeros((1, 1100), "f4")
    os.truncate(tmp_path / "numbers", LARGE.nbytes - 1)
    assert read_rows(array, [4094], target)
    with pytest.raises(UserError, match=r"numbers' was overwritten"):
        read_rows(array, [4095], target)


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
    mapped, copied = load(tmp_path / "a.npz"), load(tmp_path / "b.npz")
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
        load(tmp_path / "a.npz")


def test_a_number_that_is_not_finite_is_found_in_any_piece(tmp_path):
    spoilt = LARGE.copy()
    spoilt[3000, 7] = np.inf
    np.savez(tmp_path / "a.npz", x=spoilt, y=LABELS)
    with pytest.raises(UserError, match="got inf in example 3000"):
        load(tmp_path / "a.npz")


@pytest.mark.usefixtures("mapping")
def test_objects_are_refused_and_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[None, 1]] * 10, object), y=LABELS[:10])
    with pytest.raises(UserError, match="got Python objects, which are never loaded"):
        load(tmp_path / "a.npz")


def write_member(path: Path, content: bytes, name: str = "x.npy", **others: bytes) -> None:
    """Write an archive with these files, and labels."""
    labels = io.BytesIO()
    np.save(labels, LABELS[:50])
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in ({name: content, "y.npy": labels.getvalue()} | others).items():
            archive.writestr(member, text)


def save_array(version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, LARGE[:50], version)
    return file.getvalue()


@pytest.mark.usefixtures("mapping")
def test_another_version_of_the_header_and_bytes_after_the_array_are_read(tmp_path):
    write_member(tmp_path / "a.npz", save_array())
    assert is_in_file(tmp_path / "a.npz")
    for content in (save_array((2, 0)), save_array() + b"more"):
        write_member(tmp_path / "a.npz", content)
        data = load(tmp_path / "a.npz")
        assert not data.mapped
        assert np.array_equal(data.train.features.numpy(), LARGE[:50])


@pytest.mark.usefixtures("mapping")
def test_a_file_that_is_no_array_is_rejected_as_ever(tmp_path):
    write_member(tmp_path / "a.npz", save_array(), x=b"no array")
    with pytest.raises(UserError, match="must contain arrays only, got the file 'x'"):
        load(tmp_path / "a.npz")


@pytest.mark.usefixtures("mapping")
@pytest.mark.parametrize(
    ("signature", "offset", "change", "message"),
    [
        (b"PK\x01\x02", 8, b"\x01\x00", "encrypted"),  # the flags in the directory
        (b"PK\x01\x02", 42, b"\xf0\xff\xff\x7f", "cannot be read"),  # the place of the first member
        (b"PK\x03\x04", 30, b"z", "differ"),  # the name in the member's own header
    ],
)
def test_a_damaged_archive_is_rejected(tmp_path, signature, offset, change, message):
    write_member(tmp_path / "a.npz", save_array())
    content = bytearray((tmp_path / "a.npz").read_bytes())
    start = content.index(signature) + offset
    content[start : start + len(change)] = change
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "a.npz")


@pytest.mark.usefixtures("mapping")
def test_an_array_is_copied_if_the_system_cannot_map_it(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(npz_files, "map_array", refuse)
    write_member(tmp_path / "a.npz", save_array())
    data = load(tmp_path / "a.npz")
    assert not data.mapped
    assert np.array_equal(data.train.features.numpy(), LARGE[:50])


def test_other_arrays_are_not_taken_for_mapped_ones(tmp_path):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data = load(tmp_path / "a.npz")
    others = [np.zeros(size) for size in (1, 10, 10**4, 10**7)]
    assert not any(map(is_mapped, others))
    assert is_mapped(data.train.features[4095:].numpy())


def test_a_released_file_is_released_again_after_a_second_only(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", x=LARGE, y=LABELS)
    data, moment = load(tmp_path / "a.npz"), 100.0
    monkeypatch.setattr(mapped_files, "_released", -math.inf)
    monkeypatch.setattr("time.monotonic", lambda: moment)
    for later, remains in ((0.0, False), (0.5, True), (1.5, False)):
        moment = 100.0 + later
        data.train.features.sum()
        mapped_files.release_mapped_files()
        assert (measure_resident("a.npz") > LARGE.nbytes / 2) == remains


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
    x, y = generator.normal(size=(240, 3, 20, 20)).astype(np.float32), generator.integers(0, 4, 240)
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
    times = path.stat()
    with path.open("r+b") as file:
        file.write(copy.read_bytes())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))


def shorten(path: Path) -> None:
    """Cut off the end of the file, and keep its time."""
    times = path.stat()
    os.truncate(path, times.st_size - 1)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def overwrite_and_rename(path: Path) -> None:
    overwrite(path)
    path.rename(path.with_name("moved.npz"))


def replace(path: Path) -> None:
    """Put another file in its place."""
    copy = path.with_name("other.npz")
    write_images(copy, np.random.default_rng(2))
    copy.replace(path)


@pytest.mark.parametrize("changed", ["a.npz", "b.npz"])
def test_a_change_is_found_in_its_own_file_only(changed, tmp_path):
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=LARGE, y=LABELS)
    loaded = {name: load(tmp_path / name).train.features.numpy() for name in ("a.npz", "b.npz")}
    os.utime(tmp_path / changed, (0, 0))
    for name, array in loaded.items():
        if name == changed:
            with pytest.raises(UserError, match=changed):
                mapped_files.reject_changed_file(array)
        else:
            mapped_files.reject_changed_file(array)


@pytest.mark.usefixtures("mapping")
def test_a_round_during_which_the_file_changes_is_not_recorded(experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    path, done = experiment(rounds=6, model={"name": "lenet"}), list[Any]()

    def change() -> bool:
        """Called before every client."""
        if len(done) == 3:
            os.utime(npz, (0, 0))
        return False

    options = SessionOptions(stop_requested=change)
    session = Session.start(read_experiment(read_table(path)), tmp_path / "runs", "changed", options=options)
    with session, pytest.raises(UserError, match="was overwritten"):
        done.extend(session.rounds())
    assert len(read_lines(tmp_path / "runs" / "changed")) == 3


def run_with(change: Any, path: Path, npz: Path, runs: Path) -> Path:
    """Run an experiment, and change its data after the third round."""
    with Session.start(read_experiment(read_table(path)), runs, "changed") as session:
        for done, _ in enumerate(session.rounds(), 1):
            if done == 3:
                change(npz)
    return runs / "changed"


@pytest.mark.usefixtures("mapping")
@pytest.mark.parametrize("change", [overwrite, shorten, overwrite_and_rename])
def test_a_run_ends_if_its_file_is_changed_and_resumes_with_the_old_one(change, experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    path, kept = experiment(rounds=6, model={"name": "lenet"}), tmp_path / "kept.npz"
    shutil.copy(npz, kept)
    with pytest.raises(UserError, match=r"made.npz' was overwritten while a run was using it"):
        run_with(change, path, npz, tmp_path / "runs")
    assert len(read_lines(tmp_path / "runs" / "changed")) == 3
    with pytest.raises(UserError):
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


@pytest.mark.usefixtures("mapping")
def test_a_file_of_another_run_may_be_overwritten(experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    other = load(npz)
    overwrite(npz)
    run_to_end(experiment(rounds=2, model={"name": "lenet"}), tmp_path / "runs")
    assert other.mapped


@pytest.mark.usefixtures("mapping")
def test_a_run_ends_if_its_file_is_shortened_while_clients_train(experiment, tmp_path, npz):
    write_images(npz, np.random.default_rng(1))
    path, done = experiment(rounds=6, model={"name": "lenet"}), list[Any]()

    def shorten_once() -> bool:
        """Called before every client."""
        if len(done) == 3:
            os.truncate(npz, 1000)
        return False

    options = SessionOptions(stop_requested=shorten_once)
    session = Session.start(read_experiment(read_table(path)), tmp_path / "runs", "cut", options=options)
    with session, pytest.raises(UserError, match="was overwritten"):
        done.extend(session.rounds())
    assert len(read_lines(tmp_path / "runs" / "cut")) == 3


@pytest.mark.usefixtures("mapping")
def test_no_client_reads_a_file_that_was_changed_between_two_rounds(experiment, tmp_path, npz):
    """A client that reads a shortened file would end the process."""
    write_images(npz, np.random.default_rng(1))
    path, changed, asked = experiment(rounds=6, model={"name": "lenet"}), False, 0

    def count() -> bool:
        """Called before every client."""
        nonlocal asked
        asked += changed
        return False

    session = Session.start(
        read_experiment(read_table(path)), tmp_path / "runs", "cut", options=SessionOptions(stop_requested=count)
    )
    with session:
        rounds = session.rounds()
        next(rounds)
        os.truncate(npz, 1000)
        changed = True
        with pytest.raises(UserError, match="was overwritten"):
            next(rounds)
    assert asked == 0
