"""A run that is older than a setting is a replicate of newer runs that have the setting's default."""

from typing import Any

import pytest
from made_digests import make_test_digest

from fedcm.config.defaults import fill_in_defaults
from fedcm.config.sections import ClientSection, ServerSection
from fedcm.reports.digest import Digest
from fedcm.reports.groups import group_runs


def add_settings(digest: Digest, section: str, **settings: Any) -> Digest:
    """Return a digest as it is read from a file with these settings in one of its tables."""
    table = digest.model_dump(by_alias=True)
    table["experiment"][section] = table["experiment"].get(section, {}) | settings
    return Digest.model_validate(table)


def test_the_repeated_defaults_are_those_of_the_schema() -> None:
    filled = fill_in_defaults({"client": {}, "server": {}})
    assert filled == {
        "client": ClientSection().model_dump(exclude_none=True),
        "server": ServerSection().model_dump(exclude_none=True),
    }


def test_sections_that_a_run_does_not_have_are_not_added() -> None:
    assert fill_in_defaults({"rounds": 3, "seed": 1}) == {"rounds": 3, "seed": 1}


@pytest.mark.parametrize(
    ("section", "setting", "default", "other"),
    [
        ("server", "mean", "plain", "median"),
        ("server", "weights", "clients", "examples"),
        ("client", "weight_decay_at", "loss", "step"),
    ],
)
def test_older_and_newer_runs_are_in_one_row_if_the_setting_has_its_default(
    section: str, setting: str, default: str, other: str
) -> None:
    old = add_settings(make_test_digest(accuracy=0.7), section)
    new = add_settings(make_test_digest(accuracy=0.8, seed=2), section, **{setting: default})
    changed = add_settings(make_test_digest(accuracy=0.8, seed=2), section, **{setting: other})
    (row,) = group_runs([old, new])[0].rows
    assert (row.label, len(next(iter(row.entries.values())).runs)) == ("FedCM", 2)
    labels = [row.label for row in group_runs([old, changed])[0].rows]
    assert labels == [f"FedCM ({section}.{setting} = {text})" for text in sorted((default, other))]
