"""Batches of any structure in `fedcm.train`: what a new user brings, each against a literal computation."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import fedcm
from fedcm.errors import UserError

BATCHES = 4  # the purpose of the draws of minibatches, as in rng.py
AUGMENTATION = 13
SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 3, "lr": 0.2, "seed": 7}


def draw_batches(size: int, round: int, client: int, epochs: int = 2, batch: int = 3) -> Iterator[np.ndarray]:
    """Repeat the documented draws: one Philox generator for each (seed, purpose, round, client)."""
    sequence = np.random.SeedSequence(SETTINGS["seed"], spawn_key=(BATCHES, round, client))
    draw = np.random.Generator(np.random.Philox(sequence))
    for _ in range(epochs):
        order = draw.permutation(size)
        yield from (order[start : start + batch] for start in range(0, size, batch))


def flatten(model: nn.Module) -> Tensor:
    return torch.cat([own.detach().reshape(-1) for own in model.parameters() if own.requires_grad])


def train_literally(
    make_model: Callable[[], nn.Module], sizes: Sequence[int], loss: Callable[[nn.Module, int, list[int]], Tensor]
) -> Tensor:
    """FedAvg with torch.optim.SGD over two rounds; `loss` computes that of some examples of a client."""
    start = make_model().double()
    for round in range(2):
        ends = []
        for client, size in enumerate(sizes):
            model = make_model().double()
            model.load_state_dict(start.state_dict())
            optimizer = torch.optim.SGD(model.parameters(), SETTINGS["lr"])
            for index in draw_batches(size, round, client):
                optimizer.zero_grad()
                loss(model, client, index.tolist()).backward()
                optimizer.step()
            ends.append(flatten(model))
        nn.utils.vector_to_parameters(torch.stack(ends).mean(0), [p for p in start.parameters() if p.requires_grad])
    return flatten(start)


def assert_trains_literally(
    make_model: Callable[[], nn.Module],
    clients: list[Any],
    sizes: Sequence[int],
    literal_loss: Callable[[nn.Module, int, list[int]], Tensor],
    **settings: Any,
) -> fedcm.TrainingResult:
    trained = fedcm.train(make_model().double(), clients, fedcm.FedAvg(), rounds=2, **SETTINGS, **settings)
    assert (flatten(trained.model) - train_literally(make_model, sizes, literal_loss)).abs().max() <= 1e-10
    return trained


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draw_classes(*shape: int, classes: int = 3, seed: int = 0) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(seed))


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return make()

    return build


SIZES = (7, 4)


class TwoInputs(nn.Module):
    """Takes two inputs, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.left(left) * self.right(right)


LEFT, RIGHT = [draw(n, 4, seed=n) for n in SIZES], [draw(n, 2, seed=n + 50) for n in SIZES]
CLASSES = [draw_classes(n, seed=n) for n in SIZES]


class Items(Dataset[Any]):
    """A torch dataset of given items."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


TWO_INPUTS: dict[str, list[Any]] = {
    "pair of a tuple": [((a, b), y) for a, b, y in zip(LEFT, RIGHT, CLASSES, strict=True)],
    "tensor dataset": [TensorDataset(a, b, y) for a, b, y in zip(LEFT, RIGHT, CLASSES, strict=True)],
    "items of three": [
        Items([(a[k], b[k], int(y[k])) for k in range(len(y))]) for a, b, y in zip(LEFT, RIGHT, CLASSES, strict=True)
    ],
    "dict": [{"right": b, "left": a, "labels": y} for a, b, y in zip(LEFT, RIGHT, CLASSES, strict=True)],
    "items by name": [
        Items([{"right": b[k], "labels": int(y[k]), "left": a[k]} for k in range(len(y))])
        for a, b, y in zip(LEFT, RIGHT, CLASSES, strict=True)
    ],
}


@pytest.mark.parametrize("form", TWO_INPUTS)
def test_a_model_of_two_inputs_gets_them_by_position_or_by_name(form: str) -> None:
    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        outputs = model(LEFT[client][index].double(), RIGHT[client][index].double())
        return F.cross_entropy(outputs, CLASSES[client][index])

    clients = TWO_INPUTS[form]
    trained = assert_trains_literally(seeded(TwoInputs), clients, SIZES, loss, test=clients[0])
    outputs = trained.model(LEFT[0].double(), RIGHT[0].double())
    assert trained.history[-1]["test_accuracy"] == (outputs.argmax(1) == CLASSES[0]).double().mean().item()


# models that compute their own loss, and models with logits


class Tagger(nn.Module):
    """Computes its own loss, as models of the transformers library do."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
        hidden = self.embedding(input_ids) * attention_mask[..., None]
        logits = self.head(hidden.sum(1) / attention_mask.sum(1, keepdim=True))
        loss = None if labels is None else F.cross_entropy(logits, labels, label_smoothing=0.2)
        return SimpleNamespace(loss=loss, logits=logits)


IDS = [draw_classes(n, 6, classes=9, seed=n) for n in SIZES]
MASKS = [(draw(n, 6, seed=n) > -0.5).long().index_fill(1, torch.tensor([0]), 1) for n in SIZES]
NAMED = [
    {"input_ids": ids, "attention_mask": mask, "labels": y} for ids, mask, y in zip(IDS, MASKS, CLASSES, strict=True)
]


@pytest.mark.parametrize("smoothing", [0.2, 0.0])
def test_the_models_own_loss_is_the_default_and_its_logits_serve_other_losses(smoothing: float) -> None:
    """The model's own loss has label smoothing; cross-entropy of its logits has none."""

    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        logits = model(IDS[client][index], MASKS[client][index]).logits
        return F.cross_entropy(logits, CLASSES[client][index], label_smoothing=smoothing)

    named = {} if smoothing else {"loss": "cross_entropy"}
    trained = assert_trains_literally(seeded(Tagger), NAMED, SIZES, loss, test=NAMED[0], **named)
    logits = trained.model(IDS[0], MASKS[0]).logits
    expected = F.cross_entropy(logits, CLASSES[0], label_smoothing=smoothing).item()
    assert trained.history[-1]["test_loss"] == pytest.approx(expected, rel=1e-12)
    assert trained.history[-1]["test_accuracy"] == (logits.argmax(1) == CLASSES[0]).double().mean().item()


def test_a_model_that_returns_no_loss_for_its_labels_is_rejected() -> None:
    class Empty(Tagger):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
            return super().forward(input_ids, attention_mask)

    with pytest.raises(UserError, match="must return an object with a loss, got SimpleNamespace without one"):
        fedcm.train(Empty(), NAMED, fedcm.FedAvg(), rounds=1)


# labels of any shape


def test_several_classes_per_example_are_a_mean_over_all_labels() -> None:
    """Labels (n, 5), a quarter of them ignored; the mean is over the others."""
    x = [draw(n, 5, 4, seed=n) for n in SIZES]
    y = [torch.where(draw(n, 5, seed=n) < -0.7, -100, draw_classes(n, 5, seed=n)) for n in SIZES]
    y = [own.index_fill(1, torch.tensor([0]), 1) for own in y]

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), Swap())

    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        losses = [
            F.cross_entropy(model(x[client][[k]].double())[:, :, place], y[client][[k], place])
            for k in index
            for place in range(5)
            if y[client][k, place] != -100
        ]
        return torch.stack(losses).mean()

    clients = list(zip(x, y, strict=True))
    trained = assert_trains_literally(seeded(make), clients, SIZES, loss, test=clients[0])
    scored = y[0] != -100
    right = (trained.model(x[0].double()).argmax(1) == y[0]) & scored
    assert trained.history[-1]["test_accuracy"] == right.sum().item() / scored.sum().item()


class Swap(nn.Module):
    """(b, T, classes) -> (b, classes, T)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


@pytest.mark.parametrize("as_integers", [True, False])
def test_several_yes_or_no_labels_have_binary_cross_entropy(as_integers: bool) -> None:
    """Among integers, -100 is ignored."""
    x = [draw(n, 4, seed=n) for n in SIZES]
    y = [draw_classes(n, 5, classes=2, seed=n) for n in SIZES]
    if as_integers:
        y = [torch.where(draw(n, 5, seed=n) < -1, -100, own) for n, own in zip(SIZES, y, strict=True)]

    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        p, own = model(x[client][index].double()).sigmoid(), y[client][index]
        losses = torch.where(own == 1, -p.log(), -(1 - p).log())
        return losses[own != -100].mean()

    clients = [(a, b if as_integers else b.float()) for a, b in zip(x, y, strict=True)]
    named = {"loss": "binary_cross_entropy"}
    trained = assert_trains_literally(seeded(lambda: nn.Linear(4, 5)), clients, SIZES, loss, test=clients[0], **named)
    assert "test_accuracy" not in trained.history[-1] or trained.history[-1]["test_accuracy"] is None


@pytest.mark.parametrize(("name", "power"), [("absolute_error", 1), ("squared_error", 2)])
def test_integer_labels_can_be_amounts(name: str, power: int) -> None:
    x, y = [draw(n, 4, seed=n) for n in SIZES], [draw_classes(n, classes=9, seed=n) for n in SIZES]

    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        return (model(x[client][index].double())[:, 0] - y[client][index]).abs().pow(power).mean()

    clients = list(zip(x, y, strict=True))
    assert_trains_literally(seeded(lambda: nn.Linear(4, 1)), clients, SIZES, loss, loss=name)


def test_a_label_for_every_pixel_is_a_segmentation() -> None:
    x, y = [draw(n, 2, 4, 5, seed=n) for n in SIZES], [draw_classes(n, 4, 5, seed=n) for n in SIZES]

    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        outputs = model(x[client][index].double()).permute(0, 2, 3, 1).reshape(-1, 3)
        return F.cross_entropy(outputs, y[client][index].reshape(-1))

    clients = list(zip(x, y, strict=True))
    trained = assert_trains_literally(seeded(lambda: nn.Conv2d(2, 3, 1)), clients, SIZES, loss, test=clients[0])
    right = trained.model(x[0].double()).argmax(1) == y[0]
    assert trained.history[-1]["test_accuracy"] == pytest.approx(right.double().mean().item(), rel=1e-12)


# sequences of unequal lengths


class PerToken(nn.Module):
    """Scores every token from itself and the mean of its sequence's embeddings, whose padding is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embedding(ids)
        mean = hidden.sum(1, keepdim=True) / (ids > 0).sum(1)[:, None, None]
        return self.head(hidden + mean).transpose(1, 2)


LENGTHS = [[1 + (3 * k + n) % 5 for k in range(n)] for n in SIZES]
SENTENCES = [[1 + draw_classes(length, classes=8, seed=length + n) for length in LENGTHS[n]] for n in range(2)]
TAGS = [[one % 3 for one in own] for own in SENTENCES]
SEQUENCES = [Items(list(zip(one, two, strict=True))) for one, two in zip(SENTENCES, TAGS, strict=True)]


def score_one_by_one(model: nn.Module, sentences: Sequence[Tensor], tags: Sequence[Tensor]) -> tuple[Tensor, float]:
    """Return loss and accuracy over all tokens, from one example at a time, which needs no padding."""
    outputs = torch.cat([model(one[None])[0].T for one in sentences])
    labels = torch.cat(list(tags))
    return F.cross_entropy(outputs, labels), (outputs.argmax(1) == labels).double().mean().item()


def test_padding_counts_neither_in_training_nor_in_evaluation() -> None:
    def loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
        return score_one_by_one(model, [SENTENCES[client][k] for k in index], [TAGS[client][k] for k in index])[0]

    trained = assert_trains_literally(seeded(PerToken), SEQUENCES, SIZES, loss, test=SEQUENCES[0])
    test_loss, accuracy = score_one_by_one(trained.model, SENTENCES[0], TAGS[0])
    assert trained.history[-1]["test_loss"] == pytest.approx(test_loss.item(), rel=1e-12)
    assert trained.history[-1]["test_accuracy"] == accuracy


def test_pieces_of_the_test_set_are_weighed_by_their_labels() -> None:
    """1200 sentences are evaluated 500 at a time; the pieces have different numbers of tokens."""
    lengths = [1 + k // 300 for k in range(1200)]
    sentences = [1 + draw_classes(length, classes=8, seed=k) for k, length in enumerate(lengths)]
    tags = [one % 3 for one in sentences]
    test = Items(list(zip(sentences, tags, strict=True)))
    trained = fedcm.train(seeded(PerToken)().double(), SEQUENCES, fedcm.FedAvg(), rounds=1, test=test, **SETTINGS)
    with torch.no_grad():
        test_loss, accuracy = score_one_by_one(trained.model, sentences, tags)
    assert trained.history[-1]["test_loss"] == pytest.approx(test_loss.item(), rel=1e-12)
    assert trained.history[-1]["test_accuracy"] == accuracy


def test_a_collate_function_replaces_the_padding() -> None:
    """Padding every sentence to 9 tokens is the same training; a function that cuts them to one token is not."""

    def pad(examples: list[Any], length: int = 9) -> tuple[Tensor, Tensor]:
        rows, labels = torch.zeros(len(examples), length).long(), torch.full((len(examples), length), -100)
        for k, (one, two) in enumerate(examples):
            rows[k, : len(one)], labels[k, : len(one)] = one[:length], two[:length]
        return rows, labels

    def cut(examples: list[Any]) -> tuple[Tensor, Tensor]:
        return torch.stack([one[:1] for one, _ in examples]), torch.stack([two[:1] for _, two in examples])

    def run(**given: Any) -> Tensor:
        return flatten(
            fedcm.train(seeded(PerToken)().double(), SEQUENCES, fedcm.FedAvg(), rounds=2, **SETTINGS, **given).model
        )

    default = run()
    assert (run(collate=pad) - default).abs().max() <= 1e-12
    assert (run(collate=cut) - default).abs().max() >= 1e-3


# the same bits everywhere


def run_fedcm(model: nn.Module, clients: list[Any], rounds: int, **given: Any) -> fedcm.TrainingResult:
    return fedcm.train(model, clients, fedcm.FedCM(0.3), rounds=rounds, **SETTINGS, **given)


def assert_same_everywhere(make: Callable[[], nn.Module], clients: list[Any], **given: Any) -> Tensor:
    """Training has the same bits on two workers, and if it is continued in the middle."""
    whole = run_fedcm(make(), clients, 6, **given)
    shared = run_fedcm(make(), clients, 6, workers=2, **given)
    first = run_fedcm(make(), clients, 3, **given)
    second = run_fedcm(make(), clients, 3, resume_from=first.state, **given)
    assert torch.equal(flatten(whole.model), flatten(shared.model))
    assert torch.equal(flatten(whole.model), flatten(second.model))
    return flatten(whole.model)


def test_batches_by_name_have_the_same_bits_on_workers_and_when_continued() -> None:
    assert_same_everywhere(seeded(Tagger), NAMED)


def test_sequences_have_the_same_bits_on_workers_and_when_continued() -> None:
    assert_same_everywhere(seeded(PerToken), list(SEQUENCES))


IMAGES = [(draw(n, 2, 8, 8, seed=n), draw_classes(n, seed=n)) for n in SIZES]


def make_image_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 3))


def test_augmentation_has_the_same_bits_on_workers_and_when_continued() -> None:
    changed = assert_same_everywhere(seeded(make_image_model), IMAGES, augment=["crop", "flip"])
    plain = flatten(run_fedcm(seeded(make_image_model)(), IMAGES, 6).model)
    assert (changed - plain).abs().max() >= 1e-3


def test_every_step_has_a_generator_of_its_own() -> None:
    """The seed of a step's generator follows from (seed, round, client, step) alone."""
    seen: list[int] = []

    def record(batch: Any, generator: torch.Generator) -> Any:
        seen.append(generator.initial_seed())
        return batch

    expected = []
    for round in range(2):
        for client, size in enumerate(SIZES):
            for step in range(2 * -(-size // 3)):
                sequence = np.random.SeedSequence(SETTINGS["seed"], spawn_key=(AUGMENTATION, round, client, step))
                expected.append(int(sequence.generate_state(1, np.uint64)[0] >> 1))
    run_fedcm(seeded(make_image_model)(), IMAGES, 2, augment=[record])
    assert seen[-len(expected) :] == expected
    assert len(set(expected)) == len(expected)


class Noisy(Dataset[Any]):
    """Adds noise to every item that is read, and records what it returned."""

    log: ClassVar[list[float]] = []

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        noise = torch.randn(()).item() + np.random.normal()  # noqa: NPY002 - the global generator
        self.log.append(noise)
        return self.x[index] + 0.3 * noise, int(self.y[index])


def make_noisy() -> list[Any]:
    return [Noisy(*one) for one in IMAGES]


def test_items_are_read_anew_in_every_pass_with_the_same_bits_everywhere() -> None:
    fresh = assert_same_everywhere(seeded(make_image_model), make_noisy(), fresh=True)
    assert torch.equal(flatten(run_fedcm(seeded(make_image_model)(), make_noisy(), 6, fresh=True).model), fresh)


def test_every_pass_of_every_round_reads_other_items() -> None:
    Noisy.log.clear()
    run_fedcm(seeded(make_image_model)(), make_noisy(), 3, fresh=True)
    passes = Noisy.log[-3 * 2 * sum(SIZES) :]
    assert len(set(passes)) == len(passes)


def test_progress_says_how_long_reading_takes(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for progress in (True, False):
        fedcm.train(make_image_model(), make_noisy(), fedcm.FedCM(), rounds=1, fresh=True, progress=progress)
        said.append("reading one batch anew takes" in capsys.readouterr().err)
    assert said == [True, False]


def test_items_that_do_not_follow_from_the_global_generators_are_rejected() -> None:
    class Own(Noisy):
        draw = np.random.default_rng(0)

        def __getitem__(self, index: int) -> Any:
            return self.x[index] + self.draw.normal(), int(self.y[index])

    with pytest.raises(UserError, match=r"data.fresh needs datasets that draw from the global generators"):
        run_fedcm(make_image_model(), [Own(*one) for one in IMAGES], 1, fresh=True)


def test_arrays_cannot_be_read_anew() -> None:
    with pytest.raises(UserError, match=r"data.fresh needs data that are read item by item"):
        run_fedcm(make_image_model(), IMAGES, 1, fresh=True)


# what cannot work


@pytest.mark.parametrize(
    ("model", "clients", "given", "message"),
    [
        (TwoInputs, TWO_INPUTS["dict"], {"stack": 2}, "features or labels of several tensors.* cannot be stacked"),
        (make_image_model, IMAGES, {"augment": ["flip"], "stack": 2}, "data.augment cannot be stacked"),
        (make_image_model, IMAGES, {"augment": "flip"}, "augment must be a list of names or functions, got 'flip'"),
        (make_image_model, IMAGES, {"augment": [None]}, "must name changes of images, or functions"),
        (TwoInputs, TWO_INPUTS["dict"], {"augment": ["flip"]}, "'flip' needs images"),
        (make_image_model, IMAGES, {"collate": 3}, "collate must be a function of a list of examples, got 3"),
        (make_image_model, IMAGES, {"collate": "math:pi"}, "collate must name a function, got 'math:pi', a float"),
        (make_image_model, IMAGES, {"collate": lambda _: None}, "data.collate must return a pair"),
        (make_image_model, IMAGES, {"loss": "cros_entropy"}, "no loss 'cros_entropy'.*; did you mean 'cross_entropy'"),
        (make_image_model, IMAGES, {"loss": 3}, "loss must be a function .* or the name of one, got 3"),
        (make_image_model, IMAGES, {"loss": "model"}, "must return an object with a loss, got Tensor without one"),
        (make_image_model, IMAGES, {"fresh": "no"}, "fresh must be"),
        (make_image_model, TWO_INPUTS["dict"], {}, "must take examples of right: .* float32, left: .* float32"),
        (PerToken, [SEQUENCES[0], IMAGES[0]], {}, "clients 0 and 1 must have features of one shape"),
    ],
)
def test_what_cannot_work_is_rejected_in_one_sentence(
    model: Callable[[], nn.Module], clients: list[Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        run_fedcm(model(), clients, 1, **given)
    assert "\n" not in str(error.value)


def test_an_option_of_a_users_own_change_reaches_it() -> None:
    def scale(batch: Any, generator: torch.Generator, factor: float) -> Any:
        return factor * batch.features, batch.labels

    given = {"augment": [{"name": scale, "factor": 0.5}]}
    halved = [(0.5 * x, y) for x, y in IMAGES]
    one = run_fedcm(seeded(make_image_model)(), IMAGES, 2, **given).model
    assert torch.equal(flatten(one), flatten(run_fedcm(seeded(make_image_model)(), halved, 2).model))


# models of other libraries


def make_language_model() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=20,
        n_positions=16,
        n_embd=8,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


TEXTS = [draw_classes(n, 10, classes=20, seed=n) for n in SIZES]
TEXT_CLIENTS = [{"input_ids": own, "labels": own} for own in TEXTS]


def compute_next_token_loss(model: nn.Module, client: int, index: list[int]) -> Tensor:
    """The mean cross-entropy of every token given those before it, in float32 as that library computes it."""
    ids = TEXTS[client][index]
    return F.cross_entropy(model(ids).logits.float()[:, :-1].reshape(-1, 20), ids[:, 1:].reshape(-1))


@pytest.mark.slow
def test_a_small_transformer_trains_as_it_is() -> None:
    trained = assert_trains_literally(
        seeded(make_language_model), TEXT_CLIENTS, SIZES, compute_next_token_loss, test=TEXT_CLIENTS[0]
    )
    expected = compute_next_token_loss(trained.model, 0, list(range(SIZES[0]))).item()
    assert trained.history[-1]["test_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_low_rank_adapters_of_a_transformer_train_alone() -> None:
    """Only the adapters train; without a task, the adapters' wrapper hides that the model takes labels."""
    peft = pytest.importorskip("peft")

    def make() -> nn.Module:
        settings = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
        return peft.get_peft_model(make_language_model(), settings)

    trained = assert_trains_literally(seeded(make), TEXT_CLIENTS, SIZES, compute_next_token_loss, loss="model")
    before = dict(seeded(make)().double().named_parameters())
    for name, own in trained.model.named_parameters():
        assert torch.equal(own, before[name]) != ("lora_" in name), name
