"""What sites refuse in secure aggregation: a malicious server, false keys, replays, changed messages, wrong order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from made_kits import Root
from secure_parties import (
    PERMIT,
    add_up,
    draw_reports,
    make_identity,
    make_sites,
    name_sites,
    run_round,
    shared_identity,
)

from fedcm.errors import UserError
from fedcm.federation.secure.identity import SiteIdentity
from fedcm.federation.secure.messages import Advert
from fedcm.federation.secure.server_session import ServerSession
from fedcm.federation.secure.site_session import SiteSession, UnusableMessages

NAMES = name_sites(5)
REPORTS = draw_reports(NAMES, 4)
SITES = dict[str, SiteSession]


def advance(sites: SITES, until: str, lost: tuple[str, ...] = ()) -> ServerSession:
    """Run the steps before `until` honestly; the masked reports of `lost` sites do not arrive."""
    server = ServerSession(2, 4)
    for name in sites:
        server.add_advert(name, sites[name].advertise())
    if until == "share":
        return server
    for name in sites:
        server.add_shares(name, sites[name].share(server.list_keys()))
    if until == "mask":
        return server
    for name in sites:
        masked = sites[name].mask(REPORTS[name], server.list_shares_for(name))
        if name not in lost:
            server.add_masked(name, masked)
    if until == "confirm":
        return server
    for name in sorted(server.survivors):
        server.add_signature(name, sites[name].confirm(sorted(server.survivors), PERMIT))
    return server


def test_a_site_reveals_shares_once() -> None:
    """The server asks for the seed's shares of a site and then says that the site was lost."""
    sites = make_sites(NAMES)
    server = advance(sites, "unmask")
    revealed = sites["s00"].unmask(server.list_signatures(), PERMIT)
    assert set(revealed["seeds"]) == set(NAMES)
    assert not revealed["keys"]
    with pytest.raises(UserError, match="must be nothing more, got confirm"):
        sites["s00"].confirm(NAMES[:4], PERMIT)
    with pytest.raises(UserError, match="must be nothing more, got unmask"):
        sites["s00"].unmask(server.list_signatures(), PERMIT)


def test_a_site_never_reveals_both_kinds_of_one_sites_shares() -> None:
    sites = make_sites(NAMES)
    server = advance(sites, "unmask", lost=("s02",))
    revealed = sites["s00"].unmask(server.list_signatures(), PERMIT)
    assert set(revealed["keys"]) == {"s02"}
    assert set(revealed["seeds"]) == set(NAMES) - {"s02"}


def test_a_server_that_names_two_sets_of_survivors_gets_no_shares() -> None:
    """Some sites hear that s04 is in the sum and others that it was lost, so that both of its secrets come out."""
    sites = make_sites(NAMES)
    advance(sites, "confirm")
    with_it, without = {}, {}
    for name in ("s00", "s01"):
        with_it[name] = sites[name].confirm(NAMES, PERMIT)
    for name in ("s02", "s03"):
        without[name] = sites[name].confirm(NAMES[:4], PERMIT)
    for name, signatures in (("s00", with_it), ("s02", without)):
        with pytest.raises(UserError, match="at least 3 sites must take part, but only 2 confirmed the sum"):
            sites[name].unmask(signatures, PERMIT)
    with pytest.raises(UserError, match="only 2 confirmed the sum"):
        sites["s01"].unmask(with_it | {"s02": without["s02"]}, PERMIT)


@pytest.mark.parametrize("survivors", ["s00", "s00 s01", "s01 s02 s03", "s00 s01 s02 s09", ""])
def test_a_site_refuses_small_or_foreign_sets(survivors: str) -> None:
    sites = make_sites(NAMES)
    advance(sites, "confirm")
    with pytest.raises(UserError, match=r"at least 3 sites|over this site and others"):
        sites["s00"].confirm(survivors.split(), PERMIT)
    with pytest.raises(UserError, match="must be nothing more"):
        sites["s00"].confirm(NAMES, PERMIT)  # one answer, whatever it was


def test_too_few_sites_at_any_step_are_refused() -> None:
    sites = make_sites(NAMES, least=4)
    server = ServerSession(4, 4)
    for name in NAMES[:3]:
        server.add_advert(name, sites[name].advertise())
    with pytest.raises(UserError, match="at least 4 sites must take part, but only 3 have keys"):
        sites["s00"].share(server.list_keys())
    sites = make_sites(NAMES)
    server = advance(sites, "mask")
    sealed = server.list_shares_for("s00")
    with pytest.raises(UserError, match="only 2 dealt their shares"):
        sites["s00"].mask(REPORTS["s00"], {"s01": sealed["s01"]})


def forge_by_server(advert: dict[str, Any]) -> dict[str, Any]:
    return advert | {"mask_key": "11" * 32}


def forge_signature(advert: dict[str, Any]) -> dict[str, Any]:
    return advert | {"signature": "00" * 64}


def forge_with(identity: Callable[[], SiteIdentity]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A whole advert, signed with another certificate."""

    def forge(advert: dict[str, Any]) -> dict[str, Any]:
        return SiteSession(identity(), advert["context"], NAMES, 2).advertise() | {"site": advert["site"]}

    return forge


FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another mask key": (forge_by_server, "must be signed by"),
    "another seed": (lambda advert: advert | {"seed_hash": "22" * 32}, "must be signed by"),
    "another cipher key": (lambda advert: advert | {"cipher_key": "33" * 32}, "must be signed by"),
    "no signature": (forge_signature, "must be signed by"),
    "another site's certificate": (forge_with(lambda: shared_identity("s03")), "certificate is of 's03'"),
    "another root": (forge_with(lambda: make_identity("s02", Root("others"))), "not signed by this federation"),
    "the same name of another root": (forge_with(lambda: make_identity("s02", Root())), "not signed by this"),
    "the server's certificate": (forge_with(lambda: make_identity("s02", role="server")), "with the role 'server'"),
    "an admin's certificate": (forge_with(lambda: make_identity("s02", role="lead")), "with the role 'lead'"),
    "an expired certificate": (forge_with(lambda: make_identity("s02", days=-1)), "not valid now"),
    "another name": (lambda advert: advert | {"site": "s03"}, "signed for s02"),
    "no fields": (lambda advert: {}, "the keys of s02"),
    "junk": (lambda advert: "junk", "signed for s02"),
    "a short key": (lambda advert: advert | {"mask_key": "11"}, "32 bytes"),
    "no digits": (lambda advert: advert | {"mask_key": "xy" * 32}, "hexadecimal"),
    "junk as a certificate": (lambda advert: advert | {"certificate": "junk"}, "must be signed by"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_keys_are_refused(kind: str) -> None:
    forge, message = FORGED[kind]
    sites = make_sites(NAMES)
    keys = advance(sites, "share").list_keys()
    with pytest.raises(UserError, match=message):
        sites["s00"].share(keys | {"s02": forge(keys["s02"])})


def test_a_site_outside_the_run_is_refused() -> None:
    sites = make_sites(NAMES[:4])
    keys = advance(sites, "share").list_keys()
    stranger = SiteSession(shared_identity("s04"), keys["s00"]["context"], NAMES, 2).advertise()
    with pytest.raises(UserError, match="'s04' is not a site of this run"):
        sites["s00"].share(keys | {"s04": stranger})


def test_keys_without_the_sites_own_are_refused() -> None:
    sites = make_sites(NAMES)
    keys = advance(sites, "share").list_keys()
    older = SiteSession(shared_identity("s00"), keys["s00"]["context"], NAMES, 2).advertise()
    with pytest.raises(UserError, match="this site's own"):
        sites["s00"].share(keys | {"s00": older})


def test_another_round_or_model_of_another_site_is_refused() -> None:
    """The context is a hash of the round and the broadcast: old keys, or a model for one site alone, do not fit."""
    sites = make_sites(NAMES)
    keys = advance(sites, "share").list_keys()
    old = make_sites(NAMES, context="cd" * 32)["s02"].advertise()
    with pytest.raises(UserError, match="s02 trains another round or another model"):
        sites["s00"].share(keys | {"s02": old})
    server = ServerSession(2, 4)
    for name, advert in (("s02", old), ("s00", keys["s00"]), ("s01", keys["s01"])):
        server.add_advert(name, advert)
    assert server.exclude_minority() == ["s02"]
    assert sorted(server.roster) == ["s00", "s01"]


def flip(text: str) -> str:
    return f"{int(text[:2], 16) ^ 1:02x}" + text[2:]


@pytest.mark.parametrize("place", [0, 30, -2])
def test_a_changed_ciphertext_is_refused(place: int) -> None:
    sites = make_sites(NAMES)
    sealed = advance(sites, "mask").list_shares_for("s00")
    place %= len(sealed["s01"])
    sealed["s01"] = sealed["s01"][:place] + flip(sealed["s01"][place:])
    with pytest.raises(UserError, match="the message of s01 cannot be read: the encrypted shares were changed"):
        sites["s00"].mask(REPORTS["s00"], sealed)


def test_shares_of_another_session_sender_or_recipient_are_refused() -> None:
    sites, old = make_sites(NAMES), make_sites(NAMES)
    fresh = advance(sites, "mask")
    sealed = fresh.list_shares_for("s00")
    for other in (
        advance(old, "mask").list_shares_for("s00")["s01"],  # a replay of the same round's first attempt
        sealed["s02"],
        fresh.list_shares_for("s03")["s01"],
    ):
        copies = make_sites(NAMES)
        server = advance(copies, "mask")
        with pytest.raises(UserError, match="of another round"):
            copies["s00"].mask(REPORTS["s00"], server.list_shares_for("s00") | {"s01": other})


def test_a_restarted_site_is_lost_for_the_round() -> None:
    """A new process has no secrets: it refuses every later step, and the others go on without it."""
    sites = make_sites(NAMES)
    server = advance(sites, "mask")
    restarted = make_sites(NAMES)["s01"]
    with pytest.raises(UserError, match="must be advertise, got mask"):
        restarted.mask(REPORTS["s01"], server.list_shares_for("s01"))
    total, _ = run_round(make_sites(NAMES), REPORTS, lost={"mask": ["s01"]})
    assert np.array_equal(total, add_up(REPORTS, set(NAMES) - {"s01"}))


@pytest.mark.parametrize("step", ["advertise", "share", "mask", "unmask"])
def test_steps_run_in_order_and_once(step: str) -> None:
    sites = make_sites(NAMES)
    server = advance(sites, "confirm")
    calls: dict[str, Callable[[SiteSession], Any]] = {
        "advertise": lambda site: site.advertise(),
        "share": lambda site: site.share(server.list_keys()),
        "mask": lambda site: site.mask(REPORTS["s00"], server.list_shares_for("s00")),
        "unmask": lambda site: site.unmask({}, PERMIT),
    }
    with pytest.raises(UserError, match=f"must be confirm, got {step}"):
        calls[step](sites["s00"])
    with pytest.raises(UserError, match="must be nothing more, got confirm"):
        sites["s00"].confirm(NAMES, PERMIT)


@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_false_shares_do_not_change_the_sum_unnoticed(kind: str) -> None:
    def lie(step: str, site: str, answer: Any) -> Any:
        if step == "unmask" and site in ("s00", "s01"):
            answer[kind] = dict.fromkeys(answer[kind], "00" + "17" * 32)
        return answer

    with pytest.raises(UserError, match=r"shares of the (seeds?|keys?) of s0\d are false"):
        run_round(make_sites(NAMES), REPORTS, lost={"mask": ["s03"]}, change=lie)


@pytest.mark.parametrize("kind", ["seeds", "keys"])
@pytest.mark.parametrize("liar", ["s00", "s04"])
def test_one_liar_among_more_sites_than_needed_does_not_end_the_round(kind: str, liar: str) -> None:
    """Four sites reveal shares and three are needed: other choices of three are tried."""

    def lie(step: str, site: str, answer: Any) -> Any:
        if step == "unmask" and site == liar:
            answer[kind] = dict.fromkeys(answer[kind], "00" + "17" * 32)
        return answer

    total, _ = run_round(make_sites(NAMES), REPORTS, lost={"mask": ["s03"]}, change=lie)
    assert np.array_equal(total, add_up(REPORTS, set(NAMES) - {"s03"}))


@pytest.mark.parametrize("field", ["cipher_key", "mask_key"])
def test_a_key_of_small_order_is_refused_by_name(field: str) -> None:
    """A hostile site signs a key with which nobody can agree on a secret."""
    sites, hostile = make_sites(NAMES), shared_identity("s02")
    keys = advance(sites, "share").list_keys()
    fields = keys["s02"] | {field: "00" * 32}
    bad = fields | {"signature": hostile.sign(Advert(**fields).signed).hex()}
    with pytest.raises(UnusableMessages, match="large order") as refusal:
        sites["s00"].share(keys | {"s02": bad})
    assert list(refusal.value.reasons) == ["s02"]


def test_all_sites_with_unreadable_shares_are_named() -> None:
    sites = make_sites(NAMES)
    sealed = advance(sites, "mask").list_shares_for("s00") | {"s01": "00" * 99, "s03": "no digits"}
    with pytest.raises(UnusableMessages) as refusal:
        sites["s00"].mask(REPORTS["s00"], sealed)
    assert list(refusal.value.reasons) == ["s01", "s03"]


JUNK: dict[str, tuple[str, Any, str]] = {
    "no shares": ("share", {}, "a share to each"),
    "long shares": ("share", dict.fromkeys(NAMES[1:], "x" * 10**6), "short texts"),
    "shares that are no table": ("share", 5, "a share to each"),
    "float reports": ("mask", np.zeros(4), "must be uint64"),
    "longer reports": ("mask", np.zeros(5, np.uint64), "must be uint64"),
    "text as a report": ("mask", "junk", "must be uint64"),
    "no signature": ("confirm", None, "hexadecimal"),
    "no revealed shares": ("unmask", {}, "must reveal one share"),
    "short revealed shares": ("unmask", {"seeds": dict.fromkeys(NAMES, "00"), "keys": {}}, "33 bytes"),
}


@pytest.mark.parametrize("kind", JUNK)
def test_the_server_rejects_junk(kind: str) -> None:
    at, junk, message = JUNK[kind]
    with pytest.raises(UserError, match=message):
        run_round(make_sites(NAMES), REPORTS, change=lambda step, site, a: junk if (step, site) == (at, "s00") else a)
