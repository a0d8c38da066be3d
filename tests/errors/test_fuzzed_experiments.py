"""Experiments that are wrong in any way either work or are refused in one sentence with code 2: never a traceback.

The bundled experiments are mutated, with a fixed seed, and go through the commands themselves: `run` to its end where
that is near, or else up to its first round, and `compare`, `sweep` and `reproduce` with --dry-run.
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
from mutations import KEYS, VALUES, garbled, mutated, places, systematic, text_of, toml_text
from scenes import Answer

from fedcm.cli import run_commands
from fedcm.sweeps import paper_grids

ROOT = Path(__file__).parents[2] / "experiments"
BUNDLED = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.toml"))
Fedcm = Callable[..., Answer]
Try = Callable[[str, str], Answer]


def bases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each experiment as it is, and on small data with a small model, so that more than its reading can be reached."""
    for path in BUNDLED:
        table = tomllib.loads((ROOT / path).read_text())
        yield str(path), table
        small: dict[str, Any] = {"data": {"source": "made.npz"}, "model": {"name": "mlp", "hidden": [4]}, "rounds": 3}
        split = table["split"] | ({"clients": 6} if "clients" in table["split"] else {})
        if "grid" in table:
            small["grid"] = _small_grid(table["grid"])
        yield f"small {path}", table | small | {"split": split}
        if str(path) in ("demo.toml", "mini/table3.toml"):  # a model that takes any option as it comes
            own = {"name": "takes_anything:factory", "when": datetime.date(2020, 1, 2), "more": {"x": [1, "y"]}}
            yield f"own {path}", table | small | {"split": split, "model": own}


def _small_grid(grid: dict[str, Any]) -> dict[str, Any]:
    """A few runs, whose variants leave the model and the clients alone."""
    axes = {
        axis: {
            name: {key: value for key, value in changes.items() if key in ("algorithm", "client", "server")}
            for name, changes in itertools.islice(variants.items(), 2)
        }
        for axis, variants in grid.get("axes", {}).items()
    }
    own = {"axes": axes, "seeds": 1, "exceptions": [{"where": {"algorithm": "fedcm"}, "set": {"client": {"lr": 0.2}}}]}
    return own | ({"algorithms": ["fedcm", "feddyn"]} if "algorithms" in grid else {})


def _only_if_short(drive: Callable[..., int]) -> Callable[..., int]:
    def driven(run: Any, *more: Any) -> int:
        steps = run.assembly.runner.steps(np.arange(run.assembly.plan.population)).sum()
        if run.rounds <= 3 and steps <= 1000:
            return drive(run, *more)
        run.folder.unlock()
        return 0

    return driven


def _only_if_over(show: Callable[..., None]) -> Callable[..., None]:
    return lambda folder, as_json: show(folder, as_json) if folder.read_summary() else None


@pytest.fixture
def attempt(fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Gives an experiment's text to a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "takes_anything.py").write_text(
        "from torch import nn\ndef factory(input_shape, classes, **more): return nn.Linear(input_shape[0], classes)\n"
    )
    monkeypatch.setenv("FEDCM_DATA", str(tmp_path / "no-data"))
    monkeypatch.delenv("FEDCM_RUNS", raising=False)
    monkeypatch.setattr(run_commands, "_drive", _only_if_short(run_commands._drive))
    monkeypatch.setattr(run_commands, "_show_summary", _only_if_over(run_commands._show_summary))
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


def wrong(answer: Answer) -> bool:
    """Neither done, nor diverged, nor refused in one sentence."""
    lines = answer.err.strip().splitlines()
    if answer.code == 0 or (answer.code == 1 and lines[-1].startswith("fedcm: training diverged")):
        return "Traceback" in answer.err + answer.out
    return answer.code != 2 or answer.out != "" or len(lines) != 1 or not lines[0].startswith("fedcm: ")


COMMANDS = ("run", "compare", "grid", "sweep", "reproduce")


def commands_for(table: dict[str, Any]) -> list[str]:
    return [each for each in COMMANDS if each != "run" or "grid" not in table]


def randomly(count: int, seed: int, attempt: Try) -> list[str]:
    """What was neither done nor refused."""
    draw, all_bases, found = Random(seed), list(bases()), []
    for k in range(count):
        name, table = draw.choice(all_bases)
        command = draw.choice(commands_for(table))
        if draw.random() < 0.1:
            said, text = garbled((ROOT / draw.choice(BUNDLED)).read_text(), draw)
        else:
            said, changed = mutated(table, draw)
            text = text_of(changed)
        if text is not None and wrong(answer := attempt(command, text)):
            found.append(f"{command} {name} ({seed}.{k}): {said}: {answer.code} {answer.err}")
    return found


def test_a_mutated_experiment_works_or_is_refused(attempt: Try) -> None:
    assert randomly(500, 0, attempt) == []


def test_a_wrong_setting_on_the_command_line_works_or_is_refused(fedcm: Fedcm, attempt: Try, tmp_path: Path) -> None:
    """`attempt` makes the folder that this works in."""
    draw, table, found = Random(0), dict(bases())["small demo.toml"], []
    path = tmp_path / "small.toml"
    path.write_text(text_of(table) or "")
    texts = [
        *map(toml_text, VALUES),
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
        key = ".".join(str(part) for part in draw.choice(list(places(table))))
        setting = f"{draw.choice([key, key, key, draw.choice(KEYS)])}={draw.choice(texts)}"
        option, command = draw.choice([("--set", "compare"), ("--set", "run"), ("--over", "sweep")])
        dry = [] if command == "run" else ["--dry-run"]
        answer = fedcm(command, path, option, setting, *dry, "--runs-dir", f"set-{len(found)}-{draw.random()}")
        if wrong(answer):
            found.append(f"{command} {option} {setting[:60]!r}: {answer.code} {answer.err}")
    assert found == []


def test_a_seed_that_is_no_number_is_refused_by_every_command(attempt: Try) -> None:
    for name, table in bases():
        if name in ("demo.toml", "mini/table1.toml"):
            for seed in ("x", 1.5, True, [1]):
                for command in set(commands_for(table)) - ({"sweep"} if "grid" in table else set()):
                    answer = attempt(command, text_of(table | {"seed": seed}) or "")
                    assert not wrong(answer)
                    assert "seed must be a valid integer" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_more_mutated_experiments_work_or_are_refused(attempt: Try, seed: int) -> None:
    assert randomly(500, seed, attempt) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", ["small demo.toml", "own demo.toml", "mini/tuning.toml", "small mini/table1.toml"])
def test_every_wrong_value_at_every_place_works_or_is_refused(attempt: Try, base: str) -> None:
    table = dict(bases())[base]
    commands, found = itertools.cycle(commands_for(table)), []
    for said, changed in systematic(table):
        command = next(commands)
        if (text := text_of(changed)) is not None and wrong(answer := attempt(command, text)):
            found.append(f"{command} {base}: {said}: {answer.code} {answer.err}")
    assert found == []


@pytest.mark.parametrize(
    ("base", "command"),
    [
        *(("small demo.toml", command) for command in ("run", "compare", "sweep")),
        *(("own demo.toml", command) for command in ("run", "compare", "sweep")),
        ("small mini/table1.toml", "grid"),
    ],
)
def test_without_a_mutation_they_work(attempt: Try, base: str, command: str) -> None:
    """So that what is refused is refused for its mutation, and much of the way has been gone by then."""
    answer = attempt(command, text_of(dict(bases())[base]) or "")
    assert answer.code == 0, answer.err


def test_dates_among_a_models_options_are_reported_and_resumed(fedcm: Fedcm, attempt: Try, tmp_path: Path) -> None:
    table = dict(bases())["own demo.toml"]
    assert attempt("run", text_of(table | {"rounds": 2}) or "").code == 0
    (run,) = (tmp_path / "runs-0").iterdir()
    (run / "summary.json").unlink()
    for words in (["resume", run], ["report", run, "-o", "page"], ["runs", "--runs-dir", "runs-0", "--json"]):
        answer = fedcm(*words)
        assert answer.code == 0, answer.err
    assert "2020-01-02" in (tmp_path / "page" / "index.html").read_text()
