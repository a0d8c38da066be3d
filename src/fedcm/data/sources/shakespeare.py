"""Shakespeare's plays, one client per speaking role: predict the next character of what the role says.

    role        a speaker in one of 37 plays, with at least 1,000 characters of text (`shakespeare_plays` parses them)
    token       0 for an unknown character, 1 for a new line, then the 95 printable ASCII characters in their order
    sequence    81 tokens: the features are the first 80 of them, the labels the last 80
    test set    the last fifth of every role's text, by its order in the play; the rest is for training

Sequences do not overlap, except that the last token of one is the first of the next. None crosses the border between
the two sets, so no character of the test set is seen in training.

A prepared dataset is stored in `<data folder>/shakespeare/` and mapped into memory: {train,test}_sequences.npy,
owners.npy (the client of each training sequence) and roles.json (the clients' names). Every load compares their sha256
with those of the published texts, parsed by these rules.

The task is that of Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, with another edition and parser, so
the numbers of papers that use LEAF's files cannot be compared with these.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples
from fedcm.data.sources.shakespeare_plays import parse_play
from fedcm.errors import UserError
from fedcm.system.checksum import compute_sha256
from fedcm.system.files import atomic_write, write_bytes

NAME = "shakespeare"
LENGTH = 80  # characters of features per example
LEAST_TEXT = 1_000  # characters of a role
TEST_SHARE = 0.2
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # token = position + 1
VOCABULARY = len(ALPHABET) + 1

ROLES = "roles.json"
ARRAYS = ("train_sequences", "test_sequences", "owners")
SHA256 = {
    "train_sequences": "d4c186aaafc7fb9bbdf88603708385e875af67ada896bf10e487c10c255cfd22",
    "test_sequences": "c7fe79f7d322133549bd0b441153968c2856aabc410f688aa85b703a786291dc",
    "owners": "256476e4e2f4df7425602c74036bef7acf54c803dcb773d8282abdaf91879d30",
    ROLES: "0e108cf9a61a367fb788670f02149c698cedc0516aa87f5274a22686e5fff17d",
}


def encode(text: str) -> np.ndarray:
    """Return the token of each character."""
    tokens = np.zeros(128, np.int64)
    tokens[[ord(character) for character in ALPHABET]] = np.arange(1, VOCABULARY)
    codes = np.array([ord(character) for character in text], np.int64)
    return np.where(codes < len(tokens), tokens[np.minimum(codes, len(tokens) - 1)], 0)


def decode(tokens: np.ndarray) -> str:
    """Return the text of some tokens; an unknown character is shown as �."""
    return "".join("\N{REPLACEMENT CHARACTER}" if token == 0 else ALPHABET[token - 1] for token in tokens)


def make_arrays(plays: Mapping[str, str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Parse plays and cut what their roles say into sequences.

    Args:
        plays: The text of each play, by its name.

    Returns:
        The arrays by name, and the names of the clients, `play/ROLE`.
    """
    train, test, owners, names = [], [], [], []
    for name, text in _list_roles(plays):
        border = int(len(text) * (1 - TEST_SHARE))
        mine = _cut(encode(text[:border]))
        owners.append(np.full(len(mine), len(names)))
        train.append(mine)
        test.append(_cut(encode(text[border:])))
        names.append(name)
    arrays = (np.concatenate(parts) for parts in (train, test, owners))
    return dict(zip(ARRAYS, arrays, strict=True)), names


def _list_roles(plays: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for play, text in plays.items():
        for role, spoken in parse_play(text).items():
            if len(spoken) >= LEAST_TEXT:
                yield f"{play}/{role}", spoken


def _cut(tokens: np.ndarray) -> np.ndarray:
    """Cut tokens (t,) into sequences (n, LENGTH + 1); what is left at the end is not used."""
    starts = np.arange(0, len(tokens) - LENGTH, LENGTH)
    return tokens[starts[:, None] + np.arange(LENGTH + 1)]


def load_shakespeare(data_dir: Path) -> Dataset:
    """Load the plays from the data folder.

    Raises:
        UserError: If they are not prepared, or not the published ones.
    """
    folder = data_dir / NAME
    if not is_prepared(folder):
        raise UserError(f"{NAME} is not in the data folder {data_dir}; run `fedcm data prepare {NAME}`")
    arrays, names = read_prepared(folder)
    train, test = (_convert_examples(arrays[f"{part}_sequences"]) for part in ("train", "test"))
    checksums = {
        f"{part}_{field}": SHA256[f"{part}_sequences"] for part in ("train", "test") for field in ("features", "labels")
    }
    owners = np.array(arrays["owners"])
    return Dataset(
        NAME, train, test, VOCABULARY, owners=owners, client_names=tuple(names), checksums=checksums, mapped=True
    )


def is_prepared(folder: Path) -> bool:
    """Return whether all files exist; `read_prepared` checks their content."""
    return all((folder / file).is_file() for file in (*(f"{array}.npy" for array in ARRAYS), ROLES))


def read_prepared(folder: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read the prepared arrays and the names of the clients.

    Raises:
        UserError: If they cannot be read or are not those of the published texts.
    """
    again = f"run `fedcm data prepare {NAME}` to write it again"
    try:
        # copy on write: all readers share the pages, and torch gets the writable memory that it requires
        arrays = {array: np.load(folder / f"{array}.npy", mmap_mode="c", allow_pickle=False) for array in ARRAYS}
        roles = (folder / ROLES).read_bytes()
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{folder} cannot be read ({error}); {again}") from error
    _check_published(arrays, roles, f"{folder} ({again})")
    return arrays, json.loads(roles)


def write_prepared(plays: Mapping[str, str], folder: Path) -> None:
    """Parse the plays, check the result, then write each file atomically.

    Raises:
        UserError: If the plays are not the published ones, or cannot be written.
    """
    arrays, names = make_arrays(plays)
    roles = json.dumps(names, indent=1).encode()
    _check_published(arrays, roles, "the source")
    try:
        for name, array in arrays.items():
            with atomic_write(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        write_bytes(folder / ROLES, roles)
    except OSError as error:
        raise UserError(f"{NAME} cannot be written to {folder}: {error}") from error


def _check_published(arrays: Mapping[str, np.ndarray], roles: bytes, where: str) -> None:
    found = {name: compute_sha256(array) for name, array in arrays.items()}
    found[ROLES] = hashlib.sha256(roles).hexdigest()
    for name, expected in SHA256.items():
        if found[name] != expected:
            raise UserError(f"{NAME}: {name} must be that of the published plays, got another in {where}")


def _convert_examples(sequences: np.ndarray) -> Examples:
    tokens = torch.from_numpy(sequences)
    return Examples(tokens[:, :-1], tokens[:, 1:])
