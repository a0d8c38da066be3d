"""`fedcm privacy`: what the privacy of an experiment costs, before anything is trained."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options


def privacy(
    experiment: options.ExperimentPath,
    overrides: options.SettingOverrides = None,
    picture: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.", metavar="PATH")] = Path(
        "privacy.png"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Print ε of an experiment against rounds, noise and participation, and draw it. Nothing is trained.

    The experiment's `[privacy]` gives the noise or the budget; the other is computed. Settings can be tried with --set.
    The bold rows are the experiment's own. docs/guides/privacy.md says what ε means.

    Example: `fedcm privacy privacy-digits --set privacy.epsilon=8 --set privacy.clip=0.2`
    """
    from fedcm.api.advice import plan_privacy
    from fedcm.cli.terminal.privacy import print_privacy_plan
    from fedcm.reports.figures.privacy_curves import draw_privacy_plan

    plan = plan_privacy(experiment, overrides=options.collect_overrides(overrides, None))
    draw_privacy_plan(plan, picture)
    if as_json:
        print(json.dumps({**plan.to_table(), "picture": str(picture)}, indent=2, allow_nan=False))
    else:
        print_privacy_plan(plan)
        print(f"picture: {picture}")
