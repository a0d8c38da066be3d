"""The guide to losses and metrics: its files run as written, and its functions compute what it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "own-loss.md").read_text()
NUMBER = r"\d+\.\d+"
pytestmark = pytest.mark.slow  # three programs that import torchmetrics


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files of the guide."""
    path = tmp_path_factory.mktemp("own-loss")
    for text in re.findall(r"^```(?:python|toml)\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL):
        name = re.match(r"# (\w+\.\w+)\n", text)
        assert name
        (path / name.group(1)).write_text(text)
    return path


def run_python(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("program", ["same.py", "diabetes.py"])
def test_programs_print_what_the_guide_says(program: str, folder: Path) -> None:
    """Numbers may differ a little on another kind of CPU."""
    after = GUIDE.split(f"# {program}\n")[1]
    (expected,) = re.findall(r"^It prints:\n\n```\n(.*?)^```", after, flags=re.MULTILINE | re.DOTALL)[:1]
    printed = run_python(folder, program)
    assert re.sub(rf"{NUMBER}|\d+", "#", printed) == re.sub(rf"{NUMBER}|\d+", "#", expected)
    assert [float(one) for one in re.findall(NUMBER, printed)] == pytest.approx(
        [float(one) for one in re.findall(NUMBER, expected)], abs=0.02
    )


def test_the_file_of_the_guide_trains_with_its_loss_and_ends_early(folder: Path) -> None:
    run_python(folder, "-m", "fedcm", "run", "traits.toml", "--name", "traits", "--workers", "1")
    lines = [json.loads(line) for line in (folder / "runs/traits/metrics.jsonl").read_text().splitlines()]
    due = [line for line in lines if "validation_f1" in line]
    scores = [line["validation_f1"] for line in due]
    assert max(scores[-6:]) <= max(scores[:-6]), "six evaluations without an improvement"
    assert len(lines) < 300
    best = due[scores.index(max(scores))]
    shown = re.search(r"^\| 74 \|(.*)\|$", GUIDE, flags=re.MULTILINE)
    assert shown
    names = ("validation_f1", "validation_all_right", "test_f1", "test_all_right")
    assert [best[name] for name in names] == pytest.approx([float(one) for one in shown[1].split("|")], abs=0.03)


def test_focal_loss_and_metric_are_their_formulas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    import traits  # pyright: ignore[reportMissingImports]

    outputs, labels = torch.tensor([[2.0, -1.0], [0.5, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    right = torch.where(labels == 1, outputs.sigmoid(), 1 - outputs.sigmoid())
    torch.testing.assert_close(traits.focal(outputs, labels), (-((1 - right) ** 2) * right.log()).mean())
    assert traits.all_right(outputs, labels) == 0.5
    clients, test = traits.clients()
    assert len(clients) == 20
    assert sum(len(x) for x, _ in clients) + len(test[0]) == 1797
