"""Values on the command line: TOML, or plain words; and a text of a value that no other value has."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from fedcm.errors import UserError

_CLOSES = {"[": "]", "{": "}", '"': '"', "'": "'"}  # where one of these begins a value, commas may stand inside


def read_value(text: str) -> Any:
    """The TOML value, or else the text itself.

    >>> read_value("0.1"), read_value("[64, 32]"), read_value("cifar10")
    (0.1, [64, 32], 'cifar10')
    """
    found = _parse(text)
    return found[0] if found else text.strip()


def read_values(text: str) -> list[Any]:
    """The values of a list with commas; those inside brackets and quotes belong to the value.

    >>> read_values('[64, 32], [128]'), read_values('"a,b", c, 0.1')
    ([[64, 32], [128]], ['a,b', 'c', 0.1])
    """
    return list(_each(text))


def write_value(value: Any) -> str:
    """The shortest text that `read_value` reads as this value: values that differ have texts that differ.

    >>> write_value(0.10), write_value([64, 32]), write_value("cifar10"), write_value("0.1")
    ('0.1', '[64, 32]', 'cifar10', '"0.1"')
    """
    if isinstance(value, str) and _is_plain_word(value):
        return value
    return _toml(value)


def _each(text: str) -> Iterator[Any]:
    rest, comma = text, ","
    while comma:
        piece, comma, rest = rest.partition(",")
        close = _CLOSES.get(piece.lstrip()[:1])
        while close and not (piece.rstrip().endswith(close) and _parse(piece)):
            if not comma:
                raise UserError(
                    f"{_shortened(piece)} is no TOML value: brackets and quotes must close, texts in a list be quoted"
                )
            more, comma, rest = rest.partition(",")
            piece = f"{piece},{more}"
        if not piece.strip():
            raise UserError("a value is missing at a comma or at the end")
        yield read_value(piece)


def _shortened(text: str) -> str:
    return repr(text.strip() if len(text) <= 60 else f"{text.strip()[:60]}…")


def _parse(text: str) -> list[Any]:
    """The one value that the text is in TOML, or nothing.

    It must be the same alone and in an array: a comment, a new line or a bracket too many is so in neither.
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


def _toml(value: Any) -> str:
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{_key(key)} = {_toml(one)}' for key, one in value.items())}}}"
        case _:
            return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _key(key: str) -> str:
    return tomli_w.dumps({key: 0}).removesuffix(" = 0\n")
