"""Personal parameters: trained and kept at each client, never sent, with the same bits everywhere."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedcm

CLIENTS = 5


class Net(nn.Module):
    """A body that is shared and a head that may be personal."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))


def make_model() -> Net:
    torch.manual_seed(3)
    return Net()


def make_clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every client calls the classes by other numbers, so that one head cannot serve all."""
    generator = torch.Generator().manual_seed(5)
    clients = []
    for client in range(CLIENTS):
        x = torch.randn(24, 4, generator=generator)
        clients.append((x, (x[:, :3].argmax(1) + client) % 3))
    return clients


def train(algorithm: Any = None, **settings: Any) -> fedcm.TrainingResult:
    given = {"rounds": 3, "batch_size": 8, "lr": 0.3, "personal": "head.*", "participation": 3} | settings
    return fedcm.train(make_model(), make_clients(), algorithm or fedcm.FedCM(0.3), **given)


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def test_a_literal_loop_of_fedavg_gives_the_same_bodies_and_heads() -> None:
    """One batch per round, so that the order of examples does not matter."""
    result = train(fedcm.FedAvg(), participation=1.0, batch_size=24, rounds=4)
    body = {name: value.clone() for name, value in make_model().state_dict().items() if name.startswith("body")}
    heads = [
        {name: value.clone() for name, value in make_model().state_dict().items() if name.startswith("head")}
        for _ in range(CLIENTS)
    ]
    for _ in range(4):
        bodies = []
        for client, (x, y) in enumerate(make_clients()):
            net = make_model()
            net.load_state_dict(body | heads[client])
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.3 * parameter.grad
            bodies.append({name: value for name, value in net.state_dict().items() if name.startswith("body")})
            heads[client] = {name: value for name, value in net.state_dict().items() if name.startswith("head")}
        body = {name: torch.stack([own[name] for own in bodies]).mean(0) for name in body}
    for client in range(CLIENTS):
        trained = result.client_model(client).state_dict()
        for name, value in (body | heads[client]).items():
            torch.testing.assert_close(trained[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", [fedcm.FedCM(0.3), fedcm.Scaffold(), fedcm.FedDyn(), fedcm.FedSAM()])
def test_only_the_shared_part_is_sent_and_the_model_keeps_its_initial_head(algorithm: Any) -> None:
    result = train(algorithm)
    body = sum(parameter.numel() for parameter in make_model().body.parameters())
    whole = train(algorithm, personal=None)
    for line, other in zip(result.history, whole.history, strict=True):
        assert line["bytes_up"] * flatten(make_model()).numel() == other["bytes_up"] * body
    assert torch.equal(result.model.get_parameter("head.weight"), make_model().head.weight)
    assert not torch.equal(result.model.get_parameter("body.weight"), make_model().body.weight)


def test_two_workers_and_a_resume_give_the_same_bits() -> None:
    settings = {"client_tests": 0.25, "evaluate_every": 1, "optimizer": fedcm.AdamW(), "lr": 0.05}
    once = train(rounds=4, **settings)
    assert {"clients_accuracy_mean", "clients_accuracy_worst"} <= set(once.history[-1])
    shared = train(rounds=4, workers=2, **settings)
    first = train(rounds=2, **settings)
    resumed = train(rounds=2, resume_from=first.state, **settings)
    for other in (shared, resumed):
        assert other.history[-1]["clients_accuracy_mean"] == once.history[-1]["clients_accuracy_mean"]
        for client in once.state.clients:
            assert torch.equal(flatten(other.client_model(client)), flatten(once.client_model(client)))


def test_personal_heads_fit_clients_that_disagree() -> None:
    settings = {"rounds": 30, "participation": 1.0, "client_tests": 0.25, "lr": 0.5}
    own, common = train(**settings), train(personal=None, **settings)
    assert own.history[-1]["clients_accuracy_mean"] > common.history[-1]["clients_accuracy_mean"] + 0.2


def test_weight_decay_and_clipping_act_on_both_parts_together() -> None:
    """With one client and one step per round, a personal head is an ordinary one."""
    settings = {"clip": 0.05, "weight_decay": 0.1, "batch_size": 24, "participation": 1.0}
    clients = make_clients()[:1]
    for where in ("loss", "step"):
        given = {"rounds": 3, "lr": 0.3, "weight_decay_at": where} | settings
        own = fedcm.train(make_model(), clients, fedcm.FedAvg(), personal=["head.*"], **given)
        common = fedcm.train(make_model(), clients, fedcm.FedAvg(), **given)
        torch.testing.assert_close(flatten(own.client_model(0)), flatten(common.model), rtol=1e-5, atol=1e-6)


def test_a_run_on_disk_resumes_to_the_same_bits_and_gives_the_model_of_a_client(tmp_path: Path) -> None:
    experiment = fedcm.make_experiment(
        make_model(), make_clients(), fedcm.FedCM(0.3), rounds=6, batch_size=8, personal="head.*", client_tests=0.25
    )
    whole = fedcm.run(experiment, runs_dir=tmp_path / "whole")
    part = fedcm.run(experiment, runs_dir=tmp_path / "part", callbacks=[lambda metrics: metrics.round == 2])
    assert part.outcome == "stopped"
    resumed = fedcm.resume(part.path, experiment=experiment)
    for client in (0, 3):
        assert torch.equal(flatten(resumed.model(client=client)), flatten(whole.model(client=client)))
    assert not torch.equal(flatten(whole.model(client=0)), flatten(whole.model(client=3)))
    assert (whole.path / "client_results.json").is_file()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"personal": "haed.*"}, "of personal parameters must match a parameter"),
        ({"personal": "*"}, "some trained parameters must be shared"),
        ({"trainable": "body.*"}, "all that match .* are frozen"),
        ({"stack": 4}, "clients with model.personal cannot be stacked"),
        ({"validation": 0.2}, "there must be no validation data"),
    ],
)
def test_what_cannot_work_is_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        train(**settings)


def test_a_decentralised_algorithm_and_unknown_clients_are_rejected() -> None:
    with pytest.raises(fedcm.UserError, match="needs an algorithm with a server"):
        train(fedcm.DSGD(), participation=1.0)
    with pytest.raises(fedcm.UserError, match="has not taken part"):
        train(rounds=1, participation=1).client_model(99)
    with pytest.raises(fedcm.UserError, match="all clients share one model"):
        train(personal=None).client_model(0)


def test_a_run_that_nobody_evaluates_says_so(tmp_path: Path) -> None:
    for tests, expected in ((None, 1), (0.25, 0)):
        settings: dict[str, Any] = {} if tests is None else {"client_tests": tests}
        experiment = fedcm.make_experiment(
            make_model(), make_clients(), fedcm.FedCM(), rounds=1, personal="head.*", **settings
        )
        said: list[str] = []
        fedcm.run(experiment, runs_dir=tmp_path / str(tests), notify=said.append)
        assert sum("nothing will be evaluated" in sentence for sentence in said) == expected


def test_a_personalised_evaluation_is_one_plain_step_of_all_parameters() -> None:
    """With one batch per pass, it is a literal step from the model of each client, without the local optimiser."""
    clients = make_clients()

    def entropy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return F.cross_entropy(outputs, labels).item()

    result = fedcm.train(
        make_model(),
        clients,
        fedcm.FedAvg(),
        rounds=2,
        batch_size=24,
        lr=0.05,
        personal="head.*",
        client_tests=clients,
        personalise=1,
        metrics=[{"name": entropy, "higher_is_better": False}],
        optimizer=fedcm.AdamW(),
    )
    before, after = [], []
    for client, (x, y) in enumerate(clients):
        model = result.client_model(client)
        loss = F.cross_entropy(model(x), y)
        before.append(loss.item())
        parameters = list(model.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= 0.05 * gradient
        after.append(F.cross_entropy(model(x), y).item())
    line = result.history[-1]
    means = {key: value for key, value in line.items() if key.endswith("entropy_mean")}
    assert means["clients_entropy_mean"] == pytest.approx(sum(before) / len(before), rel=1e-5)
    assert means["personal_entropy_mean"] == pytest.approx(sum(after) / len(after), rel=1e-5)
    assert after != before


def test_test_data_are_rejected_because_they_belong_to_no_client() -> None:
    with pytest.raises(fedcm.UserError, match=r"^test must be left out if parameters are personal.*client_tests=0\.2"):
        train(test=make_clients()[0])
