"""Read values of the command line, which are TOML or plain words, and write values in the same form."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from fedcm.errors import UserError

_CLOSES = {"[": "]", "{": "}", '"': '"', "'": "'"}  # a value that begins with one of these may contain commas


def read_value(text: str) -> Any:
    """Return the TOML value, or the text itself if it is not TOML.

    >>> read_value("0.1"), read_value("[64, 32]"), read_value("cifar10")
    (0.1, [64, 32], 'cifar10')
    """
    values = _parse(text)
    return values[0] if values else text.strip()


def read_values(text: str) -> list[Any]:
    """Return the values of a comma-separated list; commas inside brackets and quotes belong to a value.

    Raises:
        UserError: If a value is missing, or its brackets or quotes are not closed.

    >>> read_values('[64, 32], [128]'), read_values('"a,b", c, 0.1')
    ([[64, 32], [128]], ['a,b', 'c', 0.1])
    """
    return list(_split_values(text))


def write_value(value: Any) -> str:
    """Return the shortest text that `read_value` reads as this value. Distinct values have distinct texts.

    >>> write_value(0.10), write_value([64, 32]), write_value("cifar10"), write_value("0.1")
    ('0.1', '[64, 32]', 'cifar10', '"0.1"')
    """
    if isinstance(value, str) and _is_plain_word(value):
        return value
    return _write_toml(value)


def _split_values(text: str) -> Iterator[Any]:
    rest, comma = text, ","
    while comma:
        piece, comma, rest = rest.partition(",")
        close = _CLOSES.get(piece.lstrip()[:1])
        while close and not (piece.rstrip().endswith(close) and _parse(piece)):
            if not comma:
                raise UserError(
                    f"{_shorten(piece)} is not a TOML value: close all brackets and quotes, and quote texts in a list"
                )
            more, comma, rest = rest.partition(",")
            piece = f"{piece},{more}"
        if not piece.strip():
            raise UserError("a value is missing at a comma or at the end")
        yield read_value(piece)


def _shorten(text: str) -> str:
    return repr(text.strip() if len(text) <= 60 else f"{text.strip()[:60]}…")


def _parse(text: str) -> list[Any]:
    """Return a list with the TOML value of the text, or an empty list if the text is not one TOML value.

    The text must mean the same alone and in an array. This rules out comments, line breaks and extra brackets.
    """
    try:
        alone = tomllib.loads(f"value = {text}")
        inside = tomllib.loads(f"value = [{text}]")
    except tomllib.TOMLDecodeError:
        return []
    except (ValueError, RecursionError) as error:
        raise UserError(f"a value cannot be read: {error}") from None
    same = repr([alone.get("value")]) == repr(inside.get("value")) and len(alone) == len(inside) == 1
    return [alone["value"]] if same else []


def _is_plain_word(text: str) -> bool:
    return (
        bool(text)
        and text.isprintable()
        and text == text.strip()
        and "," not in text
        and text[0] not in _CLOSES
        and not _parse(text)
    )


def _write_toml(value: Any) -> str:
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_write_toml, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{_write_key(key)} = {_write_toml(item)}' for key, item in value.items())}}}"
        case _:
            return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _write_key(key: str) -> str:
    return tomli_w.dumps({key: 0}).removesuffix(" = 0\n")
