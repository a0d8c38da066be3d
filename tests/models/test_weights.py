"""Weights are loaded by name from safetensors files and state dicts; what does not fit is rejected in one sentence."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedcm.errors import UserError
from fedcm.models.weights import load_weights, load_weights_file


class Trap:
    """Writes a file when an unpickler reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.write_text, (self.path, "run")


def make_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_all_tensors_of_a_file_are_loaded_parameters_and_buffers(tmp_path: Path) -> None:
    source, model = make_model(1), make_model(2)
    source[1].running_mean += 3.0
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    load_weights_file(model, tmp_path / "weights.safetensors")
    for name, tensor in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_other_dtypes_are_converted() -> None:
    model = make_model().double()
    load_weights(model, {name: value.bfloat16() for name, value in make_model(1).state_dict().items()}, where="given")
    assert model[0].weight.dtype == torch.float64
    assert torch.equal(model[0].weight, make_model(1)[0].weight.bfloat16().double())


def test_missing_and_unexpected_names_are_listed() -> None:
    tensors = make_model(1).state_dict()
    renamed = {name.replace("2.", "head.").replace("0.", "base."): value for name, value in tensors.items()}
    message = (
        "given: the weights must have the names of the model Sequential, but lack '0.weight', '0.bias', '2.weight' "
        "and 1 more and have besides 'base.weight', 'base.bias', 'head.weight' and 1 more; turn weights_strict off to "
        "load only the common ones"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        load_weights(make_model(), renamed, where="given")


def test_only_the_common_names_are_loaded_if_not_strict() -> None:
    model, before = make_model(), make_model()
    source = {"0.weight": torch.ones(4, 3), "elsewhere": torch.ones(1)}
    load_weights(model, source, where="given", strict=False)
    assert torch.equal(model[0].weight, torch.ones(4, 3))
    assert torch.equal(model[2].weight, before[2].weight)
    with pytest.raises(
        UserError, match=r"must have names of the model Sequential, such as '0.weight'.*have none of them"
    ):
        load_weights(model, {"elsewhere": torch.ones(1)}, where="given", strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_another_shape_is_rejected_and_the_model_is_unchanged(strict: bool) -> None:
    model = make_model()
    for value, got in ((torch.ones(2, 5), r"\(2, 5\)"), ("text", "str")):
        tensors = make_model(1).state_dict() | {"2.weight": value}
        with pytest.raises(UserError, match=rf"'2.weight' must have the model's shape \(2, 4\), got {got}$"):
            load_weights(model, tensors, where="given", strict=strict)
    assert torch.equal(model[0].weight, make_model()[0].weight)


def test_a_pickle_is_not_read_and_its_conversion_is_given(tmp_path: Path) -> None:
    written_by_code = tmp_path / "code ran"
    content = pickle.dumps(Trap(written_by_code))
    for name in ("model.pt", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"convert it: python -c .*torch.load\('{name}', weights_only=True\)"):
            load_weights_file(make_model(), tmp_path / name)
    (tmp_path / "model.safetensors").write_bytes(content)  # a pickle with another name
    with pytest.raises(UserError, match=r"must be a safetensors file, and .* cannot be read as one"):
        load_weights_file(make_model(), tmp_path / "model.safetensors")
    assert not written_by_code.exists()


def test_the_given_conversion_of_a_pickle_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(make_model(1).state_dict(), "model.pt")
    with pytest.raises(UserError) as error:
        load_weights_file(make_model(), Path("model.pt"))
    code = re.search(r'python -c "(.*)"$', str(error.value))
    assert code is not None
    exec(code[1])
    model = make_model()
    load_weights_file(model, Path("model.safetensors"))
    assert torch.equal(model[0].weight, make_model(1)[0].weight)


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file of weights"):
        load_weights_file(make_model(), tmp_path / "nothing.safetensors")
    with pytest.raises(UserError, match="must be a file, and it is a folder; give a safetensors file of weights"):
        load_weights_file(make_model(), tmp_path)
