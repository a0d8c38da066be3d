"""A site's examples, as its own settings name them, within its own limits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedcm.data import load
from fedcm.data.dataset import Dataset, Examples
from fedcm.errors import UserError
from fedcm.federation.site_settings import FILE, SiteSettings


def load_site_data(kit: Path, settings: SiteSettings) -> Dataset:
    """The training examples are the site's; what it holds out is not used. Paths are relative to the kit."""
    with working_in(kit):
        data = load(settings.data.source)
    limits, size = settings.limits, data.train.size
    if size < limits.min_examples:
        raise UserError(
            f"this site takes part with at least {limits.min_examples} examples (limits.min_examples in {FILE}), and "
            f"has {size}"
        )
    if limits.max_examples is not None and size > limits.max_examples:
        some = Examples(data.train.features[: limits.max_examples], data.train.labels[: limits.max_examples])
        data = replace(data, train=some, owners=None)
    return data


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
