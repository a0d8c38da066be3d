"""The settings to tune: from the text `path=low..high:log` or `path=value,value` to the values of a trial.

A range is continuous, or has whole numbers (`:int`) or steps (`:step=0.1`); `:log` draws its logarithm. A name before
the path, as in `fedcm:algorithm.alpha=0.01..1:log`, restricts a setting to one algorithm.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from fedcm.config.toml_values import read_values, write_value
from fedcm.errors import UserError
from fedcm.sweeps.labels import is_setting

_FORMS = "such as client.lr=0.01..1:log, client.epochs=1..5:int, server.lr=0.5..1.5:step=0.1 or client.batch_size=5,10"
_INCOMPARABLE = ("data.source", "data.validation", "evaluation.", "stop.")  # paths, or their beginnings
_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*([^:\s]+)\s*((?::[^:]*)*)")
_DIGITS = 4  # significant digits of a drawn number; more would not change a result


@final
@dataclass(frozen=True)
class TunedRange:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False  # whole numbers only
    step: float | None = None  # distance of two values, counted from `low`

    def to_value(self, drawn: float) -> float:
        """Return a drawn number as the setting's value, with few digits and inside the range."""
        if self.whole:
            return round(drawn)
        digits = 12 if self.step is not None else _DIGITS
        return min(max(float(f"{drawn:.{digits}g}"), self.low), self.high)

    def list_examples(self) -> list[float]:
        """Return both ends, and a number between them that is whole only if the range says so."""
        if self.whole or self.step is not None:
            return [self.low, self.high]
        return [self.low, self.high, self.to_value(self.low + 0.381966 * (self.high - self.low))]

    def __str__(self) -> str:
        flags = [":log"] * self.log + [":int"] * self.whole
        flags += [] if self.step is None else [f":step={_write_number(self.step)}"]
        return f"{_write_number(self.low)}..{_write_number(self.high)}{''.join(flags)}"


@final
@dataclass(frozen=True)
class TunedChoices:
    """A list of values."""

    values: tuple[Any, ...]

    def list_examples(self) -> list[Any]:
        """Return all values."""
        return list(self.values)

    def __str__(self) -> str:
        return ",".join(map(write_value, self.values))


Domain = TunedRange | TunedChoices
Space = Mapping[str, Domain]  # by the setting's path


@final
@dataclass(frozen=True)
class TunedSetting:
    """A setting and where to look for its value; `algorithm` is empty if it applies to all."""

    path: str
    domain: Domain
    algorithm: str = ""


def parse_tuned_settings(over: Iterable[str]) -> list[TunedSetting]:
    """Parse the settings to tune.

    Args:
        over: Texts of the form `[algorithm:]path=low..high[:log][:int][:step=x]` or `[algorithm:]path=value,value`.

    Raises:
        UserError: If a text has another form, or two name the same setting of the same algorithm.

    >>> [one] = parse_tuned_settings(["fedcm:algorithm.alpha=0.01..1:log"])
    >>> one.algorithm, one.path, str(one.domain)
    ('fedcm', 'algorithm.alpha', '0.01..1:log')
    """
    parsed: dict[tuple[str, str], TunedSetting] = {}
    for text in over:
        where, equals, values = text.partition("=")
        algorithm, _, path = where.strip().rpartition(":")
        if not equals or not all(key.strip() for key in path.split(".")):
            raise UserError(f"a setting to tune must be path=low..high or path=value,value, {_FORMS}; got {text!r}")
        setting = TunedSetting(path.strip(), _parse_domain(text, values), algorithm.strip())
        _reject_path(setting.path)
        key = setting.algorithm, setting.path
        if key in parsed:
            raise UserError(f"a setting to tune must be given once, but {where.strip()!r} is given twice")
        parsed[key] = setting
    if not parsed:
        raise UserError(f"a setting to tune must be given with --over, {_FORMS}")
    return list(parsed.values())


def _reject_path(path: str) -> None:
    """Raise UserError if a setting does not exist, does not change the training, or changes what a score means."""
    reason = None
    if path == "algorithm.name":
        reason = "list the algorithms in `algorithms`"
    elif path == "seed":
        reason = "the best seed would be luck; `seeds` runs the winners with further seeds"
    elif path == "name":
        reason = "the name of an experiment changes no result"
    elif not is_setting(path):
        reason = "there is no such setting"
    elif path.startswith(_INCOMPARABLE):
        reason = "trials that differ in it cannot be compared; set it for all of them with --set or `overrides`"
    if reason is not None:
        raise UserError(f"a setting to tune must be one of the training, {_FORMS}, got {path!r}: {reason}")


def choose_space(settings: Iterable[TunedSetting], algorithm: str, hyperparameters: Iterable[str]) -> dict[str, Domain]:
    """Return the space of one algorithm; what is given for this algorithm alone wins.

    Args:
        settings: All settings to tune.
        algorithm: The algorithm's name.
        hyperparameters: Its hyperparameters. `algorithm.X` for all algorithms applies only to those that have X.
    """
    known = {f"algorithm.{name}" for name in hyperparameters}
    space: dict[str, Domain] = {}
    for setting in sorted(settings, key=lambda setting: bool(setting.algorithm)):
        applies = not setting.path.startswith("algorithm.") or setting.path in known
        if setting.algorithm == algorithm or (not setting.algorithm and applies):
            space[setting.path] = setting.domain
    return space


def list_example_settings(space: Space) -> list[dict[str, Any]]:
    """Return a few settings that together contain both ends of every range and every choice."""
    examples = {path: domain.list_examples() for path, domain in space.items()}
    count = max(map(len, examples.values()))
    return [{path: values[k % len(values)] for path, values in examples.items()} for k in range(count)]


def _parse_domain(text: str, values: str) -> Domain:
    try:
        if found := _RANGE.fullmatch(values):
            return _make_range(found[1], found[2], found[3].split(":")[1:])
        choices = read_values(values)
        if len(choices) < 2 and ".." in values:
            raise UserError("a range must be two numbers, low..high")
        if len(choices) < 2:
            raise UserError("one value is nothing to choose from")
        texts = [write_value(value) for value in choices]
        if repeated := next((one for one in texts if texts.count(one) > 1), None):
            raise UserError(f"{repeated} is there twice")
        return TunedChoices(tuple(choices))
    except UserError as error:
        raise UserError(
            f"a setting to tune must be path=low..high or path=value,value, {_FORMS}; got {text!r}: {error}"
        ) from None


def _make_range(low: str, high: str, flags: list[str]) -> TunedRange:
    known = [flag.strip() for flag in flags]
    if not re.fullmatch(_NUMBER, high):
        raise UserError(f"{high!r} is not a number")
    if wrong := next((flag for flag in known if flag not in ("log", "int") and not flag.startswith("step=")), None):
        raise UserError(f"':{wrong}' must be :log, :int or :step=NUMBER")
    steps = [flag.removeprefix("step=") for flag in known if flag.startswith("step=")]
    if len(known) > len(set(known)) or len(steps) > 1 or ("log" in known and steps):
        raise UserError("each of :log, :int and :step may be there once, and :log excludes :step")
    if steps and not re.fullmatch(_NUMBER, steps[0]):
        raise UserError(f"the step {steps[0]!r} is not a number")
    whole = "int" in known
    step = float(steps[0]) if steps else None
    domain = TunedRange(_to_number(low, whole), _to_number(high, whole), "log" in known, whole, step)
    if not domain.low < domain.high or math.isinf(domain.high - domain.low):
        raise UserError("the first number must be below the second")
    if domain.log and domain.low <= 0:
        raise UserError("a logarithmic range must begin above 0")
    if step is not None and not 0 < step <= domain.high - domain.low:
        raise UserError("the step must be above 0 and fit into the range")
    if whole and step is not None and not step.is_integer():
        raise UserError("whole numbers need a whole step")
    return domain


def _to_number(text: str, whole: bool) -> float:
    number = float(text)
    if whole and not number.is_integer():
        raise UserError(f"{text} is not a whole number")
    return int(number) if whole else number


def _write_number(number: float) -> str:
    return write_value(number).removesuffix(".0")
