"""Plans are read whole, or refused in a sentence that names the key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedcm.errors import UserError
from fedcm.federation.plan import plan_text, read_plan
from fedcm.federation.provision.invitation import Invitation, read_invitation


def test_a_plan_names_every_party_with_its_role(plan_file: Callable[..., Path]) -> None:
    plan = read_plan(plan_file(viewers=["guest@example.org"]))
    assert [(party.kind, party.name, party.role, party.place.as_posix()) for party in plan.parties] == [
        ("server", "localhost", "server", "server"),
        ("site", "berlin", "client", "sites/berlin"),
        ("site", "paris", "client", "sites/paris"),
        ("admin", "lead@example.org", "lead", "admins/lead@example.org"),
        ("admin", "guest@example.org", "member", "admins/guest@example.org"),
    ]


def test_what_is_left_out_follows_from_the_rest(plan_file: Callable[..., Path]) -> None:
    plan = read_plan(plan_file(name="two-sites", organisation=None))
    assert plan.org == "two_sites"
    assert plan.server.port_for_admins == plan.server.port + 1


def test_a_plan_and_its_invitation_read_back_as_themselves(plan_file: Callable[..., Path], tmp_path: Path) -> None:
    plan = read_plan(plan_file(viewers=["guest@example.org"]))
    (tmp_path / "again.toml").write_text(plan_text(plan))
    assert read_plan(tmp_path / "again.toml") == plan
    invitation = Invitation(plan, "SHA256:" + ":".join(["0A"] * 32))
    (tmp_path / "invitation.toml").write_text(invitation.text())
    assert read_invitation(tmp_path / "invitation.toml") == invitation


SERVER = {"host": "fl.example.org", "port": 8002}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sits": ["rome"]}, "no setting 'sits'; did you mean 'sites'?"),
        ({"sites": None, "sits": ["rome"]}, "no setting 'sits'; did you mean 'sites'?"),
        ({"server": SERVER | {"prot": 1}}, "no setting 'server.prot'; did you mean 'port'?"),
        ({"sites": []}, "sites must have at least 1"),
        ({"sites": None}, "sites must be given"),
        ({"admins": []}, "admins must have at least 1"),
        ({"server": None}, "server must be given"),
        ({"server": "fl.example.org"}, "server must be a table, got 'fl.example.org'"),
        ({"name": "two hospitals"}, "name: a name is letters, digits, - and _"),
        ({"name": "../up"}, "name: a name is letters"),
        ({"name": "x" * 65}, "at most 64 characters"),
        ({"organisation": "a-b"}, "an organisation is letters, digits and _"),
        ({"sites": ["berlin", "../../etc"]}, "sites.1: a name is letters"),
        ({"sites": ["-rf"]}, "sites.0: a name is letters"),
        ({"sites": ["berlin", "Berlin"]}, "sites must differ in more than capitals"),
        ({"sites": ["server"]}, "a site must have a name of its own"),
        ({"sites": ["fl"], "server": {"host": "fl", "port": 1}}, "a site must have a name of its own"),
        ({"sites": ["fl"], "server": SERVER | {"also": ["FL"]}}, "a site must have a name of its own"),
        ({"admins": ["lead"]}, "admins.0: an admin goes by an e-mail address"),
        ({"admins": ["a/b@example.org"]}, "admins.0: an admin goes by an e-mail address"),
        ({"viewers": ["Lead@example.org"]}, "admins and viewers must differ"),
        ({"server": SERVER | {"host": "::1"}}, "server.host: a host is a name or an IPv4 address"),
        ({"server": SERVER | {"host": "fl example"}}, "server.host: a host is"),
        ({"server": SERVER | {"also": ["a_b"]}}, "server.also.0: a host is"),
        ({"server": SERVER | {"port": 0}}, "server.port must be greater than or equal to 1, got 0"),
        ({"server": SERVER | {"port": 65536}}, "server.port must be less than or equal to 65535"),
        ({"server": SERVER | {"port": "8002"}}, "server.port must be a valid integer, got '8002'"),
        ({"server": SERVER | {"admin_port": 70000}}, "server.admin_port must be less than or equal to 65535"),
        ({"server": SERVER | {"port": 65535}}, "server.admin_port must be given"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan_file: Callable[..., Path], changes: dict[str, Any], said: str) -> None:
    path = plan_file(**changes)
    with pytest.raises(UserError) as refusal:
        read_plan(path)
    assert said in str(refusal.value)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("text", ["name = ", "\x00", "name = 1\nname = 2"])
def test_a_plan_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "PLAN.toml").write_text(text)
    with pytest.raises(UserError, match="is not valid TOML"):
        read_plan(tmp_path / "PLAN.toml")


def test_a_plan_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no plan"):
        read_plan(tmp_path / "PLAN.toml")
    with pytest.raises(UserError, match="is a folder"):
        read_plan(tmp_path)


def test_a_name_that_the_plan_does_not_have_is_answered_with_the_nearest(plan_file: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="has no site 'berln'; did you mean 'berlin'"):
        read_plan(plan_file()).party("site", "berln")


@pytest.mark.parametrize("root", [None, "", "SHA256:0A", "MD5:" + ":".join(["0A"] * 32), 7])
def test_an_invitation_without_a_whole_fingerprint_is_refused(plan_file: Callable[..., Path], root: Any) -> None:
    with pytest.raises(UserError, match="root_fingerprint must be SHA256"):
        read_invitation(plan_file(root_fingerprint=root))
