"""The operators' own settings, `site.toml` and `server.toml` in a kit, and the data that they name.

They never leave the machine, and no job can change them.
"""

from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from fedcm.algorithms import ALGORITHMS
from fedcm.config.schema import Record, Section, read_section, read_toml
from fedcm.config.sections import FEDERATED_DATA, Count, Experiment, FederationSection, Rate
from fedcm.core.privacy.budget import DEFAULT_DELTA
from fedcm.data import load_dataset
from fedcm.data.dataset import Dataset, Examples
from fedcm.errors import UserError
from fedcm.federation.experiment import KEPT_STATES, compute_least_sites
from fedcm.federation.kit import SERVER_FILE, SITE_FILE
from fedcm.federation.site.finished_runs import KEPT_DAYS
from fedcm.models import MODELS
from fedcm.privacy.settings import make_accountant
from fedcm.system.imports import iterate_code


class SiteDataSection(Section):
    """`[data]` of `site.toml`."""

    source: Annotated[str, Field(min_length=1)]  # an .npz, a folder of them, a known name, or package.module:function


class SiteLimits(Section):
    """`[limits]` of `site.toml`: what experiments may use."""

    max_examples: Count | None = None  # use at most this many examples
    min_examples: Count = 1  # do not take part with fewer examples
    experiments: list[str] = Field(default=["*"])  # patterns of the names of allowed experiments
    code: list[str] = Field(default=[])  # allowed code that is not bundled, as "package.module:name"
    scores: bool = True  # whether the server gets scores of models on this site's data
    secure_sites: Count | None = None  # take part only with secure aggregation over at least this many sites
    epsilon: Rate | None = None  # take part only in private runs that cost at most this, at δ = 1e-5


class SiteTrainingSection(Section):
    """`[training]` of `site.toml`."""

    threads: Count = 1  # more are faster and may change the last bits
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"


class SiteStorageSection(Section):
    """`[storage]` of `site.toml`: the client states of runs on the site's disk."""

    states: Annotated[int, Field(ge=KEPT_STATES, le=10**6)] = 20  # newest states of a run that are kept
    megabytes: Count = 1000  # at most this many per run, but always the newest 3 states
    days: Annotated[float, Field(ge=0, le=10**5)] = KEPT_DAYS  # after a run has finished, until its states are removed
    key: Annotated[str, Field(min_length=1)] | None = None  # a file of 32 bytes, with which states are encrypted


class KitModelSection(Section):
    """`[model]` of `site.toml` and `server.toml`."""

    weights: Annotated[str, Field(min_length=1)] | None = None  # the file of an experiment's initial weights


class SiteSettings(Section):
    """`site.toml`."""

    data: SiteDataSection
    model: KitModelSection = KitModelSection()
    limits: SiteLimits = SiteLimits()
    training: SiteTrainingSection = SiteTrainingSection()
    storage: SiteStorageSection = SiteStorageSection()


class ServerTestSection(Section):
    """`[test]` and `[validation]` of `server.toml`."""

    source: Annotated[str, Field(min_length=1)]  # an .npz with x, y (or x_test, y_test), a folder, or a known name


class ServerLimits(Section):
    """`[limits]` of `server.toml`."""

    code: list[str] = Field(default=[])  # allowed code that is not bundled, as "package.module:name"


class ServerSettings(Section):
    """`server.toml`."""

    test: ServerTestSection | None = None
    validation: ServerTestSection | None = None  # choices, such as when to stop, are made on these examples
    model: KitModelSection = KitModelSection()
    limits: ServerLimits = ServerLimits()


def load_site_settings(kit: Path) -> SiteSettings:
    """Read `site.toml` of a site's kit."""
    file = kit / SITE_FILE
    if not file.is_file():
        raise UserError(
            f"a site's kit must contain {SITE_FILE}, which says where its data are, but {str(kit)!r} does not"
        )
    return _read_settings(SiteSettings, file)


def load_server_settings(kit: Path) -> ServerSettings:
    """Read `server.toml` of the server's kit; every setting has a default, and the file may be missing."""
    file = kit / SERVER_FILE
    return _read_settings(ServerSettings, file) if file.is_file() else ServerSettings()


def _read_settings(kind: type[Record], file: Path) -> Record:
    """Read a section of sections; error messages name the file."""
    try:
        table = read_toml(file, "settings")
        for key, field in kind.model_fields.items():  # pyright: ignore[reportAttributeAccessIssue]
            if key in table:
                section = next(iter(get_args(field.annotation)), field.annotation)  # of an optional section, too
                table[key] = read_section(section, table[key], key)
        return read_section(kind, table)
    except UserError as error:
        raise UserError(f"{str(file)!r}: {error}") from None


def load_site_data(kit: Path, settings: SiteSettings, *, fresh: bool = False) -> Dataset:
    """Load a site's training examples within its limits; a test set in the source is not used.

    Paths in the settings are relative to the kit.

    Args:
        kit: The site's kit.
        settings: The site's settings.
        fresh: Whether the items of torch datasets will be read anew in every pass.
    """
    with chdir(kit):
        data = load_dataset(settings.data.source, fresh=fresh)
    limits, size = settings.limits, data.train.size
    if size < limits.min_examples:
        raise UserError(
            f"this site takes part with at least {limits.min_examples} examples (limits.min_examples in {SITE_FILE}), "
            f"and has {size}"
        )
    if limits.max_examples is not None and size > limits.max_examples:
        data = replace(data, train=data.train.slice(0, limits.max_examples), owners=None)
    return data


def load_test_data(kit: Path, settings: ServerSettings) -> Examples | None:
    """Load the server's test examples: the test set of the source, or all its examples if it has no test set.

    Returns:
        None if the settings name no source.
    """
    if settings.test is None:
        return None
    with chdir(kit):
        data = load_dataset(settings.test.source)
    return data.test or data.train


def load_validation_data(kit: Path, settings: ServerSettings) -> Examples | None:
    """Load the server's validation examples: those of the source, or all its training examples if it has none.

    Returns:
        None if the settings name no source.
    """
    if settings.validation is None:
        return None
    with chdir(kit):
        data = load_dataset(settings.validation.source)
    return data.validation or data.train


def reject_forbidden(experiment: Mapping[str, Any], limits: SiteLimits) -> None:
    """Raise UserError if a site's limits do not allow an experiment.

    Call this on the experiment's table before it is read as an experiment, because reading imports the code it names.
    """
    name = experiment.get("name")
    if not any(fnmatchcase(str(name), pattern) for pattern in limits.experiments):
        raise UserError(
            f"this site allows the experiments {', '.join(limits.experiments) or 'none'}, got {name!r}; its operator "
            f"can add it to limits.experiments in {SITE_FILE}"
        )
    reject_foreign_code(experiment, limits.code, "this site", SITE_FILE)


def reject_open_reports(federation: FederationSection, limits: SiteLimits) -> None:
    """Raise UserError if a site sends only masked reports, and an experiment would reveal more than it allows."""
    least = compute_least_sites(federation) if federation.secure_aggregation else 1
    if limits.secure_sites is not None and least < max(limits.secure_sites, 2):
        raise UserError(
            f"this site takes part only with secure aggregation over at least {limits.secure_sites} sites "
            f"(limits.secure_sites in {SITE_FILE}), got {f'at least {least}' if least > 1 else 'none'}; set "
            "federation.secure_aggregation and federation.threshold"
        )


def reject_weak_privacy(experiment: Experiment, limits: SiteLimits) -> None:
    """Raise UserError if a site takes part only in private runs, and all rounds of an experiment would cost more."""
    if limits.epsilon is None:
        return
    spent = None
    if experiment.privacy.noise_multiplier is not None:
        federated = experiment.data.model_copy(update={"source": FEDERATED_DATA})  # whatever a job says
        accountant = make_accountant(experiment.model_copy(update={"data": federated}))
        spent = replace(accountant, delta=DEFAULT_DELTA).compute_epsilon(experiment.rounds)
    if spent is None or spent > limits.epsilon:
        raise UserError(
            "this site takes part only in runs with [privacy] whose rounds cost at most epsilon = "
            f"{limits.epsilon:g} at delta = {DEFAULT_DELTA:g} (limits.epsilon in {SITE_FILE}), got "
            f"{'none' if spent is None else f'epsilon = {spent:.4g}'}"
        )


def reject_foreign_code(experiment: Mapping[str, Any], allowed: list[str], owner: str, file: str) -> None:
    """Raise UserError if an experiment names code that is neither bundled nor allowed by the operator.

    Args:
        experiment: The experiment's table.
        allowed: `limits.code` of the operator's settings.
        owner: For the message, "this site" or "this server".
        file: For the message, the file of the operator's settings.
    """
    for what, bundled in (("model", MODELS), ("algorithm", ALGORITHMS)):
        table = experiment.get(what)
        code = table.get("name") if isinstance(table, Mapping) else None
        if code not in bundled and code not in allowed:
            raise UserError(
                f"{owner} runs only bundled code, got the {what} {code!r}; its operator can add it to limits.code "
                f"in {file}"
            )
    for path, code in iterate_code({key: value for key, value in experiment.items() if key not in ("name", "cell")}):
        if path != "data.source" and code not in allowed:
            raise UserError(
                f"{owner} runs only bundled code, got {path} = {code!r}; its operator can add it to limits.code in "
                f"{file}"
            )
