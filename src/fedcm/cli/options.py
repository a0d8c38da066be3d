"""The options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import typer

ExperimentPath = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="The experiment's TOML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a setting, such as `client.lr=0.05`; a value is TOML or a plain word; may be repeated.",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Short for --set seed=N.")]
RunsDir = Annotated[Path, typer.Option(envvar="FEDCM_RUNS", help="Where the runs' folders are.")]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FEDCM_DATA", help="Where data sets are; ~/.cache/fedcm unless given.", show_default=False),
]


def _unless_torchrun(context: typer.Context, value: int | None) -> int | None:
    """What the environment says for other runs is not meant for processes that torchrun started."""
    source = context.get_parameter_source("workers")
    from_environment = source is not None and source.name == "ENVIRONMENT"
    return None if from_environment and "TORCHELASTIC_RUN_ID" in os.environ else value


Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        envvar="FEDCM_WORKERS",
        callback=_unless_torchrun,
        help="Processes that share the work; one a physical core or CUDA device unless given. The bits stay the same.",
        show_default=False,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME,…",
        help="Tell tensorboard, mlflow or wandb every round too; a comma list, or repeated (docs/guides/tracking.md).",
        show_default=False,
    ),
]
Diagnose = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Every N rounds, measure drift, noise, dissimilarity, where Δ points (docs/guides/diagnosis.md).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, all else on stderr.")]


Compile = Annotated[
    str | None,
    typer.Option(
        metavar="auto|on|off",
        help="Short for --set engine.compile=…: the model by torch.compile; auto tries it where a run is long.",
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
        help="Short for --set engine.precision=…: of the model's arithmetic.",
        show_default=False,
    ),
]


def changes(
    settings: list[str] | None,
    seed: int | None,
    compile: str | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> list[str]:
    short = {"seed": seed, "engine.compile": compile, "engine.device": device, "engine.precision": precision}
    return [*(settings or []), *(f"{path}={value}" for path, value in short.items() if value is not None)]
