"""Mutated experiments work or are rejected in one sentence with code 2, never with a traceback.

The bundled experiments are mutated with a fixed seed and given to the commands: `run` to its end if it is short, else
to its first round, and `compare`, `sweep` and `reproduce` with --dry-run.
"""

import datetime
import itertools
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from mutated_experiments import (
    KEYS,
    VALUES,
    damage_text,
    dump_toml,
    dump_toml_value,
    list_paths,
    mutate,
    mutate_systematically,
)
from scenes import Answer, forget_manifest

from fedcm.api import runs as api_runs
from fedcm.cli.runs import run as run_command
from fedcm.cli.session import print_outcome_and_exit
from fedcm.sweeps import paper_grids
from fedcm.trackers.observation import run_session

ROOT = Path(__file__).parents[2] / "experiments"
BUNDLED = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.toml"))
Fedcm = Callable[..., Answer]
Attempt = Callable[[str, str], Answer]


def list_bases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each experiment unchanged, and with small data and a small model, so that `run` gets beyond reading it."""
    for path in BUNDLED:
        table = tomllib.loads((ROOT / path).read_text())
        yield str(path), table
        small: dict[str, Any] = {"data": {"source": "made.npz"}, "model": {"name": "mlp", "hidden": [4]}, "rounds": 3}
        if "split" in table:
            small["split"] = table["split"] | ({"clients": 6} if "clients" in table["split"] else {})
        if "grid" in table:
            small["grid"] = _shrink_grid(table["grid"])
        yield f"small {path}", table | small
        if str(path) in ("demo.toml", "mini/table3.toml"):  # a model that accepts any option
            own = {"name": "takes_anything:factory", "when": datetime.date(2020, 1, 2), "more": {"x": [1, "y"]}}
            yield f"own {path}", table | small | {"model": own}


def _shrink_grid(grid: dict[str, Any]) -> dict[str, Any]:
    """Reduce a grid to a few runs, without changes of the model and the number of clients."""
    axes = {
        axis: {
            name: {key: value for key, value in changes.items() if key in ("algorithm", "client", "server")}
            for name, changes in itertools.islice(variants.items(), 2)
        }
        for axis, variants in grid.get("axes", {}).items()
    }
    own = {"axes": axes, "seeds": 1, "exceptions": [{"where": {"algorithm": "fedcm"}, "set": {"client": {"lr": 0.2}}}]}
    return own | ({"algorithms": ["fedcm", "feddyn"]} if "algorithms" in grid else {})


def _only_if_short(run_session: Callable[..., str]) -> Callable[..., str]:
    def run_short(session: Any, **more: Any) -> str:
        setup = session.setup
        steps = setup.runner.count_steps(np.arange(setup.plan.population), 0).sum()
        if session.total_rounds <= 3 and steps <= 1000:
            return run_session(session, **more)
        return "finished"

    return run_short


def _only_if_ended(print_outcome_and_exit: Callable[..., None]) -> Callable[..., None]:
    return lambda run, as_json: print_outcome_and_exit(run, as_json) if run.summary else None


@pytest.fixture
def attempt(fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """A function that gives an experiment's text to a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "takes_anything.py").write_text(
        "from torch import nn\ndef factory(input_shape, classes, **more): return nn.Linear(input_shape[0], classes)\n"
    )
    monkeypatch.setenv("FEDCM_DATA", str(tmp_path / "no-data"))
    monkeypatch.delenv("FEDCM_RUNS", raising=False)
    monkeypatch.setattr(api_runs, "run_session", _only_if_short(run_session))
    monkeypatch.setattr(run_command, "print_outcome_and_exit", _only_if_ended(print_outcome_and_exit))
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 5)).astype(np.float32)
    np.savez(tmp_path / "made.npz", x_train=x, y_train=np.arange(60) % 3, x_test=x[:9], y_test=np.arange(9) % 3)
    folder = tmp_path / "bundled"
    for scale in ("mini", "paper"):
        shutil.copytree(ROOT / scale, folder / scale)
    monkeypatch.setattr(paper_grids, "find_experiments_folder", lambda: folder)
    path, count = tmp_path / "mutant.toml", itertools.count()

    def call(command: str, text: str) -> Answer:
        path.write_text(text, encoding="utf-8")
        own = ["--runs-dir", f"runs-{next(count)}"]
        match command:
            case "reproduce":
                shutil.copy(path, folder / "mini" / "table2.toml")
                return fedcm("reproduce", "table2", "--dry-run", *own)
            case "sweep":
                return fedcm("sweep", path, "--over", "client.lr=0.1,0.2", "--dry-run", *own)
            case "compare":
                return fedcm("compare", path, "--algorithms", "fedcm,feddyn", "--dry-run", *own)
            case "grid":
                return fedcm("compare", path, "--dry-run", *own)
            case _:
                return fedcm("run", path, *own)

    return call


def is_wrong(answer: Answer) -> bool:
    """Return whether a command neither finished, nor diverged, nor rejected its input in one sentence."""
    lines = answer.err.strip().splitlines()
    if answer.code == 0 or (answer.code == 1 and lines[-1].startswith("fedcm: training diverged")):
        return "Traceback" in answer.err + answer.out
    return answer.code != 2 or answer.out != "" or len(lines) != 1 or not lines[0].startswith("fedcm: ")


COMMANDS = ("run", "compare", "grid", "sweep", "reproduce")


def list_commands(table: dict[str, Any]) -> list[str]:
    return [each for each in COMMANDS if each != "run" or "grid" not in table]


def find_wrong_answers(count: int, seed: int, attempt: Attempt) -> list[str]:
    """Run random mutants, and describe those with a wrong answer."""
    generator, all_bases, wrong = Random(seed), list(list_bases()), []
    for k in range(count):
        name, table = generator.choice(all_bases)
        command = generator.choice(list_commands(table))
        if generator.random() < 0.1:
            description, text = damage_text((ROOT / generator.choice(BUNDLED)).read_text(), generator)
        else:
            description, changed = mutate(table, generator)
            text = dump_toml(changed)
        if text is not None and is_wrong(answer := attempt(command, text)):
            wrong.append(f"{command} {name} ({seed}.{k}): {description}: {answer.code} {answer.err}")
    return wrong


@pytest.mark.slow
def test_a_mutated_experiment_works_or_is_rejected(attempt: Attempt) -> None:
    assert find_wrong_answers(500, 0, attempt) == []


def test_a_wrong_setting_on_the_command_line_works_or_is_rejected(
    fedcm: Fedcm, attempt: Attempt, tmp_path: Path
) -> None:
    """The fixture `attempt` creates the folder that this works in."""
    generator, table, wrong = Random(0), dict(list_bases())["small demo.toml"], []
    path = tmp_path / "small.toml"
    path.write_text(dump_toml(table) or "")
    texts = [
        *map(dump_toml_value, VALUES),
        "",
        "=",
        "[",
        "{",
        '"',
        "'",
        "1,2",
        "x,y",
        "0x",
        "1e999",
        "nan,inf",
        "a,a",
        "\udcff",
    ]
    for _ in range(100):
        key = ".".join(str(part) for part in generator.choice(list(list_paths(table))))
        setting = f"{generator.choice([key, key, key, generator.choice(KEYS)])}={generator.choice(texts)}"
        option, command = generator.choice([("--set", "compare"), ("--set", "run"), ("--over", "sweep")])
        dry = [] if command == "run" else ["--dry-run"]
        answer = fedcm(command, path, option, setting, *dry, "--runs-dir", f"set-{len(wrong)}-{generator.random()}")
        if is_wrong(answer):
            wrong.append(f"{command} {option} {setting[:60]!r}: {answer.code} {answer.err}")
    assert wrong == []


def test_a_seed_that_is_no_number_is_rejected_by_every_command(attempt: Attempt) -> None:
    for name, table in list_bases():
        if name in ("demo.toml", "mini/table1.toml"):
            for seed in ("x", 1.5, True, [1]):
                for command in set(list_commands(table)) - ({"sweep"} if "grid" in table else set()):
                    answer = attempt(command, dump_toml(table | {"seed": seed}) or "")
                    assert not is_wrong(answer)
                    assert "seed must be a valid integer" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_more_mutated_experiments_work_or_are_rejected(attempt: Attempt, seed: int) -> None:
    assert find_wrong_answers(500, seed, attempt) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", ["small demo.toml", "own demo.toml", "mini/tuning.toml", "small mini/table1.toml"])
def test_every_wrong_value_of_every_setting_works_or_is_rejected(attempt: Attempt, base: str) -> None:
    table = dict(list_bases())[base]
    commands, wrong = itertools.cycle(list_commands(table)), []
    for description, changed in mutate_systematically(table):
        command = next(commands)
        if (text := dump_toml(changed)) is not None and is_wrong(answer := attempt(command, text)):
            wrong.append(f"{command} {base}: {description}: {answer.code} {answer.err}")
    assert wrong == []


@pytest.mark.parametrize(
    ("base", "command"),
    [
        *(("small demo.toml", command) for command in ("run", "compare", "sweep")),
        *(("own demo.toml", command) for command in ("run", "compare", "sweep")),
        ("small mini/table1.toml", "grid"),
    ],
)
def test_unmutated_experiments_work(attempt: Attempt, base: str, command: str) -> None:
    """Otherwise mutants would be rejected for another reason than their mutation."""
    answer = attempt(command, dump_toml(dict(list_bases())[base]) or "")
    assert answer.code == 0, answer.err


def test_dates_among_a_models_options_are_reported_and_resumed(fedcm: Fedcm, attempt: Attempt, tmp_path: Path) -> None:
    table = dict(list_bases())["own demo.toml"]
    assert attempt("run", dump_toml(table | {"rounds": 2}) or "").code == 0
    (run,) = (tmp_path / "runs-0").iterdir()
    (forget_manifest(run) / "summary.json").unlink()
    for words in (["resume", run], ["report", run, "-o", "page"], ["runs", "--runs-dir", "runs-0", "--json"]):
        answer = fedcm(*words)
        assert answer.code == 0, answer.err
    assert "2020-01-02" in (tmp_path / "page" / "index.html").read_text()
