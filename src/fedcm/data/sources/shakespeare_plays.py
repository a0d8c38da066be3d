"""Who says what in a play: a parser for the plain texts of Shakespeare's plays from Project Gutenberg.

    THESEUS.                        the speaker, alone on a line after an empty one
    Go, Philostrate,                what he says, up to the next speaker, act or scene
    Stir up the Athenian youth to merriments;

    [Exit PHILOSTRATE.]             a stage direction: left out

    Hippolyta, I woo'd thee with my sword,

The texts differ. Most write a speaker in capitals with a full stop (`FIRST LORD.`). Hamlet, King Lear and Romeo and
Juliet write `Ham.` or `Lady Capulet.`, and A Midsummer Night's Dream writes `THESEUS`. Here and there a speech begins
on the speaker's line: `WIDOW. So, now they come:--`. These are the rules:

1. The play begins at its first act, prologue or induction; the list of persons before it is left out.
2. Stage directions, from `[` to `]` (sometimes `}`), are removed. One that is not closed ends at the next empty line.
3. An act, scene, prologue, epilogue or induction ends a speech. What follows is nobody's until a speaker is named.
4. A line after an empty one names a speaker if it is in capitals. In a play that writes most speakers in small letters,
   it may also be up to four words that begin with a capital, end with a full stop, and have a line of text below.
5. `NAME. Text` begins a speech if NAME is a speaker by rule 4 elsewhere in the play.
6. Several speakers at once (ALL, BOTH, names joined by "and", "&" or ",") are nobody's speech.
7. The titles of verses inside a speech (`SONG.`, `II.`) are left out, and the speech continues after them.

A role is a speaker's name in capitals, as the play writes it: one person with two names has two roles.
"""

import re

_HEADING = re.compile(
    r"(?:act|scene) (?:[ivx]+|\d+|first|second|third|fourth|fifth)\b.*|scene[.:].*"
    r"|(?:the )?(?:prologue|epilogue|induction|end|dumb show|order of the coronation)[.:]?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"act (?:[ivx]+|\d+|first)\b.*|(?:the )?(?:prologue|induction)\.?", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]}]*?(?:[\]}]|(?=\n[ \t]*\n)|\Z)")
_CAPITALS = re.compile(r"([A-Z0-9][A-Z0-9 .,'&-]{0,38}[A-Z0-9'])[.:]?")
_SMALL = re.compile(r"((?:[A-Z0-9][a-z']*\.?|of|and|the|&)(?: (?:[A-Z][a-z']*\.?|of|and|the|&)){0,3})[.:]")
_INLINE = re.compile(r"([A-Z][A-Z0-9 .'-]{0,38}?[A-Z0-9'])[.:] (.+)")
_TITLE = re.compile(r"(?:SONG|[IVX]+)[.:]?")
_SEVERAL = re.compile(r"ALL\b.*|BOTH\b.*|.*(?:\bAND\b|&|,).*")


def parse_play(text: str) -> dict[str, str]:
    """Return what each role of a play says: its speeches in their order, one line of the play per line.

    Args:
        text: The play.

    Returns:
        The text of each role by the role's name, in the order of the roles' first speeches. Spaces at the ends of lines
        are removed, and runs of spaces are one space.
    """
    lines = _read_lines(text)
    after_empty = [not before for before in ["", *lines[:-1]]]
    before_text = [bool(after) for after in [*lines[1:], ""]]
    in_capitals = [bool(start and _CAPITALS.fullmatch(line)) for line, start in zip(lines, after_empty, strict=True)]
    in_small = [
        bool(start and more and _SMALL.fullmatch(line))
        for line, start, more in zip(lines, after_empty, before_text, strict=True)
    ]
    uses_small = sum(in_small) > sum(in_capitals)
    names_speaker = [capital or (small and uses_small) for capital, small in zip(in_capitals, in_small, strict=True)]
    known = {_read_name(line) for line, names in zip(lines, names_speaker, strict=True) if names}
    speeches: dict[str, list[str]] = {}
    speaker = None
    for line, start, names in zip(lines, after_empty, names_speaker, strict=True):
        inline = _INLINE.fullmatch(line) if start else None
        if start and _HEADING.fullmatch(line):
            speaker = None
        elif start and _TITLE.fullmatch(line):
            continue
        elif names:
            speaker = _read_name(line)
        elif inline and _read_name(inline[1]) in known:
            speaker = _read_name(inline[1])
            speeches.setdefault(speaker, []).append(inline[2])
        elif line and speaker is not None:
            speeches.setdefault(speaker, []).append(line)
    return {role: "\n".join(spoken) for role, spoken in speeches.items() if not _SEVERAL.fullmatch(role)}


def _read_lines(text: str) -> list[str]:
    """Return the lines of the play from its beginning, without stage directions."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((k for k, line in enumerate(lines) if _BEGINNING.fullmatch(line.strip())), len(lines))
    body = _DIRECTION.sub("", "\n".join(lines[first:]))
    return [" ".join(line.translate(_BRACKETS).split()) for line in body.split("\n")]


_BRACKETS = str.maketrans("", "", "[]{}")  # left over from directions that are not opened or closed


def _read_name(line: str) -> str:
    return line.rstrip(".:").upper()
