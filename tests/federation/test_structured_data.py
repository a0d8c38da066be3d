"""Sites whose data are structures: the simulation's bits, nonsense in a description, foreign code in any setting."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from scenes import finish_session, load_summary
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from structured_code import write_structured_code

from fedcm.config.experiment import to_table
from fedcm.config.schema import read_section
from fedcm.config.sections import FederationSection
from fedcm.errors import UserError
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.settings import SiteLimits, reject_forbidden, reject_foreign_code
from fedcm.federation.terms import DataDescription, agree_on_terms
from fedcm.runs.session import Session

MODULE = "structured_site_code"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_structured_code(tmp_path, MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def federate(folder: Path, chosen: Any) -> str:
    """Run a federation of the kits in a folder; return the checksum of the parameters."""
    federated = make_federated(chosen)
    request = RunRequest(folder / "server", "r", "lead@example.org", resume=False)
    channel = InProcessChannel(folder, federated)
    for _ in run_federation(request, federated, channel, print, lambda: False, lambda: None):
        pass
    return load_summary(folder / "server" / "runs" / "r")["params_sha256"]


def simulate(folder: Path, chosen: Any) -> str:
    finish_session(Session.start(chosen, folder, "simulated"))
    return load_summary(folder / "simulated")["params_sha256"]


def test_a_federation_with_sequences_by_name_ends_with_the_bits_of_the_simulation(folder: Path) -> None:
    code = [f"{MODULE}:{name}" for name in ("make_model", "sharpen", "add_noise", "pad_to_five")]
    chosen = make_experiment(
        rounds=2,
        data={"source": f"{MODULE}:make_all", "augment": [code[2]], "collate": code[3]},
        split={"kind": "natural"},
        model={"name": code[0], "loss": code[1]},
        client={"epochs": 2, "batch_size": 4, "lr": 0.1},
    )
    for site in SITES:
        (folder / site).mkdir()
        limits = {"data": {"source": f"{MODULE}:make_{site}"}, "limits": {"code": code}}
        (folder / site / "site.toml").write_text(tomli_w.dumps(limits))
    (folder / "server").mkdir()
    (folder / "server" / "server.toml").write_text(f'[test]\nsource = "{MODULE}:make_test"\n')
    assert federate(folder, chosen) == simulate(folder, chosen)


def test_augmentation_at_sites_has_the_bits_of_the_simulation(folder: Path) -> None:
    plain = make_experiment(rounds=2)
    chosen = make_experiment(rounds=2, data={"augment": ["crop", "flip", {"name": "cutout", "size": 2}]})
    ended = federate(write_kits(chosen, folder), chosen)
    assert ended == simulate(folder, chosen)
    assert ended != simulate(folder / "plain", plain)


# descriptions of sites

LEAF = {"shape": [3], "dtype": "float32", "ragged": False}
LABEL = {"shape": [], "dtype": "int64", "ragged": False}


def describe(**changes: Any) -> DataDescription:
    table = {"examples": 10, "shape": [], "kind": "structure", "classes": 3}
    return read_section(DataDescription, table | {"structure": {"features": [LEAF], "labels": LABEL}} | changes)


@pytest.mark.parametrize(
    "structure",
    [
        {},
        {"features": LEAF},
        {"features": LEAF, "labels": LABEL, "more": LABEL},
        {"features": [], "labels": [LABEL, LABEL]},
        {"features": LEAF, "labels": {"fields": {}}},
        {"features": {"fields": [LEAF]}, "labels": LABEL},
        {"features": "float32", "labels": LABEL},
        {"features": 3, "labels": LABEL},
        {"features": None, "labels": LABEL},
        {"features": LEAF | {"dtype": "object"}, "labels": LABEL},
        {"features": LEAF | {"dtype": ["float32"]}, "labels": LABEL},
        {"features": LEAF | {"ragged": "yes"}, "labels": LABEL},
        {"features": LEAF | {"shape": [-1]}, "labels": LABEL},
        {"features": LEAF | {"shape": [0]}, "labels": LABEL},
        {"features": LEAF | {"shape": [1.5]}, "labels": LABEL},
        {"features": LEAF | {"shape": [True]}, "labels": LABEL},
        {"features": LEAF | {"shape": "3"}, "labels": LABEL},
        {"features": LEAF | {"more": 1}, "labels": LABEL},
        {"features": LEAF | {"shape": [2**30, 2]}, "labels": LABEL},
        {"features": [LEAF | {"shape": [2**30]}] * 2, "labels": LABEL},
        {"features": [LEAF] * 1001, "labels": LABEL},
        None,
    ],
)
def test_a_site_that_describes_nonsense_is_rejected(structure: Any) -> None:
    with pytest.raises(UserError, match="structure"):
        describe(structure=structure)


def test_a_site_with_another_structure_than_the_others_is_left_out() -> None:
    other = describe(structure={"features": [LEAF, LEAF], "labels": LABEL})
    terms, reasons = agree_on_terms({"a": describe(), "b": other, "c": describe()}, FederationSection())
    assert terms.structure == describe().structure
    assert set(reasons) == {"b"}
    assert "structure" in reasons["b"]


# code of others


@pytest.mark.parametrize(
    ("section", "setting", "value"),
    [
        ("data", "augment", ["evil_code:change"]),
        ("data", "augment", ["flip", {"name": "evil_code:change", "size": 8}]),
        ("data", "collate", "evil_code:collate"),
        ("model", "loss", "evil_code:loss"),
        ("model", "hidden", ["evil_code:loss"]),
    ],
)
def test_foreign_code_in_any_setting_is_rejected(section: str, setting: str, value: Any) -> None:
    table = to_table(make_experiment())
    table[section][setting] = value
    with pytest.raises(UserError, match=rf"runs only bundled code, got {section}\.{setting}(\.name)? = 'evil_code:"):
        reject_forbidden(table, SiteLimits())
    allowed = ["evil_code:change", "evil_code:collate", "evil_code:loss"]
    reject_forbidden(table, SiteLimits(code=allowed))


def test_texts_that_name_no_code_are_accepted() -> None:
    """A device is not code; neither is the site's own data source, which the experiment does not decide."""
    table = to_table(make_experiment())
    table["engine"]["device"] = "cuda:0"
    table["data"] = {"source": "someone.elses:data", "augment": ["flip"]}
    reject_foreign_code(table, [], "this site", "site.toml")
