"""A run over real sites, at the server: begun or gone on with in a folder of the server's kit, like any run."""

import secrets
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from fedcm.assembly import Assembly, assemble_on
from fedcm.data.dataset import Examples
from fedcm.experiment import Checkpoints, Data, Engine, Experiment
from fedcm.federation.channel import Channel, Deadline
from fedcm.federation.remote_data import RemoteData
from fedcm.federation.rounds import FederationExecutor, introduced
from fedcm.federation.server_settings import load_server_settings, load_test_data
from fedcm.federation.terms import FILE as TERMS
from fedcm.federation.terms import Terms, agree, read_terms, write_terms
from fedcm.refusal import Refused
from fedcm.running import drive
from fedcm.starting import PutTogether, Run, begin, resume
from fedcm.training import Metrics

Say = Callable[[str], None]
Asked = Callable[[], bool]

RUNS = "runs"
AT_SITES = "federation"  # where the data of such a run are, as its experiment says


def lead(
    kit: Path, name: str, experiment: Experiment, channel: Channel, say: Say, stop_requested: Asked, *, go_on: bool
) -> Generator[Metrics, None, None]:
    """The rounds of a new run, or those that are left of one that is there; each told when it is on the disk."""
    path, held_out = kit / RUNS / name, load_test_data(kit, load_server_settings(kit))
    begun = (path / TERMS).is_file()  # written last: without it nothing of the run has happened
    if begun and not go_on:
        raise Refused(f"the run {name!r} is there already; `fedcm federation resume {name}`, or give another --name")
    if begun:
        terms, sites, run_id = read_terms(path)
        run = resume(path, None, say, stop_requested, put_together=_on(terms, len(sites), held_out))
        say(f"run {name} goes on at round {run.first} of {run.rounds}")
    else:
        sites, run_id = sorted(experiment.federation.sites), secrets.token_hex(16)
        terms = _agreed(channel, sites, experiment, say)
        together = _on(terms, len(sites), held_out)
        run = begin(at_server(experiment), kit / RUNS, name, None, stop_requested, replace=True, put_together=together)
        write_terms(path, terms, sites, run_id)
        say(f"run {name} begins with {len(sites)} sites: {', '.join(sites)}")
    data = run.assembly.runner.data
    assert isinstance(data, RemoteData)
    settings, counted = experiment.federation, _counted(run, sites)
    yield from drive(
        run, FederationExecutor(run.assembly.runner, data, channel, sites, settings, run_id, terms, counted, say)
    )


def at_server(experiment: Experiment) -> Experiment:
    """As it is run: data at the sites, one client a process, and every round saved before the next one begins, which
    is what sites rely on when they keep something."""
    engine = experiment.engine
    fixed = {"stack": 1, "compile": "off", "layout": "channels_last" if engine.layout == "auto" else engine.layout}
    return experiment.model_copy(
        update={
            "data": Data(source=AT_SITES),
            "engine": Engine.model_validate(engine.model_dump() | fixed | {"device": "cpu"}),
            "checkpoints": Checkpoints(every=1, keep=experiment.checkpoints.keep),
        }
    )


def _agreed(channel: Channel, sites: Sequence[str], experiment: Experiment, say: Say) -> Terms:
    settings, there = experiment.federation, channel.reachable()
    found, why = introduced(channel, [site for site in sites if site in there], Deadline(settings.deadline))
    for site in sites:
        if site not in found:
            say(f"{site} is not there at the start, {why.get(site, 'it is not connected or did not answer')}")
    if not found or len(found) < settings.quorum * len(sites):
        reasons = "; ".join(f"{site}: {reason}" for site, reason in why.items())
        raise Refused(
            f"a run must begin with the quorum of {settings.quorum:g} of its {len(sites)} sites, and {len(found)} "
            f"described their data{f' ({reasons})' if reasons else ''}; see to the others and run it again"
        )
    return agree(found, settings)


def _on(terms: Terms, population: int, held_out: Examples | None) -> PutTogether:
    def put_together(experiment: Experiment, data_dir: Path | None) -> Assembly:
        return assemble_on(experiment, RemoteData(terms, population, held_out))

    return put_together


def _counted(run: Run, sites: Sequence[str]) -> dict[str, int]:
    """The last round of each site that counted, as the run's own record has it."""
    counted: dict[str, int] = {}
    for line in run.folder.read_metrics(run.first):
        for client in line["clients"]:
            counted[sites[int(client)]] = line["round"]
    return counted
