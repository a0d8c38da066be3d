"""Atomic writes: the old file or the new one, never a part of one."""

import os
import stat

import pytest

from fedcm.system import files


def test_text_and_bytes_are_written_and_no_temporary_file_is_left(tmp_path):
    files.write_text(tmp_path / "new" / "a.toml", "α = 0.1\n")
    files.write_bytes(tmp_path / "new" / "b", b"\0\xff")
    assert (tmp_path / "new" / "a.toml").read_bytes() == "α = 0.1\n".encode()
    assert (tmp_path / "new" / "b").read_bytes() == b"\0\xff"
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["a.toml", "b"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, failure):
    path = tmp_path / "state.npy"
    path.write_bytes(b"old")

    def write() -> None:
        with files.atomic_write(path) as temporary:
            temporary.write_bytes(b"half")
            raise failure

    with pytest.raises(failure):
        write()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_is_hidden_in_the_same_folder_with_the_same_suffix(tmp_path):
    with files.atomic_write(tmp_path / "plot.png") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        assert temporary.name.startswith(".")
        temporary.touch()


def test_the_content_is_flushed_before_the_file_is_renamed(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(os, "fsync", lambda _: order.append(sorted(file.name for file in tmp_path.iterdir())))
    files.write_bytes(tmp_path / "a", b"x")
    (temporary,), after = order
    assert temporary != "a"
    assert after == ["a"]


def test_the_file_has_the_permissions_of_an_ordinary_file(tmp_path):
    (tmp_path / "ordinary").touch()
    files.write_bytes(tmp_path / "a", b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "ordinary")}
    assert len(modes) == 1


def test_two_writers_use_different_temporary_files(tmp_path):
    with files.atomic_write(tmp_path / "a") as one, files.atomic_write(tmp_path / "a") as two:
        one.write_text("one")
        two.write_text("two")
    assert (tmp_path / "a").read_text() == "one"
