"""A party's own settings, from a TOML file of its kit."""

from pathlib import Path
from typing import get_args

from fedcm.config.schema import Record, read_section, read_toml
from fedcm.errors import UserError


def read_settings(kind: type[Record], file: Path) -> Record:
    """A `Section` of sections; one that is wrong is named with its file."""
    try:
        table = read_toml(file, "settings")
        for key, field in kind.model_fields.items():  # pyright: ignore[reportAttributeAccessIssue]
            if key in table:
                section = next(iter(get_args(field.annotation)), field.annotation)  # also of one that may be left out
                table[key] = read_section(section, table[key], key)
        return read_section(kind, table)
    except UserError as refusal:
        raise UserError(f"{str(file)!r}: {refusal}") from None
