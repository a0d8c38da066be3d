"""Every setting of an experiment does what docs/experiments.md says, from the TOML text to the run: one row each.

A row trains with two or more values of its setting and compares the run with a literal run, with an independent
architecture, or with the files that the run wrote. A setting without a row fails.
"""

from pathlib import Path

import pytest
from bench import Bench
from engines import (
    compiles_the_model,
    computes_in_this_precision,
    computes_on_the_device,
    lays_out_images,
    stacks_clients,
)
from networks import NARROW, trains_the_architecture
from records import (
    counts_the_rounds,
    evaluates_when_due,
    keeps_the_newest_checkpoints,
    names_the_run,
    records_the_cell_of_a_table,
    reports_when_targets_are_reached,
    saves_checkpoints_when_due,
)
from schema import list_settings
from sites import (
    bounds_the_norm,
    drops_sites_after_misses,
    gives_up_after_rounds,
    has_this_number_of_classes,
    needs_a_quorum,
    normalises_bytes,
    retries_sites_after_rounds,
    rounds_the_broadcast,
    rounds_the_reports,
    uses_these_sites,
    waits_for_the_other_sites,
    waits_until_the_deadline,
)
from splits import (
    deals,
    has_equal_sizes,
    has_this_number_of_clients,
    holds_at_least,
    holds_shards,
    keeps_the_natural_split,
    mixes_labels,
    mixes_sizes,
    shuffles,
)
from trajectories import (
    Row,
    changes_the_trajectory,
    changes_the_trajectory_of_every_algorithm,
    chooses_the_algorithm,
    depends_on_the_seed,
    draws_a_fixed_cohort,
    draws_independent_clients,
    reads_the_source,
    rounds_client_states,
    takes_everyone,
)

DECAYED = {"client": {"epochs": 2, "batch_size": 4, "lr": 0.3, "weight_decay": 0.4, "clip": 0.3}}
STATELESS = ("fedavg", "fedcm", "fedadam")

ROWS: dict[str, Row] = {
    "name": names_the_run,
    "rounds": counts_the_rounds,
    "seed": depends_on_the_seed,
    "data.source": reads_the_source,
    "client.epochs": changes_the_trajectory(None, 3),
    "client.steps": changes_the_trajectory(None, 5, client={"batch_size": 4, "lr": 0.3}),
    "client.batch_size": changes_the_trajectory(None, 3),
    "client.lr": changes_the_trajectory(None, 0.4),
    "client.lr_decay": changes_the_trajectory(None, 0.5),
    "client.weight_decay": changes_the_trajectory(None, 0.5),
    "client.weight_decay_at": changes_the_trajectory(None, "step", **DECAYED),
    "client.clip": changes_the_trajectory(None, 0.2),
    "server.lr": changes_the_trajectory_of_every_algorithm(None, 0.4, *STATELESS, "scaffold", "feddyn"),
    "server.weights": changes_the_trajectory_of_every_algorithm(None, "examples", *STATELESS),
    "evaluation.every": evaluates_when_due,
    "evaluation.targets": reports_when_targets_are_reached,
    "checkpoints.every": saves_checkpoints_when_due,
    "checkpoints.keep": keeps_the_newest_checkpoints,
    "engine.stack": stacks_clients,
    "engine.layout": lays_out_images,
    "engine.compile": compiles_the_model,
    "engine.device": computes_on_the_device,
    "engine.precision": computes_in_this_precision,
    "engine.client_states": rounds_client_states,
    "cell.labels": records_the_cell_of_a_table({"setting": "II"}, "labels"),
    "cell.published": records_the_cell_of_a_table(87.61, "published"),
    "split.iid.clients": deals(shuffles, 5, 7),
    "split.dirichlet.clients": deals(has_equal_sizes, 5, 11),
    "split.dirichlet.concentration": deals(mixes_labels, 0.01, 1000.0, default=0.6),
    "split.dirichlet-by-label.clients": deals(has_this_number_of_clients, 5, 11),
    "split.dirichlet-by-label.concentration": deals(mixes_sizes, 0.1, 1000.0, default=0.6),
    "split.dirichlet-by-label.least": deals(holds_at_least, 1, 12, default=1),
    "split.shards.clients": deals(has_this_number_of_clients, 5, 11),
    "split.shards.per_client": deals(holds_shards, 1, 5, default=2),
    "split.natural": keeps_the_natural_split,
    "participation.independent.probability": draws_independent_clients,
    "participation.fixed.clients": draws_a_fixed_cohort,
    "participation.everyone": takes_everyone,
    "model.linear": trains_the_architecture(),
    "model.mlp": trains_the_architecture(),
    "model.mlp.hidden": trains_the_architecture({"hidden": [5]}, {"hidden": [5, 3]}),
    "model.lenet": trains_the_architecture(),
    "model.cnn": trains_the_architecture(),
    "model.resnet8": trains_the_architecture(),
    "model.resnet8.width": trains_the_architecture({"width": 4}, {"width": 6}),
    "model.resnet8.groups": trains_the_architecture(NARROW, NARROW | {"groups": 4}),
    "model.resnet18": trains_the_architecture(NARROW),
    "model.resnet18.width": trains_the_architecture({"width": 4}, {"width": 6}),
    "model.resnet18.groups": trains_the_architecture(NARROW, NARROW | {"groups": 4}),
    "model.resnet18-imagenet-stem": trains_the_architecture(NARROW),
    "model.resnet18-imagenet-stem.width": trains_the_architecture({"width": 4}, {"width": 6}),
    "model.resnet18-imagenet-stem.groups": trains_the_architecture(NARROW, NARROW | {"groups": 4}),
    "algorithm.fedavg": chooses_the_algorithm,
    "algorithm.fedcm": chooses_the_algorithm,
    "algorithm.fedcm.alpha": changes_the_trajectory(None, 0.8),
    "algorithm.fedadam": chooses_the_algorithm,
    "algorithm.fedadam.beta1": changes_the_trajectory(None, 0.3),
    "algorithm.fedadam.beta2": changes_the_trajectory(None, 0.3),
    "algorithm.fedadam.tau": changes_the_trajectory(None, 0.3),
    "algorithm.scaffold": chooses_the_algorithm,
    "algorithm.scaffold.option": changes_the_trajectory(None, "I"),
    "algorithm.feddyn": chooses_the_algorithm,
    "algorithm.feddyn.alpha": changes_the_trajectory(None, 0.6),
    "federation.sites": uses_these_sites,
    "federation.deadline": waits_until_the_deadline,
    "federation.quorum": needs_a_quorum,
    "federation.wait": waits_for_the_other_sites,
    "federation.drop_after": drops_sites_after_misses,
    "federation.retry_after": retries_sites_after_rounds,
    "federation.give_up_after": gives_up_after_rounds,
    "federation.norm_bound": bounds_the_norm,
    "federation.downlink": rounds_the_broadcast("params"),
    "federation.momentum": rounds_the_broadcast("momentum"),
    "federation.uplink": rounds_the_reports,
    "federation.classes": has_this_number_of_classes,
    "federation.mean": normalises_bytes([0.3], [0.7]),
    "federation.std": normalises_bytes([0.2], [0.5]),
}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize("setting", list_settings())
def test_every_setting_does_what_the_documentation_says(setting: str, bench: Bench) -> None:
    assert setting in ROWS, f"the setting {setting!r} has no row in this table"
    ROWS[setting](bench, setting)


def test_every_row_names_a_setting() -> None:
    assert set(ROWS) == set(list_settings())
