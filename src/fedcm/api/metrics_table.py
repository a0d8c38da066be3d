"""The metrics of a run as a table: rows are rounds, columns are metrics."""

from collections.abc import Sequence
from typing import Any, final, overload

from fedcm.core.metrics import Metrics
from fedcm.errors import UserError, suggest
from fedcm.system.formatting import format_count


@final
class MetricsTable(Sequence[Metrics]):
    """A read-only list with one dict per round, which also gives whole columns.

    `pandas.DataFrame(table)` and `polars.DataFrame(list(table))` make data frames of it.

    >>> table = MetricsTable([{"round": 0, "loss": 0.7}, {"round": 1, "loss": 0.5, "test_accuracy": 0.9}])
    >>> table["loss"], table["test_accuracy"], table[-1]["round"]
    ([0.7, 0.5], [None, 0.9], 1)
    """

    def __init__(self, rows: Sequence[Metrics]) -> None:
        self._rows = list(rows)

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order of their first appearance."""
        return list(dict.fromkeys(key for row in self._rows for key in row))

    @overload
    def __getitem__(self, key: int) -> Metrics: ...

    @overload
    def __getitem__(self, key: slice) -> "MetricsTable": ...

    @overload
    def __getitem__(self, key: str) -> list[Any]: ...

    def __getitem__(self, key: int | slice | str) -> "Metrics | MetricsTable | list[Any]":
        if isinstance(key, str):
            if self._rows and key not in self.columns:
                raise UserError(f"there is no metric {key!r}; {suggest(key, self.columns)}")
            return [row.get(key) for row in self._rows]
        return MetricsTable(self._rows[key]) if isinstance(key, slice) else self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame; pandas must be installed."""
        try:
            import pandas as pd  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UserError("to_pandas needs pandas; install it with `pip install pandas`") from None
        return pd.DataFrame(self._rows)

    def __repr__(self) -> str:
        return f"<MetricsTable: {format_count(len(self), 'round')}; {', '.join(self.columns)}>"
