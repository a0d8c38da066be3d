"""The random streams of every published result: each purpose has its own number, and each part of fedcm its purpose.

The recorded values below fix what a purpose draws, so that no purpose is renumbered and no argument is swapped. The
streams built here from literal numbers fix which purpose each part of the library uses.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import small_experiment, write_npz

from fedcm.config.experiment import read_experiment
from fedcm.core.algorithm import Round
from fedcm.core.evaluation import evaluation_mode
from fedcm.core.participation import FixedSize, Independent
from fedcm.core.problem import Problem
from fedcm.data import load_source
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset
from fedcm.data.partition import IID
from fedcm.executors.client_states import ClientStatesInMemory
from fedcm.executors.diagnosis import diagnose
from fedcm.models import build_model
from fedcm.rng import Purpose, make_generator, make_torch_seed
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.data_split import draw_split
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.sampling import RoundSampler, sample_without_replacement
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.slopes import fit_slope

# purpose: its number, the first 64 bits of its generator and its torch seed, at seed 11, round 3, client 7
RECORDED = {
    "SPLIT": (1, 0x3BDB980FAA08F22C, 3743211744351209945),
    "INITIAL_PARAMS": (2, 0x7CB535AA6EB380C8, 4682037132113917658),
    "COHORT": (3, 0x9E748A3FCDAFA853, 8105452341209016902),
    "BATCHES": (4, 0xFF354EB0866C1FBD, 3251796754722083278),
    "MODEL": (5, 0x59CD7EE1B27437A9, 6348339761228840731),
    "EVALUATION": (6, 0x949C4B0299A7FA0A, 2445007197700011338),
    "KNOWN_PROBLEM": (7, 0x9582761FC7C5A748, 6538374110207161478),
    "GRADIENT_NOISE": (8, 0x3F5F25668802A0AF, 9168998814334507373),
    "RESAMPLING": (9, 0x60B3427BBCFD63EF, 2346387121608701171),
    "DIAGNOSIS": (10, 0x12210877E8B0A8B0, 6335714471814088473),
    "TOPOLOGY": (11, 0xC211868704B990C1, 4893244739719533744),
    "VALIDATION": (12, 0xF13E956FA101A07C, 7657776319752735949),
    "AUGMENTATION": (13, 0x44FA4C2CC1009988, 8360160860227890436),
    "WORK": (14, 0xE81E9F619E8A3F16, 8937550427673991456),
    "SPEED": (15, 0x5558FB2C7F7C6069, 9071752550744142548),
    "AVAILABILITY": (16, 0x2E1C6459F1BAB946, 7683832212532610117),
    "CLIENT_TEST": (17, 0x7DFF737EAB349528, 536784200714671551),
    "PERSONALISATION": (18, 0x45D16FE4636F5E74, 1352202523604320436),
    "FRESH_ITEMS": (19, 0x7AE2AC55D1E86479, 5497949238579690745),
    "BUCKETS": (30, 0x71850EFF9D297F12, 2720518588765180200),
    "HOSTILE": (31, 0xD2B7D7DD43C0AE3B, 2635165288498911427),
    "ATTACK": (32, 0x62D07086D81424FC, 8238520269521175861),
}


def make_sequence(number: int, seed: int, round: int = 0, client: int = 0) -> np.random.SeedSequence:
    """Make a purpose's seed sequence from its number, without `fedcm.rng`."""
    return np.random.SeedSequence(seed, spawn_key=(number, round, client))


def make_stream(number: int, seed: int, round: int = 0, client: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(make_sequence(number, seed, round, client)))


def compute_torch_seed(number: int, seed: int, round: int = 0, client: int = 0) -> int:
    return int(make_sequence(number, seed, round, client).generate_state(1, np.uint64)[0]) // 2


def test_every_purpose_has_a_recorded_stream() -> None:
    """A new purpose needs a row above; a changed or removed one fails here."""
    streams = {
        purpose.name: (
            int(purpose),
            int(make_generator(11, purpose, 3, 7).bit_generator.random_raw()),
            make_torch_seed(11, purpose, 3, 7),
        )
        for purpose in Purpose
    }
    assert streams == RECORDED


def test_round_and_client_are_0_by_default() -> None:
    for purpose in Purpose:
        assert make_generator(5, purpose).random() == make_stream(int(purpose), 5).random()
        assert make_torch_seed(5, purpose) == compute_torch_seed(int(purpose), 5)


def test_cohorts_draw_with_purpose_3() -> None:
    expected = np.sort(make_stream(3, seed=1, round=2).choice(100, 5, replace=False, shuffle=False))
    assert np.array_equal(FixedSize(5).cohort(100, seed=1, round=2), expected)
    generator = make_stream(3, seed=1, round=2)
    expected = np.sort(generator.choice(100, generator.binomial(100, 0.05), replace=False, shuffle=False))
    assert np.array_equal(Independent(0.05).cohort(100, seed=1, round=2), expected)


def test_minibatches_draw_with_purpose_4() -> None:
    indices = torch.cat(list(LocalWork(4, epochs=2).draw_indices(10, seed=1, round=2, client=3)))
    generator = make_stream(4, seed=1, round=2, client=3)
    assert indices.tolist() == [*generator.permutation(10), *generator.permutation(10)]
    (index,), _ = LocalWork(10).draw_stacked_indices(np.array([10]), 1, 2, [3])
    assert index.flatten().tolist() == make_stream(4, seed=1, round=2, client=3).permutation(10).tolist()


@pytest.fixture
def assembled(tmp_path: Path) -> TrainingSetup:
    return build(read_experiment(small_experiment(write_npz(tmp_path / "made.npz"))))


def test_a_split_draws_with_purpose_1_and_a_models_parameters_with_purpose_2(assembled: TrainingSetup) -> None:
    experiment = assembled.experiment
    dataset = load_source(experiment.data.source, None)
    assert isinstance(dataset, Dataset)
    assert experiment.seed == 3
    parts = draw_split(IID(12), dataset, experiment.seed)
    assert np.concatenate(parts).tolist() == make_stream(1, seed=3).permutation(240).tolist()
    model = build_model("mlp", (6,), 4, {"hidden": [8]}, compute_torch_seed(2, seed=3))
    expected = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert torch.equal(assembled.problem.initial_params, expected)


def test_models_are_reseeded_with_purposes_5_6_and_10(
    assembled: TrainingSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In local steps, in evaluation and in a diagnosis."""
    seeds: list[int] = []
    monkeypatch.setattr(Problem, "reseed", lambda self, seed: seeds.append(seed))
    runner, params = assembled.runner, assembled.problem.initial_params
    server = runner.algorithm.init_server(params)
    round = Round(4, 0.1, 1.0, 0, 12, 0.0)
    runner.run_client(7, runner.algorithm.broadcast(server), runner.algorithm.init_client(params), round)
    assert seeds == [compute_torch_seed(5, seed=3, round=4, client=7)]
    seeds.clear()
    with evaluation_mode(assembled.problem, params, start=500):
        pass
    assert seeds == [compute_torch_seed(6, seed=0, client=500)]
    seeds.clear()
    requested: list[int] = []
    client = type(runner.data).client

    def record(data: Any, number: int) -> Any:
        requested.append(number)
        return client(data, number)

    monkeypatch.setattr(type(runner.data), "client", record)
    diagnose(runner, ClientStatesInMemory(runner.initial_state), server, round, max_gradients=3, max_local_runs=1)
    drawn = np.sort(make_stream(10, seed=3, round=4, client=0).choice(12, 3, replace=False, shuffle=False)).tolist()
    again = make_stream(10, seed=3, round=4, client=1).choice(12, 1, replace=False, shuffle=False).tolist()
    assert requested[:4] == [*drawn, *again]
    assert seeds[:3] == [compute_torch_seed(10, seed=3, round=4, client=number) for number in drawn]
    assert seeds[3:] == [compute_torch_seed(number, seed=3, round=4, client=again[0]) for number in (5, 10)]


def test_theory_draws_with_purposes_3_and_7_to_9(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Saturating(20, 4, noise=2.0, dissimilarity=1.0, seed=5)
    first = next(RoundSampler(problem, 3, 2, 6, seed=1, stream=9).sample_rounds(1))
    assert torch.equal(
        first.cohort, torch.from_numpy(sample_without_replacement(make_stream(3, 1, 0, 9), 20, 3, (16, 6))[0])
    )
    assert first.noise is not None
    assert torch.equal(first.noise, torch.from_numpy(make_stream(8, 1, 0, 9).standard_normal((16, 2, 6, 3, 4)))[0])
    slopes = make_stream(7, seed=5, client=3).standard_normal((20, 4))
    slopes -= slopes.mean(0)
    assert torch.allclose(problem.slopes * np.sqrt(np.square(slopes).sum(1).mean()), torch.from_numpy(slopes))
    calls: list[tuple[Any, ...]] = []

    def record(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> np.random.Generator:
        calls.append((int(purpose), seed, round, client))
        return make_generator(seed, purpose, round, client)

    monkeypatch.setattr("fedcm.theory.problems.quadratics.make_generator", record)
    monkeypatch.setattr("fedcm.theory.rates.slopes.make_generator", record)
    assert Quadratics(4, 2, 0.1, 1.0, dissimilarity=1.0, seed=5).slopes.shape == (4, 2)
    fit_slope([1.0, 2.0], [np.ones(2), np.ones(2)], seed=6)
    assert sorted(calls) == [(7, 5, 0, 1), (7, 5, 0, 2), (9, 6, 0, 0)]
