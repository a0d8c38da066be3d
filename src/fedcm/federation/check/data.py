"""Check a site's data, and whether an experiment's model takes them; an experiment trains one step, as before a run."""

from collections.abc import Generator, Iterator
from pathlib import Path

import torch

from fedcm.config.experiment import load_experiment_file
from fedcm.config.overrides import read_table
from fedcm.config.schema import read_section
from fedcm.core.participation import FixedSize
from fedcm.data.dataset import IGNORED, Dataset
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import iterate_leaves
from fedcm.federation.check.result import CheckResult, make_success, make_warning
from fedcm.federation.experiment import reject_simulated_conditions
from fedcm.federation.kit import Kit
from fedcm.federation.settings import SiteSettings, load_site_data, reject_forbidden
from fedcm.federation.shares import SiteShares
from fedcm.federation.site.data import make_single_site_data
from fedcm.federation.site.experiment import adapt_experiment
from fedcm.federation.terms import DataDescription, agree_on_terms, describe_data
from fedcm.federation.weights import use_own_weights
from fedcm.runs.build import build


def check_data(kit: Kit, settings: SiteSettings) -> Generator[CheckResult, None, Dataset]:
    """Load a site's data, describe them in a result, and return them."""
    data = load_site_data(kit.path, settings)
    yield make_success("data", f"{data.train.size} examples of {_describe_features(data)}, {_describe_labels(data)}")
    return data


def _describe_features(data: Dataset) -> str:
    parts = []
    for path, leaf in iterate_leaves(data.train.features):
        kind = str(leaf.dtype).removeprefix("torch.")
        shape = "sequences of" if isinstance(leaf, Ragged) else "×".join(map(str, leaf.shape[1:])) or "one number"
        parts.append(f"{path}: {shape} {kind}" if path else f"{shape} {kind}")
    return "; ".join(parts)


def _describe_labels(data: Dataset) -> str:
    if data.classes is None:
        return "labels are numbers"
    labels = data.train.labels.values if isinstance(data.train.labels, Ragged) else data.train.labels
    counts = torch.bincount(labels[labels != IGNORED].long(), minlength=data.classes)
    return f"{data.classes} classes with {int(counts.min())} to {int(counts.max())} examples"


def check_experiment(kit: Kit, settings: SiteSettings, data: Dataset, path: Path) -> Iterator[CheckResult]:
    """Check that the site's limits allow an experiment and that its model trains on the site's data."""
    reject_forbidden(read_table(path), settings.limits)  # first: reading an experiment imports the code that it names
    given = load_experiment_file(path).without_autotune()
    reject_simulated_conditions(given)
    given = given.model_copy(update={"engine": given.engine.model_copy(update={"compile": "off"})})
    sites = sorted(given.federation.sites)
    client = sites.index(kit.name) if kit.name in sites else 0
    parts = SiteShares.of(given).draw(data.train.size, given.seed, client)
    adapted = adapt_experiment(given, settings.training.device, parts)
    experiment = use_own_weights(adapted, kit.path, settings)
    yield make_success("limits", f"this site allows the experiment {experiment.name!r}")
    own = read_section(DataDescription, describe_data(data, {}, with_sums=experiment.federation.mean is None))
    terms, _ = agree_on_terms({kit.name: own}, experiment.federation)  # other sites may have more classes
    population = experiment.participation.clients if isinstance(experiment.participation, FixedSize) else 1
    setup = build(experiment, data=make_single_site_data(data, terms, population, parts))
    yield make_success("experiment", f"{experiment.model.name} of {setup.problem.size:,} parameters takes these data")
    if sites and kit.name not in sites:
        yield make_warning("sites", f"the experiment names the sites {', '.join(sites)}, but not {kit.name}")
