"""The list of members: who may connect, signed with the root key, and how it changes."""

import json
import threading
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from made_kits import Root, free_port, make_kit, write_key

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.plan import FederationPlan
from fedcm.federation.provision.authority import Authority
from fedcm.federation.provision.folder import remove_party, renew_kits
from fedcm.federation.trust.audit import AuditLog
from fedcm.federation.trust.members import MEMBERS_FILE, make_member_list, read_members, sign_members


@pytest.fixture
def organiser(federation: Path, tmp_path: Path) -> Path:
    """A copy of the organiser's folder with all kits."""
    return Path(copytree(federation, tmp_path / "hospitals"))


def read_served(organiser: Path) -> Any:
    kit = read_kit(organiser / "server")
    return read_members(kit.path / MEMBERS_FILE, kit.root)


def find_objection(organiser: Path, kit: str) -> str:
    return read_served(organiser).find_objection(read_certificate(read_kit(organiser / kit).certificate))


def test_the_servers_kit_names_all_members(organiser: Path) -> None:
    assert [member.name for member in read_served(organiser).members] == ["berlin", "paris", "lead@example.org"]
    for kit in ("sites/berlin", "sites/paris", "admins/lead@example.org"):
        assert find_objection(organiser, kit) == ""


def test_a_removed_site_is_not_a_member_any_more(organiser: Path) -> None:
    assert len(remove_party(Authority.open(organiser), "berlin")) == 1
    assert find_objection(organiser, "sites/berlin") == "its certificate was removed"
    assert find_objection(organiser, "sites/paris") == ""
    assert Authority.open(organiser).plan.sites == ["paris"]
    assert "berlin" not in (organiser / "invitation.toml").read_text()


def test_a_removed_site_that_keeps_its_place_comes_back_with_a_new_certificate(organiser: Path) -> None:
    remove_party(Authority.open(organiser), "berlin", keep_place=True)
    assert find_objection(organiser, "sites/berlin") == "its certificate was removed"
    renew_kits(organiser, only=["berlin"])
    assert find_objection(organiser, "sites/berlin") == ""


def test_a_site_that_was_taken_out_of_the_plan_is_not_a_member_after_the_kits_are_renewed(organiser: Path) -> None:
    plan = organiser / "authority" / "plan.toml"
    plan.write_text(plan.read_text().replace('    "berlin",\n', ""))
    renew_kits(organiser, only=["localhost"])
    assert find_objection(organiser, "sites/berlin") == "it is not a member"


def test_the_last_site_cannot_be_removed(organiser: Path) -> None:
    remove_party(Authority.open(organiser), "berlin")
    with pytest.raises(UserError, match="at least one of its sites, and 'paris' is the last one"):
        remove_party(Authority.open(organiser), "paris")


def test_a_name_without_a_certificate_cannot_be_removed(organiser: Path) -> None:
    with pytest.raises(UserError, match=r"no certificate was signed for 'berln'.*berlin"):
        remove_party(Authority.open(organiser), "berln")


def test_a_remote_server_gets_the_list_with_its_certificate(plan: FederationPlan, home: Path, tmp_path: Path) -> None:
    from fedcm.federation.provision.folder import create_federation
    from fedcm.federation.provision.membership import join, request_first_certificate
    from fedcm.federation.provision.request import read_request

    create_federation(plan, tmp_path / "made", only_authority=True)
    authority = Authority.open(tmp_path / "made")
    request = request_first_certificate(tmp_path / "kit", plan.parties[0], authority.invitation)
    authority.sign(read_request(request), tmp_path / "server.signed.zip", 10)
    kit = join(tmp_path / "server.signed.zip", tmp_path / "kit")
    assert read_members(kit.path / MEMBERS_FILE, kit.root).number == 1


# the server's gatekeeper


class Gate:
    """A server's kit and its gatekeeper, with certificates that are made here."""

    def __init__(self, folder: Path, plan: FederationPlan) -> None:
        self.root, self.plan, self.folder = Root(), plan, folder
        self.kit: Kit = make_kit(folder / "server", "server", self.root, free_port())
        write_key(folder / "root.key", self.root.key)
        self.list = make_member_list(plan, [], None)
        self.write()
        self.keeper = Gatekeeper(self.kit, AuditLog(self.kit.path))

    def write(self, **changes: Any) -> None:
        self.list = self.list.model_copy(update=changes)
        text = sign_members(self.list, self.folder / "root.key")
        new = self.kit.path / "new"
        new.write_text(text)
        new.replace(self.kit.path / MEMBERS_FILE)

    def events(self) -> list[dict[str, Any]]:
        lines = self.keeper.audit.file.read_text().splitlines() if self.keeper.audit.file.exists() else []
        return [json.loads(json.loads(line)["record"]) for line in lines]


@pytest.fixture
def gate(tmp_path: Path, plan: FederationPlan) -> Gate:
    return Gate(tmp_path, plan)


def test_the_gatekeeper_takes_over_a_new_list(gate: Gate) -> None:
    assert gate.keeper.refresh() is None
    gate.write(number=2, members=gate.list.members[1:])
    taken = gate.keeper.refresh()
    assert taken is not None
    assert [member.name for member in gate.keeper.members.members] == ["paris", "lead@example.org"]
    assert [event["event"] for event in gate.events()] == ["certificate", "members"]
    assert gate.keeper.refresh() is None


@pytest.mark.parametrize("spoil", ["older", "another federation", "changed", "another key", "damaged", "gone"])
def test_the_gatekeeper_keeps_its_list_when_the_new_one_is_wrong(gate: Gate, spoil: str) -> None:
    gate.write(number=5)
    assert gate.keeper.refresh() is not None
    kept, file = gate.keeper.members, gate.kit.path / MEMBERS_FILE
    match spoil:
        case "older":
            gate.write(number=4, members=[])
        case "another federation":
            gate.write(number=6, members=[], federation="others")
        case "changed":
            file.write_text(file.read_text().replace("berlin", "potsdam"))
        case "another key":
            write_key(gate.folder / "root.key")
            gate.write(number=6, members=[])
        case "damaged":
            file.write_text(file.read_text()[:100])
        case _:
            file.unlink()
    assert gate.keeper.refresh() is None
    assert gate.keeper.members == kept
    assert gate.events()[-1]["event"] == "alarm"
    assert "the list of members was not taken over" in gate.events()[-1]["what"]


def test_open_connections_are_closed_even_if_a_new_connection_read_the_list_first(gate: Gate) -> None:
    certificate = read_certificate(gate.kit.certificate)
    gate.write(number=2, members=gate.list.members[1:])
    gate.keeper.find_objection(certificate)
    assert gate.keeper.members.number == 2
    closed = threading.Event()
    gate.keeper.watch(closed.set, interval=0.01)
    assert closed.wait(10)


def test_a_list_is_enforced_once_and_again_only_if_that_failed(gate: Gate) -> None:
    calls = list[int]()

    def fail() -> None:
        raise OSError("the connection is gone")

    gate.keeper.enforce(lambda: calls.append(1))
    assert calls == []
    gate.write(number=2)
    with pytest.raises(OSError, match="gone"):
        gate.keeper.enforce(fail)
    for _ in range(2):
        gate.keeper.enforce(lambda: calls.append(gate.keeper.members.number))
    assert calls == [2]


def test_an_alarm_is_not_repeated_within_a_minute(gate: Gate) -> None:
    for _ in range(3):
        gate.keeper.raise_alarm("a copy of berlin")
    gate.keeper.raise_alarm("a copy of paris")
    assert [event["what"] for event in gate.events() if event["event"] == "alarm"] == [
        "a copy of berlin",
        "a copy of paris",
    ]
