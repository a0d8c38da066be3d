"""A table of texts as LaTeX (booktabs), Markdown and CSV."""

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
    name: str  # of its files
    caption: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()  # (row, column)
    texts: int = 1  # the first columns are texts, the others numbers
    csv_head: tuple[str, ...] = ()  # which says what the caption does, that a CSV file has no place for

    def write(self, folder: Path) -> None:
        write_text(folder / f"{self.name}.tex", self.latex())
        write_text(folder / f"{self.name}.md", self.markdown())
        write_text(folder / f"{self.name}.csv", self.csv())

    def latex(self) -> str:
        columns = "l" * self.texts + "r" * (len(self.head) - self.texts)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            self._latex_row(-1, self.head),
            r"\midrule",
            *(self._latex_row(k, row) for k, row in enumerate(self.body)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "% needs \\usepackage{booktabs}\n" + "\n".join(lines) + "\n"

    def _latex_row(self, number: int, row: tuple[str, ...]) -> str:
        texts = [
            rf"\textbf{{{latex_text(text)}}}" if (number, column) in self.bold else latex_text(text)
            for column, text in enumerate(row)
        ]
        return " & ".join(texts) + r" \\"

    def markdown(self) -> str:
        def line(number: int, row: tuple[str, ...]) -> str:
            texts = [_markdown_text(text) for text in row]
            marked = [f"**{text}**" if (number, column) in self.bold else text for column, text in enumerate(texts)]
            return f"| {' | '.join(marked)} |"

        rule = "|" + "|".join([*["---"] * self.texts, *["---:"] * (len(self.head) - self.texts)]) + "|"
        rows = [line(k, row) for k, row in enumerate(self.body)]
        return "\n".join([_markdown_text(self.caption), "", line(-1, self.head), rule, *rows]) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.csv_head or self.head, *self.body])
        return text.getvalue()


def latex_text(text: str) -> str:
    """
    >>> print(latex_text("50 % of a_b"))
    50 \\% of a\\_b
    """
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _markdown_text(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "\\|`*_[]<>" else letter for letter in text)
    return " ".join(escaped.split())
