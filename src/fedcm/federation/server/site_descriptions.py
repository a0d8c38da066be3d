"""Ask sites to describe their data."""

from collections.abc import Sequence

from fedcm.config.schema import read_section
from fedcm.config.sections import FederationSection
from fedcm.errors import UserError
from fedcm.federation.frames import REJECTED
from fedcm.federation.server.channel import Channel, Deadline
from fedcm.federation.terms import DataDescription
from fedcm.federation.trust.foreign_text import clean_text


def describe_sites(
    channel: Channel, sites: Sequence[str], settings: FederationSection, quorum: int
) -> tuple[dict[str, DataDescription], dict[str, str]]:
    """Ask sites to describe their data.

    Once `quorum` sites have answered, the others have only `federation.wait` seconds.

    Returns:
        The descriptions by site; and by site, why it cannot take part.
    """
    descriptions, reasons, deadline = {}, {}, Deadline(settings.deadline)
    if not quorum:
        deadline.shorten(settings.wait)
    for answer in channel.ask("describe", {}, {}, list(sites), deadline):
        if REJECTED in answer.fields:
            reasons[answer.site] = f"it reports: {clean_text(answer.fields[REJECTED])}"
            continue
        try:
            where = f"the description by {answer.site}"
            descriptions[answer.site] = read_section(DataDescription, answer.fields, where)
        except UserError as error:
            reasons[answer.site] = clean_text(error)
        if len(descriptions) >= quorum:
            deadline.shorten(settings.wait)
    return descriptions, reasons
