"""Options that several commands of `fedcm federation` share."""

from pathlib import Path
from typing import Annotated

import typer

KitPath = Annotated[Path, typer.Argument(metavar="DIR", help="The kit of this server, site or admin.")]
AdminKit = Annotated[Path, typer.Option("--kit", envvar="FEDCM_KIT", help="The admin's kit.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name; `status` lists them.")]
Days = Annotated[
    int | None,
    typer.Option(min=1, max=3650, help="Validity of certificates in days; by default 360.", show_default=False),
]
Restarts = Annotated[int, typer.Option(min=0, help="How often to submit a run again that the engine lost.")]
Patience = Annotated[float, typer.Option(min=0, help="Seconds that the server may be unreachable.")]
Detach = Annotated[bool, typer.Option("--detach", help="Submit the run and exit; watch it with `status` and `fetch`.")]
