"""Do a site's examples load, and does an experiment's model take them? One step is tried, as before every run."""

from collections.abc import Generator, Iterator
from pathlib import Path

import torch

from fedcm.config.experiment import load_experiment
from fedcm.config.overrides import read_table
from fedcm.config.schema import read_section
from fedcm.core.participation import FixedSize
from fedcm.data.dataset import Dataset
from fedcm.federation.check.finding import Finding, good, warning
from fedcm.federation.kit import Kit
from fedcm.federation.site.own_data import own_data
from fedcm.federation.site_data import load_site_data
from fedcm.federation.site_settings import SiteSettings, reject_forbidden
from fedcm.federation.terms import Description, agree, described
from fedcm.runs.assembly import assemble_on
from fedcm.sweeps.estimate import without_trial


def look_at_data(kit: Kit, settings: SiteSettings) -> Generator[Finding, None, Dataset]:
    data = load_site_data(kit.path, settings)
    features, labels = data.train
    kind = str(features.dtype).removeprefix("torch.")
    if data.classes is None:
        labelled = "labels are numbers"
    else:
        counts = torch.bincount(labels.long().reshape(-1), minlength=data.classes)
        labelled = f"{data.classes} classes with {int(counts.min())} to {int(counts.max())} examples"
    shape = "×".join(map(str, features.shape[1:])) or "one number"
    yield good("data", f"{data.train.size} examples of {shape} {kind}, {labelled}")
    return data


def try_experiment(kit: Kit, settings: SiteSettings, data: Dataset, path: Path) -> Iterator[Finding]:
    reject_forbidden(read_table(path), settings.limits)  # first: reading an experiment imports the code that it names
    asked = without_trial(load_experiment(path))
    experiment = asked.model_copy(
        update={"engine": asked.engine.model_copy(update={"device": settings.training.device, "compile": "off"})}
    )
    yield good("limits", f"this site allows the experiment {experiment.name!r}")
    own = read_section(Description, described(data, {}, with_sums=experiment.federation.mean is None))
    terms, _ = agree({kit.name: own}, experiment.federation)  # of this site alone: others may know more classes
    asked_for = experiment.participation.clients if isinstance(experiment.participation, FixedSize) else 1
    assembly = assemble_on(experiment, own_data(data, terms, population=asked_for))
    yield good("experiment", f"{experiment.model.name} of {assembly.problem.size:,} parameters takes these data")
    sites = experiment.federation.sites
    if sites and kit.name not in sites:
        yield warning("sites", f"the experiment is for {', '.join(sites)}, and not for {kit.name}")
