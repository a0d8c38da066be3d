"""Runs that start from weights and train a part of the model: workers, resume, files and what a resume checks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fedcm
from fedcm.config.experiment import load_experiment_file, read_experiment, to_table
from fedcm.errors import UserError
from fedcm.models import build_model
from fedcm.runs.identity import hash_settings

OPTIONS = {"width": 8, "layers": 1, "heads": 2}
TRAINED = ["head.*", "*.attention.query.*"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A file of weights."""
    path = tmp_path / "base.safetensors"
    save_file(build_model("transformer", (12,), 11, OPTIONS, torch_seed=77).state_dict(), path)
    return path


@pytest.fixture
def experiment_file(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # the path of the weights is relative to it
    tokens = np.random.default_rng(3).integers(0, 11, (60, 13))
    np.savez(tmp_path / "tokens.npz", x=tokens[:, :-1], y=tokens[:, 1:])
    path = tmp_path / "tuning.toml"
    path.write_text(
        f"""rounds = 4
data.source = "tokens.npz"
split = {{kind = "iid", clients = 6}}
participation = {{kind = "fixed", clients = 4}}
client = {{batch_size = 4, lr = 0.5}}
checkpoints.every = 1
algorithm.name = "scaffold"
engine = {{stack = 1, layout = "channels_last", compile = "off"}}
[model]
name = "transformer"
width = 8
layers = 1
heads = 2
weights = "base.safetensors"
train = {json.dumps(TRAINED)}
"""
    )
    return path


def run(path: Path, name: str, **keywords: Any) -> fedcm.Run:
    return fedcm.run(path, name=name, runs_dir=path.parent / "runs", **keywords)


def count_trained(base: Path) -> int:
    return sum(t.numel() for name, t in load_file(base).items() if name.startswith("head.") or ".query." in name)


@pytest.mark.slow
def test_the_bits_are_the_same_on_two_workers_in_a_stack_and_after_a_resume(experiment_file: Path) -> None:
    expected = run(experiment_file, "alone").model().state_dict()
    others = [run(experiment_file, "two", workers=2)]
    run(experiment_file, "resumed", overrides={"rounds": 2})
    others.append(fedcm.resume(experiment_file.parent / "runs" / "resumed", rounds=4))
    for other in others:
        for name, tensor in other.model().state_dict().items():
            assert torch.equal(tensor, expected[name]), name
    stacked = run(experiment_file, "stacked", overrides={"engine.stack": 2}).model().state_dict()
    for name, tensor in stacked.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)


def test_frozen_parameters_keep_the_bits_of_the_file_and_the_others_move(experiment_file: Path, base: Path) -> None:
    final = load_file(run(experiment_file, "one").path / "model.safetensors")
    for name, tensor in load_file(base).items():
        is_trained = name.startswith("head.") or ".query." in name
        assert torch.equal(final[name], tensor) != is_trained, name


def test_vectors_checkpoints_and_client_states_have_the_size_of_the_trained_part(
    experiment_file: Path, base: Path
) -> None:
    done, size = run(experiment_file, "one"), count_trained(base)
    assert done.summary["parameters"] == size
    checkpoint = load_file(max((done.path / "checkpoints").glob("*.safetensors")))
    assert checkpoint["server.params"].shape == (size,)
    assert done.metrics[0]["bytes_down"] == 4 * 2 * size * 4  # SCAFFOLD sends two vectors to four clients
    taken_part = {client for line in done.metrics for client in line["clients"]}
    states = done.path / "clients" / "states.bin"
    assert states.stat().st_size >= len(taken_part) * size * 4
    assert states.stat().st_size < 6 * 6 * size * 4


def test_the_model_of_a_finished_run_is_loaded_without_the_file_of_weights(experiment_file: Path, base: Path) -> None:
    done = run(experiment_file, "one")
    final = load_file(done.path / "model.safetensors")
    base.unlink()
    for name, tensor in fedcm.Run(done.path).model().state_dict().items():
        assert torch.equal(tensor, final[name])


def test_a_resume_rejects_another_file_of_weights(experiment_file: Path, base: Path, tmp_path: Path) -> None:
    folder = run(experiment_file, "one", overrides={"rounds": 2}).path
    recorded = json.loads((folder / "provenance.json").read_text())["data_sha256"]["weights"]
    save_file({name: tensor + 1 for name, tensor in load_file(base).items()}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"must be resumed with the file of weights \(model.weights\)"):
        fedcm.resume(folder, rounds=4, overrides={"model.weights": str(tmp_path / "other.safetensors")})
    moved = base.rename(tmp_path / "moved.safetensors")
    with pytest.raises(UserError, match="there is no file of weights"):
        fedcm.resume(folder, rounds=4)
    done = fedcm.resume(folder, rounds=4, overrides={"model.weights": str(moved)})
    assert done.outcome == "finished"
    assert json.loads((folder / "provenance.json").read_text())["data_sha256"]["weights"] == recorded


def test_a_resume_rejects_other_trained_parameters(experiment_file: Path) -> None:
    folder = run(experiment_file, "one", overrides={"rounds": 2}).path
    with pytest.raises(UserError, match=r"model\.train must not change after the run began"):
        fedcm.resume(folder, rounds=4, overrides={"model.train": ["head.*"]})


def test_what_cannot_be_loaded_is_rejected_before_a_folder_exists(experiment_file: Path, tmp_path: Path) -> None:
    for overrides, message in (
        ({"model.weights": "nothing.safetensors"}, "there is no file of weights"),
        ({"model.weights": "model.pt"}, "convert it: python -c"),
        ({"model.width": 4}, r"must have the model's shape \(11, 4\)"),
        ({"model.layers": 2}, r"lack 'blocks.1.attention.key.bias'|lack 'blocks.1.norm1.weight'"),
        ({"model.train": ["haed.*"]}, "the nearest names are head."),
        ({"model.train": []}, "model.train"),
        ({"model.weights": ""}, "model.weights"),
        ({"model.weights": 3}, "model.weights"),
    ):
        with pytest.raises(UserError, match=message):
            run(experiment_file, "bad", overrides=overrides)
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


def test_a_relative_path_becomes_absolute(experiment_file: Path, base: Path) -> None:
    experiment = load_experiment_file(experiment_file)
    assert experiment.model.weights == str(base)
    assert to_table(read_experiment(to_table(experiment))) == to_table(experiment)


def test_settings_that_are_not_used_do_not_change_what_identifies_a_run() -> None:
    table = {"name": "x", "rounds": 1, "model": {"name": "mlp", "hidden": [3]}, "algorithm": {"name": "fedavg"}}
    plain = read_experiment(table)
    assert to_table(plain)["model"] == {"name": "mlp", "hidden": [3]}
    same = read_experiment(table | {"model": {"name": "mlp", "hidden": [3], "weights_strict": True}})
    assert hash_settings(same) == hash_settings(plain)
    other = read_experiment(table | {"model": {"name": "mlp", "hidden": [3], "train": ["1.*"]}})
    assert hash_settings(other) != hash_settings(plain)


def test_resume_from_rejects_other_frozen_parameters() -> None:
    clients = [(torch.randn(8, 3, generator=torch.Generator().manual_seed(k)), torch.arange(8) % 2) for k in range(3)]
    model = torch.nn.Linear(3, 2)
    keywords: dict[str, Any] = {"rounds": 1, "trainable": "bias"}
    state = fedcm.train(model, clients, fedcm.FedCM(), **keywords).state
    fedcm.train(model, clients, fedcm.FedCM(), **keywords, resume_from=state)
    with pytest.raises(UserError, match="weights and frozen parameters"):
        fedcm.train(torch.nn.Linear(3, 2), clients, fedcm.FedCM(), **keywords, resume_from=state)
