"""Changes of training images, against a literal loop over images and pixels."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from fedcm.data.augmentation import make_augment, reject_failing_augment
from fedcm.data.augmentation.images import IMAGE_CHANGES, copy_parts, crop, cutout, flip, gather_rows
from fedcm.data.dataset import Examples
from fedcm.errors import UserError

LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


def make_images(count: int = 6, shape: tuple[int, ...] = (3, 8, 7), layout: str = "contiguous") -> Tensor:
    """Images in which every pixel is different, and none is 0."""
    numbers = torch.arange(1.0, count * shape[0] * shape[1] * shape[2] + 1).reshape(count, *shape)
    return numbers.contiguous(memory_format=LAYOUTS[layout])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def shift_image(image: Tensor, down: int, right: int) -> Tensor:
    """Move an image pixel by pixel; what moves in from outside is 0."""
    _, height, width = image.shape
    moved = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            if 0 <= row + down < height and 0 <= column + right < width:
                moved[:, row, column] = image[:, row + down, column + right]
    return moved


def find_shift(image: Tensor, changed: Tensor, padding: int) -> tuple[int, int]:
    """Return the only shift that explains a changed image."""
    steps = range(-padding, padding + 1)
    found = [(a, b) for a in steps for b in steps if torch.equal(shift_image(image, a, b), changed)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 8, 7), (1, 8, 8), (2, 5, 9)])
def test_a_crop_is_a_shift_of_each_image(shape: tuple[int, ...], layout: str) -> None:
    images = make_images(shape=shape, layout=layout)
    changed = crop(images, seeded(), padding=2)
    assert changed.shape == images.shape
    assert len({find_shift(*pair, 2) for pair in zip(images, changed, strict=True)}) > 1
    assert changed.is_contiguous(memory_format=LAYOUTS[layout])
    assert torch.equal(images, make_images(shape=shape, layout=layout)), "the given images do not change"


def test_both_layouts_give_the_same_images() -> None:
    augment = make_augment(["crop", "flip", "cutout"])
    labels = torch.zeros(6, dtype=torch.int64)
    one, other = (augment(Examples(make_images(layout=layout), labels), seeded(3)) for layout in LAYOUTS)
    assert torch.equal(one.features, other.features)


def test_shifts_are_uniform_and_independent() -> None:
    """Each of the 9 shifts of padding 1 has probability 1/9; the bound is five standard deviations."""
    count = 1800
    images = make_images(1, (1, 4, 4)).expand(count, 1, 4, 4).contiguous()
    shifts = Counter(find_shift(images[0], one, 1) for one in crop(images, seeded(), padding=1).unique(dim=0))
    assert len(shifts) == 9
    changed = crop(images, seeded(), padding=1)
    counts = [(changed == shift_image(images[0], *shift)).flatten(1).all(1).sum().item() for shift in shifts]
    assert sum(counts) == count
    assert max(abs(own - count / 9) for own in counts) <= 5 * (count / 9 * 8 / 9) ** 0.5


def test_an_eighth_of_the_height_is_the_default_padding() -> None:
    images = make_images(64, (1, 16, 16))
    shifts = [find_shift(*pair, 2) for pair in zip(images, crop(images, seeded()), strict=True)]
    assert {a for a, _ in shifts} == {b for _, b in shifts} == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flip_mirrors_about_half_of_the_images(layout: str) -> None:
    images = make_images(400, layout=layout)
    changed = flip(images, seeded())
    mirrored = 0
    for image, own in zip(images, changed, strict=True):
        literal = torch.stack([image[:, :, column] for column in reversed(range(image.shape[2]))], 2)
        assert torch.equal(own, image) or torch.equal(own, literal)
        mirrored += torch.equal(own, literal)
    assert abs(mirrored - 200) <= 5 * 10
    assert changed.is_contiguous(memory_format=LAYOUTS[layout])
    assert torch.equal(flip(images, seeded(), probability=0.0), images)
    assert torch.equal(flip(images, seeded(), probability=1.0), images.flip(3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_crop_and_flip_in_one_pass_are_a_crop_and_then_a_flip(layout: str, dtype: torch.dtype) -> None:
    images = make_images(40, layout=layout).to(dtype)
    augment = make_augment([{"name": "crop", "padding": 3}, {"name": "flip", "probability": 0.3}])
    generator = seeded(5)
    expected = flip(crop(images, generator, padding=3), generator, probability=0.3)
    changed = augment(Examples(images, torch.zeros(40)), seeded(5)).features
    assert torch.equal(changed, expected)
    assert changed.is_contiguous(memory_format=LAYOUTS[layout])
    assert not torch.equal(changed, crop(images, seeded(5), padding=3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("padding", [0, 2, 11])
def test_images_shifted_one_by_one_or_at_once_are_the_literal_ones(padding: int, layout: str) -> None:
    """Also if the padding is larger than the image, which may then move out of sight."""
    images = make_images(30, layout=layout)
    shifts = torch.randint(-padding, padding + 1, (2, 30), generator=seeded())
    literal = torch.stack([shift_image(image, *shift) for image, shift in zip(images, shifts.T.tolist(), strict=True)])
    one_by_one = copy_parts(images, shifts, torch.zeros(30, dtype=torch.bool))
    at_once = gather_rows(images, shifts)
    for changed in (one_by_one, at_once):
        assert torch.equal(changed, literal)
        assert changed.is_contiguous(memory_format=LAYOUTS[layout])


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cutout_is_one_square_in_all_channels(size: int, layout: str) -> None:
    images = make_images(40, layout=layout)
    changed = cutout(images, seeded(), size=size)
    assert changed.is_contiguous(memory_format=LAYOUTS[layout])
    full = 0
    for image, own in zip(images, changed, strict=True):
        holes = (own == 0).all(0)
        assert torch.equal(own, torch.where(holes, 0.0, image))
        rows, columns = holes.any(1).nonzero()[:, 0], holes.any(0).nonzero()[:, 0]
        assert len(rows) * len(columns) == holes.sum()
        for places, length in ((rows, 8), (columns, 7)):
            assert len(places) == places[-1] - places[0] + 1 <= size
            assert len(places) == size or places[0] == 0 or places[-1] == length - 1, "only the border shortens it"
        full += holes.sum() == size * size
    assert full > 0


def test_half_of_the_height_is_the_default_cutout() -> None:
    holes = (cutout(make_images(200, (1, 8, 8)), seeded()) == 0).flatten(1).sum(1)
    assert holes.max() == 16


def test_changes_follow_from_the_generator() -> None:
    augment = make_augment(["crop", "flip"])
    batch = Examples(make_images(), torch.zeros(6))
    assert torch.equal(augment(batch, seeded(1)).features, augment(batch, seeded(1)).features)
    assert not torch.equal(augment(batch, seeded(1)).features, augment(batch, seeded(2)).features)


def test_options_and_functions_are_applied_in_their_order() -> None:
    def double(batch: Examples, generator: Generator, factor: float = 2.0) -> tuple[Tensor, Tensor]:
        return batch.features * factor, batch.labels + 1

    augment = make_augment([{"name": "flip", "probability": 1}, double, {"name": double, "factor": 3.0}])
    changed = augment(Examples(make_images(), torch.zeros(6)), seeded())
    assert torch.equal(changed.features, 6 * make_images().flip(3))
    assert torch.equal(changed.labels, torch.full((6,), 2.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("crpo", "has no change of images 'crpo'; .*; did you mean 'crop'"),
        ({"name": "crop", "paddding": 2}, "'crop' has no option 'paddding'; did you mean 'padding'"),
        ({"name": "crop", "padding": -1}, "padding must be a whole number of at least 1, got -1"),
        ({"name": "crop", "padding": 1.5}, "padding must be a whole number of at least 1, got 1.5"),
        ({"name": "cutout", "size": True}, "size must be a whole number of at least 1, got True"),
        ({"name": "flip", "probability": 1.5}, "probability must be between 0 and 1, got 1.5"),
        ({"padding": 2}, "must have a name, such as .* got {"),
        (3, "must name changes of images, or functions .* got 3"),
        ("math:pi", "must name changes of images, or functions .* got 'math:pi'"),
        ("no_such_module:change", "'no_such_module:change' cannot be imported"),
    ],
)
def test_an_unknown_change_or_option_is_rejected(change: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_augment([change])


@pytest.mark.parametrize("name", IMAGE_CHANGES)
@pytest.mark.parametrize(
    ("features", "given"),
    [
        (torch.zeros(2, 5), r"\(5,\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), r"\(3, 8, 8\)"),
        ({"image": torch.zeros(2, 3, 8, 8)}, "dict"),
    ],
)
def test_features_that_are_no_images_are_rejected(name: str, features: Any, given: str) -> None:
    with pytest.raises(UserError, match=rf"{name!r} needs images \(channels, height, width\), got features {given}"):
        reject_failing_augment(make_augment([name]), Examples(features, torch.zeros(2)))


@pytest.mark.parametrize("name", IMAGE_CHANGES)
def test_labels_of_pixels_are_rejected_because_they_would_not_move(name: str) -> None:
    batch = Examples(torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.int64))
    with pytest.raises(UserError, match=r"not their labels, got a label for every pixel, \(8, 8\)"):
        reject_failing_augment(make_augment([name]), batch)


@pytest.mark.parametrize(
    ("result", "given"),
    [
        (None, "NoneType"),
        (torch.zeros(2, 3), "Tensor"),
        ((None, None), "a tuple of NoneType, NoneType"),
        ((torch.zeros(1, 3), torch.zeros(2)), r"a tuple of \(1, 3\), \(2,\)"),
        ((torch.zeros(2, 3), torch.zeros(3)), r"a tuple of \(2, 3\), \(3,\)"),
        ((torch.zeros(2, 3), torch.zeros(2), 1), r"a tuple of \(2, 3\), \(2,\), int"),
        ({"x": torch.zeros(2, 3)}, r"a dict of \(2, 3\)"),
    ],
)
def test_a_function_that_returns_nonsense_is_rejected(result: Any, given: str) -> None:
    augment = make_augment([lambda batch, generator: result])
    with pytest.raises(UserError, match=rf"\(features, labels\) of the 2 examples that it got, got {given}"):
        reject_failing_augment(augment, Examples(torch.zeros(2, 3), torch.zeros(2)))


def test_a_function_that_raises_is_rejected() -> None:
    with pytest.raises(UserError, match=r"data.augment failed on 2 examples: .*division"):
        reject_failing_augment(make_augment([lambda batch, draw: 1 / 0]), Examples(torch.zeros(2, 3), torch.zeros(2)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "crop", "padding": 7}, "padding must be below height and width of the images, 8 × 7, .* got 7"),
        ({"name": "crop", "padding": 0}, "padding must be a whole number of at least 1, got 0"),
        ({"name": "cutout", "size": 9}, "size must be at most that of the images, 8 × 7, got 9"),
        ({"name": "cutout", "size": 0}, "size must be a whole number of at least 1, got 0"),
    ],
)
def test_a_change_that_does_nothing_or_hides_the_image_is_rejected(change: dict[str, Any], message: str) -> None:
    sample = Examples(make_images(), torch.zeros(6, dtype=torch.int64))
    for changes in ([change], [change, "flip"]):
        with pytest.raises(UserError, match=message):
            reject_failing_augment(make_augment(changes), sample)


@pytest.mark.parametrize("name", ["crop", "cutout"])
def test_the_defaults_change_small_images_too(name: str) -> None:
    images = make_images(20, (1, 1 if name == "cutout" else 5, 5))
    assert not torch.equal(IMAGE_CHANGES[name](images, seeded()), images)
