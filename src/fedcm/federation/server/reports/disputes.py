"""Who is left out if sites cannot use each other's keys or shares.

The server passes keys and encrypted shares on and cannot tell whether the site that made them or the one that complains
is wrong. But one of both is. So it leaves out the sites in most disputes, until no dispute is left: a site that deals
junk to all others, or accuses all others, is left out alone. Of two sites with no other dispute, both are.
"""

from collections import Counter
from collections.abc import Mapping

from fedcm.errors import UserError

_LONGEST = 300  # letters of a reason

Complaints = dict[str, dict[str, str]]  # by site that complains and site that it names: why


def read_complaint(site: str, fields: object, members: set[str]) -> dict[str, str]:
    """Return which other sites a site complains about, and why.

    Raises:
        UserError: If it is not a table of other members and reasons.
    """
    named = set(fields) if isinstance(fields, Mapping) else set()
    if not isinstance(fields, Mapping) or not named or not named <= members - {site}:
        raise UserError("it must name other sites whose messages it cannot use")
    return {str(name): " ".join(str(reason).split())[:_LONGEST] for name, reason in fields.items()}


def choose_suspects(complaints: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the sites to leave out, with reasons.

    >>> sorted(choose_suspects({"b": {"a": "junk"}, "c": {"a": "junk"}}))
    ['a']
    >>> sorted(choose_suspects({"a": {"b": "", "c": "", "d": ""}}))
    ['a']
    >>> sorted(choose_suspects({"a": {"b": "junk"}}))
    ['a', 'b']
    """
    disputes = {frozenset((site, named)) for site, own in complaints.items() for named in own}
    suspects: set[str] = set()
    while disputes:
        counts = Counter(site for pair in disputes for site in pair)
        worst = {site for site, count in counts.items() if count == max(counts.values())}
        suspects |= worst
        disputes = {pair for pair in disputes if not pair & worst}
    return {site: _explain(site, complaints) for site in sorted(suspects)}


def describe_complaints(complaints: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one sentence for each complaint, which names both sites."""
    return [
        f"{site} cannot use a message of {named}: {reason}"
        for site, own in sorted(complaints.items())
        for named, reason in sorted(own.items())
    ]


def _explain(site: str, complaints: Mapping[str, Mapping[str, str]]) -> str:
    if by := sorted(other for other, own in complaints.items() if site in own):
        return f"{', '.join(by)} cannot use its message: {complaints[by[0]][site]}"
    named = ", ".join(sorted(complaints[site]))
    return f"it cannot use the message of {named}, and nobody can tell which of them is wrong"
