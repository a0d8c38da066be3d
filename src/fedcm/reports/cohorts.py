"""The clients of a round that `metrics.jsonl` does not name, because they were too many: drawn again from the seed."""

from collections.abc import Callable, Mapping
from typing import Any

from fedcm.config.schema import read_choice
from fedcm.core.participation import PARTICIPATION, Everyone

Redraw = Callable[[Mapping[str, Any]], list[int] | None]  # a line of metrics -> its clients, None if they are unknown


def redraw_from(table: Mapping[str, Any]) -> Redraw:
    """Draws cohorts as the run of this experiment did. Where the data bring their own clients, the experiment does not
    say how many there are, and only a cohort of all of them is known."""
    population = table.get("split", {}).get("clients")

    def redraw(line: Mapping[str, Any]) -> list[int] | None:
        chosen = read_choice(PARTICIPATION, table.get("participation", {"kind": "everyone"}), "kind", "participation")
        everyone = line["cohort"] if isinstance(chosen, Everyone) else population
        if everyone is None:
            return None
        cohort = chosen.cohort(everyone, table["seed"], line["round"]).tolist()
        return cohort if len(cohort) == line["cohort"] else None

    return redraw
