"""An attack with nothing but the server's disk: after a run with secure aggregation it has no secret of any site."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from disk_search import holds_secret, holds_vector, read_everything
from fleet import Fleet, bits, experiment_file
from safetensors.numpy import load_file
from scenes import run_to_end

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c")
ROUNDS = 3
# at a site: writes down what it must not reveal, when it masks its report
CONFESS = """
import os, sys
from pathlib import Path
if "fedcm.federation.site.trainer" in sys.orig_argv:
    import numpy as np
    from fedcm.federation.site import secure_rounds, trainer
    good = secure_rounds.SecureRounds.answer
    def answer(self, step, run, round, arrays, **fields):
        reply = good(self, step, run, round, arrays, **fields)
        if step == "mask":
            trained, session = self._trained, self._session
            secrets = [session._own_seed, session._mask_keys.private, session._cipher_keys.private]
            secrets += [share for pair in session._shares.values() for share in pair]
            vectors = {f"vector{i}": field.numpy() for i, field in enumerate(trained.report)}
            vectors["integers"] = self._encode(trained)
            vectors |= {f"secret{i}": np.frombuffer(secret, np.uint8) for i, secret in enumerate(secrets)}
            np.savez(Path(os.environ["CONFESSIONS"]) / f"{session.name}-{round}.npz", **vectors)
        return reply
    secure_rounds.SecureRounds.answer = answer
    trainer.main(Path(sys.orig_argv[-3]), int(sys.orig_argv[-2]), int(sys.orig_argv[-1]))
    sys.exit()
"""


def test_the_servers_disk_has_no_secret_of_a_site(
    fleet: Fleet, dealt: Callable[..., list[str]], tmp_path: Path
) -> None:
    links = {"classes": 10, "secure_aggregation": True}
    experiment = experiment_file(
        tmp_path / "trial.toml", rounds=ROUNDS, algorithm={"name": "scaffold"}, federation=links
    )
    dealt(experiment, fleet, *SITES)
    for folder in ("spy", "confessions"):
        (tmp_path / folder).mkdir()
    (tmp_path / "spy" / "sitecustomize.py").write_text(CONFESS)
    fleet.start_server()
    for site in SITES:
        fleet.start_site(site, PYTHONPATH=str(tmp_path / "spy"), CONFESSIONS=str(tmp_path / "confessions"))
    done = fleet.run(experiment, "r")
    assert done.code == 0, done.err + fleet.collect_output()
    assert bits(fleet.at_server("r")) == bits(run_to_end(experiment, tmp_path))
    fleet.running["server"].kill()

    disk = dict(read_everything(fleet.server))
    model = load_file(fleet.at_server("r") / "model.safetensors")
    weight = next(tensor.reshape(-1) for name, tensor in sorted(model.items()) if name.endswith("weight"))
    assert sum(holds_vector(data, weight) for data in disk.values()) >= 2, "the search finds the model"
    assert sum(b"secure_aggregation" in data for name, data in disk.items() if ":" in name) >= 1, "and reads archives"

    confessions = sorted((tmp_path / "confessions").glob("*.npz"))
    assert len(confessions) == ROUNDS * len(SITES)
    for file in confessions:
        with np.load(file) as secrets:
            vectors = [secrets[name] for name in secrets if name.startswith("vector")]
            integers = secrets["integers"]
            others = [secrets[name].tobytes() for name in secrets if name.startswith("secret")]
        assert len(vectors) == 2
        assert len(others) == 3 + 2 * len(SITES)
        assert {len(secret) for secret in others} == {32, 33}
        for name, data in disk.items():
            forms = [*vectors, *(vector.astype(np.float64) for vector in vectors), integers]
            assert not any(holds_vector(data, form) for form in forms), f"a report of {file.stem} is in {name}"
            assert not any(holds_secret(data, secret) for secret in others), f"a secret of {file.stem} is in {name}"

    for site in SITES:
        (key,) = (fleet.site(site) / "startup").glob("*.key")
        lines = [line for line in key.read_bytes().split(b"\n") if re.fullmatch(rb"[A-Za-z0-9+/=]{40,}", line)]
        assert lines
        assert not [name for name, data in disk.items() if any(line in data for line in lines)]
        states = [load_file(state) for state in fleet.site(site).glob("state/*/round-*.safetensors")]
        assert len(states) == ROUNDS
        for name, data in disk.items():
            assert not any(holds_vector(data, state["control"]) for state in states), f"a state of {site} is in {name}"
