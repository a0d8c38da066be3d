"""The results of single clients, and their distribution: mean, standard deviation, worst tenth, worst client."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class ClientScores(NamedTuple):
    """One metric on the test data of each client."""

    metric: str
    higher_is_better: bool
    clients: np.ndarray  # those that have test data
    values: np.ndarray  # of the global model; NaN where the metric is not defined
    personal: np.ndarray | None = None  # after each client's own steps

    def describe(self) -> dict[str, dict[str, float | None]]:
        """Return the distributions for the line of a round: of "clients", and of "personal" if there is one."""
        described = {"clients": self._describe_values(self.values)}
        return described if self.personal is None else described | {"personal": self._describe_values(self.personal)}

    def _describe_values(self, values: np.ndarray) -> dict[str, float | None]:
        """Return mean, standard deviation, the value that 10 % of the clients are worse than, and the worst value."""
        known = values[~np.isnan(values)]
        numbers: dict[str, float | None] = dict.fromkeys(("mean", "std", "p10", "worst"))
        if len(known):
            numbers["mean"], numbers["std"] = float(known.mean()), float(known.std())
            numbers["p10"] = float(np.quantile(known, 0.1 if self.higher_is_better else 0.9))
            numbers["worst"] = float(known.min() if self.higher_is_better else known.max())
        return {f"{self.metric}_{name}": value for name, value in numbers.items()}

    def to_dict(self, round: int) -> Mapping[str, Any]:
        """Return the contents of client_results.json."""
        table = {
            "round": round,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "clients": self.clients.tolist(),
            "values": _to_list(self.values),
        }
        return table if self.personal is None else table | {"personal": _to_list(self.personal)}


def _to_list(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]
