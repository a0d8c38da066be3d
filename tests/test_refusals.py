"""Whatever is wrong with an experiment, its data or a run's folder, the command line says so in one sentence and
leaves with code 2: no traceback, nothing on stdout, nothing written and nothing lost."""

import itertools
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import tomli_w
from safetensors import SafetensorError
from scenes import Answer, lines_of, small_experiment, write_npz

from fedcm import checkpoint
from fedcm.algorithms.fedavg import ServerState
from fedcm.executors.executor import Stopped
from fedcm.experiment import read
from fedcm.overrides import read_table
from fedcm.refusal import Refused
from fedcm.running import drive
from fedcm.starting import begin, resume

Fedcm = Callable[..., Answer]
Write = Callable[..., Path]

_MODULES = itertools.count()  # an imported module is kept by Python, so every test needs a name of its own


def refused(answer: Answer, said: str, informed: str | None = None) -> str:
    """The refusal's sentence: it says `said`, and only lines that match `informed` may stand before it."""
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    *before, sentence = answer.err.splitlines()
    assert sentence.startswith("fedcm: ")
    assert said in sentence
    for line in before:
        assert informed is not None, f"only the refusal was expected, got also {line!r}"
        assert re.match(informed, line)
    return sentence


@pytest.fixture(autouse=True)
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own, and what it puts on Python's path goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FEDCM_DATA", raising=False)
    monkeypatch.delenv("FEDCM_RUNS", raising=False)


@pytest.fixture
def run(fedcm: Fedcm, tmp_path: Path) -> Fedcm:
    """`fedcm run` into tmp_path/runs."""

    def call(path: object, *words: object) -> Answer:
        return fedcm("run", path, "--runs-dir", tmp_path / "runs", *words)

    return call


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """Parameters from rows that begin with what is wrong."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


# The file


@pytest.mark.parametrize(
    ("content", "said"),
    cases(
        ("not TOML", b"rounds = = 3", "is not valid TOML: Invalid value (at line 1, column 10)"),
        ("cut off", b'rounds = 3\n[client]\nlr = "', "is not valid TOML"),
        ("a key twice", b"rounds = 3\nrounds = 4", "is not valid TOML: Cannot overwrite a value"),
        ("JSON", b'{"rounds": 3}', "is not valid TOML"),
        ("a picture", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "cannot be read: 'utf-8' codec can't decode"),
        ("Latin-1", 'name = "Größe"'.encode("latin-1"), "cannot be read: 'utf-8' codec can't decode"),
        ("UTF-16", "rounds = 3".encode("utf-16"), "cannot be read"),
        ("zeros", bytes(100), "is not valid TOML"),
        ("empty", b"", "model.name must be given"),
        ("a number too long to read", b"rounds = " + b"9" * 5000, "is not valid TOML"),
        ("nested without end", b"rounds = " + b"[" * 100_000, "is not valid TOML"),
    ),
)
def test_a_file_that_is_no_experiment_is_refused(run: Fedcm, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    refused(run(path), said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["run", "compare", "split"])
def test_a_file_that_is_not_there_is_refused(fedcm: Fedcm, command: str) -> None:
    words = ["data", "split"] if command == "split" else [command]
    refused(fedcm(*words, "nowhere.toml"), "there is no experiment 'nowhere.toml'")


def test_a_folder_instead_of_an_experiment_is_refused(run: Fedcm, tmp_path: Path) -> None:
    refused(run(tmp_path), "is a folder; give an experiment's .toml file")


def test_a_file_inside_a_file_is_refused(run: Fedcm, experiment: Write) -> None:
    refused(run(experiment() / "more.toml"), "Not a directory")


# The settings


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(
        ("unknown key at the top", {"round": 3}, "there is no setting 'round'; did you mean 'rounds'?"),
        ("unknown key in client", {"client": {"epoch": 3}}, "no setting 'client.epoch'; did you mean 'epochs'?"),
        ("unknown key in data", {"data": {"src": "digits"}}, "no setting 'data.src'"),
        ("unknown key in server", {"server": {"momentum": 0.9}}, "no setting 'server.momentum'"),
        ("unknown key in evaluation", {"evaluation": {"evry": 3}}, "did you mean 'every'?"),
        ("unknown key in checkpoints", {"checkpoints": {"last": 3}}, "no setting 'checkpoints.last'"),
        (
            "unknown key in split",
            {"split": {"kind": "iid", "clients": 3, "concentration": 1.0}},
            "split 'iid' has no setting 'concentration'",
        ),
        (
            "unknown key in participation",
            {"participation": {"kind": "fixed", "client": 3}},
            "has no setting 'client'; did you mean 'clients'?",
        ),
        (
            "unknown key in algorithm",
            {"algorithm": {"name": "fedcm", "beta": 0.1}},
            "algorithm 'fedcm' has no setting 'beta'",
        ),
        (
            "unknown model option",
            {"model": {"name": "mlp", "hiden": [3]}},
            "model 'mlp' has no option 'hiden'; did you mean 'hidden'?",
        ),
        (
            "settings for an unknown algorithm",
            {"for": {"fedmc": {"client": {"lr": 0.2}}}},
            "did you mean 'fedcm'?",
        ),
        ("settings for algorithms as a number", {"for": 3}, "for must be a table of tables"),
        ("a text for a number", {"rounds": "ten"}, "rounds must be a valid integer, got 'ten'"),
        ("a fraction for a count", {"rounds": 2.5}, "rounds must be a valid integer, got 2.5"),
        ("yes for a count", {"rounds": True}, "rounds must be a valid integer, got True"),
        ("a number for a name", {"name": 3}, "name must be a valid string, got 3"),
        ("an empty name", {"name": ""}, "name"),
        ("a number for a table", {"client": 3}, "client must be a table, got 3"),
        ("a list of tables", {"client": [{"lr": 0.1}]}, "client must be a table"),
        ("a text for the split", {"split": "iid"}, "split must be a table, got 'iid'"),
        ("a text for the algorithm", {"algorithm": "fedcm"}, "algorithm must be a table"),
        ("a text for the model", {"model": "mlp"}, "model.name must be given"),
        ("a number for the model's name", {"model": {"name": 3}}, "model.name must be a valid string, got 3"),
        ("no rounds at all", {"rounds": 0}, "rounds must be greater than or equal to 1, got 0"),
        ("a negative seed", {"seed": -1}, "seed must be greater than or equal to 0, got -1"),
        ("a seed too large", {"seed": 2**63}, "seed must be less than"),
        ("a rate of zero", {"client": {"lr": 0}}, "client.lr must be greater than 0, got 0"),
        ("an infinite rate", {"client": {"lr": float("inf")}}, "client.lr must be a finite number, got inf"),
        ("growing rates", {"client": {"lr_decay": 1.01}}, "client.lr_decay must be less than or equal to 1"),
        ("a negative decay", {"client": {"weight_decay": -0.1}}, "client.weight_decay must be greater than"),
        ("a batch of none", {"client": {"batch_size": 0}}, "client.batch_size must be greater than or equal to 1"),
        ("a target in percent", {"evaluation": {"targets": [80]}}, "must be less than 1, got 80"),
        ("keeping no checkpoint", {"checkpoints": {"keep": 0}}, "checkpoints.keep must be greater than"),
        (
            "a probability above 1",
            {"participation": {"kind": "independent", "probability": 2.0}},
            "probability must lie in (0, 1], got 2.0",
        ),
        ("nobody takes part", {"participation": {"kind": "fixed", "clients": 0}}, "clients must be at least 1"),
        ("alpha out of range", {"algorithm": {"name": "fedcm", "alpha": 1.5}}, "alpha must lie in (0, 1], got 1.5"),
        ("no model", {"model": {}}, "model.name must be given: a bundled model (`fedcm models` lists them)"),
        ("no algorithm", {"algorithm": {}}, "algorithm.name must be given: one of"),
        ("no clients in the split", {"split": {"kind": "iid"}}, "split.clients must be given for 'iid'"),
        ("no kind of split", {"split": {"clients": 3}}, "split.kind must be one of iid, dirichlet"),
        ("steps and epochs", {"client": {"steps": 3, "epochs": 3}}, "exclude each other; give one of them"),
        (
            "scaffold weighted by examples",
            {"algorithm": {"name": "scaffold"}, "server": {"weights": "examples"}},
            'set server.weights = "clients"',
        ),
        ("an unknown algorithm", {"algorithm": {"name": "fedavgg"}}, "did you mean 'fedavg'?"),
        ("an unknown model", {"model": {"name": "resnet"}}, "there is no model 'resnet'; did you mean 'resnet8'?"),
        ("an unknown split", {"split": {"kind": "iidd", "clients": 2}}, "did you mean 'iid'?"),
        ("an unknown participation", {"participation": {"kind": "all"}}, "known: independent, fixed, everyone"),
        ("unknown data", {"data": {"source": "cifar-10"}}, "did you mean 'cifar10'?"),
        ("no data named", {"data": {"source": ""}}, "data.source must have at least 1 character"),
        ("data with a name too long for a file", {"data": {"source": "x" * 300}}, "data must be a known name"),
        ("data of an unknown person", {"data": {"source": "~nobody-of-that-name/x.npz"}}, "must be an .npz"),
        (
            "more clients than examples",
            {"split": {"kind": "iid", "clients": 1000}},
            "1000 clients need at least 1000 training examples, and there are 240",
        ),
        (
            "more shards than examples",
            {"split": {"kind": "shards", "clients": 20, "per_client": 20}},
            "20 clients need at least 400 training examples",
        ),
        ("a natural split of data without", {"split": {"kind": "natural"}}, "use 'iid' or 'dirichlet'"),
        ("an image model on flat data", {"model": {"name": "lenet"}}, "use the model 'mlp' or 'linear'"),
        ("a layer of minus one unit", {"model": {"name": "mlp", "hidden": [-1]}}, "model 'mlp' could not be made"),
        ("a batch beyond all numbers", {"client": {"batch_size": 10**30}}, "client.batch_size must be"),
        ("a rate beyond float32", {"client": {"lr": 1e39}}, "client.lr must be"),
        ("a decay beyond float32", {"client": {"weight_decay": 1e39}}, "client.weight_decay must be"),
    ),
)
def test_settings_that_cannot_work_are_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    refused(run(experiment(**changes)), said)
    assert not (tmp_path / "runs").exists()


def test_an_experiment_without_rounds_is_refused(run: Fedcm, tmp_path: Path, npz: Path) -> None:
    table = small_experiment(npz)
    del table["rounds"]
    (tmp_path / "small.toml").write_text(tomli_w.dumps(table))
    refused(run("small.toml"), "rounds must be given")


@pytest.mark.parametrize(
    ("setting", "said"),
    cases(
        ("no value", "client.lr", "--set takes path=value, such as client.lr=0.05, got 'client.lr'"),
        ("no path", "=3", "--set takes path=value"),
        ("a hole in the path", "client..lr=3", "--set takes path=value"),
        ("into a value", "rounds.more=3", "'rounds' is a value, not a table"),
        ("an unknown path", "clients.lr=3", "there is no setting 'clients'; did you mean 'client'?"),
        ("a text for a number", "client.lr=fast", "client.lr must be a valid number, got 'fast'"),
        ("an empty value", "client.lr=", "client.lr must be a valid number, got ''"),
        ("an unknown algorithm", "algorithm.name=sgd", "there is no algorithm 'sgd'"),
        ("an algorithm that is a number", "algorithm.name=3", "algorithm.name must be given"),
        ("an algorithm that is a list", "algorithm.name=[1]", "algorithm.name must be given"),
        ("a number too long to read", "rounds=" + "9" * 5000, "--set takes path=value"),
    ),
)
def test_a_bad_setting_on_the_command_line_is_refused(run: Fedcm, experiment: Write, setting: str, said: str) -> None:
    refused(run(experiment(), "--set", setting), said)


@pytest.mark.parametrize(
    "changes", cases(("algorithm", {"algorithm": "fedcm"}), ("for", {"for": 3}), ("for.fedavg", {"for": {"fedavg": 3}}))
)
def test_a_table_that_is_none_is_refused_when_the_algorithm_is_changed(
    run: Fedcm, fedcm: Fedcm, experiment: Write, changes: dict[str, Any]
) -> None:
    path = experiment(**changes)
    refused(run(path, "--set", "algorithm.name=fedavg"), "must be")
    refused(fedcm("compare", path, "--algorithms", "fedavg"), "must be")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "/tmp/x", ".hidden", "a b", "-x", "a\n", "x" * 300])
def test_a_bad_name_is_refused(run: Fedcm, experiment: Write, tmp_path: Path, name: str) -> None:
    refused(run(experiment(), f"--name={name}"), "a run's name must be up to 200 letters, digits and . _ + = -")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", cases(("two bytes a letter", "é" * 150), ("three", "界" * 100)))
def test_a_name_too_long_for_the_file_system_is_refused(run: Fedcm, experiment: Write, name: str) -> None:
    refused(run(experiment(), "--name", name), "name")


def test_a_name_that_exists_is_refused_and_its_run_untouched(run: Fedcm, experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=1)
    assert run(path, "--name", "one").code == 0
    before = contents(tmp_path / "runs")
    refused(run(path, "--name", "one"), "exists already; go on with it by `fedcm resume")
    assert contents(tmp_path / "runs") == before


# Where runs go


def test_a_runs_dir_that_is_a_file_is_refused(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(fedcm("run", experiment(), "--runs-dir", "file"), "file")
    refused(fedcm("run", experiment(), "--runs-dir", "file/inside"), "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_runs_dir_that_cannot_be_written_is_refused(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    place = Path("/proc/runs") if os.geteuid() == 0 else locked / "runs"  # root may write anywhere but there
    refused(fedcm("run", experiment(), "--runs-dir", place), str(place))


# The user's arrays


def arrays(**changes: Any) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    made = {
        "x_train": draw.normal(size=(40, 6)).astype(np.float32),
        "y_train": np.arange(40) % 4,
        "x_test": draw.normal(size=(8, 6)).astype(np.float32),
        "y_test": np.arange(8) % 4,
    } | changes
    return {key: value for key, value in made.items() if value is not None}


def with_nan() -> np.ndarray:
    x = np.zeros((40, 6), np.float32)
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(
        ("no labels", {"y_train": None}, "must have the arrays x_train and y_train, got no 'y_train'"),
        ("another name", {"x_train": None, "xtrain": np.zeros((40, 6))}, "rename 'xtrain' to 'x_train'"),
        ("half a test set", {"y_test": None}, "got no 'y_test'"),
        ("objects", {"y_train": np.array([{}] * 40, object)}, "'y_train' must be an array of numbers"),
        ("texts", {"y_train": np.array(["cat"] * 40)}, "labels must be integers (or floats for a regression)"),
        ("complex numbers", {"x_train": np.zeros((40, 6), complex)}, "features must be numbers"),
        ("a nan", {"x_train": with_nan()}, "features must be finite as float32, got nan in example 3"),
        ("an infinite label", {"y_train": np.full(40, np.inf)}, "labels must be finite"),
        ("lengths that differ", {"y_train": np.arange(39) % 4}, "must have the same length, got 40 and 39"),
        ("negative labels", {"y_train": np.arange(40) % 4 - 1}, "labels must be 0 or more, got -1 at index 0"),
        ("identity numbers", {"y_train": np.arange(40) + 10**9}, "labels must be the classes' numbers"),
        ("labels past 63 bits", {"y_train": np.full(40, 2**64 - 1, np.uint64)}, "labels must be"),
        ("one-hot labels", {"y_train": np.eye(4)[np.arange(40) % 4]}, "for one-hot labels give their argmax"),
        ("flat features", {"x_train": np.zeros(40)}, "features must be (examples, ...), got shape (40,)"),
        ("nothing", {"x_train": np.zeros((0, 6)), "y_train": np.zeros(0, int)}, "at least one example"),
        ("another test shape", {"x_test": np.zeros((8, 5), np.float32)}, "of one shape and kind"),
        ("another test kind", {"y_test": np.zeros(8)}, "of one shape and kind, got () int64 and () float32"),
        ("a regression split by label", {"y_train": np.zeros(40), "y_test": np.zeros(8)}, "'iid' or 'natural'"),
        (
            "token numbers for a dense model",
            {"x_train": np.zeros((40, 6), int), "x_test": np.zeros((8, 6), int)},
            "float",
        ),
    ),
)
def test_arrays_that_cannot_be_used_are_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "mine.npz", **arrays(**changes))
    refused(run(experiment(data={"source": "mine.npz"})), said)
    assert not (tmp_path / "runs").exists()


def npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def zipped(**members: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)

    return write


def cut(path: Path) -> None:
    write_npz(path)
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    write_npz(path)
    raw = bytearray(path.read_bytes())
    raw[2000] ^= 255
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("damage", "said"),
    cases(
        ("not there", lambda path: None, "mine.npz, got nothing there"),
        ("empty", lambda path: path.write_bytes(b""), "cannot be read as an .npz; write it with numpy.savez"),
        ("junk", lambda path: path.write_bytes(b"PK\x03\x04 junk"), "cannot be read as an .npz"),
        ("a text", lambda path: path.write_text("x,y\n1,2\n"), "cannot be read as an .npz"),
        ("cut off", cut, "cannot be read as an .npz"),
        ("a flipped byte", flipped, "cannot be read as an .npz"),
        ("one array", lambda path: np.save(path.open("wb"), np.zeros(3)), "got a single array"),
        ("a folder", lambda path: path.mkdir(), "there must be an .npz file"),
        ("not arrays", zipped(x_train=b"hello", y_train=b"there"), "mine.npz"),
        ("a header that lies", zipped(x_train=npy_header("(1000000000000, 6)")), "cannot be read as an .npz"),
        ("a header without sense", zipped(x_train=npy_header("(-1, 'six')")), "cannot be read as an .npz"),
    ),
)
def test_a_damaged_npz_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(tmp_path / "mine.npz")
    refused(run(experiment(data={"source": "mine.npz"})), said)


def client(**changes: Any) -> dict[str, Any]:
    return {"x": np.zeros((5, 6), np.float32), "y": np.arange(5) % 4} | changes


@pytest.mark.parametrize(
    ("files", "said"),
    cases(
        ("empty", {}, "must hold one .npz a client (keys x, y), got none"),
        ("only a test set", {"test": client()}, "must hold one .npz a client"),
        ("shapes that differ", {"ann": client(), "bob": client(x=np.zeros((5, 7), np.float32))}, "ann and bob must"),
        ("kinds that differ", {"ann": client(), "bob": client(y=np.zeros(5))}, "ann and bob must have labels"),
        ("a client without labels", {"ann": client(), "bob": {"x": np.zeros((5, 6))}}, "must have the arrays x and y"),
        ("a client without data", {"ann": client(), "bob": client(x=np.zeros((0, 6)), y=np.zeros(0, int))}, "bob.npz"),
        ("a test set of another shape", {"ann": client(), "test": client(x=np.zeros((5, 7), np.float32))}, "test set"),
    ),
)
def test_a_folder_of_clients_that_do_not_fit_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, files: dict[str, Any], said: str
) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, content in files.items():
        np.savez(folder / name, **content)
    refused(run(experiment(data={"source": "clients"}, split={"kind": "natural"})), said)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
def test_data_that_are_not_prepared_are_refused(run: Fedcm, experiment: Write, tmp_path: Path, name: str) -> None:
    answer = run(experiment(data={"source": name}), "--data-dir", tmp_path / "data")
    refused(answer, f"run `fedcm data prepare {name}`")


def test_prepared_data_that_are_not_the_published_ones_are_refused(
    run: Fedcm, experiment: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    for part, size in (("train", 50), ("test", 10)):
        np.save(folder / f"{part}_images.npy", np.zeros((size, 3072), np.uint8))
        np.save(folder / f"{part}_labels.npy", np.zeros(size, np.uint8))
    path = experiment(data={"source": "cifar10"})
    refused(run(path, "--data-dir", "data"), "the train images must be the published ones, got others")
    (folder / "train_images.npy").write_bytes(b"junk")
    refused(run(path, "--data-dir", "data"), "cannot be read")


def other_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "something/else.py")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    cases(
        ("nothing there", "cifar10", lambda path: None, "there must be an archive or a folder at given, got nothing"),
        ("a text", "cifar10", lambda path: path.write_text("hello"), "cannot be read as a .tar.gz"),
        ("another archive", "cifar10", other_archive, "must hold data_batch_1, got none"),
        ("an empty folder", "cifar100", lambda path: path.mkdir(), "must hold train, got none"),
        ("a file for a folder", "mnist", lambda path: path.write_text("hello"), "must be a folder with train-images"),
        ("an empty folder of idx", "mnist", lambda path: path.mkdir(), "must be a folder with train-images"),
        ("an unknown name", "cifar", lambda path: path.mkdir(), "did you mean 'cifar10'?"),
    ),
)
def test_a_wrong_archive_is_refused(
    fedcm: Fedcm, tmp_path: Path, name: str, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "given")
    answer = fedcm("data", "prepare", name, "--from", "given", "--data-dir", "data", "--offline")
    refused(answer, said, informed=r"cifar\d+: reading given")


def test_data_that_can_only_come_from_the_network_are_refused_offline(fedcm: Fedcm) -> None:
    answer = fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", "data")
    refused(answer, "`fedcm data prepare cifar10 --from PATH`")


def test_a_data_folder_that_is_a_file_is_refused(fedcm: Fedcm, npz: Path) -> None:
    refused(fedcm("data", "prepare", "cifar10", "--offline", "--data-dir", npz), "must be written to")


# The user's code


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], str]:
    """Writes a module into the current folder and gives its name."""

    def write(code: str) -> str:
        name = f"users_own_{next(_MODULES)}"
        (tmp_path / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{dedent(code)}")
        return name

    return write


@pytest.mark.parametrize("place", ["data", "model", "algorithm"])
@pytest.mark.parametrize(
    ("code", "path", "said"),
    cases(
        ("no module", "", "no_such_module:thing", "there is no module 'no_such_module' in"),
        ("no attribute", "def factory(): ...", "{}:facory", "has no 'facory'; did you mean 'factory'?"),
        ("an exception inside", "1 / 0", "{}:thing", "cannot be imported: ZeroDivisionError: division by zero"),
        ("a syntax error", "def (", "{}:thing", "cannot be imported: SyntaxError"),
        ("an import that fails", "import no_such_other", "{}:thing", "No module named 'no_such_other'"),
        ("it leaves", "raise SystemExit(0)", "{}:thing", "cannot be imported: SystemExit"),
        ("a long complaint", "raise RuntimeError('one\\ntwo\\nthree')", "{}:thing", "cannot be imported"),
        ("not callable", "thing = 3", "{}:thing", "must be a f"),
        ("not a name", "", "{}:3 things", "must be written as package.module:name"),
        ("two colons", "", "{}:a:b", "must be written as package.module:name"),
    ),
)
def test_an_import_path_that_leads_nowhere_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str], place: str, code: str, path: str, said: str
) -> None:
    key = "source" if place == "data" else "name"
    refused(run(experiment(**{place: {key: path.format(module(code))}})), said)


@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("fails", "def f(): raise KeyError('x')", "must give data, got KeyError"),
        ("asks for arguments", "def f(path): ...", "must give data, got TypeError"),
        ("gives nothing", "def f(): return None", "must give a fedcm Dataset, (train, test), a list of clients"),
        ("gives an empty list", "def f(): return []", "there must be at least one client, got an empty list"),
        ("leaves", "def f(): raise SystemExit(0)", "must give data"),
        (
            "complains at length",
            "def f(): raise RuntimeError('one\\ntwo\\nthree')",
            "must give data, got RuntimeError: one",
        ),
        (
            "fails in an example",
            """
            class Bad(torch.utils.data.Dataset):
                def __len__(self): return 3
                def __getitem__(self, index): raise OSError('a picture is missing')
            def f(): return Bad()
            """,
            "a picture is missing",
        ),
        (
            "gives a Dataset with a client that holds nothing",
            """
            import numpy as np
            from fedcm.data import Dataset, Examples
            def f():
                train = Examples(torch.zeros(4, 6), torch.tensor([0, 1, 2, 3]))
                return Dataset("mine", train, None, 4, owners=np.array([0, 0, 2, 2]))
            """,
            "client 1",
        ),
        (
            "gives a Dataset of two lengths",
            """
            from fedcm.data import Dataset, Examples
            def f(): return Dataset("mine", Examples(torch.zeros(50, 6), torch.zeros(30).long()), None, 4)
            """,
            "must have the same length",
        ),
    ),
)
def test_a_function_that_gives_no_data_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str], code: str, said: str
) -> None:
    split = {"kind": "natural"} if "owners" in code else {"kind": "iid", "clients": 2}
    refused(run(experiment(data={"source": f"{module(code)}:f"}, split=split)), said)


@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("gives no module", "def f(): return 3", "must return an nn.Module, got int"),
        ("fails", "def f(): raise KeyError('x')", "could not be made: KeyError: 'x'"),
        ("fails at length", "def f(): raise KeyError('x') if 0 else RuntimeError('one\\ntwo')", "could not be made"),
        ("asks for more", "def f(width): ...", "could not be made: TypeError"),
        ("leaves", "def f(): raise SystemExit(0)", "could not be made"),
        ("batch norm", "def f(): return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))", "use nn.GroupNorm instead"),
        ("no parameters", "def f(): return nn.Flatten()", "must have parameters to train, and has none"),
        ("lazy", "def f(): return nn.LazyLinear(4)", "pass one batch through it first"),
        ("too few outputs", "def f(): return nn.Linear(6, 2)", "must give 4 outputs, one a class, and gives 2"),
        ("too many inputs", "def f(): return nn.Linear(7, 4)", "must take examples of (6,)"),
        (
            "a tuple",
            """
            class Two(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(6, 4)
                def forward(self, x): return self.layer(x), x
            f = Two
            """,
            "must take examples of (6,) float32 and give 4 outputs with a gradient, and failed",
        ),
        (
            "without a gradient",
            """
            class Still(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(6, 4)
                def forward(self, x): return self.layer(x).detach()
            f = Still
            """,
            "gradient",
        ),
    ),
)
def test_a_model_that_cannot_be_trained_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, module: Callable[[str], str], code: str, said: str
) -> None:
    refused(run(experiment(model={"name": f"{module(code)}:f"})), said)
    assert not (tmp_path / "runs").exists()


ALGORITHM = """
from dataclasses import dataclass
from fedcm.algorithm import Algorithm, Nothing
from fedcm.algorithms.fedavg import Broadcast, FedAvg, Report, ServerState
"""


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("not an algorithm", "class A: ...", "must be a frozen dataclass that derives from fedcm.Algorithm"),
        ("no dataclass", "class A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...", "must be a frozen"),
        (
            "functions missing",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...",
            "abstract",
        ),
        ("no messages named", "@dataclass(frozen=True)\nclass A(Algorithm): ...", "with four NamedTuples"),
        (
            "settings that nobody can give",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: nn.Module",
            "x must be given",
        ),
        (
            "annotations that mean nothing",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: 'Foo' = 1",
            "Foo",
        ),
    ),
)
def test_an_algorithm_that_is_none_is_refused(
    fedcm: Fedcm, run: Fedcm, experiment: Write, module: Callable[[str], str], command: str, code: str, said: str
) -> None:
    name = f"{module(ALGORITHM + code)}:A"
    answer = fedcm("check", name) if command == "check" else run(experiment(algorithm={"name": name}))
    refused(answer, said)


def test_a_check_of_what_does_not_exist_is_refused(fedcm: Fedcm) -> None:
    refused(fedcm("check", "fedavgm"), "there is no algorithm 'fedavgm'; did you mean 'fedavg'?")
    refused(fedcm("check", "fedcm", "--set", "alpha"), "--set takes path=value")
    refused(fedcm("check", "fedcm", "--set", "alpha=2"), "alpha must lie in (0, 1], got 2")


# Comparisons and pictures


@pytest.mark.parametrize(
    ("words", "said"),
    cases(
        ("an unknown one", ["--algorithms", "fedavg,fedmc"], "no algorithm 'fedmc'; did you mean 'fedcm'?"),
        ("one that is not importable", ["--algorithms", "no.such:Thing"], "there is no module"),
        ("a bad setting", ["--set", "client.lr=0"], "client.lr must be greater than 0"),
    ),
)
def test_a_comparison_that_cannot_work_is_refused_before_the_first_run(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, words: list[str], said: str
) -> None:
    refused(fedcm("compare", experiment(rounds=1), "--runs-dir", "runs", *words), said)
    assert not (tmp_path / "runs").exists()


def test_a_fresh_comparison_that_cannot_start_loses_nothing(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, npz: Path
) -> None:
    path = experiment(rounds=1)
    words = ["compare", path, "--algorithms", "fedavg,fedcm", "--runs-dir", "runs"]
    assert fedcm(*words).code == 0
    before = contents(tmp_path / "runs")
    npz.rename(tmp_path / "gone.npz")
    refused(fedcm(*words, "--fresh"), "there must be an .npz file")
    assert contents(tmp_path / "runs") == before


def test_two_algorithms_of_one_name_are_not_taken_for_each_other(
    fedcm: Fedcm, experiment: Write, module: Callable[[str], str]
) -> None:
    code = (
        ALGORITHM
        + """
@dataclass(frozen=True)
class Same(Algorithm[ServerState, Broadcast, Nothing, Report]):
    def init_server(self, params): return ServerState(params)
    def init_client(self, params): return Nothing()
    def broadcast(self, server): return Broadcast(server.params)
    def direction(self, gradient, params, sent, kept): return {} * gradient(params)
    def report(self, run, sent, kept): return Report(run.moved), kept
    def update(self, server, mean, round): return ServerState(server.params - mean.moved)
"""
    )
    names = ",".join(f"{module(code.format(factor))}:Same" for factor in ("1.0", "0.5"))
    answer = fedcm("compare", experiment(rounds=2), "--algorithms", names, "--runs-dir", "runs", "--json")
    if answer.code == 0:
        one, two = json.loads(answer.out).values()
        assert one["params_sha256"] != two["params_sha256"]
    else:
        refused(answer, "Same")


@pytest.mark.parametrize("name", ["../up", "/tmp/break-fedcm-outside", "a/b", "nul\u0000", "cost in $ and $x_$"])
def test_an_experiments_name_cannot_lead_out_of_the_folder(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, name: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = experiment(rounds=1, name=name)
    os.chdir(inner)
    try:
        for words in (["compare", path, "--algorithms", "fedavg", "--runs-dir", "runs"], ["data", "split", path]):
            answer = fedcm(*words)
            assert answer.code in (0, 2), answer.err
            if answer.code == 2:
                refused(answer, "name")
        outside = {*tmp_path.glob("*.png"), *Path("/tmp").glob("break-fedcm-outside*.png")}
        assert not outside
    finally:
        os.chdir(tmp_path)
        for file in Path("/tmp").glob("break-fedcm-outside*.png"):
            file.unlink()


@pytest.mark.parametrize("output", ["picture", "picture.xyz", "folder"])
def test_a_picture_that_cannot_be_drawn_there_is_refused(
    fedcm: Fedcm, experiment: Write, tmp_path: Path, output: str
) -> None:
    (tmp_path / "folder").mkdir()
    refused(fedcm("data", "split", experiment(), "--output", output), output)


def test_the_label_mix_of_a_regression_is_refused(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays(y_train=np.zeros(40), y_test=np.zeros(8)))
    path = experiment(data={"source": "mine.npz"}, split={"kind": "iid", "clients": 2})
    refused(fedcm("data", "split", path), "needs labels that are classes")


# Going on


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which says nothing."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture
def stopped(run: Fedcm, experiment: Write, tmp_path: Path) -> Path:
    """A run of 12 rounds that stopped after 6."""
    assert run(experiment(rounds=6), "--name", "stopped").code == 0
    folder = tmp_path / "runs" / "stopped"
    (folder / "summary.json").unlink()
    toml = folder / "experiment.toml"
    toml.write_text(toml.read_text().replace("rounds = 6", "rounds = 12"))
    return folder


def test_the_stopped_run_of_these_tests_can_go_on(fedcm: Fedcm, stopped: Path) -> None:
    assert fedcm("resume", stopped).code == 0
    assert len((stopped / "metrics.jsonl").read_text().splitlines()) == 12


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def all_checkpoints(content: bytes, suffix: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in (folder / "checkpoints").glob(f"*{suffix}"):
            file.write_bytes(content)

    return change


def reworded(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def fewer_metrics(folder: Path) -> None:
    file = folder / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))


def a_note_far_ahead(folder: Path) -> None:
    note = max((folder / "checkpoints").glob("*.json"))
    for file in (note, note.with_suffix(".safetensors")):
        file.rename(file.with_stem(f"round-{10**15}"))
    for other in (folder / "checkpoints").glob("round-0*.json"):
        other.unlink()


def changed_data(folder: Path) -> None:
    npz = folder.parent.parent / "made.npz"
    changed = dict(np.load(npz))
    changed["x_train"][3, 1] += 1
    np.savez(npz, **changed)


def no_data(folder: Path) -> None:
    (folder.parent.parent / "made.npz").unlink()


ROUNDS_AS_LISTS = b"[0]\n[1]\n[2]\n[3]\n[4]\n[5]\n"


@pytest.mark.parametrize(
    ("damage", "said"),
    cases(
        ("experiment not TOML", replaced("experiment.toml", b"rounds = = 3"), "is not valid TOML"),
        ("experiment empty", replaced("experiment.toml", b""), "must be given"),
        ("experiment not UTF-8", replaced("experiment.toml", b"\xff\xfe"), "cannot be read"),
        ("experiment with a typo", reworded("experiment.toml", "rounds", "round"), "did you mean 'rounds'?"),
        ("no experiment", lambda folder: (folder / "experiment.toml").unlink(), "there is no run"),
        ("no provenance", lambda folder: (folder / "provenance.json").unlink(), "start the run anew"),
        ("provenance not JSON", replaced("provenance.json", b"{"), "provenance.json' cannot be read"),
        ("provenance not UTF-8", replaced("provenance.json", b"\xff\xfe"), "provenance.json' cannot be read"),
        ("provenance a list", replaced("provenance.json", b"[1]"), "provenance.json"),
        ("provenance without data", replaced("provenance.json", b"{}"), "provenance.json"),
        ("provenance with other data", replaced("provenance.json", b'{"data_sha256": [1]}'), "provenance.json"),
        ("no metrics", lambda folder: (folder / "metrics.jsonl").unlink(), "must hold rounds 0 to 5"),
        ("metrics not JSON", replaced("metrics.jsonl", b"{}\nwhat\n"), "metrics.jsonl' is damaged"),
        ("metrics not UTF-8", replaced("metrics.jsonl", b"\xff\xfe\n"), "metrics.jsonl' is damaged"),
        ("metrics of other things", replaced("metrics.jsonl", ROUNDS_AS_LISTS), "metrics.jsonl"),
        ("metrics cut short", fewer_metrics, "must hold rounds 0 to 5, which the checkpoint stands on"),
        ("all tensors junk", all_checkpoints(b"junk", ".safetensors"), "no checkpoint of"),
        ("all tensors empty", all_checkpoints(b"", ".safetensors"), "start the run anew with `fedcm run"),
        ("all notes junk", all_checkpoints(b"\xff", ".json"), "no checkpoint of"),
        ("a note far ahead", a_note_far_ahead, "no checkpoint of"),
        ("another model", reworded("experiment.toml", "    8,\n", "    9,\n"), "and was changed"),
        ("data changed", changed_data, "has another checksum; bring the old data back or start a new run"),
        ("data gone", no_data, "there must be an .npz file"),
        ("another seed", reworded("experiment.toml", "seed = 3", "seed = 4"), "and was changed"),
    ),
)
def test_a_damaged_run_is_refused_and_left_as_it_is(
    fedcm: Fedcm, stopped: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(stopped)
    before = contents(stopped)
    refused(fedcm("resume", stopped), said, informed=r"checkpoint round-\d+ is damaged|run .* goes on at round")
    assert contents(stopped) == before


@pytest.mark.parametrize(
    "summary", cases(("a list", "[1]"), ("without a name", '{"outcome": "finished"}'), ("a text", '"finished"'))
)
def test_a_damaged_summary_gives_no_traceback(fedcm: Fedcm, stopped: Path, summary: str) -> None:
    (stopped / "summary.json").write_text(summary)
    answer = fedcm("resume", stopped)
    assert answer.code in (0, 2), answer.err
    assert fedcm("runs", "--runs-dir", stopped.parent).code == 0


@pytest.mark.parametrize(
    ("path", "said"),
    cases(
        ("nothing there", "runs/stoped", "there is no run 'runs/stoped'; did you mean 'runs/stopped'?"),
        ("nowhere at all", "no/such/place", "there is no run 'no/such/place'"),
        ("a folder that is no run", "runs", "there is no run 'runs'"),
        ("a file", "small.toml", "there is no run 'small.toml'"),
        ("a path too long for a file", "x" * 300, "there is no run"),
    ),
)
def test_what_is_no_run_cannot_go_on(fedcm: Fedcm, stopped: Path, path: str, said: str) -> None:
    refused(fedcm("resume", path), said)


@pytest.mark.parametrize(
    "damage",
    cases(
        ("experiment not TOML", replaced("experiment.toml", b"rounds = = 3")),
        ("algorithm a text", replaced("experiment.toml", b'rounds = 3\nalgorithm = "fedcm"\n')),
        ("algorithm a number", replaced("experiment.toml", b"rounds = 3\nalgorithm.name = 3\n")),
        ("metrics not JSON", replaced("metrics.jsonl", b"{}\nwhat\n")),
        ("metrics not UTF-8", replaced("metrics.jsonl", b"\xff\xfe\n")),
        ("metrics of other things", replaced("metrics.jsonl", ROUNDS_AS_LISTS)),
    ),
)
def test_one_damaged_run_does_not_hide_the_others(fedcm: Fedcm, stopped: Path, damage: Callable[[Path], None]) -> None:
    shutil.copytree(stopped, stopped.parent / "sound")
    damage(stopped)
    answer = fedcm("runs", "--runs-dir", stopped.parent)
    assert answer.code == 0, answer.err
    assert "sound" in answer.out


def test_the_newest_checkpoint_is_the_newest_beyond_a_million_rounds(tmp_path: Path) -> None:
    import torch

    for next_round in (999_998, 999_999, 1_000_000):
        state = checkpoint.Checkpoint(next_round, ServerState(torch.full((2,), float(next_round))), {})
        checkpoint.write(tmp_path, state, keep=2)
    found = checkpoint.newest(tmp_path, ServerState(torch.zeros(2)), lambda _: None, print)
    assert found is not None
    assert found.next_round == 1_000_000


# Stopping, racing and full disks: no refusals, but the same promises


def test_a_run_in_which_nobody_takes_part_can_be_stopped(experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=50, participation={"kind": "independent", "probability": 1e-12})
    rounds = drive(begin(read(read_table(path)), tmp_path / "runs", "empty", stop_requested=lambda: True))
    with pytest.raises(Stopped):
        for _ in rounds:
            pass


def test_a_run_that_another_process_finished_meanwhile_stays_finished(experiment: Write, tmp_path: Path) -> None:
    first = drive(begin(read(read_table(experiment())), tmp_path / "runs", "one"))
    for _ in range(6):
        next(first)
    with pytest.raises(Refused, match="in progress"):
        resume(tmp_path / "runs" / "one")  # no state is read before the lock is held
    for _ in first:
        pass
    before = lines_of(tmp_path / "runs" / "one")
    for _ in drive(resume(tmp_path / "runs" / "one")):
        raise AssertionError("nothing is left to run")
    assert lines_of(tmp_path / "runs" / "one") == before


def test_a_disk_that_is_full_is_said_in_a_sentence(
    run: Fedcm, experiment: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    answer = run(experiment())
    assert answer.code == 1
    assert "No space left on device" in answer.err.splitlines()[-1]
    assert answer.err.splitlines()[-1].startswith("fedcm: ")


def test_a_checkpoint_under_another_rounds_name_is_not_believed(fedcm: Fedcm, stopped: Path) -> None:
    for file in (stopped / "checkpoints").glob("round-000006.*"):
        file.rename(file.with_stem("round-000005"))
    answer = fedcm("resume", stopped)
    assert "is damaged (it holds the state after 6 rounds)" in answer.err
    assert "goes on at round 4" in answer.err


def test_a_model_that_changes_its_buffers_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str]
) -> None:
    name = module("def f(): return nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))")
    refused(run(experiment(model={"name": f"{name}:f"})), "_u")
