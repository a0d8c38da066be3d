"""Every setting of an experiment, from the text of its TOML file to what a run did: a row each.

A row trains with two or more values of its setting and shows that the run does what docs/experiments.md says of each:
by a literal run, an independent architecture, or what was written down. A setting without a row fails.
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
from networks import NARROW, trains
from records import (
    counts_the_rounds,
    evaluates_every_so_often,
    keeps_the_newest,
    names_the_run,
    saves_every_so_often,
    says_where_a_run_stands_in_a_table,
    tells_when_targets_are_reached,
)
from schema import every_setting
from sites import (
    asks_again_after_rounds,
    asks_these_sites,
    bounds_the_norm,
    gives_up_after_rounds,
    has_so_many_classes,
    leaves_out_after_misses,
    needs_a_quorum,
    normalises_bytes,
    rounds_what_comes_up,
    rounds_what_goes_down,
    waits_so_long_for_a_round,
    waits_so_long_for_the_others,
)
from splits import (
    deals,
    deals_equally_many,
    has_so_many_clients,
    holds_at_least,
    holds_shards,
    keeps_what_the_data_bring,
    mixes_labels,
    mixes_sizes,
    shuffles,
)
from walks import (
    Row,
    asks_everyone,
    asks_so_many,
    asks_with_a_probability,
    chooses_the_algorithm,
    draws_by_the_seed,
    reads_the_source,
    rounds_what_clients_keep,
    walks,
    walks_with_every_algorithm,
)

DECAYED = {"client": {"epochs": 2, "batch_size": 4, "lr": 0.3, "weight_decay": 0.4, "clip": 0.3}}
STATELESS = ("fedavg", "fedcm", "fedadam")

ROWS: dict[str, Row] = {
    "name": names_the_run,
    "rounds": counts_the_rounds,
    "seed": draws_by_the_seed,
    "data.source": reads_the_source,
    "client.epochs": walks(None, 3),
    "client.steps": walks(None, 5, client={"batch_size": 4, "lr": 0.3}),
    "client.batch_size": walks(None, 3),
    "client.lr": walks(None, 0.4),
    "client.lr_decay": walks(None, 0.5),
    "client.weight_decay": walks(None, 0.5),
    "client.weight_decay_at": walks(None, "step", **DECAYED),
    "client.clip": walks(None, 0.2),
    "server.lr": walks_with_every_algorithm(None, 0.4, *STATELESS, "scaffold", "feddyn"),
    "server.weights": walks_with_every_algorithm(None, "examples", *STATELESS),
    "evaluation.every": evaluates_every_so_often,
    "evaluation.targets": tells_when_targets_are_reached,
    "checkpoints.every": saves_every_so_often,
    "checkpoints.keep": keeps_the_newest,
    "engine.stack": stacks_clients,
    "engine.layout": lays_out_images,
    "engine.compile": compiles_the_model,
    "engine.device": computes_on_the_device,
    "engine.precision": computes_in_this_precision,
    "engine.client_states": rounds_what_clients_keep,
    "cell.labels": says_where_a_run_stands_in_a_table({"setting": "II"}, "labels"),
    "cell.published": says_where_a_run_stands_in_a_table(87.61, "published"),
    "split.iid.clients": deals(shuffles, 5, 7),
    "split.dirichlet.clients": deals(deals_equally_many, 5, 11),
    "split.dirichlet.concentration": deals(mixes_labels, 0.01, 1000.0, default=0.6),
    "split.dirichlet-by-label.clients": deals(has_so_many_clients, 5, 11),
    "split.dirichlet-by-label.concentration": deals(mixes_sizes, 0.1, 1000.0, default=0.6),
    "split.dirichlet-by-label.least": deals(holds_at_least, 1, 12, default=1),
    "split.shards.clients": deals(has_so_many_clients, 5, 11),
    "split.shards.per_client": deals(holds_shards, 1, 5, default=2),
    "split.natural": keeps_what_the_data_bring,
    "participation.independent.probability": asks_with_a_probability,
    "participation.fixed.clients": asks_so_many,
    "participation.everyone": asks_everyone,
    "model.linear": trains(),
    "model.mlp": trains(),
    "model.mlp.hidden": trains({"hidden": [5]}, {"hidden": [5, 3]}),
    "model.lenet": trains(),
    "model.cnn": trains(),
    "model.resnet8": trains(),
    "model.resnet8.width": trains({"width": 4}, {"width": 6}),
    "model.resnet8.groups": trains(NARROW, NARROW | {"groups": 4}),
    "model.resnet18": trains(NARROW),
    "model.resnet18.width": trains({"width": 4}, {"width": 6}),
    "model.resnet18.groups": trains(NARROW, NARROW | {"groups": 4}),
    "model.resnet18-imagenet-stem": trains(NARROW),
    "model.resnet18-imagenet-stem.width": trains({"width": 4}, {"width": 6}),
    "model.resnet18-imagenet-stem.groups": trains(NARROW, NARROW | {"groups": 4}),
    "algorithm.fedavg": chooses_the_algorithm,
    "algorithm.fedcm": chooses_the_algorithm,
    "algorithm.fedcm.alpha": walks(None, 0.8),
    "algorithm.fedadam": chooses_the_algorithm,
    "algorithm.fedadam.beta1": walks(None, 0.3),
    "algorithm.fedadam.beta2": walks(None, 0.3),
    "algorithm.fedadam.tau": walks(None, 0.3),
    "algorithm.scaffold": chooses_the_algorithm,
    "algorithm.scaffold.option": walks(None, "I"),
    "algorithm.feddyn": chooses_the_algorithm,
    "algorithm.feddyn.alpha": walks(None, 0.6),
    "federation.sites": asks_these_sites,
    "federation.deadline": waits_so_long_for_a_round,
    "federation.quorum": needs_a_quorum,
    "federation.wait": waits_so_long_for_the_others,
    "federation.drop_after": leaves_out_after_misses,
    "federation.retry_after": asks_again_after_rounds,
    "federation.give_up_after": gives_up_after_rounds,
    "federation.norm_bound": bounds_the_norm,
    "federation.downlink": rounds_what_goes_down("params"),
    "federation.momentum": rounds_what_goes_down("momentum"),
    "federation.uplink": rounds_what_comes_up,
    "federation.classes": has_so_many_classes,
    "federation.mean": normalises_bytes([0.3], [0.7]),
    "federation.std": normalises_bytes([0.2], [0.5]),
}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize("setting", every_setting())
def test_a_setting_does_what_is_said_of_it(setting: str, bench: Bench) -> None:
    assert setting in ROWS, f"the setting {setting!r} has no row in this table"
    ROWS[setting](bench, setting)


def test_every_row_is_a_setting() -> None:
    assert set(ROWS) == set(every_setting())
