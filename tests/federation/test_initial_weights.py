"""An experiment that starts from weights: server and sites use their own copies, which must be equal."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits

import fedcm
from fedcm.config.experiment import to_toml
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.admin.job import get_experiment_text, write_job
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.site.trainer import SiteTrainer
from fedcm.models import build_model

WEIGHTS = '[model]\nweights = "../base.safetensors"\n'


@pytest.fixture
def chosen(tmp_path: Path) -> Experiment:
    save_file(
        build_model("mlp", (1, 8, 8), 10, {"hidden": [8]}, torch_seed=77).state_dict(), tmp_path / "base.safetensors"
    )
    model = {"name": "mlp", "hidden": [8], "weights": str(tmp_path / "base.safetensors"), "train": ["3.*"]}
    return make_experiment(model=model)


def add_weights(folder: Path, *kits: str) -> None:
    for kit in kits:
        file = folder / kit / ("server.toml" if kit == "server" else "site.toml")
        file.write_text(file.read_text() + WEIGHTS)


def run_here(folder: Path, chosen: Experiment) -> list[str]:
    federated, lines = make_federated(chosen), []
    request = RunRequest(folder / "server", "trial", "lead@example.org", resume=False)
    channel = InProcessChannel(folder, federated)
    list(run_federation(request, federated, channel, lines.append, lambda: False, lambda: None))
    return lines


def test_a_federation_trains_the_chosen_part_to_the_bits_of_a_simulation(chosen: Experiment, tmp_path: Path) -> None:
    folder = write_kits(chosen, tmp_path)
    add_weights(folder, "server", *SITES)
    run_here(folder, chosen)
    federated = load_file(folder / "server" / "runs" / "trial" / "model.safetensors")
    simulated = fedcm.run(chosen, runs_dir=tmp_path / "runs", name="simulated")
    base = load_file(tmp_path / "base.safetensors")
    for name, tensor in load_file(simulated.path / "model.safetensors").items():
        assert torch.equal(federated[name], tensor), name
        assert torch.equal(tensor, base[name]) == name.startswith("1."), name


def test_a_site_without_the_file_says_what_to_do(chosen: Experiment, tmp_path: Path) -> None:
    folder = write_kits(chosen, tmp_path)
    with pytest.raises(UserError, match=r"which is not sent; copy it .* weights under \[model\] in site.toml"):
        SiteTrainer(folder / "a", to_toml(make_federated(chosen)), 0, 3)
    with pytest.raises(UserError, match=r"weights under \[model\] in server.toml"):
        run_here(folder, chosen)


def test_a_site_with_another_file_does_not_take_part(chosen: Experiment, tmp_path: Path) -> None:
    folder = write_kits(chosen, tmp_path)
    add_weights(folder, "server", "a", "b")
    other = {name: tensor + 1 for name, tensor in load_file(tmp_path / "base.safetensors").items()}
    save_file(other, folder / "c" / "other.safetensors")
    settings = folder / "c" / "site.toml"
    settings.write_text(settings.read_text() + '[model]\nweights = "other.safetensors"\n')
    lines = run_here(folder, chosen)
    assert any("c is missing at the start: the file of weights of c must be the server's" in line for line in lines)


def test_a_missing_file_is_reported_in_one_sentence(chosen: Experiment, tmp_path: Path) -> None:
    folder = write_kits(chosen, tmp_path)
    add_weights(folder, "a")
    (tmp_path / "base.safetensors").unlink()
    with pytest.raises(UserError, match="the file of weights cannot be read"):
        SiteTrainer(folder / "a", to_toml(make_federated(chosen)), 0, 3).describe()


def test_a_job_has_only_the_name_of_the_file(chosen: Experiment, tmp_path: Path) -> None:
    job = write_job(tmp_path, "trial", make_federated(chosen), resume=False)
    for file in job.rglob("*.json"):
        assert str(tmp_path) not in file.read_text()
    assert 'weights = "base.safetensors"' in get_experiment_text(json.loads((job / "meta.json").read_text()))
