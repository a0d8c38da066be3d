"""What a hostile holder of one site's kit sends: messages in another name or for another party, and texts for logs."""

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessagePropKey, MessageType
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import CounterPool, HistPool
from nvflare.fuel.f3.streaming.byte_streamer import TxTask
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.utils.identity_utils import IdentityAsserter
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_server import run_all

from fedcm.errors import UserError
from fedcm.federation.gate import connections
from fedcm.federation.gate.bounded_engine import bound_engine
from fedcm.federation.gate.engine import GuardedServer
from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.gate.registration import GuardedClientManager
from fedcm.federation.gate.traffic import find_objection
from fedcm.federation.kit import read_kit
from fedcm.federation.server.site_descriptions import describe_sites
from fedcm.federation.site.engine import drop_commands
from fedcm.federation.terms import Terms, reject_unfit_site
from fedcm.federation.trust.audit import AuditLog

JOB = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
HOSTILE, VICTIM = "paris", "berlin"
TOKENS = {HOSTILE: "a token of paris", VICTIM: "a token of berlin", "server": "server"}
ADMIN = "_admin_1b4e28ba-2fa1-41d2-883f-0016d3cca427"


@pytest.fixture
def alarms() -> list[str]:
    return []


@pytest.fixture
def abouts() -> list[str]:
    return []


@pytest.fixture
def server(federation: Path, alarms: list[str], abouts: list[str], monkeypatch: pytest.MonkeyPatch) -> GuardedServer:
    """The server's filter of messages, with the server's own key and the logins of both sites."""
    made: Any = object.__new__(GuardedServer)
    startup = federation / "server" / "startup"
    asserter = IdentityAsserter(str(startup / "server.key"), str(startup / "server.crt"))
    monkeypatch.setattr(GuardedServer, "_get_id_asserter", lambda _: asserter)
    made.gatekeeper = SimpleNamespace(raise_alarm=lambda what, *, about: alarms.append(what) or abouts.append(about))
    made.logger = logging.getLogger("server")
    made.cell = SimpleNamespace(get_fqcn=lambda: "server")
    made.client_manager = ClientManager()
    for name in (HOSTILE, VICTIM):
        client = Client(name, TOKENS[name])
        client.set_fqcn(name)
        made.client_manager.clients[TOKENS[name]] = client
    return made


def make_message(
    server: Any,
    channel: str,
    topic: str,
    destination: str,
    *,
    origin: str = HOSTILE,
    login: str = HOSTILE,
    token: str = "",
    **more: Any,
) -> Message:
    """Return a message that comes over the connection of the hostile site."""
    token = token or TOKENS[login]
    made = Message(
        {
            MessageHeaderKey.CHANNEL: channel,
            MessageHeaderKey.TOPIC: topic,
            MessageHeaderKey.ORIGIN: origin,
            MessageHeaderKey.DESTINATION: destination,
            MessageHeaderKey.MSG_TYPE: MessageType.REQ,
            CellMessageHeaderKeys.CLIENT_NAME: login,
            CellMessageHeaderKeys.TOKEN: token,
            CellMessageHeaderKeys.TOKEN_SIGNATURE: server.sign_auth_token(login, token),
            **more,
        },
        None,
    )
    made.set_prop(MessagePropKey.ENDPOINT, Endpoint(HOSTILE))
    made.set_prop(MessagePropKey.COMMON_NAME, HOSTILE)
    return made


def stream(channel: str, topic: str) -> dict[str, Any]:
    return {StreamHeaderKey.CHANNEL: channel, StreamHeaderKey.TOPIC: topic}


ALLOWED = {
    "a heartbeat": (CellChannel.SERVER_MAIN, "heart_beat", "server", {}),
    "a crash": (CellChannel.SERVER_MAIN, "report_job_failure", "server", {}),
    "a request for a task": (STREAM_CHANNEL, STREAM_DATA_TOPIC, f"server.{JOB}", stream("server_command", "get_task")),
    "a result": (STREAM_CHANNEL, STREAM_DATA_TOPIC, f"server.{JOB}", stream("server_command", "submit_update")),
    "a part of a result": (STREAM_CHANNEL, STREAM_DATA_TOPIC, f"server.{JOB}", stream("return_only", "x")),
    "an acknowledgement": (STREAM_CHANNEL, "sm__ACK", f"server.{JOB}", {}),
    "the end of a stream that failed": (
        STREAM_CHANNEL,
        STREAM_DATA_TOPIC,
        f"server.{JOB}",
        {StreamHeaderKey.ERROR_MSG: "the link is broken"},
    ),
    "a logout": (CellChannel.SERVER_MAIN, "quit", "server", {}),
    "a login": (CellChannel.SERVER_MAIN, "register", "server", {CellMessageHeaderKeys.CLIENT_TYPE: "regular"}),
    "a sign of life of a job": (CellChannel.AUX_COMMUNICATION, "__job_heartbeat__", f"server.{JOB}", {}),
}
FORBIDDEN = {
    "a shell command for another site": (CellChannel.CLIENT_MAIN, "sys.shell", VICTIM, {}),
    "a shutdown of another site": (CellChannel.CLIENT_MAIN, "train.shutdown", VICTIM, {}),
    "an aborted job of another site": (CellChannel.CLIENT_COMMAND, "abort", f"{VICTIM}.{JOB}", {}),
    "a question for another sites login": ("_net_manager", "start_route", VICTIM, {}),
    "an end of an admins session": (CellChannel.HCI, "SESSION_EXPIRED", ADMIN, {}),
    "a question for the servers peers": ("_net_manager", "peers", "server", {}),
    "a speed test of the server": ("_net_manager", "speed", "server", {}),
    "many messages in one": (CellChannel.CELLNET, "bulk", "server", {}),
    "a list of all logins": (CellChannel.SERVER_PARENT_LISTENER, "get_clients", "server", {}),
    "an end of a job": (CellChannel.SERVER_PARENT_LISTENER, "update_run_status", "server", {}),
    "an admins stop of a run": (CellChannel.SERVER_COMMAND, "app_command", f"server.{JOB}", {}),
    "an abort of a run": (CellChannel.SERVER_COMMAND, "abort", f"server.{JOB}", {}),
    "an abort of a run in a stream": (
        STREAM_CHANNEL,
        STREAM_DATA_TOPIC,
        f"server.{JOB}",
        stream("server_command", "abort"),
    ),
    "a dead job of another site": (CellChannel.SERVER_COMMAND, "handle_dead_job", f"server.{JOB}", {}),
    "a stream without a kind": (STREAM_CHANNEL, STREAM_DATA_TOPIC, f"server.{JOB}", {StreamHeaderKey.ERROR_MSG: ""}),
    "a channel that is a list": (["task"], "heart_beat", "server", {}),
    "a topic that is a dict": (CellChannel.SERVER_MAIN, {"heart_beat": 1}, "server", {}),
    "another kind of message": (CellChannel.SERVER_MAIN, "heart_beat", "server", {MessageHeaderKey.MSG_TYPE: "x"}),
    "a failure of another sites stream": (
        STREAM_CHANNEL,
        "sm__ACK",
        "server",
        {StreamHeaderKey.FAILED_DESTINATION: f"{VICTIM}.{JOB}"},
    ),
    "a command of an admin": (STREAM_CHANNEL, STREAM_DATA_TOPIC, "server", stream(CellChannel.HCI, "command")),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_site_may_send_what_a_run_needs(what: str, server: Any, alarms: list[str]) -> None:
    channel, topic, destination, more = ALLOWED[what]
    origin = HOSTILE if destination == "server" else f"{HOSTILE}.{JOB}"
    assert (
        server._validate_auth_headers(make_message(server, channel, topic, destination, origin=origin, **more)) is None
    )
    assert alarms == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_site_may_not_send_anything_else_and_an_alarm_names_it(
    what: str, server: Any, alarms: list[str], abouts: list[str]
) -> None:
    channel, topic, destination, more = FORBIDDEN[what]
    assert server._validate_auth_headers(make_message(server, channel, topic, destination, **more)) is not None
    assert HOSTILE in alarms[0]
    assert abouts == [f"messages of {HOSTILE}"], "one alarm per minute, whatever the texts are"


@pytest.mark.parametrize("original", [None, "x", {}, {MessageHeaderKey.DESTINATION: VICTIM}])
def test_a_returned_message_does_not_answer_for_another_site(original: Any, server: Any) -> None:
    """The engine believes the destination in the original headers, and one request id goes to all sites."""
    returned: dict[str, Any] = {
        MessageHeaderKey.MSG_TYPE: MessageType.RETURN,
        MessageHeaderKey.ORIGINAL_HEADERS: original,
    }
    message = make_message(server, CellChannel.CLIENT_MAIN, "train.deploy", "server", **returned)
    assert server._validate_auth_headers(message) is not None
    own: dict[str, Any] = returned | {
        MessageHeaderKey.ORIGINAL_HEADERS: {MessageHeaderKey.DESTINATION: f"{HOSTILE}.{JOB}"}
    }
    message = make_message(server, CellChannel.CLIENT_MAIN, "train.deploy", "server", **own)
    assert server._validate_auth_headers(message) is None, "a site's engine that cannot reach its own job"


def test_a_name_with_another_line_in_it_is_refused(server: Any, alarms: list[str]) -> None:
    message = make_message(
        server, CellChannel.SERVER_MAIN, "heart_beat", "server", origin=f"{HOSTILE}.x\nALARM: {VICTIM}"
    )
    assert server._validate_auth_headers(message) is not None
    assert "\n" not in alarms[0]


def test_a_message_without_a_certificate_is_only_from_the_servers_own_processes(server: Any) -> None:
    message = make_message(server, CellChannel.SERVER_MAIN, "heart_beat", "server")
    message.set_prop(MessagePropKey.COMMON_NAME, None)
    assert server._validate_auth_headers(message) is not None


def admin_message(server: Any, channel: str, topic: str, destination: str) -> Message:
    message = make_message(server, channel, topic, destination, origin=ADMIN)
    message.set_prop(MessagePropKey.ENDPOINT, Endpoint(ADMIN))
    return message


def test_an_admin_may_send_commands_to_the_server_and_nothing_to_sites_and_jobs(server: Any) -> None:
    reason = find_objection(admin_message(server, CellChannel.HCI, "command", "server"), ADMIN, HOSTILE)
    assert reason == ""
    for destination in (VICTIM, f"{VICTIM}.{JOB}", f"server.{JOB}"):
        assert find_objection(admin_message(server, CellChannel.HCI, "command", destination), ADMIN, HOSTILE)
    assert find_objection(admin_message(server, CellChannel.CLIENT_MAIN, "sys.shell", "server"), ADMIN, HOSTILE)


def test_only_the_receiver_of_a_stream_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[str]()
    monkeypatch.setattr(TxTask, "handle_ack", lambda self, message: ended.append(self.target))
    for pool in (HistPool, CounterPool):
        name = "record_value" if pool is HistPool else "increment"
        monkeypatch.setattr(pool, name, getattr(pool, name))
    monkeypatch.setattr(logging, "_logRecordFactory", logging.getLogRecordFactory())
    bound_engine()
    for origin in (HOSTILE, VICTIM):
        message = Message({MessageHeaderKey.ORIGIN: origin, StreamHeaderKey.ERROR_MSG: "no"}, None)
        TxTask.handle_ack(cast("Any", SimpleNamespace(target=VICTIM)), message)
    assert ended == [VICTIM]
    pool: Any = CounterPool("received", "", [], True)
    pool.increment("a topic " * 1000, "count")
    assert not pool.cat_counters, "invented topics are not kept"
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, "a %s", (FORGED,), None)
    assert not CONTROL.search(record.getMessage())
    assert len(record.getMessage()) < 11_000


class Crashes:
    """The part of the engine that counts the outcome of a job's sites."""

    def __init__(self, participants: set[str]) -> None:
        self.run_processes = {JOB: object()}
        self.job_runner = self
        self.participants = participants

    def is_client_outcome_pending(self, job: str, name: str) -> bool:
        return job == JOB and name in self.participants


@pytest.mark.parametrize(("participants", "code"), [({HOSTILE}, 101), ({HOSTILE}, 102), ({VICTIM}, 102)])
def test_a_site_cannot_end_a_run_for_all_with_any_code_of_a_crash(
    participants: set[str], code: int, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on, audit = list[int](), list[str]()
    monkeypatch.setattr(FederatedServer, "process_job_failure", lambda _, r: passed_on.append(r.payload["code"]))
    server.engine, server.crashes = Crashes(participants), SimpleNamespace(add=lambda name: False)
    server.gatekeeper.audit = SimpleNamespace(append=lambda event, **_: audit.append(event))
    request = make_message(server, CellChannel.SERVER_MAIN, "report_job_failure", "server")
    request.payload = {"job_id": JOB, "code": code}
    server.process_job_failure(request)
    if HOSTILE in participants:
        assert (passed_on, audit) == ([101], ["crashed"]), "a crash, after which the run resumes"
    else:
        assert (passed_on, audit) == ([102], []), "the engine ignores a site that does not take part"


def test_a_reply_for_another_site_is_refused(server: Any) -> None:
    message = make_message(server, CellChannel.CLIENT_MAIN, "admin", VICTIM)
    message.set_header(MessageHeaderKey.MSG_TYPE, MessageType.REPLY)
    assert server._validate_auth_headers(message) is not None


def test_a_login_counts_only_with_messages_of_its_own_name(server: Any) -> None:
    for origin in (VICTIM, f"{VICTIM}.{JOB}", "server", f"{HOSTILE}x"):
        message = make_message(server, CellChannel.SERVER_MAIN, "quit", "server", origin=origin)
        assert server._validate_auth_headers(message) is not None, origin


def test_an_old_login_of_a_site_cannot_be_used_for_another_name(server: Any) -> None:
    message = make_message(server, CellChannel.SERVER_MAIN, "quit", "server", origin=VICTIM, token="of yesterday")
    assert server._validate_auth_headers(message) is not None


def test_the_servers_own_login_which_every_site_sees_cannot_be_used(server: Any) -> None:
    message = make_message(server, CellChannel.SERVER_MAIN, "heart_beat", "server", origin="rome", login="server")
    assert server._validate_auth_headers(message) is not None


def test_a_stolen_login_cannot_be_used_over_another_connection(server: Any) -> None:
    message = make_message(server, CellChannel.SERVER_MAIN, "quit", "server", origin=VICTIM, login=VICTIM)
    assert server._validate_auth_headers(message) is not None


def test_the_signature_of_a_login_cannot_be_divided_at_another_place(server: Any) -> None:
    """It is made of the name and the token without a separator, so a site `paris` could be a site `par`."""
    message = make_message(server, CellChannel.SERVER_MAIN, "heart_beat", "server", origin="par")
    message.set_header(CellMessageHeaderKeys.CLIENT_NAME, HOSTILE[:3])
    message.set_header(CellMessageHeaderKeys.TOKEN, HOSTILE[3:] + TOKENS[HOSTILE])
    assert server._validate_auth_headers(message) is not None


def test_no_message_makes_a_process_connect_to_an_address_of_the_sender(server: Any) -> None:
    address = {MessageHeaderKey.CONN_URL: "tcp://127.0.0.1:1"}
    message = make_message(server, CellChannel.SERVER_MAIN, "heart_beat", "server", **address)
    server._validate_auth_headers(message)
    assert message.get_header(MessageHeaderKey.CONN_URL) is None


def log_in(name: str, connection: str, holder: str) -> tuple[Any, list[str], FLContext]:
    manager, alarms, context = GuardedClientManager(), list[str](), FLContext()
    audit = SimpleNamespace(append=lambda *_, **__: None)
    gatekeeper: Any = SimpleNamespace(raise_alarm=lambda what, *, about: alarms.append(what), audit=audit)
    manager.gatekeeper = gatekeeper
    request = Message({CellMessageHeaderKeys.CLIENT_NAME: name}, None)
    request.set_prop(MessagePropKey.ENDPOINT, Endpoint(connection))
    request.set_prop(MessagePropKey.COMMON_NAME, holder)
    return manager.authenticated_client(request, context, "client"), alarms, context


@pytest.mark.parametrize(
    ("name", "connection", "holder"),
    [
        (VICTIM, HOSTILE, HOSTILE),
        (VICTIM, VICTIM, HOSTILE),
        (HOSTILE, f"{HOSTILE}.{JOB}", HOSTILE),
        ("lead@example.org", HOSTILE, HOSTILE),
        ("server", HOSTILE, HOSTILE),
    ],
)
def test_a_login_over_the_connection_of_another_certificate_is_refused(
    name: str, connection: str, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientManager, "authenticated_client", lambda *_: "accepted")
    client, alarms, _ = log_in(name, connection, holder)
    assert client is None
    assert [f"a login as {name} over the connection {connection} of {holder} was refused"] == alarms


@pytest.mark.parametrize("name", [VICTIM, f"{VICTIM}.{JOB}", "server", f"server.{JOB}", f"{HOSTILE}x", ADMIN, ""])
def test_a_connection_cannot_have_the_name_of_another_party(name: str) -> None:
    certificate: Any = SimpleNamespace(name=HOSTILE, role="client")
    assert connections._find_wrong_name(certificate, name)


@pytest.mark.parametrize("kind", ["relay", "admin", "x\nALARM"])
def test_a_site_cannot_log_in_as_another_kind_of_party(kind: str, server: Any, alarms: list[str]) -> None:
    kinds = {CellMessageHeaderKeys.CLIENT_TYPE: kind}
    message = make_message(server, CellChannel.SERVER_MAIN, "register", "server", **kinds)
    assert server._validate_auth_headers(message) is not None
    assert "\n" not in alarms[0]


def test_alarms_about_one_party_with_ever_new_texts_are_one_alarm(federation: Path) -> None:
    kit = read_kit(federation / "server")
    audit = AuditLog(kit.path)
    gatekeeper = Gatekeeper(kit, audit)
    for number in range(20):
        gatekeeper.raise_alarm(f"a message of paris was refused: {number}", about="messages of paris")
    gatekeeper.raise_alarm("a message of berlin was refused: 0", about="messages of berlin")
    assert audit.file.read_text().count(" was refused: ") == 2


def test_a_sites_engine_has_no_commands_for_files_machines_and_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_topics() -> set[str]:
        return {topic for one in ClientRequestProcessors.request_processors for topic in one.get_topics()}

    monkeypatch.setattr(ClientRequestProcessors, "request_processors", list(ClientRequestProcessors.request_processors))
    forbidden = {"sys.shell", "sys.info", "sys.report_env", "train.shutdown", "train.restart", "train.delete_run"}
    assert forbidden <= list_topics()
    drop_commands()
    assert not forbidden & list_topics()
    assert {"train.deploy", "train.start_job", "train.abort"} <= list_topics(), "what a run needs"


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")
FORGED = "\n2026-01-01 00:00:00 round 0: ALARM: look at a: \x1b[2J\x1b]0;title\x07\r\u202e" + "x" * 10**6


def test_a_login_in_a_false_name_writes_one_short_line() -> None:
    _, alarms, _ = log_in(FORGED, HOSTILE, HOSTILE)
    assert [alarm for alarm in alarms if CONTROL.search(alarm) or len(alarm) > 1000] == []


def test_the_error_of_a_site_is_one_short_line_without_control_characters(tmp_path: Path) -> None:
    chosen = make_experiment(rounds=1)
    lines = list[str]()

    def spoil(site: str, fields: Any, arrays: Any) -> Any:
        return ({"refused": FORGED}, {}) if site == "b" else (fields, arrays)

    run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), spoil), chosen, lines)
    assert [line for line in lines if " b does not count" in line]
    assert [line[:120] for line in lines if CONTROL.search(line) or len(line) > 1000] == []


DESCRIPTION = {"examples": 100, "shape": [1, 8, 8], "kind": "float32", "classes": 10}


def describe(fields: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    answer = SimpleNamespace(site="b", fields=DESCRIPTION | fields)
    channel: Any = SimpleNamespace(ask=lambda *_: iter([answer]))
    return describe_sites(channel, ["b"], make_experiment().federation, 1)


@pytest.mark.parametrize("fields", [{"weights": FORGED}, {"shape": [9] * 3000}, {"kind": FORGED}])
def test_the_reason_against_a_description_is_one_short_line(fields: dict[str, Any]) -> None:
    described, reasons = describe(fields)
    if described:
        with pytest.raises(UserError) as refused:
            reject_unfit_site("b", described["b"], Terms(shape=[1, 8, 8], kind="float32", classes=10))
        reasons = {"b": str(refused.value)}
    assert not CONTROL.search(reasons["b"])
    assert len(reasons["b"]) < 1000


def test_a_description_with_a_very_long_shape_is_refused() -> None:
    """The server multiplies the dimensions; that took a minute for 200,000 of them."""
    assert "b" in describe({"shape": [2**31 - 1] * 33})[1]
    leaf = {"shape": [2**31 - 1] * 33, "dtype": "float32", "ragged": False}
    assert "b" in describe({"kind": "structure", "structure": {"features": leaf, "labels": leaf}})[1]
    leaf |= {"shape": [2]}
    assert "b" in describe({"kind": "structure", "structure": {"features": leaf, "labels": leaf}})[0], "a shorter one"


@pytest.mark.parametrize(
    "fields",
    [
        {"examples": True},
        {"examples": -1},
        {"examples": 0},
        {"examples": 1e3},
        {"examples": float("nan")},
        {"examples": "100"},
        {"examples": 2**63},
        {"classes": True},
        {"classes": -1},
        {"shape": [True, 8, 8]},
        {"shape": [-1]},
        {"shape": "8"},
        {"sums": [[1, 2, 2**70]]},
        {"more": 1},
    ],
)
def test_numbers_that_no_site_can_describe_are_refused(fields: dict[str, Any]) -> None:
    described, reasons = describe(fields)
    assert not described
    assert "b" in reasons
