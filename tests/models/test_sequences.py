"""Models of sequences train to the same bits on any number of workers, in stacks and after a resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import SEQUENCE_MODELS

import fedcm
from fedcm.core.local.stacked import reject_batch_dependent_model
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model

SMALL: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 3, "hidden": 8, "layers": 2},
    "transformer": {"width": 8, "layers": 2, "heads": 2},
}


@pytest.fixture
def experiment_file(tmp_path: Path) -> Path:
    tokens = np.random.default_rng(3).integers(0, 11, (60, 13))
    np.savez(tmp_path / "tokens.npz", x=tokens[:, :-1], y=tokens[:, 1:])
    path = tmp_path / "sequences.toml"
    path.write_text(
        f"""rounds = 4
data.source = "{tmp_path / "tokens.npz"}"
split = {{kind = "iid", clients = 6}}
participation = {{kind = "fixed", clients = 4}}
client = {{batch_size = 4, lr = 0.5}}
checkpoints.every = 1
algorithm.name = "fedcm"
model.name = "lstm"
engine = {{stack = 1, layout = "channels_last", compile = "off"}}
"""
    )
    return path


def read_parameters(run: fedcm.Run) -> dict[str, torch.Tensor]:
    return run.model().state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_the_bits_are_the_same_on_two_workers_and_after_a_resume(
    experiment_file: Path, tmp_path: Path, name: str
) -> None:
    settings = {"model.name": name} | {f"model.{key}": value for key, value in SMALL[name].items()}
    folder = tmp_path / "runs"
    alone = fedcm.run(experiment_file, name="alone", runs_dir=folder, overrides=settings)
    two = fedcm.run(experiment_file, name="two", runs_dir=folder, overrides=settings, workers=2)
    fedcm.run(experiment_file, name="resumed", runs_dir=folder, overrides=settings | {"rounds": 2})
    resumed = fedcm.resume(folder / "resumed", rounds=4)
    expected = read_parameters(alone)
    for other in (two, resumed):
        for key, tensor in read_parameters(other).items():
            assert torch.equal(tensor, expected[key]), key


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch has no batching rule for its LSTM
def test_a_stack_of_clients_takes_the_steps_of_each_client(name: str) -> None:
    tokens = torch.randint(0, 11, (5, 13), generator=torch.Generator().manual_seed(1))
    problem = Problem(build_model(name, (12,), 11, SMALL[name], torch_seed=2))
    reject_batch_dependent_model(problem, Examples(tokens[:, :-1], tokens[:, 1:]))


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
@pytest.mark.parametrize("part", ["train", "test"])
def test_token_ids_beyond_the_vocabulary_are_rejected(
    experiment_file: Path, tmp_path: Path, name: str, part: str
) -> None:
    """In the last example, which no smoke test reads."""
    tokens = {which: np.random.default_rng(3).integers(0, 11, (60, 13)) for which in ("train", "test")}
    tokens[part][-1, 4] = 14
    x_train, x_test = (tokens[which][:, :-1] for which in ("train", "test"))
    y_train, y_test = (np.minimum(tokens[which][:, 1:], 10) for which in ("train", "test"))
    np.savez(tmp_path / "tokens.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    settings = {"rounds": 1, "model.name": name} | {f"model.{key}": value for key, value in SMALL[name].items()}
    message = (
        "^token ids must be from 0 to 10, because the model has a vocabulary of 11, got 14; set model.vocabulary = 15$"
    )
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.run(experiment_file, runs_dir=tmp_path / "runs", overrides=settings)
    assert not (tmp_path / "runs").exists()
    fedcm.run(experiment_file, runs_dir=tmp_path / "runs", overrides=settings | {"model.vocabulary": 15})


def test_negative_token_ids_are_rejected(experiment_file: Path, tmp_path: Path) -> None:
    tokens = np.random.default_rng(3).integers(0, 11, (60, 13))
    tokens[-1, 4] = -2
    np.savez(tmp_path / "tokens.npz", x=tokens[:, :-1], y=np.maximum(tokens[:, 1:], 0))
    with pytest.raises(
        fedcm.UserError, match=r"^token ids must be from 0 to 10, .*, got -2; number the tokens from 0$"
    ):
        fedcm.run(experiment_file, runs_dir=tmp_path / "runs")
