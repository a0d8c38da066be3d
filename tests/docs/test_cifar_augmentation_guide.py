"""The guide to CIFAR-10 with augmentation: its experiment runs on a few made images, and both of its settings act."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_code_blocks import ROOT, run_python

import fedcm
from fedcm.config.bundled import find_experiment

GUIDE = ROOT / "docs" / "guides" / "cifar-augmentation.md"
WARMUP, LR = 5, 0.1


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Random images of CIFAR-10's shape, with labels."""
    path = tmp_path_factory.mktemp("data") / "images.npz"
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 100), ("test", 20)):
        arrays[f"x_{part}"] = draw.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        arrays[f"y_{part}"] = draw.integers(0, 10, count)
    np.savez(path, **arrays)
    return str(path)


def run_guide(source: str, folder: Path, name: str, **changes: Any) -> list[dict[str, Any]]:
    """Run the guide's experiment for two rounds on 90 of these images, the rest for validation."""
    overrides = {"data.source": source, "rounds": 2, "evaluation.every": 1, "split.clients": 6, "client.epochs": 1}
    overrides |= {"participation.probability": 0.5, "client.batch_size": 10}
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    run = fedcm.run("cifar10-augmented", overrides=overrides | changes, runs_dir=folder, name=name)
    return list(run.metrics)


def test_augmentation_and_schedule_of_the_experiment_act(source: str, tmp_path: Path) -> None:
    longer = {"client__schedule__over": 80}  # because the warm-up is longer than these two rounds
    both = run_guide(source, tmp_path, "both", **longer)
    assert {"validation_accuracy", "test_accuracy"} <= both[-1].keys()
    assert [line["client_lr"] for line in both] == pytest.approx([LR * (t + 1) / WARMUP for t in range(2)])
    again = run_guide(source, tmp_path, "again", **longer)
    assert [line["loss"] for line in again] == [line["loss"] for line in both], "the changes follow from the seed"
    plain = run_guide(source, tmp_path, "plain", data__augment=[], **longer)
    assert plain[0]["loss"] != both[0]["loss"]
    assert plain[0]["cohort"] == both[0]["cohort"], "augmentation changes no other random numbers"


def test_the_schedules_of_the_guide_differ_after_the_warmup(source: str, tmp_path: Path) -> None:
    changes = {"client__schedule__warmup": 0}
    cosine = run_guide(source, tmp_path, "cosine", **changes)
    constant = run_guide(source, tmp_path, "constant", client__schedule__kind="constant", **changes)
    assert [line["client_lr"] for line in cosine] == pytest.approx([LR, LR * (1 + math.cos(math.pi / 2)) / 2])
    assert [line["client_lr"] for line in constant] == [LR, LR]
    assert cosine[0]["loss"] == constant[0]["loss"]
    assert cosine[1]["loss"] != constant[1]["loss"]


@pytest.mark.slow
def test_the_sweep_of_the_guide_has_a_run_per_row_of_its_table(source: str, tmp_path: Path) -> None:
    text = GUIDE.read_text()
    (command,) = re.findall(r"^    fedcm (sweep .*)$", text, re.M)
    small = ["--set", f"data.source={source}", "--set", "split.clients=6", "--dry-run", "--json"]
    plan = json.loads(run_python(tmp_path, "-m", "fedcm", *shlex.split(command), *small))
    rows = re.findall(r"^\| (?:none|crop, flip) \| (?:constant|cosine) \| .*\|$", text, re.M)
    assert len(plan["runs"]) == len(rows) == 4


def test_the_file_and_the_guide_give_the_same_accuracy() -> None:
    (measured,) = re.findall(
        r"test accuracy after 80 rounds\): ([\d.]+) %", find_experiment("cifar10-augmented").read_text()
    )
    (row,) = re.findall(r"^\| crop, flip \| cosine \| .*\|$", GUIDE.read_text(), re.M)
    assert f"{measured} %" in row
