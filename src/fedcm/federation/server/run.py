"""A run over real sites, at the server: started or resumed in a folder of the server's kit, like any run."""

import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.config.sections import Experiment
from fedcm.core.aggregation import PrivateMean
from fedcm.data.dataset import Examples
from fedcm.errors import UserError
from fedcm.federation.experiment import compute_quorum, prepare_experiment
from fedcm.federation.kit import RUNS, SERVER_FILE
from fedcm.federation.private.commitments import Commitments
from fedcm.federation.server.channel import Channel
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.rounds import FederationExecutor
from fedcm.federation.server.site_descriptions import describe_sites
from fedcm.federation.server.state_messages import agree_on_round, read_counted, tell_finished_runs
from fedcm.federation.settings import load_server_settings, load_test_data, load_validation_data
from fedcm.federation.shares import SiteShares
from fedcm.federation.terms import RECORD_FILE, FederationRecord, Terms, agree_on_terms, read_record, write_record
from fedcm.federation.weights import hash_weights, use_own_weights
from fedcm.runs.archive import make_archive_path
from fedcm.runs.build import BuildSetup, TrainingSetup, build
from fedcm.runs.folder import RunFolder
from fedcm.runs.identity import hash_settings
from fedcm.runs.session import Session, SessionOptions
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.system.formatting import format_count

_RELEASED = "released.json"  # by round, the hash of the sum that the server added noise to


class RunRequest(NamedTuple):
    """Which run an admin wants to start or resume."""

    kit: Path
    name: str
    admin: str
    resume: bool  # whether the run may exist already

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.kit / RUNS / self.name


def run_federation(
    request: RunRequest,
    experiment: Experiment,
    channel: Channel,
    notify: Notify,
    stop_requested: StopRequested,
    on_open: Callable[[], None],
    on_saved_rounds: Callable[[Sequence[dict[str, Any]]], None] = lambda metrics: None,
) -> Generator[dict[str, Any], None, None]:
    """Start a run, or resume it if its folder exists, and yield the metrics of each round once it is saved.

    Args:
        request: The run and its owner.
        experiment: The experiment, with every site named in `federation.sites`.
        channel: Carries messages to the sites.
        notify: Called with each line for the run's log.
        stop_requested: Returns whether an admin has asked to stop.
        on_open: Called once the run is known to be this admin's and its folder is open.
        on_saved_rounds: Called then with the metrics of the rounds that were saved before.

    Raises:
        UserError: If the run exists and is not to be resumed, belongs to another admin, or differs from this
            experiment; or if the quorum is missing at the start.
        Stopped: If an admin or the engine stopped the run.
    """
    with _open_run(request, experiment, channel, notify, stop_requested) as (run, record):
        on_open()
        on_saved_rounds(run.folder.read_metrics(run.next_round))
        data = run.setup.runner.data
        assert isinstance(data, RemoteData)
        settings, counted = experiment.federation, read_counted(run, record.sites)
        executor = FederationExecutor(
            run.setup.runner,
            data,
            channel,
            record,
            settings,
            counted,
            notify,
            stop_requested,
            save_record=lambda: write_record(request.path, record),
            released=Commitments(request.path / _RELEASED),
        )
        yield from (metrics.to_dict() for metrics in run.rounds(executor))
        tell_finished_runs(request.kit / RUNS, channel, record.sites)


@contextmanager
def _open_run(
    request: RunRequest, experiment: Experiment, channel: Channel, notify: Notify, stop_requested: StopRequested
) -> Iterator[tuple[Session, FederationRecord]]:
    """Start or resume the run, and close its session at the end of the block."""
    settings = load_server_settings(request.kit)
    held_out = load_test_data(request.kit, settings), load_validation_data(request.kit, settings)
    if experiment.data.validation is not None and held_out[1] is not None:
        raise UserError(
            f"the server has {held_out[1].size} validation examples of its own ([validation] in {SERVER_FILE}), so "
            f"data.validation must be left out, got {experiment.data.validation}"
        )
    RunFolder(request.path).reject_wrong_kinds()  # first: a run without its record would be taken for a new one
    if (request.path / RECORD_FILE).is_file():  # written last: without it the run has not begun
        record = _check_resumable(request, experiment)
        build_setup = _make_build(record, held_out, {})
        options = SessionOptions(build_setup=build_setup, notify=notify, stop_requested=stop_requested)
        with Session.resume(request.path, options=options) as run:
            agree_on_round(run, record, channel, experiment.federation, notify)
            notify(f"run {request.name} resumes at round {run.next_round} of {run.total_rounds}")
            yield run, record
    else:
        sites = sorted(experiment.federation.sites)
        experiment = use_own_weights(experiment, request.kit, settings)
        terms, sizes = _negotiate_terms(channel, sites, experiment, notify)
        first = {sites[client]: examples for client, examples in sizes.items()}
        record = FederationRecord(id=secrets.token_hex(16), by=request.admin, sites=sites, terms=terms, examples=first)
        build_setup, runs_dir = _make_build(record, held_out, sizes), request.kit / RUNS
        prepared = prepare_experiment(experiment)
        archive = make_archive_path(runs_dir)  # for the folder of a run that ended before it began
        options = SessionOptions(build_setup=build_setup, notify=notify, stop_requested=stop_requested)
        with Session.start(prepared, runs_dir, request.name, archive=archive, options=options) as run:
            write_record(request.path, record)
            notify(f"run {request.name} begins with {format_count(len(sites), 'site')}: {', '.join(sites)}")
            yield run, record


def _check_resumable(request: RunRequest, experiment: Experiment) -> FederationRecord:
    """Reject a resume by another admin or with another experiment.

    Sites train by the experiment in the job and the server by the one in its folder, so both must be the same.
    """
    if not request.resume:
        raise UserError(
            f"the run {request.name!r} exists already; resume it with `fedcm federation resume {request.name}`, or "
            "give another --name"
        )
    record = read_record(request.path)
    if record.by != request.admin:
        raise UserError(f"only {record.by}, who began the run {request.name!r}, can resume it; give another --name")
    before = RunFolder(request.path).read_provenance().get("experiment_sha256")
    same = (
        hash_settings(prepare_experiment(experiment)) == before and sorted(experiment.federation.sites) == record.sites
    )
    if not same:
        raise UserError(
            f"the run {request.name!r} can only be resumed with the experiment and the sites that it began with, got "
            "others; start a new run with them"
        )
    return record


def _negotiate_terms(
    channel: Channel, sites: Sequence[str], experiment: Experiment, notify: Notify
) -> tuple[Terms, dict[int, int]]:
    """Return the terms, and the known numbers of examples by client."""
    settings, connected = experiment.federation, channel.list_connected_sites()
    quorum = compute_quorum(len(sites), settings.quorum)
    descriptions, reasons = describe_sites(channel, [site for site in sites if site in connected], settings, quorum)
    weights = hash_weights(experiment)
    terms, unfit = agree_on_terms(descriptions, settings, weights) if descriptions else (None, {})
    reasons |= unfit
    descriptions = {site: own for site, own in descriptions.items() if site not in unfit}
    for site in sites:
        if site not in descriptions:
            notify(f"{site} is missing at the start: {reasons.get(site, 'it is not connected or did not answer')}")
    if terms is None or len(descriptions) < quorum:
        details = "; ".join(f"{site}: {reason}" for site, reason in reasons.items())
        raise UserError(
            f"a run must begin with the quorum, {quorum} of its {len(sites)} sites, but {len(descriptions)} described "
            f"their data{f' ({details})' if details else ''}; start the other sites and run it again"
        )
    _check_shares(SiteShares.of(experiment), {site: own.examples for site, own in descriptions.items()}, notify)
    return terms, {sites.index(site): own.examples for site, own in descriptions.items()}


def _check_shares(shares: SiteShares, sizes: dict[str, int], notify: Notify) -> None:
    """Name the sites that are too small to hold back a share of their examples.

    Raises:
        UserError: If all sites are.
    """
    for setting, share, count in (
        ("data.validation", shares.validation, shares.count_validation),
        ("evaluation.clients", shares.tests, shares.count_tests),
    ):
        small = [site for site, size in sizes.items() if share is not None and not count(size)]
        if small and len(small) == len(sizes):
            raise UserError(
                f"{setting} must hold back at least one example of a site, and {share} of at most "
                f"{max(sizes.values())} examples is none; give a larger share"
            )
        for site in small:
            notify(f"{site} has too few examples to hold back a share of {share} ({setting}): it is not evaluated")


def _make_build(
    record: FederationRecord, held_out: tuple[Examples | None, Examples | None], sizes: dict[int, int]
) -> BuildSetup:
    """Return a builder for the server's own test and validation examples, and the known sizes of clients."""

    def build_setup(experiment: Experiment, data_dir: Path | None) -> TrainingSetup:
        shares, population = SiteShares.of(experiment), len(record.sites)
        data = RemoteData(record.terms, population, *held_out, known_sizes=sizes, shares=shares)
        setup = build(experiment, data=data)
        if shares.validation is not None and (whole := setup.runner.metrics.whole):
            raise UserError(
                f"the metric {whole[0].name!r} needs all outputs and labels of the validation data, which do not leave "
                "the sites; use metrics that are sums, such as accuracy, top5, mae or perplexity, or name the server's "
                f"own validation data in {SERVER_FILE} instead of data.validation"
            )
        mean = setup.runner.aggregation
        if experiment.federation.secure_aggregation and isinstance(mean, PrivateMean):  # sites add the noise
            setup = replace(setup, runner=replace(setup.runner, aggregation=replace(mean, key=None)))
        return setup

    return build_setup
