"""Only their owner may read the files of a kit: those that a federation writes, and those that were there before."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_kits import Root, free_port, make_kit
from scenes import Answer
from test_check import check_all, failures, with_data

from fedcm.config.experiment import load_experiment_file
from fedcm.errors import UserError
from fedcm.federation.file_modes import list_exposed, make_private, private_files
from fedcm.federation.kit import Kit
from fedcm.federation.provision.deal import deal
from fedcm.federation.serve.supervisor import Supervisor, serve
from fedcm.runs.folder import RunFolder
from fedcm.system.files import read_umask, write_text


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def site(tmp_path: Path) -> Kit:
    """A kit with the modes of an older version."""
    kit = with_data(make_kit(tmp_path / "berlin", "site", Root(), free_port()))
    (kit.path / "log.txt").write_text("old")
    (kit.path / "run.sh").write_text("")
    (kit.path / "run.sh").chmod(0o755)
    (kit.path / "outside").symlink_to(tmp_path / "outside.npz")
    (tmp_path / "outside.npz").write_text("not of the kit")
    return kit


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_umask_is_read_without_changing_it() -> None:
    for mask in (0o022, 0o077, 0o027):
        os.umask(mask)
        assert (read_umask(), os.umask(mask)) == (mask, mask)


def test_files_of_the_block_and_of_its_processes_are_private(tmp_path: Path) -> None:
    with private_files():
        write_text(tmp_path / "new" / "a.txt", "x")
        os.system(f"mkdir {tmp_path}/started && echo x > {tmp_path}/started/b.txt")
        RunFolder.create(tmp_path / "runs" / "run", "", {}).unlock()
    write_text(tmp_path / "after.txt", "x")
    assert mode(tmp_path / "after.txt") == 0o644
    for name in ("new", "started", "runs"):
        assert list_exposed(tmp_path / name) == []


def test_serving_makes_older_files_private_and_says_so(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[int] = []
    monkeypatch.setattr(Supervisor, "run", lambda _: masks.append(read_umask()) or 0)
    said: list[str] = []
    assert serve(site.path, "site", said.append) == 0
    assert list_exposed(site.path) == []
    assert (mode(site.path), mode(site.path / "data.npz"), mode(site.path / "run.sh")) == (0o700, 0o600, 0o700)
    assert mode(site.path.parent / "outside.npz") == 0o644
    assert masks == [0o077]
    assert read_umask() == 0o022
    (sentence,) = said
    assert "could be read by others, and now only by the owner" in sentence
    said.clear()
    serve(site.path, "site", said.append)
    assert said == []


@pytest.fixture(params=["inside", "link"])
def states(request: pytest.FixtureRequest, site: Kit, tmp_path: Path) -> list[Path]:
    """Client states and a run that others can read, in the kit or on another disk to which the kit has links."""
    files = []
    for name, file in (("state", "ab/round-000001.safetensors"), ("runs", "r/checkpoints/round-000001.safetensors")):
        folder = site.path / name
        if request.param == "link":
            folder = tmp_path / f"disk-{name}"
            (site.path / name).symlink_to(folder)
        files.append(folder / file)
        files[-1].parent.mkdir(parents=True)
        files[-1].write_text("secret")
    return files


def test_states_and_runs_that_others_can_read_are_made_private(
    site: Kit, states: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "run", lambda _: 0)
    said: list[str] = []
    assert [mode(file) for file in states] == [0o644] * 2
    assert serve(site.path, "site", said.append) == 0
    assert [(mode(file), mode(file.parent), mode(file.parent.parent)) for file in states] == [(0o600, 0o700, 0o700)] * 2
    assert "could be read by others, and now only by the owner" in said[0]


def test_states_that_another_user_would_have_to_make_private_are_rejected(
    site: Kit, states: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "run", lambda _: pytest.fail("it was started"))

    def chmod(path: Path, *_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(
        UserError, match=r"only its owner may read .* another user owns it; run `chmod -R go= "
    ) as error:
        serve(site.path, "site", print)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["startup", "old"])
def test_a_private_key_that_others_can_read_is_rejected(
    site: Kit, monkeypatch: pytest.MonkeyPatch, where: str, fedcm: Callable[..., Answer]
) -> None:
    monkeypatch.setattr(Supervisor, "run", lambda _: pytest.fail("it was started"))
    key = site.path / where / "client.key"
    key.parent.mkdir(exist_ok=True)
    key.touch()
    key.chmod(0o640)
    with pytest.raises(UserError, match=r"only its owner may read the private key .* its mode is 640; run `chmod 600"):
        serve(site.path, "site", print)
    answer = fedcm("federation", "site", site.path)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert mode(key) == 0o640
    assert "private key" in failures(check_all(site))


def test_check_warns_of_other_files_and_changes_nothing(site: Kit) -> None:
    found = check_all(site)["file modes"]
    assert found.state == "warning"
    assert "`fedcm federation site` makes them private when it starts" in found.message
    assert mode(site.path / "log.txt") == 0o644
    make_private(site.path)
    assert "file modes" not in check_all(site)


def test_dealt_files_are_private(experiment: Callable[..., Path], tmp_path: Path) -> None:
    dealt = deal(load_experiment_file(experiment()), (), tmp_path / "dealt")
    assert len(dealt.files) > 2
    assert list_exposed(tmp_path / "dealt") == []
