"""Whole rounds of secure aggregation in which a site spoils messages for others, or accuses them falsely."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sites_here import InProcessChannel, Spoil, make_federated
from test_secure_rounds import name_step, run_plain, secure, write_all_kits
from test_server import metrics, parameters, run_all

from fedcm.errors import UserError
from fedcm.federation.frames import Arrays
from fedcm.federation.server.reports.disputes import choose_suspects, read_complaint

Answer = tuple[Mapping[str, Any], Arrays]


def spoiling(step: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Spoil:
    """A channel's `spoil` by which the site b changes its answers to a step."""

    def spoil(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer:
        return (change(fields), {}) if site == "b" and name_step(fields, arrays) == step else (fields, arrays)

    return spoil


SPOILT: dict[str, Spoil] = {
    "unreadable shares": spoiling(
        "share", lambda fields: fields | {"shares": dict.fromkeys(fields["shares"], "00" * 99)}
    ),
    "shares that are no digits": spoiling(
        "share", lambda fields: fields | {"shares": dict.fromkeys(fields["shares"], "?")}
    ),
    "false keys": spoiling("advertise", lambda fields: fields | {"advert": fields["advert"] | {"mask_key": "11" * 32}}),
}


def accusing(*named: str, step: str = "mask") -> Spoil:
    names = ("run", "round")
    complaint = {"unusable": dict.fromkeys(named, "it lies")}
    return spoiling(step, lambda fields: {name: fields[name] for name in names} | complaint)


@pytest.mark.parametrize("kind", SPOILT)
def test_a_site_that_spoils_messages_is_left_out_and_the_others_count(kind: str, tmp_path: Path) -> None:
    chosen, lines = secure("scaffold", rounds=3, federation={"threshold": 2}), list[str]()
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen), SPOILT[kind]), chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[0, 2]] * 3
    assert [line["missed"] for line in metrics(run)] == [["b"]] * 3
    assert [line for line in lines if line.startswith("round 0: a cannot use a message of b: ")]
    assert [line for line in lines if line.startswith("round 0: b does not count: a, c cannot use its message")]
    lost = lambda site, fields, arrays: None if site == "b" else (fields, arrays)  # noqa: E731
    assert parameters(run) == run_plain(folder, chosen, lost)


def test_a_repeat_uses_fresh_keys_and_masks(tmp_path: Path) -> None:
    chosen = secure(rounds=1, federation={"threshold": 2})
    seen: dict[str, list[str]] = {}

    def listen(site: str, fields: dict[str, Any], arrays: Arrays) -> Answer | None:
        if "advert" in fields:
            advert = fields["advert"]
            seen.setdefault(site, []).extend(advert[key] for key in ("cipher_key", "mask_key", "seed_hash"))
        return SPOILT["unreadable shares"](site, fields, arrays)

    run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), listen), chosen)
    assert {site: len(set(keys)) for site, keys in seen.items()} == {"a": 6, "b": 3, "c": 6}


def test_without_enough_other_sites_only_the_culprit_has_a_miss(tmp_path: Path) -> None:
    """By default three sites have the threshold 3."""
    chosen, lines = secure(rounds=1), list[str]()
    channel = InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), SPOILT["unreadable shares"])
    run = run_all(channel, chosen, lines)
    assert metrics(run)[0]["clients"] == []
    assert metrics(run)[0]["missed"] == ["b"]
    assert [line for line in lines if "round 0 has no sum" in line]


def test_a_site_whose_signature_is_false_has_the_miss(tmp_path: Path) -> None:
    chosen, lines = secure(rounds=1), list[str]()
    spoil = spoiling("confirm", lambda fields: fields | {"signature": "00" * 70})
    run = run_all(InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), spoil), chosen, lines)
    assert metrics(run)[0]["clients"] == []
    assert metrics(run)[0]["missed"] == ["b"]
    assert [line for line in lines if "a cannot use a message of b" in line and "b signed something else" in line]


@pytest.mark.parametrize(("named", "left"), [(("a", "c"), [0, 2]), (("a",), []), (("b",), [0, 2]), (("x",), [0, 2])])
def test_a_site_that_accuses_others_falsely_is_left_out(
    named: tuple[str, ...], left: list[int], tmp_path: Path
) -> None:
    """If it accuses a single one, both are left out, because nobody can tell which of them is wrong."""
    chosen, lines = secure(rounds=1, federation={"threshold": 2}), list[str]()
    channel = InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), accusing(*named))
    run = run_all(channel, chosen, lines)
    assert metrics(run)[0]["clients"] == left
    assert metrics(run)[0]["missed"] == (["b"] if left else ["a", "b"])


@pytest.mark.parametrize("step", ["advertise", "confirm"])
def test_accusations_count_only_in_steps_that_read_messages_of_others(step: str, tmp_path: Path) -> None:
    chosen, lines = secure(rounds=1, federation={"threshold": 2}), list[str]()
    channel = InProcessChannel(write_all_kits(chosen, tmp_path), make_federated(chosen), accusing("a", step=step))
    run = run_all(channel, chosen, lines)
    assert {0, 2} <= set(metrics(run)[0]["clients"])


def test_an_accusation_at_the_end_does_not_end_the_round(tmp_path: Path) -> None:
    chosen = secure("fedavg", rounds=1, federation={"threshold": 2})
    folder = write_all_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen), accusing("a", step="unmask")), chosen)
    assert metrics(run)[0]["clients"] == [0, 1, 2]
    assert parameters(run) == run_plain(folder, chosen)


def test_two_sites_that_deal_junk_are_left_out_together() -> None:
    complaints = {site: {"a": "junk", "b": "junk"} for site in "cde"}
    assert list(choose_suspects(complaints)) == ["a", "b"]


@pytest.mark.parametrize("fields", [None, {}, [], "a", {"b": ""}, {"x": ""}, {"a": "", "x": ""}, {5: ""}])
def test_junk_is_no_complaint(fields: Any) -> None:
    with pytest.raises(UserError, match="it must name other sites"):
        read_complaint("b", fields, {"a", "b", "c"})
