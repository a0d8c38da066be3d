"""The options that several commands share."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fedcm.system.formatting import split_names


def _find_experiment(path: Path) -> Path:
    """Replace the name of a bundled experiment by its file."""
    from fedcm.config.bundled import find_experiment

    return find_experiment(path)


ExperimentPath = Annotated[
    Path,
    typer.Argument(
        metavar="EXPERIMENT",
        callback=_find_experiment,
        help="A TOML file, or the name of a bundled experiment, such as `demo`.",
    ),
]
SettingOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a setting, such as `client.lr=0.05`. The value is TOML or a plain word. May be repeated.",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Short for --set seed=N.", show_default=False)]
RunsDir = Annotated[Path, typer.Option(envvar="FEDCM_RUNS", help="The folder that contains the runs.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        envvar="FEDCM_DATA", help="The folder of prepared datasets; ~/.cache/fedcm by default.", show_default=False
    ),
]


def _ignore_environment_under_torchrun(context: typer.Context, value: int | None) -> int | None:
    """FEDCM_WORKERS is meant for runs that torchrun did not start."""
    source = context.get_parameter_source("workers")
    from_environment = source is not None and source.name == "ENVIRONMENT"
    return None if from_environment and "TORCHELASTIC_RUN_ID" in os.environ else value


Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        envvar="FEDCM_WORKERS",
        callback=_ignore_environment_under_torchrun,
        help="Processes that share the work; by default one per physical core or CUDA device. Results do not depend "
        "on it.",
        show_default=False,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME,…",
        help="Also log to tensorboard, mlflow or wandb; a comma list, or repeat the option (docs/guides/tracking.md).",
        show_default=False,
    ),
]
Diagnose = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Every N rounds, measure drift, noise, dissimilarity and the direction of Δ (docs/guides/diagnosis.md).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, everything else on stderr.")]
Compile = Annotated[
    str | None,
    typer.Option(
        metavar="auto|on|off",
        help="Short for --set engine.compile=…: compile the model with torch.compile; auto tries it for long runs.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="cpu|cuda", help="Short for --set engine.device=…: where to compute.", show_default=False),
]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|float64|bf16",
        help="Short for --set engine.precision=…: the model's arithmetic.",
        show_default=False,
    ),
]


def collect_overrides(
    overrides: list[str] | None,
    seed: int | None,
    compile: str | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> list[str]:
    """Return the settings that the options change, as `path=value`."""
    short = {"seed": seed, "engine.compile": compile, "engine.device": device, "engine.precision": precision}
    return [*(overrides or []), *(f"{path}={value}" for path, value in short.items() if value is not None)]


Algorithms = Annotated[
    str,
    typer.Option(
        help="Such as `fedavg,fedcm,my_module:Mine`; by default those of the file's grid; without a grid, compare runs "
        "FedCM and the baselines of its paper, and sweep the file's own. `all`: all that `fedcm algorithms` lists.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class SweepOptions:
    """The options of every command that runs many experiments."""

    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Number of seeds, starting with the experiment's own; by default as in the file.",
            show_default=False,
        ),
    ] = None
    overrides: SettingOverrides = None
    seed: Seed = None
    runs_dir: RunsDir = Path("runs")
    data_dir: DataDir = None
    workers: Workers = None
    compile: Compile = None
    device: Device = None
    precision: Precision = None
    track: Track = None
    only: Annotated[
        str,
        typer.Option(
            metavar="PART",
            help="Only runs whose names contain PART, such as `ii-dirichlet-fedcm-seed0`; --dry-run lists the names.",
            show_default=False,
        ),
    ] = ""
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Run everything again; existing runs are moved to `archive` in the folder of runs. On a terminal it "
            "asks first.",
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the runs and an estimate of their time, but run nothing.")
    ] = False
    as_json: AsJson = False

    def collect_overrides(self) -> list[str]:
        """Return the settings that the options change, as `path=value`."""
        return collect_overrides(self.overrides, self.seed, self.compile, self.device, self.precision)


def add_sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `SweepOptions`; it receives them as its argument `sweep`."""
    hints = get_type_hints(SweepOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(SweepOptions)
    ]
    own = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "sweep"]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        sweep = SweepOptions(**{one.name: arguments.pop(one.name) for one in shared})
        command(**arguments, sweep=sweep)

    own_hints = get_type_hints(command, include_extras=True)
    with_options.__signature__ = inspect.Signature([*own, *shared])  # pyright: ignore[reportAttributeAccessIssue]
    with_options.__annotations__ = {one.name: own_hints.get(one.name, hints.get(one.name)) for one in [*own, *shared]}
    return with_options


def list_algorithms(text: str) -> list[str]:
    """Return the algorithms of the option `--algorithms`; "all" stands for all bundled ones."""
    from fedcm.algorithms import ALGORITHMS

    names = split_names(text)
    return (
        [*ALGORITHMS, *(name for name in names if name not in ALGORITHMS and name != "all")]
        if "all" in names
        else names
    )
