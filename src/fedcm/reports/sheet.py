"""Tables of texts as LaTeX (with booktabs), Markdown and CSV."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.system.files import write_text

_LATEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{
        "±": r"$\pm$",
        "α": r"$\alpha$",
        "·": r"$\cdot$",
        "–": "--",
        "−": "$-$",
        "<": "$<$",
        ">": "$>$",
        "✓": "+",
        "✗": r"$\times$",
    },
    "…": r"\dots{}",
}


@final
@dataclass(frozen=True)
class Sheet:
    """A table of texts that can be written as LaTeX, Markdown and CSV."""

    name: str  # of its files, without suffix
    caption: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()  # (row, column)
    texts: int = 1  # number of leading columns that hold texts; the others hold numbers
    csv_head: tuple[str, ...] = ()  # longer headings for CSV, which has no caption

    def write(self, folder: Path) -> None:
        """Write `NAME.tex`, `NAME.md` and `NAME.csv`."""
        write_text(folder / f"{self.name}.tex", self.to_latex())
        write_text(folder / f"{self.name}.md", self.to_markdown())
        write_text(folder / f"{self.name}.csv", self.to_csv())

    def to_latex(self) -> str:
        """Return a `table` environment that needs the package booktabs."""
        columns = "l" * self.texts + "r" * (len(self.head) - self.texts)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            self._make_latex_row(-1, self.head),
            r"\midrule",
            *(self._make_latex_row(k, row) for k, row in enumerate(self.body)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "% needs \\usepackage{booktabs}\n" + "\n".join(lines) + "\n"

    def _make_latex_row(self, number: int, row: tuple[str, ...]) -> str:
        texts = [
            rf"\textbf{{{escape_latex(text)}}}" if (number, column) in self.bold else escape_latex(text)
            for column, text in enumerate(row)
        ]
        return " & ".join(texts) + r" \\"

    def to_markdown(self) -> str:
        """Return the caption and a Markdown table."""

        def make_line(number: int, row: tuple[str, ...]) -> str:
            texts = [_escape_markdown(text) for text in row]
            marked = [f"**{text}**" if (number, column) in self.bold else text for column, text in enumerate(texts)]
            return f"| {' | '.join(marked)} |"

        rule = "|" + "|".join([*["---"] * self.texts, *["---:"] * (len(self.head) - self.texts)]) + "|"
        rows = [make_line(k, row) for k, row in enumerate(self.body)]
        return "\n".join([_escape_markdown(self.caption), "", make_line(-1, self.head), rule, *rows]) + "\n"

    def to_csv(self) -> str:
        """Return CSV with one heading line."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.csv_head or self.head, *self.body])
        return text.getvalue()


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX.

    >>> print(escape_latex("50 % of a_b"))
    50 \\% of a\\_b
    """
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _escape_markdown(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "\\|`*_[]<>" else letter for letter in text)
    return " ".join(escaped.split())
