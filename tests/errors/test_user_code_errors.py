"""An error in user code is reported in one sentence, with its file and line and what was being done."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_errors import ALGORITHM, Fedcm, Write, make_params
from failing_code import MODULE, OWN_ALGORITHM, check_error

from fedcm.cli import main as cli


@pytest.fixture
def own(module: Callable[[str], str]) -> str:
    return module(MODULE + ALGORITHM + OWN_ALGORITHM)


@pytest.mark.parametrize(
    ("changes", "message"),
    make_params(
        ("the model's factory", {"model": {"name": "{}:factory"}}, "the model '{}:factory' could not be built: JSON"),
        ("the data function", {"data": {"source": "{}:data"}}, "{}:data() must return data, got JSONDecodeError"),
        ("an item", {"data": {"source": "{}:items"}}, "{}:items: item 7 could not be read: JSONDecodeError"),
        (
            "the first client",
            {"data": {"source": "{}:first_fails"}, "split": {"kind": "natural"}},
            "client 0 could not be created: JSONDecodeError",
        ),
        (
            "the last client",
            {"data": {"source": "{}:last_fails"}, "split": {"kind": "natural"}},
            "client 11 could not be created: JSONDecodeError",
        ),
        (
            "the backward pass",
            {"model": {"name": "{}:WithBackward"}},
            "and the backward pass failed on 2 examples: JSONDecodeError",
        ),
        (
            "evaluation",
            {"model": {"name": "{}:InEvaluation"}},
            "the evaluation failed on 2 examples, in the model: JSONDecodeError",
        ),
        ("the algorithm's settings", {"algorithm": {"name": "{}:Own", "where": "post_init"}}, "algorithm '{}:Own'"),
        ("its start", {"algorithm": {"name": "{}:Own", "where": "init_server"}}, "the algorithm Own failed on the"),
        ("its step", {"algorithm": {"name": "{}:Own", "where": "direction"}}, "the algorithm Own failed on the"),
    ),
)
def test_an_error_before_the_first_round_is_rejected_with_its_line(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = {key: {k: str(v).format(own) for k, v in table.items()} for key, table in changes.items()}
    answer = run(experiment(**settings))
    assert answer.code == 2, answer.err
    assert message.format(own) in check_error(answer.err, own, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_model_that_cannot_take_the_data_is_rejected_with_its_line(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    answer = run(experiment(model={"name": f"{own}:Model"}))
    assert answer.code == 2
    sentence = check_error(answer.err, own, tmp_path, "# in the model")
    assert "the model Model must take examples of (6,) float32, and failed on 2 examples: RuntimeError" in sentence


def test_a_module_that_fails_to_import_is_reported_with_its_line(
    run: Fedcm, experiment: Write, module: Callable[[str], str], tmp_path: Path
) -> None:
    name = module("import json\nx = json.loads('{')  # here\n")
    answer = run(experiment(model={"name": f"{name}:x"}))
    assert answer.code == 2
    assert "cannot be imported: JSONDecodeError" in check_error(answer.err, name, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    make_params(
        ("the model", {"model": {"name": "{}:Later", "after": 30}}, r"client \d+ failed in round \d+, in the model: J"),
        ("evaluation", {"model": {"name": "{}:InEvaluation", "above": 2}}, "the evaluation failed, in the model: JSON"),
        (
            "a client created on demand",
            {"data": {"source": "{}:on_demand"}, "split": {"kind": "natural"}},
            r"client 11 failed in round \d+: JSON",
        ),
        ("a step", {"algorithm": {"name": "{}:Own", "where": "moving"}}, r"client \d+ failed in round 0: JSON"),
        ("the server's step", {"algorithm": {"name": "{}:Own", "where": "update"}}, r"round 0 failed: JSON"),
    ),
)
def test_an_error_in_a_round_is_reported_with_its_line_and_how_to_resume(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = {
        key: {k: v.format(own) if isinstance(v, str) else v for k, v in table.items()} for key, table in changes.items()
    }
    answer = run(experiment(participation={"kind": "everyone"}, **settings), "--name", "one")
    assert answer.code == 1, answer.err
    sentence = check_error(answer.err, own, tmp_path)
    assert re.search(f"^fedcm: {message}", sentence), sentence
    assert "; everything saved before is complete: resume it with `fedcm resume" in sentence


def test_debug_shows_the_traceback_above_the_sentence(
    fedcm: Fedcm, run: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    path = experiment(model={"name": f"{own}:factory"})
    for words in (["--debug", "run", path], ["run", path, "--debug"]):
        answer = fedcm(*words)
        assert answer.code == 2
        assert answer.err.startswith("Traceback (most recent call last)")
        assert "in fail" in answer.err
        assert answer.err.splitlines()[-1].startswith("fedcm: the model")
    assert "Traceback" not in run(path).err, "the option applies to one command only"
    path = experiment(model={"name": f"{own}:Later", "after": 30})
    answer = run(path, "--debug")
    assert answer.code == 1
    assert "Traceback (most recent call last)" in answer.err
    assert "in fail" in answer.err
    assert answer.err.splitlines()[-1].startswith("fedcm: client")


def test_a_failed_run_of_a_comparison_is_reported_with_its_line(
    fedcm: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    path = experiment(model={"name": f"{own}:Later", "after": 30})
    answer = fedcm("--debug", "compare", path, "--algorithms", "fedavg", "--runs-dir", "runs")
    assert answer.code == 2
    assert "in fail" in answer.err, "the traceback of the run's own process"
    sentence = check_error(answer.err.replace("Traceback", ""), own, tmp_path)
    assert re.search(r"1 of 1 run failed, first small-fedavg-seed3: client \d+ failed in round", sentence)


def test_every_command_has_the_debug_option() -> None:
    pending = [("fedcm", cli.build_command_line())]
    count = 0
    while pending:
        name, command = pending.pop()
        assert "--debug" in [word for param in command.params for word in param.opts], name
        pending += [(f"{name} {inner}", subcommand) for inner, subcommand in getattr(command, "commands", {}).items()]
        count += 1
    assert count > 25


def test_the_help_of_a_command_shows_the_debug_option(fedcm: Fedcm) -> None:
    for words in (["--help"], ["run", "--help"], ["federation", "check", "--help"]):
        assert "--debug" in fedcm(*words).out
