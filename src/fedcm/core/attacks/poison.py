"""Changes the training data of hostile clients, and puts the trigger of a backdoor into test data."""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from fedcm.core.attacks.kinds import Backdoor, DataAttack, LabelFlip
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData, SelectExamples
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator


@final
@dataclass(frozen=True)
class Poison:
    """Poisons the examples of hostile clients, which are ready for the model."""

    attack: DataAttack
    hostile: frozenset[int]
    seed: int
    classes: int
    bright: tuple[float, ...] = ()  # value of the trigger in each channel

    def apply(self, client: int, examples: Examples) -> Examples:
        """Return the examples that a client trains on."""
        if client not in self.hostile:
            return examples
        labels = _get_tensor(examples.labels)
        if isinstance(self.attack, LabelFlip):
            return Examples(examples.features, self.classes - 1 - labels)
        return self._mark(examples, self._draw_marked(client, examples.size).to(labels.device))

    def select(self, clients: list[int], pick: SelectExamples, sizes: list[int]) -> SelectExamples:
        """Return a function that selects examples of several clients, those of hostile clients poisoned.

        Args:
            clients: The clients.
            pick: Selects their unchanged examples by indices (C, b).
            sizes: The number of examples of each.
        """
        hostile = [row for row, client in enumerate(clients) if client in self.hostile]
        if not hostile:
            return pick
        marked = {row: self._draw_marked(clients[row], sizes[row]) for row in hostile}

        def select(index: Tensor) -> Examples:
            examples = pick(index)
            features, labels = _get_tensor(examples.features).clone(), _get_tensor(examples.labels).clone()
            for row in hostile:
                own = Examples(features[row], labels[row])
                if isinstance(self.attack, LabelFlip):
                    labels[row] = self.classes - 1 - labels[row]
                    continue
                changed = self._mark(own, marked[row][index[row].clamp(max=sizes[row] - 1)].to(labels.device))
                features[row], labels[row] = _get_tensor(changed.features), _get_tensor(changed.labels)
            return Examples(features, labels)

        return select

    @property
    def has_trigger(self) -> bool:
        """Whether the attack is a backdoor, whose success can be measured."""
        return isinstance(self.attack, Backdoor)

    def trigger_others(self, examples: Examples) -> Examples:
        """Return the examples of all classes but the target, with the trigger and the target label."""
        assert isinstance(self.attack, Backdoor)
        others = examples.select((_get_tensor(examples.labels) != self.attack.target).nonzero()[:, 0])
        return self._mark(others, torch.ones(others.size, dtype=torch.bool, device=examples.device))

    def _draw_marked(self, client: int, size: int) -> Tensor:
        """Draw which examples of a client get the trigger: the same ones in every round."""
        marked = torch.zeros(size, dtype=torch.bool)
        if isinstance(self.attack, Backdoor):
            order = make_generator(self.seed, Purpose.ATTACK, client=client).permutation(size)
            marked[order[: max(round(self.attack.share * size), 1)].tolist()] = True
        return marked

    def _mark(self, examples: Examples, marked: Tensor) -> Examples:
        assert isinstance(self.attack, Backdoor)
        size, features = self.attack.size, _get_tensor(examples.features).clone()
        corner = features[..., -size:, -size:]
        bright = features.new_tensor(self.bright)[:, None, None]
        corner.copy_(torch.where(marked[:, None, None, None], bright, corner))
        labels = _get_tensor(examples.labels)
        return Examples(features, torch.where(marked, torch.full_like(labels, self.attack.target), labels))


def make_poison(attack: DataAttack, hostile: frozenset[int], seed: int, data: FederatedData) -> Poison:
    """Return the poison of an attack for these data, which are ready for the model.

    Raises:
        UserError: If the attack does not fit the data.
    """
    first, kind = data.client(0), "label-flip" if isinstance(attack, LabelFlip) else "backdoor"
    if data.classes is None or not (isinstance(first.labels, Tensor) and first.labels.dim() == 1):
        raise UserError(f"attack.kind = {kind!r} needs one class number per example; choose another attack")
    if isinstance(attack, LabelFlip):
        return Poison(attack, hostile, seed, data.classes)
    assert isinstance(attack, Backdoor)
    images = first.features
    if not (isinstance(images, Tensor) and images.dim() == 4 and min(images.shape[2:]) >= attack.size):
        raise UserError(
            f"attack.kind = 'backdoor' needs images of at least {attack.size} pixels in both directions (attack.size); "
            "choose another attack"
        )
    if attack.target >= data.classes:
        raise UserError(f"attack.target must be a class below {data.classes}, got {attack.target}")
    bright = tuple(images.amax(dim=(0, 2, 3)).tolist())  # the brightest pixel of client 0, in each channel
    return Poison(attack, hostile, seed, data.classes, bright)


def _get_tensor(tree: Any) -> Tensor:
    assert isinstance(tree, Tensor)
    return tree
