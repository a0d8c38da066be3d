"""What server and sites say about client states: which ones the sites have, and which ones are not needed any more.

The server has a few checkpoints, and each site has its client states after a few rounds. They may not fit together:
the server or a site may be restored from a backup, or a disk may be lost. So before a run with client states resumes,
the server asks the sites which states they have, and they agree on the newest round for which everybody has what it
needs. When a run has finished, the server tells the sites, which then remove its states after some days.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedcm.config.sections import FederationSection
from fedcm.errors import Stopped, UserError
from fedcm.federation.experiment import compute_quorum
from fedcm.federation.server.channel import Channel, Deadline
from fedcm.federation.server.replies import BadReply, read_state_offer
from fedcm.federation.terms import FederationRecord, read_record
from fedcm.runs.checkpoint import list_checkpoints
from fedcm.runs.folder import list_runs
from fedcm.runs.session import Session
from fedcm.system.callbacks import Notify

_MOST = 100  # finished runs that a message names: the newest ones, because a site may have missed earlier messages
_TIMEOUT = 10.0  # seconds to wait for answers on which nothing depends
Offers = Mapping[str, set[int]]  # by site, rounds after which it has a state
Needs = Mapping[str, int]  # by site, the round after which its state is needed


def read_counted(run: Session, sites: Sequence[str], rounds: int | None = None) -> dict[str, int]:
    """Read from the run's metrics which of the first `rounds` rounds counted last for each site."""
    counted: dict[str, int] = {}
    for line in run.folder.read_metrics(run.next_round if rounds is None else rounds):
        for client in line["clients"]:
            counted[sites[int(client)]] = line["round"]
    return counted


def agree_on_round(
    run: Session, record: FederationRecord, channel: Channel, settings: FederationSection, notify: Notify
) -> None:
    """Let a resumed run continue from the newest checkpoint for which all sites that answer have their states.

    If there is none, the newest checkpoint is used, and the log says which sites have lost which states.
    """
    needs = read_counted(run, record.sites)
    if not run.setup.runner.initial_state or not needs:
        return
    rounds = [round for round in list_checkpoints(run.folder.checkpoints) if round <= run.next_round]
    needs_by_round = {round: read_counted(run, record.sites, round) for round in rounds}
    offers = _ask_sites(channel, record.id, list(needs_by_round.values()), settings, notify)
    for round in rounds:
        if not _find_lost(offers, needs_by_round[round]):
            if round < run.next_round:
                lost = _find_lost(offers, needs)
                names = ", ".join(f"{site} after round {needed}" for site, needed in lost.items())
                notify(f"states are lost ({names}), so the run goes back from round {run.next_round} to round {round}")
                run.go_back(round, notify)
            return
    for site, needed in _find_lost(offers, needs).items():
        notify(
            f"{site} has lost its state after round {needed} ({_describe_offer(offers[site])}) and takes no further "
            f"part in this run, unless its operator restores state/{record.id} of its kit from a backup, or you "
            "resume the run from a backup of the server's run of that time"
        )


def _ask_sites(
    channel: Channel, run: str, needs: Sequence[Needs], settings: FederationSection, notify: Notify
) -> dict[str, set[int]]:
    """Return the offers of the sites that answer; once the quorum has answered, the others have `federation.wait`."""
    connected, offers, deadline = channel.list_connected_sites(), dict[str, set[int]](), Deadline(settings.deadline)
    asked = sorted({site for one in needs for site in one} & connected)
    wanted = {site: {"rounds": sorted({one[site] for one in needs if site in one})} for site in asked}
    for answer in channel.ask("offer", {"run": run, "own": wanted}, {}, asked, deadline):
        try:
            offers[answer.site] = read_state_offer(answer.fields, run)
        except BadReply as error:
            notify(f"{answer.site} does not say which client states it has: {error}")
        if len(offers) >= compute_quorum(len(asked), settings.quorum):
            deadline.shorten(settings.wait)
    return offers


def _find_lost(offers: Offers, needs: Needs) -> dict[str, int]:
    """Return the sites that have answered and do not have the state that they need, with its round."""
    return {site: round for site, round in needs.items() if site in offers and round not in offers[site]}


def _describe_offer(rounds: set[int]) -> str:
    """
    >>> _describe_offer({4, 5, 9})
    'its states are of rounds 4 to 9'
    """
    if len(rounds) < 2:
        return f"its only state is of round {min(rounds)}" if rounds else "it has none"
    return f"its states are of rounds {min(rounds)} to {max(rounds)}"


def tell_finished_runs(runs: Path, channel: Channel, sites: Sequence[str]) -> None:
    """Send the ids of the finished runs in a folder to those of these sites that are connected."""
    connected = channel.list_connected_sites()
    request, asked = {"runs": list_finished_ids(runs)}, [site for site in sites if site in connected]
    with suppress(Stopped):  # the run has finished all the same
        for _ in channel.ask("finish", request, {}, asked, Deadline(_TIMEOUT)):
            pass


def list_finished_ids(runs: Path) -> list[str]:
    """Return by which ids sites know the finished runs in a folder; the oldest first."""
    ids = []
    for folder in list_runs(runs):
        try:
            if folder.read_outcome() == "finished":
                ids.append(read_record(folder.path).id)
        except UserError:  # a damaged run may be restored and resumed
            continue
    return ids[-_MOST:]
