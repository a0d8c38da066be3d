"""Plans are read completely, or rejected with a sentence that names the key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedcm.errors import UserError
from fedcm.federation.plan import plan_to_toml, read_plan
from fedcm.federation.provision.invitation import Invitation, read_invitation


def test_a_plan_names_every_party_with_its_role(plan_file: Callable[..., Path]) -> None:
    plan = read_plan(plan_file(viewers=["guest@example.org"]))
    assert [(party.kind, party.name, party.role, party.kit_folder.as_posix()) for party in plan.parties] == [
        ("server", "localhost", "server", "server"),
        ("site", "berlin", "client", "sites/berlin"),
        ("site", "paris", "client", "sites/paris"),
        ("admin", "lead@example.org", "lead", "admins/lead@example.org"),
        ("admin", "guest@example.org", "member", "admins/guest@example.org"),
    ]


def test_defaults_follow_from_the_other_settings(plan_file: Callable[..., Path]) -> None:
    plan = read_plan(plan_file(name="two-sites", organisation=None))
    assert plan.certificate_organisation == "two_sites"
    assert plan.server.port_for_admins == plan.server.port + 1


def test_a_plan_and_its_invitation_survive_a_round_trip(plan_file: Callable[..., Path], tmp_path: Path) -> None:
    plan = read_plan(plan_file(viewers=["guest@example.org"]))
    (tmp_path / "again.toml").write_text(plan_to_toml(plan))
    assert read_plan(tmp_path / "again.toml") == plan
    invitation = Invitation(plan, "SHA256:" + ":".join(["0A"] * 32))
    (tmp_path / "invitation.toml").write_text(invitation.to_toml())
    assert read_invitation(tmp_path / "invitation.toml") == invitation


SERVER = {"host": "fl.example.org", "port": 8002}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sits": ["rome"]}, "no setting 'sits'; did you mean 'sites'?"),
        ({"sites": None, "sits": ["rome"]}, "no setting 'sits'; did you mean 'sites'?"),
        ({"server": SERVER | {"prot": 1}}, "no setting 'server.prot'; did you mean 'port'?"),
        ({"sites": []}, "sites must have at least 1"),
        ({"sites": None}, "sites must be given"),
        ({"admins": []}, "admins must have at least 1"),
        ({"server": None}, "server must be given"),
        ({"server": "fl.example.org"}, "server must be a table, got 'fl.example.org'"),
        ({"name": "two hospitals"}, "name: must consist of letters, digits, - and _"),
        ({"name": "../up"}, "name: must consist of letters"),
        ({"name": "x" * 65}, "at most 64 characters"),
        ({"organisation": "a-b"}, "organisation: must consist of letters, digits and _"),
        ({"sites": ["berlin", "../../etc"]}, "sites.1: must consist of letters"),
        ({"sites": ["-rf"]}, "sites.0: must consist of letters"),
        ({"sites": ["berlin", "Berlin"]}, "sites must differ in more than upper and lower case"),
        ({"sites": ["server"]}, "a site's name must differ from the server's"),
        ({"sites": ["fl"], "server": {"host": "fl", "port": 1}}, "a site's name must differ from the server's"),
        ({"sites": ["fl"], "server": SERVER | {"also": ["FL"]}}, "a site's name must differ from the server's"),
        ({"admins": ["lead"]}, "admins.0: must be an e-mail address"),
        ({"admins": ["a/b@example.org"]}, "admins.0: must be an e-mail address"),
        ({"viewers": ["Lead@example.org"]}, "admins and viewers must differ"),
        ({"server": SERVER | {"host": "::1"}}, "server.host: must be a host name or an IPv4 address"),
        ({"server": SERVER | {"host": "fl example"}}, "server.host: must be a host"),
        ({"server": SERVER | {"also": ["a_b"]}}, "server.also.0: must be a host"),
        ({"server": SERVER | {"port": 0}}, "server.port must be greater than or equal to 1, got 0"),
        ({"server": SERVER | {"port": 65536}}, "server.port must be less than or equal to 65535"),
        ({"server": SERVER | {"port": "8002"}}, "server.port must be a valid integer, got '8002'"),
        ({"server": SERVER | {"admin_port": 70000}}, "server.admin_port must be less than or equal to 65535"),
        ({"server": SERVER | {"port": 65535}}, "server.admin_port must be given"),
    ],
)
def test_a_bad_plan_raises_one_sentence(plan_file: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    path = plan_file(**changes)
    with pytest.raises(UserError) as error:
        read_plan(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["name = ", "\x00", "name = 1\nname = 2"])
def test_a_plan_that_is_not_toml_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "PLAN.toml").write_text(text)
    with pytest.raises(UserError, match="is not valid TOML"):
        read_plan(tmp_path / "PLAN.toml")


def test_a_missing_plan_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no plan"):
        read_plan(tmp_path / "PLAN.toml")
    with pytest.raises(UserError, match="must be a file, and it is a folder"):
        read_plan(tmp_path)


def test_an_unknown_name_raises_with_a_suggestion(plan_file: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="has no site 'berln'; did you mean 'berlin'"):
        read_plan(plan_file()).get_party("site", "berln")


@pytest.mark.parametrize("root", [None, "", "SHA256:0A", "MD5:" + ":".join(["0A"] * 32), 7])
def test_an_invitation_without_a_complete_fingerprint_raises(plan_file: Callable[..., Path], root: Any) -> None:
    with pytest.raises(UserError, match="root_fingerprint must be SHA256"):
        read_invitation(plan_file(root_fingerprint=root))
