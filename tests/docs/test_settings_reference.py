"""The settings reference has every key of the schema, with the schema's defaults."""

import dataclasses
import json
from pathlib import Path

import pytest
from schema_tables import Schema, Setting

from fedcm.algorithms import ALGORITHMS
from fedcm.config.schema import read_section
from fedcm.config.sections import RESERVED_MODEL_KEYS, SECTIONS, Experiment
from fedcm.core.aggregation.robust import MEANS
from fedcm.core.attacks import ATTACKS
from fedcm.core.conditions.availability import AVAILABILITY
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.participation import PARTICIPATION
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.core.topology import TOPOLOGIES
from fedcm.data.partition import SPLITS
from fedcm.data.work.amounts import WORK
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError
from fedcm.sweeps.grid import ExperimentGrid, GridException

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(ROOT / "src" / "fedcm", (ROOT / "docs" / "experiments.md").read_text())
TABLES = {**SECTIONS, "grid": ExperimentGrid, "grid.exceptions": GridException}


def map_by_name(settings: list[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


@pytest.mark.parametrize("section", TABLES)
def test_every_key_of_a_section_has_a_complete_row(section: str) -> None:
    settings = map_by_name(SCHEMA.read_sections()[section])
    assert list(settings) == list(TABLES[section].model_fields)
    for setting in settings.values():
        assert setting.meaning, setting
        assert setting.kind != "any value", setting
        assert setting.default, setting
        default = TABLES[section].model_fields[setting.name].default
        if isinstance(default, str | int | float | list) and default != []:
            assert setting.default == f"`{json.dumps(default)}`", setting


def test_every_section_of_an_experiment_is_on_the_page() -> None:
    page = SCHEMA.write_markdown()
    for key in Experiment.model_fields:
        assert f"## `[{key}]`" in page or f"| `{key}` |" in page, key
    assert "## `[grid]`" in page
    assert "## `[[grid.exceptions]]`" in page


def test_every_reserved_key_of_a_model_has_a_complete_row() -> None:
    settings = SCHEMA.read_model()
    assert [setting.name for setting in settings] == list(RESERVED_MODEL_KEYS)
    for setting in settings:
        assert setting.meaning, setting
        assert setting.default, setting
        assert f"| `{setting.name}` | {setting.meaning} |" in SCHEMA.write_markdown()


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        ("split", SPLITS),
        ("participation", PARTICIPATION),
        ("topology", TOPOLOGIES),
        ("algorithm", ALGORITHMS),
        ("schedule", SCHEDULES),
        ("optimizer", OPTIMIZERS),
        ("availability", AVAILABILITY),
        ("attack", ATTACKS),
        ("mean", MEANS),
    ],
)
def test_every_choice_and_its_settings_are_on_the_page(section: str, kinds: dict[str, type]) -> None:
    choices = SCHEMA.read_choices()[section]
    assert list(choices) == list(kinds)
    for name, kind in kinds.items():
        summary, settings = choices[name]
        assert summary
        assert [setting.name for setting in settings] == [field.name for field in dataclasses.fields(kind)]
        assert all(setting.meaning for setting in settings), name


def test_stragglers_and_unequal_work_are_on_the_page() -> None:
    rows = map_by_name(SCHEMA.read_sections()["stragglers"])
    fields = {field.name: field.default for field in dataclasses.fields(Stragglers)}
    assert list(rows) == list(fields)
    for name, default in fields.items():
        shown = (
            "required" if default is dataclasses.MISSING else "none" if default is None else f"`{json.dumps(default)}`"
        )
        assert rows[name].default == shown
        assert rows[name].meaning
    assert map_by_name(SCHEMA.read_sections()["client"])["steps"][1:3] == ("integer or table", "≥ 1, ≤ 10⁹")
    chapter = SCHEMA.prose.split("### Unequal work")[1].split("\n## ")[0]
    for name, kind in WORK.items():
        row = next(line for line in chapter.splitlines() if line.startswith(f"| `{name}` |"))
        for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
            default = f' (`"{field.default}"`)' if isinstance(field.default, str) else ""
            assert f"`{field.name}`{default}" in row


def test_types_ranges_and_defaults_are_those_of_the_schema() -> None:
    client = map_by_name(SCHEMA.read_sections()["client"])
    assert client["batch_size"][1:4] == ("integer", "≥ 1, ≤ 10⁹", "`50`")
    assert client["lr_decay"][1:4] == ("number", "> 0, ≤ 1", "`1.0`")
    assert client["weight_decay_at"][1:4] == ('`"loss"`, `"step"`', "", '`"loss"`')
    assert map_by_name(SCHEMA.read_sections()["evaluation"])["targets"][1:3] == ("list of numbers", "each > 0, < 1")


def test_range_of_the_stack_is_the_one_that_is_enforced() -> None:
    stack = map_by_name(SCHEMA.read_sections()["engine"])["stack"]
    assert (stack.kind, stack.limits) == ('`"auto"` or an integer', "1 to 4096")
    for value in ("auto", 1, 4096):
        assert read_section(SECTIONS["engine"], {"stack": value}, "engine").model_dump()["stack"] == value
    for value in (0, 4097, "off"):
        with pytest.raises(UserError):
            read_section(SECTIONS["engine"], {"stack": value}, "engine")


def test_comments_replace_missing_prose() -> None:
    alone = map_by_name(Schema(ROOT / "src" / "fedcm", "").read_sections()["client"])
    assert "gradient" in alone["clip"].meaning
