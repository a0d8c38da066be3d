"""Numbers that need no measurement: settings, defaults, results of arithmetic, and what a cited paper says."""

import ast
import functools
import inspect
import operator
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from page_numbers import POWER, ROOT, Number, Page, list_texts, to_float

from fedcm.algorithms import ALGORITHMS
from fedcm.config.bundled import find_experiment
from fedcm.config.sections import SECTIONS
from fedcm.core.aggregation.robust import MEANS
from fedcm.core.attacks import ATTACKS
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.data.partition import SPLITS
from fedcm.errors import UserError

MEASURED_UNITS = {"points", "point", "times", "MB", "GB", "kB", "MiB", "GiB", "bytes"}
MEASURED_UNITS |= {"ms", "µs", "s", "second", "seconds", "minute", "minutes", "hour", "hours"}
CITES = re.compile(
    r"paper|authors|published|(?:public|released) (?:code|port)|our choice|usual|as far as we know|fairscale|Flower"
    r"|\bet al\.|, 20\d\d"
)
CONFIDENCE = re.compile(r"95 %\s+intervals?")
CITING_PAGES = re.compile(r"docs/(?:algorithms/.*|decisions/0001-.*)\.md")
EXPERIMENT = re.compile(r"experiments/[\w/-]+\.toml|(?<=fedcm )(?:run|compare|sweep|tune|advise) ([\w-]+)(?![\w/.])")
SUM = re.compile(r"(?<![\w.])[(⌈\d][\d.()⌈⌉/·+−^½⅓⅔¼ ]*[·+−/^⌉][\d.()⌈⌉/·+−^½⅓⅔¼ ]*= (−?[\d.]*\d)")
OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


def is_known(number: Number, page: Page) -> bool:
    """Return whether a number of a page is an input of it, a default, a result of arithmetic or cited."""
    if CITING_PAGES.fullmatch(page.name) and CITES.search(number.around):
        return True
    if _is_order_or_convention(number, page) or (not number.unit and number.value in list_results(page.text)):
        return True
    if number.unit in MEASURED_UNITS or re.search(r"\.\d+0$", number.text):
        return False
    return _round(number.value / 100 if number.unit == "%" else number.value) in list_inputs(page) | list_defaults()


def _is_order_or_convention(number: Number, page: Page) -> bool:
    """Return whether a number is a bare power of ten, a confidence level or the number of a row."""
    is_row = re.search(r"^\| $", page.text[: number.start].rpartition("\n")[2]) and number.text.isdigit()
    return bool(re.fullmatch(POWER, number.text) or CONFIDENCE.match(page.text, number.start) or is_row)


@functools.cache
def list_inputs(page: Page) -> frozenset[float]:
    """Return the numbers that a reader types, and the settings of the experiments that the page names."""
    found = {to_float(text) for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", page.typed)}
    for match in EXPERIMENT.finditer(page.text):
        path = ROOT / match[0]
        if match[1]:
            try:
                path = find_experiment(match[1])
            except UserError:  # the word after the command is no experiment
                continue
        if path.is_file():
            found |= set(_list_numbers(tomllib.loads(path.read_text(encoding="utf-8"))))
    return frozenset(_round(value) for value in found)


@functools.cache
def list_defaults() -> frozenset[float]:
    """Return the defaults of the code: of all sections of an experiment and of everything that is chosen by name.

    Lists are left out, such as the targets of an accuracy.
    """
    defaults = [field.default for section in SECTIONS.values() for field in section.model_fields.values()]
    for kinds in (ALGORITHMS, MEANS, ATTACKS, OPTIMIZERS, SCHEDULES, SPLITS):
        for kind in kinds.values():
            defaults += [one.default for one in inspect.signature(kind).parameters.values()]
    return frozenset(_round(value) for one in defaults if not isinstance(one, list) for value in _list_numbers(one))


def _round(value: float) -> float:
    return float(f"{value:.12g}")


def _list_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _list_numbers(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


@functools.cache
def list_results(text: str) -> frozenset[float]:
    """Return the numbers of the equations in a text that are right, such as 0.47 of `0.1·2 + 0.9·0.3 = 0.47`."""
    right = [match[0] for match in SUM.finditer(text) if _is_right(match[0])]
    return frozenset(to_float(number) for equation in right for number in list_texts(equation))


def list_wrong_equations(text: str) -> list[str]:
    """Return the equations in a text whose result is not that of the calculation."""
    return [match[0] for match in SUM.finditer(text) if not _is_right(match[0])]


def _is_right(equation: str) -> bool:
    left, result = equation.rsplit("=", 1)
    decimals = len(result.partition(".")[2])
    return round(evaluate(left), decimals) == to_float(result.strip().replace("−", "-"))


def evaluate(text: str) -> float:
    """Return the value of an expression such as 0.1·2 + 0.9·0.3."""
    text = text.replace("·", "*").replace("−", "-").replace("^", "**").replace("⅔", "(2/3)").replace("½", "(1/2)")
    text = re.sub(r"⌈([^⌉]*)⌉", lambda found: str(-int(-evaluate(found[1]) // 1)), text)
    return _walk(ast.parse(text.strip(), mode="eval").body)


def _walk(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_walk(node.operand))
    assert isinstance(node, ast.BinOp)
    return OPERATORS[type(node.op)](_walk(node.left), _walk(node.right))
