"""Every keyword of `fedcm.train`: the trajectory is that of the literal run with the same settings."""

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import literal
import numpy as np
import pytest
import torch
from bench import APART, CLASSES, CLOSE, FEATURES, SIZES, make_clients
from safetensors.torch import save_file
from schema import put
from torch import nn

import fedcm
from fedcm.config.choices import describe_optimizer, describe_schedule
from fedcm.core.participation import Everyone
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.rng import Purpose, make_generator

CLIENTS = make_clients()
USUAL: dict[str, Any] = {"rounds": 4, "participation": 3, "epochs": 2, "batch_size": 4, "lr": 0.3, "seed": 11}
SETTINGS = {  # keyword -> the setting of an experiment
    "epochs": "client.epochs",
    "steps": "client.steps",
    "batch_size": "client.batch_size",
    "lr": "client.lr",
    "lr_decay": "client.lr_decay",
    "weight_decay": "client.weight_decay",
    "weight_decay_at": "client.weight_decay_at",
    "clip": "client.clip",
    "lr_schedule": "client.schedule",
    "step_schedule": "client.step_schedule",
    "server_lr": "server.lr",
    "server_lr_schedule": "server.schedule",
    "optimizer": "client.optimizer",
    "weights": "server.weights",
    "seed": "seed",
    "stack": "engine.stack",
}
DESCRIBED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("lr_schedule", "step_schedule", "server_lr_schedule"), describe_schedule),
    "optimizer": describe_optimizer,
}


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(FEATURES, CLASSES)


def flatten(given: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in given.parameters()])


def train_model(**keywords: Any) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    given = {key: value for key, value in (USUAL | keywords).items() if value is not None}
    ended, history = fedcm.train(model(), CLIENTS, fedcm.FedCM(0.3), **given)
    return flatten(ended), history


def assert_literal_trajectory(averages: bool = False, /, **keywords: Any) -> torch.Tensor:
    """Train with keywords that are settings, by FedCM or FedAvg; None leaves a keyword out."""
    given = {key: value for key, value in (USUAL | keywords).items() if value is not None}
    ended, history = fedcm.train(model(), CLIENTS, fedcm.FedAvg() if averages else fedcm.FedCM(0.3), **given)
    own = {"name": "fedavg"} if averages else {"name": "fedcm", "alpha": 0.3}
    table: dict[str, Any] = {"algorithm": own, "classes": CLASSES}
    for key, value in given.items():
        if key in SETTINGS:
            put(table, SETTINGS[key], DESCRIBED.get(key, lambda value: value)(value))
    cohorts = [line["clients"] for line in history]
    *_, last = literal.run_literally(table, CLIENTS, cohorts, start=flatten(model()).double())
    assert float((flatten(ended) - last["x"]).abs().max()) <= CLOSE
    return flatten(ended)


def changes_the_trajectory(*values: Any, averages: bool = False, **more: Any) -> Callable[[str], None]:
    def row(keyword: str) -> None:
        one, other = (assert_literal_trajectory(averages, **{keyword: value}, **more) for value in values)
        assert float((one - other).abs().max()) >= APART

    return row


def counts_the_rounds(keyword: str) -> None:
    assert [len(train_model(rounds=rounds)[1]) for rounds in (1, 3)] == [1, 3]


def accepts_a_number_a_probability_or_everyone(keyword: str) -> None:
    assert {line["cohort"] for line in train_model(participation=2)[1]} == {2}
    assert {line["cohort"] for line in train_model(participation=1.0)[1]} == {len(SIZES)}
    assert {line["cohort"] for line in train_model(participation=fedcm.FixedSize(4))[1]} == {4}
    by_chance = [line["cohort"] for line in train_model(participation=0.5, rounds=40, epochs=1)[1]]
    assert abs(np.mean(by_chance) - 3) <= 4 * np.sqrt(6 / 4 / 40)
    assert len(set(by_chance)) > 2
    usual = {key: value for key, value in USUAL.items() if key != "participation"}
    assert {line["cohort"] for line in fedcm.train(model(), CLIENTS, fedcm.FedCM(), **usual).history} == {len(SIZES)}


def chooses_the_graph(keyword: str) -> None:
    """By default a ring: less mixing than on the complete graph, where all nodes agree after every round."""
    usual: dict[str, Any] = USUAL | {"participation": 1.0}
    default, ring, complete = (
        fedcm.train(model(), CLIENTS, fedcm.DSGD(), topology=graph, **usual).history[-1]["consensus_distance"]
        for graph in (None, fedcm.Ring(), fedcm.Complete())
    )
    assert default == ring > 0.01 > 1e-5 > complete


def waits_for_available_clients(keyword: str) -> None:
    history = train_model(availability=fedcm.DayNight(period=4, share=0.5), participation=1.0, rounds=8)[1]
    phases = literal.generator(USUAL["seed"], literal.AVAILABILITY).random(len(SIZES))
    expected = [np.flatnonzero((round / 4 + phases) % 1 < 0.5).tolist() for round in range(8)]
    assert [line["clients"] for line in history] == expected
    assert [line["available"] for line in history] == list(map(len, expected))


def averages_robustly(keyword: str) -> None:
    """A name, a table and an object mean the same, and not the plain mean."""
    plain, by_name, by_table, by_object = (
        train_model(mean=mean, participation=1.0, rounds=2)[0]
        for mean in (None, "median", {"kind": "median"}, fedcm.Median())
    )
    assert torch.equal(by_name, by_object)
    assert torch.equal(by_table, by_object)
    assert float((plain - by_object).abs().max()) >= APART


def has_hostile_clients(keyword: str) -> None:
    """Two of six clients that flip their signs leave a third of the first step of six honest clones."""
    honest, start = [CLIENTS[1]] * 6, flatten(model())
    usual = USUAL | {"participation": 1.0, "rounds": 1, "epochs": None, "steps": 1, "batch_size": SIZES[1]}
    given = {key: value for key, value in usual.items() if value is not None}
    moved = [
        start - flatten(fedcm.train(model(), honest, fedcm.FedCM(0.3), attack=attack, **given).model)
        for attack in (None, fedcm.SignFlip(clients=(1, 4)))
    ]
    torch.testing.assert_close(moved[1], moved[0] / 3, atol=1e-6, rtol=1e-4)


def adds_noise_and_counts_its_cost(keyword: str) -> None:
    """Without noise and with a wide threshold nothing changes but ε; noise moves the model by its own size."""
    usual = {"participation": 1.0, "epochs": None, "steps": 2, "rounds": 3}
    plain, (quiet, _), (noisy, lines) = (
        train_model(privacy=privacy, **usual)
        for privacy in (
            None,
            fedcm.Privacy(noise_multiplier=1e-6, clip=1000.0, delta=1e-3),
            fedcm.Privacy(noise_multiplier=4.0, clip=1.0, delta=1e-3),
        )
    )
    torch.testing.assert_close(quiet, plain[0], atol=2e-2, rtol=0)
    assert float((noisy - plain[0]).abs().max()) > 0.1
    accountant = Accountant(Sampling.of(Everyone()), 4.0, 1e-3)
    assert [line["epsilon"] for line in lines] == [accountant.compute_epsilon(k) for k in (1, 2, 3)]
    assert "epsilon" not in plain[1][0]


def drops_slow_clients(keyword: str) -> None:
    table = {"seed": USUAL["seed"], "stragglers": {"deadline": 4.0, "spread": 1.0}}
    table["client"] = {"epochs": 2, "batch_size": 4}
    slow = fedcm.Stragglers(deadline=4.0, spread=1.0)
    for line in train_model(stragglers=slow, participation=1.0)[1]:
        round = line["round"]
        seconds = [
            literal.step_seconds(table, round, number) * literal.count_steps(table, round, number, size)
            for number, size in enumerate(SIZES)
        ]
        assert line["clients"] == [number for number, own in enumerate(seconds) if own <= 4]
        assert 0 < line["missed"] == len(SIZES) - line["cohort"]
        assert line["simulated_seconds"] == 4


def takes_a_number_a_draw_or_a_function(keyword: str) -> None:
    """A draw of a single number, and a function that returns it, are that number bit for bit."""
    others = {"epochs": None} if keyword == "steps" else {}
    expected = assert_literal_trajectory(**others | {keyword: 3})
    apart = assert_literal_trajectory(**others | {keyword: 1})
    assert float((expected - apart).abs().max()) >= APART
    for same in (fedcm.UniformWork(3, 3), fedcm.UniformWork(3, 3, per="client"), lambda round, client: 3):
        assert torch.equal(train_model(**others | {keyword: same})[0], expected)
    lines = train_model(**others | {keyword: lambda round, client: 1 + round + client}, batch_size=20)[1]
    assert [line["steps_most"] for line in lines] == [1 + line["round"] + max(line["clients"]) for line in lines]


def is_evaluated_on(keyword: str) -> None:
    x, y = make_clients((50,), seed=1)[0]
    ended, history = train_model(test=(x, y))
    outputs = literal.logits(ended.double(), x.double(), CLASSES)
    assert history[-1]["test_loss"] == pytest.approx(literal.cross_entropy(outputs, y).item(), rel=1e-5)
    assert history[-1]["test_accuracy"] == (outputs.argmax(1) == y).double().mean().item()
    assert "test_loss" not in train_model()[1][-1]


def is_held_back(keyword: str) -> None:
    """A share of every client, drawn as one permutation per client, or given examples."""
    held, kept = [], []
    for client, (x, y) in enumerate(CLIENTS):
        count = len(x) // 4
        generator = make_generator(USUAL["seed"], Purpose.VALIDATION, client=client)
        index = np.sort(generator.permutation(len(x))[:count])
        held.append((x[index], y[index]))
        rest = np.setdiff1d(np.arange(len(x)), index)
        kept.append((x[rest], y[rest]))
    x, y = (torch.cat(parts) for parts in zip(*held, strict=True))
    ended, history = train_model(validation=0.25)
    same, given = fedcm.train(model(), kept, fedcm.FedCM(0.3), **USUAL, validation=(x, y))
    assert torch.equal(ended, flatten(same))
    outputs = literal.logits(ended.double(), x.double(), CLASSES)
    for line in (history[-1], given[-1]):
        assert line["validation_loss"] == pytest.approx(literal.cross_entropy(outputs, y).item(), rel=1e-5)
        assert line["validation_accuracy"] == (outputs.argmax(1) == y).double().mean().item()
    assert "validation_loss" not in train_model()[1][-1]


def are_evaluated(keyword: str) -> None:
    def share(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return (outputs.argmax(1) == labels).double().mean().item()

    line = train_model(test=CLIENTS[1], metrics=[share, "accuracy"])[1][-1]
    assert line["test_share"] == line["test_accuracy"]
    assert list(line).index("test_share") < list(line).index("test_accuracy")


def ends_early(keyword: str) -> None:
    """The first round in which the literal rule holds, and the bits of the shorter training."""
    usual = {"rounds": 40, "validation": 0.3, "evaluate_every": 1, "lr": 0.5}
    scores = [line["validation_accuracy"] for line in train_model(**usual)[1]]
    last = next(k for k in range(3, 40) if max(scores[k - 2 : k + 1]) <= max(scores[: k - 2]))
    ended, history = train_model(**usual, stop=fedcm.Stop(patience=3))
    assert len(history) == last + 1 < 40
    assert torch.equal(ended, train_model(**usual | {"rounds": last + 1})[0])


def are_clients_tested(keyword: str) -> None:
    """On a share of each client's examples, or on given examples; a client without is left out."""
    tests = [None if k == 2 else client for k, client in enumerate(make_clients(seed=1))]
    result = fedcm.train(model(), CLIENTS, fedcm.FedCM(0.3), **USUAL, client_tests=tests)
    with torch.no_grad():
        expected = [(result.model(x).argmax(1) == y).double().mean().item() for x, y in filter(None, tests)]
    assert result.client_results is not None
    assert (result.client_results["clients"], result.client_results["values"]) == ([0, 1, 3, 4, 5], expected)
    assert torch.equal(flatten(result.model), train_model()[0]), "given examples do not change the training"
    assert not torch.equal(train_model(client_tests=0.4)[0], train_model()[0]), "a share is not trained on"


def are_personal(keyword: str) -> None:
    """Steps at a tiny rate change nothing, so the results are those of the global model."""
    one, other = (train_model(client_tests=CLIENTS, personalise=2, lr=lr)[1][-1] for lr in (1e-7, 0.3))
    assert one["personal_accuracy_mean"] == one["clients_accuracy_mean"]
    assert other["personal_accuracy_mean"] > other["clients_accuracy_mean"], "they are tested on what they train on"


def is_evaluated_when_due(keyword: str) -> None:
    for every, due in ((None, [9, 10]), (4, [3, 7, 10])):
        given = {} if every is None else {"evaluate_every": every}
        history = train_model(rounds=11, test=CLIENTS[0], **given)[1]
        assert [line["round"] for line in history if "test_loss" in line] == due


def takes_another_loss(keyword: str) -> None:
    """Twice the loss at half the rate is the same trajectory."""

    def twice(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.cross_entropy(outputs, labels)

    torch.testing.assert_close(train_model(loss=twice, lr=0.15)[0], train_model()[0], rtol=1e-5, atol=1e-6)


def make_state_dict() -> dict[str, torch.Tensor]:
    torch.manual_seed(6)
    return nn.Linear(FEATURES, CLASSES).state_dict()


def starts_from_these_weights(keyword: str) -> None:
    """A state dict and a file with the same tensors start where a model with them starts."""
    other = model()
    other.load_state_dict(make_state_dict())
    expected = flatten(fedcm.train(other, CLIENTS, fedcm.FedCM(0.3), **USUAL).model)
    assert not torch.equal(expected, train_model()[0])
    assert torch.equal(train_model(model_weights=make_state_dict())[0], expected)
    with tempfile.TemporaryDirectory() as folder:
        save_file(make_state_dict(), Path(folder) / "weights.safetensors")
        assert torch.equal(train_model(model_weights=Path(folder) / "weights.safetensors")[0], expected)
    with pytest.raises(fedcm.UserError, match="model_weights must be a path"):
        train_model(model_weights=3)


def loads_the_common_names(keyword: str) -> None:
    tensors = {"weight": make_state_dict()["weight"], "elsewhere": torch.ones(1)}
    with pytest.raises(fedcm.UserError, match="lack 'bias' and have besides 'elsewhere'"):
        train_model(model_weights=tensors)
    other = model()
    other.load_state_dict({"weight": tensors["weight"], "bias": model().state_dict()["bias"]})
    expected = flatten(fedcm.train(other, CLIENTS, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(model_weights=tensors, weights_strict=False)[0], expected)


def trains_only_these_parameters(keyword: str) -> None:
    """As if the model had frozen the others itself; one pattern may be a plain string."""
    own = model()
    own.get_parameter("weight").requires_grad_(False)
    expected = flatten(fedcm.train(own, CLIENTS, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(trainable="b*")[0], expected)
    ended, history = train_model(trainable=["bias"])
    assert torch.equal(ended, expected)
    assert torch.equal(ended[:-CLASSES], flatten(model())[:-CLASSES])
    assert history[0]["bytes_up"] == 3 * 4 * CLASSES
    assert all(parameter.requires_grad for parameter in model().parameters()), "the given model is not changed"
    for wrong, message in (
        (["bais"], "the nearest names are bias"),
        ([], "trainable must"),
        (3, "trainable must be a"),
    ):
        with pytest.raises(fedcm.UserError, match=message):
            train_model(trainable=wrong)


def keeps_these_parameters_at_the_clients(keyword: str) -> None:
    """The bias of the model stays the initial one, and each client has its own."""
    result = fedcm.train(model(), CLIENTS, fedcm.FedCM(0.3), **USUAL, personal="bias")
    assert torch.equal(result.model.get_parameter("bias"), model().get_parameter("bias"))
    biases = [result.client_model(client).get_parameter("bias") for client in list(result.state.clients)[:2]]
    assert not torch.equal(biases[0], biases[1])
    assert result.history[0]["bytes_up"] == 3 * 4 * CLASSES * FEATURES


def takes_a_loss_by_name(keyword: str) -> None:
    assert torch.equal(train_model(loss="cross_entropy")[0], train_model()[0])
    takes_another_loss(keyword)


def changes_every_batch(keyword: str) -> None:
    """A function that doubles the features is a training on doubled features; bundled changes need images."""

    def double(batch: Any, generator: torch.Generator) -> Any:
        return 2 * batch.features, batch.labels

    doubled = [(2 * x, y) for x, y in CLIENTS]
    expected = flatten(fedcm.train(model(), doubled, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(augment=[double])[0], expected)
    with pytest.raises(fedcm.UserError, match="'flip' needs images"):
        train_model(augment=["flip"])


def makes_the_batch(keyword: str) -> None:
    def double(examples: list[Any]) -> Any:
        return torch.stack([2 * x for x, _ in examples]), torch.stack([y for _, y in examples])

    doubled = [(2 * x, y) for x, y in CLIENTS]
    expected = flatten(fedcm.train(model(), doubled, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(collate=double)[0], expected)
    assert torch.equal(train_model(collate="torch.utils.data:default_collate")[0], train_model()[0])


def reads_items_anew(keyword: str) -> None:
    """Items are read twice by the checks of a training, then once in every pass of every client."""

    class Counting(torch.utils.data.Dataset[Any]):
        def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
            self.x, self.y, self.reads = x, y, 0

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, index: int) -> Any:
            self.reads += 1
            return self.x[index], int(self.y[index])

    reads = {}
    for fresh, rounds in ((False, 4), (True, 4), (True, 6)):
        counting = [Counting(*one) for one in CLIENTS]
        given = USUAL | {"rounds": rounds, "participation": 1.0, "fresh": fresh}
        fedcm.train(model(), counting, fedcm.FedCM(0.3), **given)
        reads[fresh, rounds] = [own.reads for own in counting[1:]]  # the checks read client 0
    sizes = np.array(SIZES[1:])
    assert (np.array(reads[False, 4]) <= sizes + 10).all()
    assert reads[True, 4] == (sizes + 4 * 2 * sizes).tolist()
    assert reads[True, 6] == (sizes + 6 * 2 * sizes).tolist()


def calls_the_model_once_for_several_clients(keyword: str) -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            Counting.calls += 1
            return super().forward(input)

    calls = []
    for stack in (1, 3):
        Counting.calls = 0
        fedcm.train(Counting(FEATURES, CLASSES), CLIENTS, fedcm.FedCM(0.3), stack=stack, **USUAL)
        calls.append(Counting.calls)
        assert_literal_trajectory(stack=stack)
    assert calls[1] < calls[0]


ROWS: dict[str, Callable[[str], None]] = {
    "rounds": counts_the_rounds,
    "test": is_evaluated_on,
    "validation": is_held_back,
    "metrics": are_evaluated,
    "stop": ends_early,
    "client_tests": are_clients_tested,
    "personalise": are_personal,
    "participation": accepts_a_number_a_probability_or_everyone,
    "topology": chooses_the_graph,
    "availability": waits_for_available_clients,
    "stragglers": drops_slow_clients,
    "mean": averages_robustly,
    "attack": has_hostile_clients,
    "privacy": adds_noise_and_counts_its_cost,
    "epochs": takes_a_number_a_draw_or_a_function,
    "steps": takes_a_number_a_draw_or_a_function,
    "batch_size": changes_the_trajectory(None, 3),
    "lr": changes_the_trajectory(None, 0.4),
    "lr_decay": changes_the_trajectory(None, 0.5),
    "lr_schedule": changes_the_trajectory(None, fedcm.Cosine(warmup=2)),
    "step_schedule": changes_the_trajectory(None, fedcm.Polynomial(final=0.3), averages=True),
    "optimizer": changes_the_trajectory(None, fedcm.AdamW(weight_decay=0.1), lr=0.03),
    "server_lr": changes_the_trajectory(None, 0.4),
    "server_lr_schedule": changes_the_trajectory(None, fedcm.StepDecay(0.3, every=2)),
    "weight_decay": changes_the_trajectory(None, 0.5),
    "weight_decay_at": changes_the_trajectory(None, "step", weight_decay=0.4, clip=0.3),
    "clip": changes_the_trajectory(None, 0.2),
    "weights": changes_the_trajectory(None, "examples"),
    "loss": takes_a_loss_by_name,
    "augment": changes_every_batch,
    "collate": makes_the_batch,
    "fresh": reads_items_anew,
    "model_weights": starts_from_these_weights,
    "weights_strict": loads_the_common_names,
    "trainable": trains_only_these_parameters,
    "personal": keeps_these_parameters_at_the_clients,
    "evaluate_every": is_evaluated_when_due,
    "stack": calls_the_model_once_for_several_clients,
    "seed": changes_the_trajectory(None, 4),
}


@pytest.mark.parametrize("keyword", ROWS)
def test_every_keyword_does_what_its_docstring_says(keyword: str) -> None:
    ROWS[keyword](keyword)


def test_every_keyword_has_a_row() -> None:
    keywords = {name for name, own in inspect.signature(fedcm.train).parameters.items() if own.kind is own.KEYWORD_ONLY}
    assert set(ROWS) == keywords - {"progress", "resume_from", "workers"}  # tests/api has these


def test_progress_is_shown_if_requested(capsys: pytest.CaptureFixture[str]) -> None:
    quiet, _ = train_model()
    assert capsys.readouterr().err == ""
    shown, _ = train_model(progress=True)
    assert "4/4" in capsys.readouterr().err
    assert torch.equal(quiet, shown)
