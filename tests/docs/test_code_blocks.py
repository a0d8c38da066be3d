"""Run the code and the commands of the documentation, except those that need a download."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import Answer, small_experiment, write_npz
from tomli_w import dumps

from fedcm.algorithms import ALGORITHMS
from fedcm.config.experiment import load_experiment_file
from fedcm.config.overrides import read_table
from fedcm.config.sections import SECTIONS
from fedcm.core.conditions.availability import AVAILABILITY
from fedcm.core.participation import PARTICIPATION
from fedcm.core.topology import TOPOLOGIES
from fedcm.data.partition import SPLITS
from fedcm.errors import UserError
from fedcm.sweeps.grid import expand_grid

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)


def run_python(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


# Pages with Python code; a test in this folder runs the code of each.
PAGES_WITH_PYTHON = {
    "README.md",
    "docs/experiments.md",
    "docs/get-started.md",
    "docs/guides/local-training.md",
    "docs/guides/heterogeneity.md",
    "docs/guides/own-data.md",
    "docs/guides/evaluation.md",
    "docs/guides/own-grid.md",
    "docs/guides/own-loss.md",
    "docs/guides/own-training.md",
    "docs/guides/robustness.md",
    "docs/guides/tuning.md",
    "docs/index.md",
    "docs/new-algorithm.md",
}


def test_all_pages_with_python_are_known() -> None:
    pages = ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    assert {page for page in pages if blocks(page, "python")} == PAGES_WITH_PYTHON


@pytest.mark.slow
def test_new_algorithm_page_works_as_written(tmp_path: Path) -> None:
    for code in blocks("docs/new-algorithm.md", "python"):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name
        (tmp_path / name.group(1)).write_text(code)
    assert "✓" in run_python(tmp_path, "-m", "fedcm", "check", "my_methods:MimeLite", "--set", "beta=0.9")
    assert "✓" in run_python(tmp_path, "-m", "fedcm", "check", "local_momentum:LocalMomentum", "--set", "beta=0.7")
    run_python(tmp_path, "-m", "pytest", "-q", "test_my_methods.py", "test_local_momentum.py")
    experiment = tmp_path / "demo.toml"
    (special,) = blocks("docs/new-algorithm.md", "toml")
    experiment.write_text(dumps(small_experiment(write_npz(tmp_path / "made.npz"), rounds=3)) + special)
    names = "fedavg,fedcm,my_methods:MimeLite"
    out = run_python(tmp_path, "-m", "fedcm", "compare", "demo.toml", "--algorithms", names, "--runs-dir", "runs")
    assert "my_methods:MimeLite" in out
    resolved = (tmp_path / "runs" / "small-my_methods-mimelite-seed3" / "experiment.toml").read_text()
    assert "beta = 0.8" in resolved
    assert "lr = 0.05" in resolved


def write_own_grid(folder: Path) -> Path:
    """Write the two files of the guide."""
    for language in ("python", "toml"):
        (text,) = blocks("docs/guides/own-grid.md", language)
        name = re.match(r"# (\w+\.\w+)\n", text)
        assert name
        (folder / name.group(1)).write_text(text)
    return folder / "wards.toml"


@pytest.mark.slow
def test_own_grid_has_a_plan_as_written(tmp_path: Path) -> None:
    write_own_grid(tmp_path)
    plan = json.loads(run_python(tmp_path, "-m", "fedcm", "compare", "wards.toml", "--dry-run", "--json"))
    assert len(plan["runs"]) == 12
    assert all(run["rounds"] == 60 for run in plan["runs"])


@pytest.mark.slow
def test_tuning_in_python_works_as_written(tmp_path: Path) -> None:
    (code,) = blocks("docs/guides/tuning.md", "python")
    (tmp_path / "tuned.py").write_text(code)
    assert "'client.lr': " in run_python(tmp_path, "tuned.py")
    assert (tmp_path / "runs" / "demo-tune" / "report" / "index.html").is_file()


@pytest.mark.slow
def test_the_commands_of_the_tuning_guide_have_a_plan(tmp_path: Path) -> None:
    text = (ROOT / "docs/guides/tuning.md").read_text()
    commands = [shlex.split(line) for line in re.findall(r"^    (?:\$ )?fedcm (tune .*)$", text, flags=re.MULTILINE)]
    assert len(commands) == 2
    for words in commands:
        plan = json.loads(run_python(tmp_path, "-m", "fedcm", *words, "--dry-run", "--json"))
        assert all(one["space"]["client.lr"] == "0.01..1:log" for one in plan["algorithms"])
        assert all(one["trials"] == int(words[words.index("--trials") + 1]) for one in plan["algorithms"])


@pytest.mark.slow
def test_own_grid_runs_and_writes_a_report_as_written(tmp_path: Path) -> None:
    write_own_grid(tmp_path)
    out = run_python(tmp_path, "-m", "fedcm", "compare", "wards.toml")
    assert len(list((tmp_path / "runs").glob("wards-*-seed*/summary.json"))) == 12
    assert "runs/wards-report/index.html" in out
    page = (tmp_path / "runs" / "wards-report" / "index.html").read_text()
    assert all(name in page for name in ("FedAvg", "FedCM", "SCAFFOLD", "many"))


@pytest.mark.slow
def test_own_data_run_as_written(tmp_path: Path) -> None:
    """The Python blocks that train run by themselves; the last one belongs to the TOML file."""
    names = []
    for language in ("python", "toml"):
        for text in blocks("docs/guides/own-data.md", language):
            name = re.match(r"# (\w+\.\w+)\n", text)
            assert name
            names.append(name.group(1))
            (tmp_path / names[-1]).write_text(text)
    *programs, _, experiment = names
    for program in programs:
        assert float(run_python(tmp_path, program)) > 0
    run_python(tmp_path, "-m", "fedcm", "run", experiment, "--runs-dir", "runs", "--workers", "1")
    assert (tmp_path / "runs" / "pages-fedcm-seed0" / "summary.json").exists()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    ],
)
def test_links_between_files_exist_in_the_repository(document: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / document).read_text()):
        assert ((ROOT / document).parent / target).exists(), target


@pytest.mark.slow
def test_local_training_prints_what_the_guide_says(tmp_path: Path) -> None:
    """Numbers may differ in the last digit on another kind of CPU."""
    text = (ROOT / "docs/guides/local-training.md").read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    shown = [block for language, block in fenced if not language]
    codes = blocks("docs/guides/local-training.md", "python")
    for code, expected in zip(codes, shown, strict=True):
        (tmp_path / "example.py").write_text(code)
        number = r"\d+\.\d+"
        printed = run_python(tmp_path, "example.py")
        assert re.sub(number, "#", printed) == re.sub(number, "#", expected)
        assert [float(one) for one in re.findall(number, printed)] == pytest.approx(
            [float(one) for one in re.findall(number, expected)], abs=2e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_python_of_the_front_pages_runs_as_written(tmp_path: Path, page: str) -> None:
    for number, code in enumerate(blocks(page, "python")):
        (tmp_path / f"example{number}.py").write_text(code)
        run_python(tmp_path, f"example{number}.py")


@pytest.mark.slow
def test_commands_of_get_started_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedcm: Callable[..., Answer]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    data = [code for code in blocks("docs/get-started.md", "python") if "load_digits" in code or "savez" in code]
    exec("\n".join(data), {})
    commands = [
        shlex.split(line)
        for block in blocks("docs/get-started.md", "bash")
        for line in block.replace("\\\n", "").splitlines()
        if line.startswith("fedcm ")
    ]
    assert {words[1] for words in commands} >= {"algorithms", "run", "runs", "compare"}
    for words in commands:
        answer = fedcm(*words[1:])
        assert answer.code == 0, answer
    assert (tmp_path / "runs" / "first" / "demo.png").exists()
    assert (tmp_path / "runs" / "first" / "demo-report" / "index.html").exists()
    assert (tmp_path / "runs" / "mine-fedcm-seed1" / "summary.json").exists()


def test_every_setting_of_an_experiment_is_documented() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    for section, kind in SECTIONS.items():
        chapter = text.split(f"## `[{section}]`")[1].split("\n## ")[0]
        for setting in kind.model_fields:
            assert f"`{setting}`" in chapter, f"{section}.{setting}"
    for kinds in (SPLITS, PARTICIPATION, TOPOLOGIES, AVAILABILITY, ALGORITHMS):
        for name, chosen in kinds.items():
            row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
            for field in dataclasses.fields(chosen):  # pyright: ignore[reportArgumentType]
                assert f"`{field.name}`" in row, f"{name}: {field.name}"


def test_documented_experiment_loads(tmp_path: Path) -> None:
    (example,) = blocks("docs/experiments.md", "toml")
    (tmp_path / "demo.toml").write_text(example)
    assert load_experiment_file(tmp_path / "demo.toml").rounds == 400
    assert load_experiment_file(tmp_path / "demo.toml", algorithm="fedadam").server.lr == 0.1


@pytest.mark.slow
def test_documented_clients_on_demand_run_as_written(tmp_path: Path) -> None:
    (experiment,) = blocks("docs/experiments.md", "toml")
    (crowd,) = blocks("docs/experiments.md", "python")
    (tmp_path / "demo.toml").write_text(experiment)
    (tmp_path / "crowd.py").write_text(crowd)
    (words,) = re.findall(r"^    fedcm (run demo.toml .*crowd.*)$", (ROOT / "docs/experiments.md").read_text(), re.M)
    run_python(tmp_path, "-m", "fedcm", *words.split(), "--runs-dir", "runs", "--workers", "1")
    assert (tmp_path / "runs" / "demo-fedcm-seed1" / "summary.json").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_bundled_experiment_loads(path: Path) -> None:
    if "grid" in read_table(path):
        assert expand_grid(path)
        return
    table = read_table(path)
    is_partial = table["participation"]["kind"] == "independent"  # of a fixed number, the data decide
    is_partial |= "availability" in table or "stragglers" in table
    for name, kind in ALGORITHMS.items():
        if kind.needs_all_clients and is_partial:
            with pytest.raises(UserError, match="must have every client in every round"):
                load_experiment_file(path, algorithm=name)
        else:
            load_experiment_file(path, algorithm=name)


@pytest.mark.slow
def test_evaluation_guide_works_as_written(tmp_path: Path) -> None:
    """The training of the guide, then the last and the best model of its run, with fewer rounds."""
    training, models = blocks("docs/guides/evaluation.md", "python")
    (tmp_path / "training.py").write_text(training)
    assert run_python(tmp_path, "training.py").split()[1] == "True"
    settings = ("--set", "rounds=4", "--set", "data.validation=0.1", "--set", "evaluation.every=2", "--name", "early")
    run_python(tmp_path, "-m", "fedcm", "run", "demo", *settings)
    (tmp_path / "models.py").write_text(f"import fedcm\n\n{models}")
    run_python(tmp_path, "models.py")
