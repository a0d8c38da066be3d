"""Bad settings, in the file or on the command line, are rejected in one sentence with code 2.

There is no traceback, nothing on stdout and nothing written.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from cli_errors import Fedcm, Write, assert_rejected, make_params, read_files
from scenes import small_experiment


@pytest.mark.parametrize(
    ("content", "message"),
    make_params(
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
        ("nested too deeply", b"rounds = " + b"[" * 100_000, "is not valid TOML"),
    ),
)
def test_an_unreadable_experiment_file_is_rejected(run: Fedcm, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    assert_rejected(run(path), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["run", "compare", "split"])
def test_a_missing_experiment_file_is_rejected(fedcm: Fedcm, command: str) -> None:
    words = ["data", "split"] if command == "split" else [command]
    assert_rejected(fedcm(*words, "nowhere.toml"), "there is no experiment 'nowhere.toml'")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("demo.toml", "fedcm run demo"),
        ("experiments/demo.toml", "fedcm run demo"),
        ("mini/table1.toml", "fedcm compare mini/table1"),
    ],
)
def test_a_missing_copy_of_a_bundled_experiment_is_rejected_with_its_name(
    fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_rejected(fedcm("run", file), f"there is no experiment {file!r}, but a bundled experiment has this name; run")
    assert f"`{command}`" in fedcm("run", file).err


def test_a_folder_instead_of_an_experiment_is_rejected(run: Fedcm, tmp_path: Path) -> None:
    assert_rejected(run(tmp_path), "must be a file, and it is a folder; give the .toml file of the experiment")


def test_a_path_inside_a_file_is_rejected(run: Fedcm, experiment: Write) -> None:
    assert_rejected(run(experiment() / "more.toml"), "must be a folder, and it is a file")


@pytest.mark.parametrize(
    ("changes", "message"),
    make_params(
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
        ("an end without a rule", {"stop": {}}, "stop must have patience, target or both, such as stop.patience = 5"),
        (
            "a deadline before the first step",
            {"stragglers": {"deadline": 1e-9}},
            "a client must report in some round, but in 12 rounds none does: all miss the deadline; raise",
        ),
        (
            "nobody is ever available",
            {"availability": {"kind": "day-night", "period": 24, "share": 1e-9}},
            "a client must report in some round, but in 12 rounds none does: nobody is available; change",
        ),
        (
            "a number as a change of images",
            {"data": {"augment": [3]}},
            "data.augment.0 must be a text or a table, got 3",
        ),
        (
            "a change of images without a name",
            {"data": {"augment": [{"size": 4}]}},
            "a change of data.augment must have a name, such as {name = \"cutout\", size = 4}, got {'size': 4}",
        ),
        (
            "no trained parameters",
            {"model": {"name": "mlp", "train": []}},
            "model.train must have at least 1 entry, got []; give one or leave it out",
        ),
        (
            "a layer without units",
            {"model": {"name": "mlp", "hidden": [0]}},
            "model.hidden must be a list of whole numbers, each at least 1, got [0]",
        ),
        (
            "names of weights without weights",
            {"model": {"name": "mlp", "weights_strict": False}},
            "model.weights_strict = false needs model.weights",
        ),
        (
            "more steps than there may be",
            {"client": {"steps": {"kind": "uniform", "low": 1, "high": 10**18}}},
            "high must be a whole number from 1 to 10⁹, got 1000000000000000000",
        ),
        (
            "the best of no outputs",
            {"evaluation": {"metrics": ["top0"]}},
            "there is no metric 'top0'; give a known one or the name of a class of torchmetrics; did you mean 'top5'?",
        ),
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
            "probability must be above 0 and at most 1, got 2.0",
        ),
        ("nobody takes part", {"participation": {"kind": "fixed", "clients": 0}}, "clients must be at least 1"),
        (
            "more take part than there are",
            {"participation": {"kind": "fixed", "clients": 13}},
            "participation must be at most 12 clients, the whole population, got 13",
        ),
        (
            "alpha out of range",
            {"algorithm": {"name": "fedcm", "alpha": 1.5}},
            "alpha must be above 0 and at most 1, got 1.5",
        ),
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
        ("an unknown model", {"model": {"name": "resnet"}}, "'package.module:factory'; did you mean 'resnet8'?"),
        ("an unknown split", {"split": {"kind": "iidd", "clients": 2}}, "did you mean 'iid'?"),
        ("an unknown participation", {"participation": {"kind": "all"}}, "known: independent, fixed, everyone"),
        ("unknown data", {"data": {"source": "cifar-10"}}, "did you mean 'cifar10'?"),
        ("no data named", {"data": {"source": ""}}, "data.source must have at least 1 character"),
        ("data with a name too long for a file", {"data": {"source": "x" * 300}}, "data must be a known name"),
        ("data of an unknown user", {"data": {"source": "~nobody-of-that-name/x.npz"}}, "must be an .npz"),
        (
            "more clients than examples",
            {"split": {"kind": "iid", "clients": 1000}},
            "1000 clients need at least 1000 training examples, got 240",
        ),
        (
            "more shards than examples",
            {"split": {"kind": "shards", "clients": 20, "per_client": 20}},
            "20 clients need at least 400 training examples",
        ),
        ("a natural split of data without", {"split": {"kind": "natural"}}, "use 'iid' or 'dirichlet'"),
        ("an image model on flat data", {"model": {"name": "lenet"}}, "use the model 'mlp' or 'linear'"),
        (
            "a layer of minus one unit",
            {"model": {"name": "mlp", "hidden": [-1]}},
            "model.hidden must be a list of whole numbers",
        ),
        ("a batch beyond all numbers", {"client": {"batch_size": 10**30}}, "client.batch_size must be"),
        ("a rate beyond float32", {"client": {"lr": 1e39}}, "client.lr must be"),
        ("a decay beyond float32", {"client": {"weight_decay": 1e39}}, "client.weight_decay must be"),
    ),
)
def test_invalid_settings_are_rejected(
    run: Fedcm, experiment: Write, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert_rejected(run(experiment(**changes)), message)
    assert not (tmp_path / "runs").exists()


def test_an_experiment_without_rounds_is_rejected(run: Fedcm, tmp_path: Path, npz: Path) -> None:
    table = small_experiment(npz)
    del table["rounds"]
    (tmp_path / "small.toml").write_text(tomli_w.dumps(table))
    assert_rejected(run("small.toml"), "rounds must be given")


@pytest.mark.parametrize(
    ("setting", "message"),
    make_params(
        (
            "no value",
            "client.lr",
            "a setting to change must be path=value, for example client.lr=0.05, got 'client.lr'",
        ),
        ("no path", "=3", "a setting to change must be path=value"),
        ("a hole in the path", "client..lr=3", "a setting to change must be path=value"),
        ("into a value", "rounds.more=3", "'rounds' is a value, not a table"),
        ("an unknown path", "clients.lr=3", "there is no setting 'clients'; did you mean 'client'?"),
        ("a text for a number", "client.lr=fast", "client.lr must be a valid number, got 'fast'"),
        ("an end without a rule", "stop={}", "stop must have patience, target or both"),
        ("an empty value", "client.lr=", "client.lr must be a valid number, got ''"),
        ("an unknown algorithm", "algorithm.name=sgd", "there is no algorithm 'sgd'"),
        ("an algorithm that is a number", "algorithm.name=3", "algorithm.name must be given"),
        ("an algorithm that is a list", "algorithm.name=[1]", "algorithm.name must be given"),
        ("a number too long to read", "rounds=" + "9" * 5000, "a setting to change must be path=value"),
    ),
)
def test_a_bad_setting_on_the_command_line_is_rejected(
    run: Fedcm, experiment: Write, setting: str, message: str
) -> None:
    assert_rejected(run(experiment(), "--set", setting), message)


@pytest.mark.parametrize(
    "changes",
    make_params(("algorithm", {"algorithm": "fedcm"}), ("for", {"for": 3}), ("for.fedavg", {"for": {"fedavg": 3}})),
)
def test_a_non_table_is_rejected_when_the_algorithm_is_changed(
    run: Fedcm, fedcm: Fedcm, experiment: Write, changes: dict[str, Any]
) -> None:
    path = experiment(**changes)
    assert_rejected(run(path, "--set", "algorithm.name=fedavg"), "must be")
    assert_rejected(fedcm("compare", path, "--algorithms", "fedavg"), "must be")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "/tmp/x", ".hidden", "a b", "-x", "a\n", "x" * 300])
def test_a_bad_name_is_rejected(run: Fedcm, experiment: Write, tmp_path: Path, name: str) -> None:
    assert_rejected(run(experiment(), f"--name={name}"), "a run's name must be up to 200 letters, digits and . _ + = -")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", make_params(("two bytes per letter", "é" * 150), ("three", "界" * 100)))
def test_a_name_too_long_for_the_file_system_is_rejected(run: Fedcm, experiment: Write, name: str) -> None:
    assert_rejected(run(experiment(), "--name", name), "name")


def test_an_existing_name_is_rejected_and_its_run_unchanged(run: Fedcm, experiment: Write, tmp_path: Path) -> None:
    path = experiment(rounds=1)
    assert run(path, "--name", "one").code == 0
    before = read_files(tmp_path / "runs")
    assert_rejected(run(path, "--name", "one"), "exists already; resume it with `fedcm resume")
    assert read_files(tmp_path / "runs") == before


def test_a_runs_dir_that_is_a_file_is_rejected(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert_rejected(fedcm("run", experiment(), "--runs-dir", "file"), "file")
    assert_rejected(fedcm("run", experiment(), "--runs-dir", "file/inside"), "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_runs_dir_that_cannot_be_written_is_rejected(fedcm: Fedcm, experiment: Write, tmp_path: Path) -> None:
    read_only = tmp_path / "read-only"
    read_only.mkdir(mode=0o555)
    folder = Path("/proc/runs") if os.geteuid() == 0 else read_only / "runs"  # root can write everywhere else
    assert_rejected(fedcm("run", experiment(), "--runs-dir", folder), str(folder))


def test_a_diagnosis_of_personal_parameters_is_rejected_before_the_folder_exists(
    run: Fedcm, fedcm: Fedcm, experiment: Write, tmp_path: Path
) -> None:
    path = experiment(rounds=2, model={"name": "mlp", "hidden": [8], "personal": ["3.*"]})
    assert_rejected(run(path, "--diagnose", "1"), "a model with personal parameters cannot be diagnosed")
    assert not (tmp_path / "runs").exists()
    assert run(path, "--name", "one").code == 0
    before = read_files(tmp_path / "runs")
    resumed = fedcm("resume", tmp_path / "runs" / "one", "--set", "rounds=4", "--diagnose", "1")
    assert_rejected(resumed, "cannot be diagnosed")
    assert read_files(tmp_path / "runs") == before


@pytest.mark.parametrize(
    "settings",
    [("client.epochs=1", "client.steps=2"), ("client.lr_decay=0.9", 'client.schedule={kind="cosine"}')],
)
def test_two_settings_of_which_one_replaces_the_other_are_rejected(
    run: Fedcm, experiment: Write, settings: tuple[str, str]
) -> None:
    for first, second in (settings, settings[::-1]):
        assert_rejected(run(experiment(), "--set", first, "--set", second), "exclude each other; set one of them")


def test_a_trace_without_rows_is_rejected(run: Fedcm, experiment: Write, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,start,stop\n")
    path = experiment(availability={"kind": "trace", "file": str(tmp_path / "trace.csv")})
    assert_rejected(run(path), "nobody is available")
    assert not (tmp_path / "runs").exists()
