"""A message of very many objects is dropped before it is decoded whole; ordinary messages are decoded as before."""

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs import fobs as engine_fobs

from fedcm.federation.gate.decoding import MAX_OBJECTS, LimitedPacker, limit_decoding


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy_decomposers.register()
    monkeypatch.setattr(engine_fobs, "Packer", engine_fobs.Packer)
    limit_decoding()


def test_an_ordinary_message_is_decoded(limited: None) -> None:
    arrays = {"direction": np.arange(5, dtype=np.float32)}
    data = fobs.dumps(DXO(DataKind.WEIGHT_DIFF, data=arrays, meta={"round": 3}).to_shareable())
    assert engine_fobs.Packer is LimitedPacker
    message = from_shareable(fobs.loads(data))
    assert message.meta["round"] == 3
    np.testing.assert_array_equal(message.data["direction"], arrays["direction"])


@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_a_message_of_too_many_objects_is_not(limited: None, kind: str) -> None:
    one = np.zeros(1, np.float32) if kind == "arrays" else {}
    data = fobs.dumps({str(number): one for number in range(MAX_OBJECTS + 1)})
    with pytest.raises(ValueError, match="at most 2000 objects"):
        fobs.loads(data)
