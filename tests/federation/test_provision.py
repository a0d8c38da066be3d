"""Real certificates from the engine's tool: who holds which key, what a kit allows, and how it is renewed."""

import hashlib
import importlib
import io
import json
import shlex
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.lighter.utils import verify_cert_chain
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer
from scenes import Answer

from fedcm.errors import UserError
from fedcm.federation.certificate import read_certificate
from fedcm.federation.check.checks import check_kit
from fedcm.federation.engine import CLASSES, CONTROLLER, EXECUTOR, reject_outdated_kit
from fedcm.federation.kit import read_kit
from fedcm.federation.plan import FederationPlan, plan_to_toml
from fedcm.federation.plugins import ConfigurationOnly
from fedcm.federation.provision.authority import Authority
from fedcm.federation.provision.certificate_tool import run_tool
from fedcm.federation.provision.folder import create_federation, renew_kits
from fedcm.federation.provision.invitation import read_invitation
from fedcm.federation.provision.membership import join, request_certificate, request_renewal
from fedcm.federation.provision.policy import ROLES
from fedcm.federation.provision.request import find_planned_party, read_request
from fedcm.federation.serve.supervisor import serve
from fedcm.federation.settings import load_site_settings

KITS = ("server", "sites/berlin", "sites/paris", "admins/lead@example.org")
LOCAL = {"resources.json", "authorization.json", "authorization.json.default", "log_config.json"}


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def keys_in(folder: Path) -> set[str]:
    return {name for name in files_in(folder) if b"PRIVATE KEY" in (folder / name).read_bytes()}


# kits that the organiser made


def test_every_party_gets_a_kit_with_its_name_and_the_server(federation: Path) -> None:
    kits = [read_kit(federation / place) for place in KITS]
    assert [(kit.kind, kit.name, kit.port) for kit in kits] == [
        ("server", "localhost", 18002),
        ("site", "berlin", 18002),
        ("site", "paris", 18002),
        ("admin", "lead@example.org", 18003),
    ]
    assert {(kit.federation, kit.host, kit.organisation) for kit in kits} == {("hospitals", "localhost", "charite")}
    assert kits[0].admin_port == 18003


def test_the_files_of_a_kit(federation: Path) -> None:
    common = {"README.md", "invitation.toml", "comm_config.json", "local.sha256", "startup/rootCA.pem"}
    local = {f"local/{name}" for name in LOCAL}
    server = {f"startup/{name}" for name in ("fed_server.json", "server.crt", "server.key")}
    site = {f"startup/{name}" for name in ("fed_client.json", "client.crt", "client.key")}
    admin = {f"startup/{name}" for name in ("fed_admin.json", "client.crt", "client.key")}
    assert files_in(federation / "server") == common | local | server | {"server.toml", "members.json"}
    assert files_in(federation / "sites/berlin") == common | local | site | {"site.toml"}
    assert files_in(federation / "admins/lead@example.org") == common | admin | {"local/resources.json"}


def test_only_the_invitation_is_readable_by_others(federation: Path) -> None:
    for path in (federation, *federation.rglob("*")):
        if path != federation / "invitation.toml":
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(federation / "invitation.toml") == 0o644


def test_a_private_key_is_only_in_its_own_kit(federation: Path) -> None:
    owners = {"server/startup/server.key"} | {f"{place}/startup/client.key" for place in KITS[1:]}
    assert keys_in(federation) == owners | {"authority/rootCA.key"}
    assert len({(federation / name).read_bytes() for name in keys_in(federation)}) == 5


def test_nothing_is_written_to_the_users_home(federation: Path, home: Path) -> None:
    assert federation.is_dir()
    assert list(home.iterdir()) == []


def test_certificates_name_their_party_and_chain_to_the_root(federation: Path) -> None:
    root = x509.load_pem_x509_certificate((federation / "authority/rootCA.pem").read_bytes())
    roles = []
    for place in KITS:
        kit = read_kit(federation / place)
        verify_cert_chain(x509.load_pem_x509_certificate(kit.certificate.read_bytes()), [], root)
        certificate = read_certificate(kit.certificate)
        assert (certificate.name, certificate.organisation) == (kit.name, "charite")
        assert 358 <= certificate.days_left <= 360
        roles.append(certificate.role)
    assert roles == ["server", "client", "client", "lead"]


def test_the_servers_certificate_has_all_its_names(federation: Path) -> None:
    certificate = x509.load_pem_x509_certificate((federation / "server/startup/server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "fl.example.org"}
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_federations_folder_is_never_overwritten(federation: Path, plan: FederationPlan) -> None:
    before = (federation / "authority/rootCA.key").read_bytes()
    with pytest.raises(UserError, match=r"keys are never overwritten.*fedcm federation renew"):
        create_federation(plan, federation)
    assert (federation / "authority/rootCA.key").read_bytes() == before


def test_the_settings_of_a_new_site_can_be_read(federation: Path) -> None:
    settings = load_site_settings(federation / "sites/berlin")
    assert settings.data.source == "data.npz"
    assert settings.limits.code == []


@pytest.mark.parametrize(
    ("place", "commands"),
    [
        ("server", ["fedcm federation check .", "fedcm federation server ."]),
        ("sites/berlin", ["fedcm federation check .", "fedcm federation site ."]),
        ("admins/lead@example.org", ["fedcm federation run EXPERIMENT.toml --kit ."]),
    ],
)
def test_a_readme_has_the_commands_of_its_party_and_the_expiry_date(
    federation: Path, place: str, commands: list[str]
) -> None:
    text = (federation / place / "README.md").read_text()
    given = {line.strip() for line in text.splitlines() if line.startswith("    ")}
    name = read_kit(federation / place).name
    again = {"fedcm federation renew .", f"fedcm federation join {name}.signed.zip ."}
    assert given == {*commands, "pip install 'fedcm[federation]'", *again}
    ends = read_certificate(read_kit(federation / place).certificate).ends
    assert f"ends on **{ends.date()}**" in text


# what a kit allows


@pytest.mark.parametrize(
    ("place", "allowed"),
    [
        ("server", CONTROLLER),
        ("sites/berlin", EXECUTOR),
    ],
)
def test_a_job_may_name_only_our_class(federation: Path, place: str, allowed: str) -> None:
    resources = json.loads((federation / place / "local/resources.json").read_text())
    assert resources["class_allow_list"] == [allowed]
    workspace = Workspace(str(federation / place), "berlin")
    engine = ComponentPathAuthorizer()
    engine.authorize_component_config({"path": allowed}, workspace=workspace)
    for other in ("nvflare.app_common.workflows.fedavg.FedAvg", "os.system", f"{allowed}Other", "fedcm.cli.main.main"):
        with pytest.raises(UnsafeComponentError, match="not in allow_list"):
            engine.authorize_component_config({"path": other}, workspace=workspace)


def rights(policy: dict[str, Any], role: str) -> set[str]:
    """Return what a role may do with its own jobs, in the engine's words."""
    engine = FLAuthorizer("charite", policy)
    person = Person("lead@example.org", "charite", role)
    known = {*COMMAND_CATEGORIES, "submit_job", "clone_job", "byoc", "server-predeployed-flwr", "anything else"}
    return {right for right in known if engine.authorize(AuthzContext(right, person, person))[0]}


VIEW = {"check_status", "show_scopes", "show_stats", "reset_errors", "show_errors", "list_jobs", "get_job_meta"}
MAY = {"lead": VIEW | {"submit_job", "abort_job", "download_job"}, "member": VIEW}


@pytest.mark.parametrize("place", ["server", "sites/berlin"])
@pytest.mark.parametrize("role", [*ROLES, "client", "server", ""])
def test_the_rights_of_each_role(federation: Path, place: str, role: str) -> None:
    policy = json.loads((federation / place / "local/authorization.json").read_text())
    assert rights(policy, role) == MAY.get(role, set())


@pytest.mark.parametrize("role", ROLES)
def test_a_kit_that_lost_its_policy_allows_nothing(federation: Path, role: str) -> None:
    default = json.loads((federation / "sites/berlin/local/authorization.json.default").read_text())
    assert rights(default, role) == set()


def test_an_admin_cannot_stop_or_fetch_another_admins_job(federation: Path) -> None:
    engine = FLAuthorizer("charite", json.loads((federation / "server/local/authorization.json").read_text()))
    other, lead = Person("other@example.org", "charite", "lead"), Person("lead@example.org", "charite", "lead")
    for right in ("abort_job", "download_job"):
        assert not engine.authorize(AuthzContext(right, other, lead))[0]
        assert engine.authorize(AuthzContext(right, lead, lead))[0]


def test_the_engine_stores_everything_in_the_kit(federation: Path) -> None:
    text = (federation / "server/local/resources.json").read_text()
    resources = json.loads(text)
    assert "/tmp" not in text
    assert resources["servers"][0]["max_num_clients"] > 2, "the list of members decides who takes part"
    assert resources["snapshot_persistor"]["args"]["storage"]["args"] == {"folder": "snapshots"}
    parts = {part["id"]: part.get("args") for part in resources["components"]}
    assert parts["job_manager"]["uri_root"] == "jobs/all"
    assert parts["job_store"] == {"folder": "."}
    assert parts["job_scheduler"]["max_jobs"] == 1


@pytest.mark.parametrize("place", ["server", "sites/berlin"])
def test_logs_stay_where_they_are_written(federation: Path, place: str) -> None:
    resources = json.loads((federation / place / "local/resources.json").read_text())
    assert resources.get("allow_log_streaming") is (None if place == "server" else False)
    assert not any("log" in part["id"] for part in resources["components"])


@pytest.mark.parametrize(
    "stowaway",
    [
        "custom/code.py",
        "config/code.py",
        "config/comm_config.json",
        "config/resources.json",
        "config/deep/a.json",
        "a.txt",
    ],
)
def test_a_job_with_more_than_its_configuration_is_rejected(tmp_path: Path, stowaway: str) -> None:
    for name in ("config/config_fed_server.json", "config/config_fed_client.json", ".__nvfl_sig.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert ConfigurationOnly().validate(str(tmp_path)) == ("", {})
    (tmp_path / stowaway).parent.mkdir(exist_ok=True)
    (tmp_path / stowaway).write_text("")
    reason, _ = ConfigurationOnly().validate(str(tmp_path))
    assert "a job may contain only" in reason


def test_a_job_with_a_symbolic_link_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config_fed_client.json").symlink_to("/etc/passwd")
    assert "a job may contain only" in ConfigurationOnly().validate(str(tmp_path))[0]


@pytest.mark.parametrize("place", KITS)
def test_a_job_cannot_change_how_the_engine_communicates(federation: Path, tmp_path: Path, place: str) -> None:
    """A file of this name can name code to run, and the engine takes the first that it finds."""
    kit = shutil.copytree(federation / place, tmp_path / "kit")
    for folder in ("aaa", "local", "zzz"):
        (kit / folder).mkdir(exist_ok=True)
        (kit / folder / "comm_config.json").write_text('{"comm_driver_path": "."}')
    found = ConfigFactory.load_config("comm_config.json", [str(kit)])
    assert found is not None
    assert found.to_dict() == {"allow_adhoc_conns": False}


# parties that make their own keys


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, plan: FederationPlan, home: Path) -> Authority:
    folder = tmp_path_factory.mktemp("organiser") / "hospitals"
    assert create_federation(plan, folder, only_authority=True) == []
    assert files_in(folder) >= {"invitation.toml", "authority/plan.toml"}
    assert keys_in(folder) == {"authority/rootCA.key"}
    return Authority.open(folder)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    """A kit that has requested a certificate; do not change it."""
    kit = tmp_path_factory.mktemp("asking") / "kit"
    invitation = read_invitation(authority.folder.parent / "invitation.toml")
    request_certificate(kit, invitation.plan.get_party("site", "berlin"), invitation)
    return kit


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, authority: Authority, asking: Path) -> tuple[Path, Path]:
    """A copy of that kit, and the answer to its request; do not change them."""
    folder = tmp_path_factory.mktemp("answered")
    shutil.copytree(asking, folder / "kit")
    signed = folder / "berlin.signed.zip"
    authority.sign(read_request(asking / "berlin.request.zip"), signed, days=100)
    return folder / "kit", signed


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory, answered: tuple[Path, Path]) -> Path:
    kit = tmp_path_factory.mktemp("joined") / "kit"
    shutil.copytree(answered[0], kit)
    join(answered[1], kit)
    return kit


def members(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_request_holds_no_key_and_the_key_stays_in_the_kit(asking: Path) -> None:
    assert keys_in(asking) == {"request/berlin.key"}
    assert mode(asking) == mode(asking / "request") == 0o700
    assert mode(asking / "request/berlin.key") == 0o600
    sent = members(asking / "berlin.request.zip")
    assert set(sent) == {"request.json", "site.yaml", "berlin.csr"}
    assert not any(b"PRIVATE KEY" in content for content in sent.values())


def test_a_kit_without_its_certificate_is_not_a_kit_yet(asking: Path) -> None:
    with pytest.raises(UserError, match="is waiting for the organiser's answer"):
        read_kit(asking)


def test_a_kit_has_at_most_one_open_request(asking: Path, authority: Authority) -> None:
    with pytest.raises(UserError, match="has requested a certificate already"):
        request_certificate(asking, authority.plan.get_party("site", "berlin"), authority.invitation)


def test_signing_does_not_overwrite_another_file(asking: Path, authority: Authority, tmp_path: Path) -> None:
    request = read_request(asking / "berlin.request.zip")
    (tmp_path / "notes.zip").write_bytes(b"no archive")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("paris.crt", "")
    for name in ("notes.zip", "other.zip"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(UserError, match="exists already; give another file"):
            authority.sign(request, tmp_path / name, 10)
        assert (tmp_path / name).read_bytes() == before


def test_an_answer_holds_no_key_and_is_valid_for_the_given_days(
    answered: tuple[Path, Path], authority: Authority
) -> None:
    assert not any(b"PRIVATE KEY" in content for content in members(answered[1]).values())
    (issued,) = authority.list_issued()
    assert issued.party.name == "berlin"
    certificate = x509.load_pem_x509_certificate(members(answered[1])["berlin.crt"])
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 100
    assert issued.ends == certificate.not_valid_after_utc


def test_a_kit_with_its_own_key_has_the_same_files_and_modes(joined: Path, federation: Path) -> None:
    assert files_in(joined) == files_in(federation / "sites/berlin")
    assert keys_in(joined) == {"startup/client.key"}
    for path in (joined, *joined.rglob("*")):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    for name in ("startup/fed_client.json", "site.toml", *(f"local/{name}" for name in LOCAL)):
        assert (joined / name).read_bytes() == (federation / "sites/berlin" / name).read_bytes()


def altered(request: Path, to: Path, **changes: Any) -> Path:
    """A request with other claims."""
    content = members(request)
    fields = json.loads(content["request.json"]) | changes
    content["request.json"] = json.dumps(fields).encode()
    if "host_names" in changes:
        content["site.yaml"] = json.dumps({"participants": [{"host_names": changes["host_names"]}]}).encode()
    content[f"{fields['name']}.csr"] = content.pop("berlin.csr")
    with zipfile.ZipFile(to, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    return to


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "london"}, "has no site 'london'"),
        ({"kind": "server", "name": "berlin"}, "has no server 'berlin'"),
        ({"kind": "user", "name": "mallory@example.org"}, "has no admin 'mallory@example.org'"),
        ({"cert_type": "lead"}, "has the role 'lead', but the plan has 'client'"),
        ({"kind": "user", "name": "lead@example.org", "cert_type": "project_admin"}, "the role 'project_admin'"),
        ({"org": "elsewhere"}, "has the organisation 'elsewhere'"),
        ({"project": "other"}, "the request is for 'other'"),
        ({"host_names": ["bank.example.org"]}, "has the other hosts"),
    ],
)
def test_a_request_that_differs_from_the_plan_is_not_signed(
    asking: Path, authority: Authority, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    request = read_request(altered(asking / "berlin.request.zip", tmp_path / "berlin.request.zip", **changes))
    for check in (find_planned_party, None):
        with pytest.raises(UserError) as error:
            check(request, authority.plan) if check else authority.sign(request, tmp_path / "signed.zip", 10)
        assert message in str(error.value)
    assert not (tmp_path / "signed.zip").exists()


def test_the_tool_rejects_a_request_in_another_partys_name(asking: Path, authority: Authority, tmp_path: Path) -> None:
    """The plan has paris, but the signing request inside was made for berlin."""
    request = read_request(altered(asking / "berlin.request.zip", tmp_path / "paris.request.zip", name="paris"))
    with pytest.raises(
        UserError, match=r"the engine's certificate tool \(cert approve\) failed: .*site.yaml field 'name'"
    ):
        authority.sign(request, tmp_path / "signed.zip", 10)
    assert not (tmp_path / "signed.zip").exists()
    assert not list(authority.folder.glob("*.zip"))


def archive(**content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    return made.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        b"x" * 200_000,
        archive(),
        archive(**{"request.json": b"[]"}),
        archive(**{"request.json": b"{"}),
    ],
)
def test_a_damaged_request_or_answer_raises(tmp_path: Path, joined: Path, content: bytes) -> None:
    (tmp_path / "some.zip").write_bytes(content)
    with pytest.raises(UserError, match="must be a request that"):
        read_request(tmp_path / "some.zip")
    kit = tmp_path / "kit"
    (kit / "request").mkdir(parents=True)
    (kit / "request/request.json").write_text('{"request_id": "1", "name": "berlin", "kind": "site"}')
    shutil.copy(joined / "invitation.toml", kit)
    with pytest.raises(UserError, match="must be an answer that"):
        join(tmp_path / "some.zip", kit)


def test_an_answer_of_another_authority_raises(answered: tuple[Path, Path], tmp_path: Path) -> None:
    kit = shutil.copytree(answered[0], tmp_path / "kit")
    invitation = (kit / "invitation.toml").read_text()
    root = read_invitation(kit / "invitation.toml").root
    (kit / "invitation.toml").write_text(invitation.replace(root, "SHA256:" + ":".join(["0A"] * 32)))
    with pytest.raises(UserError, match=f"must be the invitation's, SHA256:0A:.*, got {root}"):
        join(answered[1], kit)
    assert not (kit / "startup").exists()
    assert (kit / "request/berlin.key").exists()


def test_an_answer_to_another_request_raises(answered: tuple[Path, Path], tmp_path: Path) -> None:
    kit = shutil.copytree(answered[0], tmp_path / "kit")
    fields = json.loads((kit / "request/request.json").read_text())
    (kit / "request/request.json").write_text(json.dumps(fields | {"request_id": "0" * 32}))
    with pytest.raises(UserError, match="must be the answer to this kit's request"):
        join(answered[1], kit)


def test_a_folder_without_a_request_cannot_join(answered: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be a kit that has requested"):
        join(answered[1], tmp_path)


# renewal


def test_a_renewed_kit_has_a_new_certificate_and_everything_else_stays(
    joined: Path, authority: Authority, tmp_path: Path
) -> None:
    kit = shutil.copytree(joined, tmp_path / "kit")
    kept = {"site.toml": "[data]\nsource = 'mine.npz'\n", "state/round.bin": "1", "runs/demo/metrics.jsonl": "{}"}
    for name, text in kept.items():
        (kit / name).parent.mkdir(parents=True, exist_ok=True)
        (kit / name).write_text(text)
    old, old_key = read_certificate(read_kit(kit).certificate), read_kit(kit).key.read_bytes()

    request, _ = request_renewal(kit)
    assert read_certificate(read_kit(kit).certificate) == old, "the old certificate stays until the kit joins"
    authority.sign(read_request(request), tmp_path / "berlin.signed.zip", days=200)
    join(tmp_path / "berlin.signed.zip", kit)

    new = read_certificate(read_kit(kit).certificate)
    assert new.serial != old.serial
    assert new.ends > old.ends
    assert read_kit(kit).key.read_bytes() != old_key
    assert {name: (kit / name).read_text() for name in kept} == kept
    (aside,) = (kit / "old").iterdir()
    assert read_certificate(aside / "client.crt") == old
    assert (aside / "client.key").read_bytes() == old_key
    assert mode(aside) == 0o700
    assert mode(aside / "client.key") == 0o600
    assert [one.serial for one in authority.list_issued()] == [new.serial]
    assert str(new.ends.date()) in (kit / "README.md").read_text()


def renew(kit: Path, authority: Authority, notify: Callable[[str], None]) -> None:
    request, _ = request_renewal(kit)
    signed = kit.parent / "berlin.signed.zip"
    authority.sign(read_request(request), signed, days=200)
    join(signed, kit, notify)


@pytest.mark.slow
def test_a_renewal_keeps_the_operators_changes_in_local(joined: Path, authority: Authority, tmp_path: Path) -> None:
    kit = shutil.copytree(joined, tmp_path / "kit")
    changed = {
        "privacy.json": '{"scopes": []}',  # a file that provisioning does not write
        "filters/settings.json": "{}",
        "log_config.json": (kit / "local/log_config.json").read_text().replace('"INFO"', '"DEBUG"'),
    }
    (kit / "local/filters").mkdir()
    for name, text in changed.items():
        assert not (kit / "local" / name).exists() or (kit / "local" / name).read_text() != text
        (kit / "local" / name).write_text(text)
    message = "berlin: kept the files that were changed or added in this kit: local/filters/settings.json, "
    message += "local/log_config.json, local/privacy.json"
    for _ in range(2):  # the second renewal knows them as well as the first
        messages: list[str] = []
        renew(kit, authority, messages.append)
        assert messages == [message]
        assert files_in(kit / "local") == LOCAL | set(changed)
        assert {name: (kit / "local" / name).read_text() for name in changed} == changed
        assert (kit / "local/resources.json").read_bytes() == (joined / "local/resources.json").read_bytes()


def test_a_renewal_writes_unchanged_files_again_without_a_message(
    joined: Path, authority: Authority, tmp_path: Path
) -> None:
    """The files of an older version differ from those of this one, but nobody has changed them."""
    kit = shutil.copytree(joined, tmp_path / "kit")
    older = b'{"format_version": "0.9"}'
    (kit / "local/authorization.json").write_bytes(older)
    lines = (kit / "local.sha256").read_text().splitlines()
    lines = [line for line in lines if not line.endswith("/authorization.json")]
    lines.append(f"{hashlib.sha256(older).hexdigest()}  local/authorization.json")
    (kit / "local.sha256").write_text("\n".join(lines) + "\n")
    renew(kit, authority, pytest.fail)
    assert (kit / "local/authorization.json").read_bytes() == (joined / "local/authorization.json").read_bytes()


@pytest.mark.parametrize("recorded", [True, False])
def test_a_renewal_replaces_files_that_may_be_outdated_and_keeps_a_copy(
    joined: Path, authority: Authority, tmp_path: Path, recorded: bool
) -> None:
    """A changed file with classes of another version cannot work; without checksums nobody knows who changed it."""
    kit = make_outdated(shutil.copytree(joined, tmp_path / "kit"))
    outdated = (kit / "local/resources.json").read_bytes()
    if not recorded:
        (kit / "local.sha256").unlink()
    messages: list[str] = []
    renew(kit, authority, messages.append)
    (old,) = (kit / "old").iterdir()
    assert (old / "local/resources.json").read_bytes() == outdated
    assert (kit / "local/resources.json").read_bytes() == (joined / "local/resources.json").read_bytes()
    assert messages == [
        "berlin: local/resources.json was replaced, because it may be of another version; the old one is "
        f"{old / 'local/resources.json'}"
    ]


def test_the_checksums_of_a_kit_are_those_of_its_files(joined: Path) -> None:
    lines = (joined / "local.sha256").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == {f"local/{name}" for name in LOCAL}
    for line in lines:
        checksum, name = line.split("  ")
        assert hashlib.sha256((joined / name).read_bytes()).hexdigest() == checksum


def test_the_organiser_renews_the_kits_of_the_folder_and_adds_a_site(federation: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(federation, tmp_path / "hospitals")
    authority = Authority.open(folder)
    plan = authority.plan.model_copy(update={"sites": ["berlin", "paris", "rome"]})
    (folder / "authority/plan.toml").write_text(plan_to_toml(plan))
    (folder / "sites/paris/site.toml").write_text("[data]\nsource = 'mine.npz'\n")
    before = {place: read_certificate(read_kit(folder / place).certificate) for place in KITS}

    renewed = renew_kits(folder, 500, only=["paris", "rome"])

    assert {one.party.name for one in renewed} == {"paris", "rome"}
    after = {place: read_certificate(read_kit(folder / place).certificate) for place in KITS}
    assert {place for place in KITS if after[place] != before[place]} == {"sites/paris"}
    assert read_kit(folder / "sites/rome").name == "rome"
    assert (folder / "sites/paris/site.toml").read_text() == "[data]\nsource = 'mine.npz'\n"
    assert "rome" in read_invitation(folder / "invitation.toml").plan.sites
    ends = {one.party.name: one.ends for one in authority.list_issued()}
    assert set(ends) == {"localhost", "berlin", "paris", "rome", "lead@example.org"}
    assert ends["paris"] > ends["berlin"]


def test_renewal_of_an_unknown_party_raises(federation: Path) -> None:
    with pytest.raises(UserError, match="has no 'pari'; did you mean 'paris'"):
        renew_kits(federation, only=["pari"])


def test_an_invitation_of_another_authority_raises(joined: Path, federation: Path) -> None:
    with pytest.raises(UserError, match="must have the root certificate"):
        request_renewal(joined, federation / "invitation.toml")
    assert not (joined / "request").exists()


# kits that another version made

OLD_PATHS = {
    "fedcm.federation.server.controller.FederatedTraining": "fedcm.federation.controller.FederatedTraining",
    "fedcm.federation.site.executor.SiteExecutor": "fedcm.federation.site_executor.SiteExecutor",
    "fedcm.federation.plugins.ConfigurationOnly": "fedcm.federation.job_content.ConfigurationAlone",
    "fedcm.federation.plugins.KitStorage": "fedcm.federation.storage.KitStorage",
}


def make_outdated(kit: Path) -> Path:
    """Rewrite a kit's files to the class paths of the first version."""
    file = kit / "local" / "resources.json"
    text = file.read_text()
    for new, old in OLD_PATHS.items():
        text = text.replace(f'"{new}"', f'"{old}"')
    assert text != file.read_text()
    file.write_text(text)
    return kit


def test_the_engine_can_load_every_class_that_a_kit_names() -> None:
    assert set(OLD_PATHS) == CLASSES
    for path in CLASSES:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("place", "kind"), [("server", "server"), ("sites/berlin", "site")])
def test_an_outdated_kit_is_not_served_and_its_check_fails(
    federation: Path, tmp_path: Path, place: str, kind: str
) -> None:
    kit = make_outdated(shutil.copytree(federation / place, tmp_path / "my kit"))
    name = read_kit(kit).name
    message = (
        f"the kit '{kit}' was made by another version of fedcm; renew it with `fedcm federation renew '{kit}'`, and "
        f"join the organiser's answer with `fedcm federation join {name}.signed.zip '{kit}'`"
    )
    with pytest.raises(UserError) as error:
        serve(kit, kind, pytest.fail)
    assert str(error.value) == message
    (result,) = [result for result in check_kit(kit) if result.about == "kit"]
    assert (result.state, result.message) == ("failed", message)


def test_renew_and_join_update_an_outdated_kit(joined: Path, authority: Authority, tmp_path: Path) -> None:
    kit = make_outdated(shutil.copytree(joined, tmp_path / "kit"))
    request, _ = request_renewal(kit)
    authority.sign(read_request(request), tmp_path / "berlin.signed.zip", days=200)
    reject_outdated_kit(join(tmp_path / "berlin.signed.zip", kit))
    assert (kit / "local/resources.json").read_bytes() == (joined / "local/resources.json").read_bytes()


def test_the_organiser_updates_an_outdated_kit_with_the_command_in_the_message(
    fedcm: Callable[..., Answer], federation: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(federation, tmp_path / "hospitals")
    kit = make_outdated(folder / "sites/paris")
    with pytest.raises(UserError, match="was made by another version") as error:
        reject_outdated_kit(read_kit(kit))
    command = str(error.value).split("`")[1]
    assert command == f"fedcm federation renew {folder} --only paris"
    assert fedcm(*shlex.split(command)[1:]).code == 0
    reject_outdated_kit(read_kit(kit))


# folders that are not kits


@pytest.mark.parametrize("folder", [".", "authority", "sites"])
def test_a_folder_that_is_not_a_kit_raises(federation: Path, folder: str) -> None:
    with pytest.raises(UserError, match="is a whole federation" if folder == "." else "a kit must contain startup/"):
        read_kit(federation / folder)
    with pytest.raises(UserError, match="there is no kit"):
        read_kit(federation / "nowhere")


def test_a_damaged_kit_raises(federation: Path, tmp_path: Path) -> None:
    kit = shutil.copytree(federation / "sites/berlin", tmp_path / "kit")
    (kit / "startup/fed_client.json").write_text('{"servers": []}')
    with pytest.raises(UserError, match=r"fed_client.json' must be unchanged since"):
        read_kit(kit)


def test_an_error_of_the_tool_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the engine's certificate tool \(cert init\) failed: ") as error:
        run_tool("cert", "init", "--profile", tmp_path / "none.yml", "-o", tmp_path / "ca", home=tmp_path)
    assert "\n" not in str(error.value)
    assert "Traceback" not in str(error.value)


# the command line


def test_request_and_approve_need_one_party_and_a_confirmation(
    fedcm: Callable[..., Answer], authority: Authority, asking: Path, tmp_path: Path
) -> None:
    invitation = authority.folder.parent / "invitation.toml"
    answer = fedcm("federation", "request", invitation, "-o", tmp_path / "kit")
    assert (answer.code, answer.out) == (2, "")
    assert "give exactly one of --site NAME, --server and --admin ADDRESS" in answer.err
    answer = fedcm("federation", "request", invitation, "--site", "brlin", "-o", tmp_path / "kit")
    assert answer.code == 2
    assert "did you mean 'berlin'?" in answer.err
    request = asking / "berlin.request.zip"
    answer = fedcm("federation", "approve", request, "--authority", authority.folder, "-o", tmp_path / "signed.zip")
    assert answer.code == 2
    assert read_request(request).fingerprint in answer.err, "the fingerprint is printed before anything is signed"
    assert "nobody can confirm" in answer.err
    assert not (tmp_path / "signed.zip").exists()


def test_renew_explains_who_renews_which_kit(
    fedcm: Callable[..., Answer], authority: Authority, answered: tuple[Path, Path], joined: Path
) -> None:
    answer = fedcm("federation", "renew", joined, "--days", 30)
    assert answer.code == 2
    assert "--days and --only need the organiser's folder" in answer.err
    answer = fedcm("federation", "renew", authority.folder.parent)
    assert answer.code == 0
    assert "each party renews its own" in answer.err
    assert [line.split()[1:] for line in answer.out.splitlines()] == [["site", "berlin"]]
