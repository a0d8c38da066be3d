"""A run over real sites, at the server: begun or gone on with in a folder of the server's kit, like any run."""

import secrets
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedcm.config.experiment import CheckpointSection, DataSection, EngineSection, Experiment
from fedcm.core.round_loop import Metrics
from fedcm.data.dataset import Examples
from fedcm.errors import UserError
from fedcm.federation.quorum import quorum_of
from fedcm.federation.server.channel import Channel
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.rounds import FederationExecutor, introduced
from fedcm.federation.server.server_settings import load_server_settings, load_test_data
from fedcm.federation.site_states import SPARE
from fedcm.federation.terms import FILE as NOTED
from fedcm.federation.terms import Noted, Terms, agree, read_noted, write_noted
from fedcm.runs.archive import new_archive
from fedcm.runs.assembly import Assembly, assemble_on
from fedcm.runs.folder import RunFolder
from fedcm.runs.running import drive
from fedcm.runs.starting import PutTogether, Run, begin, fingerprint, resume

Say = Callable[[str], None]
Asked = Callable[[], bool]

RUNS = "runs"
AT_SITES = "federation"  # where the data of such a run are, as its experiment says


class Begun(NamedTuple):
    """Which run, and whose."""

    kit: Path
    name: str
    by: str  # the admin who asks for it
    go_on: bool  # may it be there already?

    @property
    def path(self) -> Path:
        return self.kit / RUNS / self.name


def lead(
    begun: Begun, experiment: Experiment, channel: Channel, say: Say, stop_requested: Asked, has_it: Callable[[], None]
) -> Generator[Metrics, None, None]:
    """The rounds of a new run, or those that are left of one that is there; each told when it is on the disk.

    `has_it` is called once the run is known to be this admin's, and is in hand.
    """
    held_out = load_test_data(begun.kit, load_server_settings(begun.kit))
    if (begun.path / NOTED).is_file():  # written last: without it nothing of the run has happened
        noted = _reject_another(begun, experiment)
        together = _on(noted, held_out, {})
        run = resume(begun.path, None, say, stop_requested, put_together=together)
        say(f"run {begun.name} goes on at round {run.first} of {run.rounds}")
    else:
        sites = sorted(experiment.federation.sites)
        terms, sizes = _agreed(channel, sites, experiment, say)
        noted = Noted(id=secrets.token_hex(16), by=begun.by, sites=sites, terms=terms)
        together, place = _on(noted, held_out, sizes), begun.kit / RUNS
        chosen = at_server(experiment)
        archive = new_archive(place)  # for one that ended before it began
        run = begin(chosen, place, begun.name, None, stop_requested, archive=archive, put_together=together)
        write_noted(begun.path, noted)
        say(f"run {begun.name} begins with {len(sites)} sites: {', '.join(sites)}")
    has_it()
    data = run.assembly.runner.data
    assert isinstance(data, RemoteData)
    settings, counted = experiment.federation, _counted(run, noted.sites)
    executor = FederationExecutor(run.assembly.runner, data, channel, noted, settings, counted, say, stop_requested)
    yield from drive(run, executor)


def _reject_another(begun: Begun, experiment: Experiment) -> Noted:
    """A run goes on for whoever began it, as it began: sites train by what the job says, the server by its folder."""
    if not begun.go_on:
        raise UserError(
            f"the run {begun.name!r} is there already; `fedcm federation resume {begun.name}`, or give another --name"
        )
    noted = read_noted(begun.path)
    if noted.by != begun.by:
        raise UserError(f"the run {begun.name!r} is {noted.by}'s, who alone can go on with it; give another --name")
    before = RunFolder(begun.path).read_provenance().get("experiment_sha256")
    same = fingerprint(at_server(experiment)) == before and sorted(experiment.federation.sites) == noted.sites
    if not same:
        raise UserError(
            f"the run {begun.name!r} must go on with the experiment and the sites that it began with, got others; "
            "start a new run with them"
        )
    return noted


def at_server(experiment: Experiment) -> Experiment:
    """As it is run: data at the sites, one client a process, and every round saved before the next one begins, which
    is what sites rely on when they keep something."""
    engine = experiment.engine
    fixed = {"stack": 1, "compile": "off", "layout": "channels_last" if engine.layout == "auto" else engine.layout}
    return experiment.model_copy(
        update={
            "data": DataSection(source=AT_SITES),
            "engine": EngineSection.model_validate(engine.model_dump() | fixed | {"device": "cpu"}),
            "checkpoints": CheckpointSection(every=1, keep=min(experiment.checkpoints.keep, SPARE)),
        }
    )


def _agreed(channel: Channel, sites: Sequence[str], experiment: Experiment, say: Say) -> tuple[Terms, dict[int, int]]:
    """The terms, and how many examples each client has, as far as that is known."""
    settings, there = experiment.federation, channel.reachable()
    needed = quorum_of(len(sites), settings.quorum)
    found, why = introduced(channel, [site for site in sites if site in there], settings, needed)
    terms, strange = agree(found, settings) if found else (None, {})
    why |= strange
    found = {site: own for site, own in found.items() if site not in strange}
    for site in sites:
        if site not in found:
            say(f"{site} is not there at the start, {why.get(site, 'it is not connected or did not answer')}")
    if terms is None or len(found) < needed:
        reasons = "; ".join(f"{site}: {reason}" for site, reason in why.items())
        raise UserError(
            f"a run must begin with the quorum of {settings.quorum:g} of its {len(sites)} sites, and {len(found)} "
            f"described their data{f' ({reasons})' if reasons else ''}; see to the others and run it again"
        )
    return terms, {sites.index(site): own.examples for site, own in found.items()}


def _on(noted: Noted, held_out: Examples | None, sizes: dict[int, int]) -> PutTogether:
    def put_together(experiment: Experiment, data_dir: Path | None) -> Assembly:
        return assemble_on(experiment, RemoteData(noted.terms, len(noted.sites), held_out, sizes))

    return put_together


def _counted(run: Run, sites: Sequence[str]) -> dict[str, int]:
    """The last round of each site that counted, as the run's own record has it."""
    counted: dict[str, int] = {}
    for line in run.folder.read_metrics(run.first):
        for client in line["clients"]:
            counted[sites[int(client)]] = line["round"]
    return counted
