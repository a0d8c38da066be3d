"""Which of the engine's messages a party may send over its connection.

The engine lets every party that has logged in send any message to any process of the federation, and its sites and jobs
execute what comes through the server. The sender fills in its own name, login and route. So each message that comes
from outside is compared with the certificate of its connection and with a list.
"""

from collections.abc import Callable
from typing import Any

from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessageType
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.defs import CellMessageHeaderKeys, ClientType

from fedcm.federation.trust.foreign_text import clean_text

_ANY = "*"
_JOB = "a job"
_FROM_EVERYBODY = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
_ALLOWED: dict[tuple[str, str], set[tuple[str, str]]] = {  # by sender and destination: channels and topics
    ("site", FQCN.ROOT_SERVER): _FROM_EVERYBODY
    | {
        (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
        (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
        (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE),
    },
    ("site", _JOB): {
        (CellChannel.SERVER_COMMAND, "get_task"),
        (CellChannel.SERVER_COMMAND, "submit_update"),
        (CellChannel.AUX_COMMUNICATION, "__sync_runner__"),
        (CellChannel.AUX_COMMUNICATION, "__job_heartbeat__"),
        (CellChannel.AUX_COMMUNICATION, "__task_check__"),
        (OBJ_DOWNLOADER_CHANNEL, _ANY),
        (CellChannel.RETURN_ONLY, _ANY),
    },
    ("admin", FQCN.ROOT_SERVER): _FROM_EVERYBODY
    | {
        (CellChannel.HCI, _ANY),
        (CellChannel.AUX_COMMUNICATION, _ANY),
        (OBJ_DOWNLOADER_CHANNEL, _ANY),
        (CellChannel.RETURN_ONLY, _ANY),
    },
}


def find_objection(message: Any, endpoint: str, holder: str) -> str:
    """Return why the holder of a certificate may not send this message over this connection; empty if it may.

    Args:
        message: The message.
        endpoint: The name of the connection.
        holder: The name in the certificate of the connection.
    """
    is_admin = is_valid_admin_client_name(endpoint)

    def is_own(name: Any) -> bool:
        if not isinstance(name, str) or FQCN.validate(name):
            return False
        return name == endpoint or (not is_admin and FQCN.is_ancestor(holder, name))

    return _find_wrong_name(message.headers, holder, is_own, is_admin) or _find_wrong_kind(message.headers, is_admin)


def _find_wrong_name(headers: dict[str, Any], holder: str, is_own: Callable[[Any], bool], is_admin: bool) -> str:
    """Return which name of a message is not the sender's own; empty if all are."""
    if not is_own(origin := headers.get(MessageHeaderKey.ORIGIN)):
        return f"it says that it comes from {_quote(origin)}"
    login = headers.get(CellMessageHeaderKeys.CLIENT_NAME)
    if login is not None and login != holder:
        return f"it has the login of {_quote(login)}"
    kind = headers.get(CellMessageHeaderKeys.CLIENT_TYPE)
    if kind is not None and kind != (ClientType.ADMIN if is_admin else ClientType.REGULAR):
        return f"it logs in as {_quote(kind)}"
    failed = headers.get(StreamHeaderKey.FAILED_DESTINATION)
    if headers.get(MessageHeaderKey.MSG_TYPE) == MessageType.RETURN:  # it counts as an answer of the receiver
        original = headers.get(MessageHeaderKey.ORIGINAL_HEADERS)
        failed = original.get(MessageHeaderKey.DESTINATION, "") if isinstance(original, dict) else ""
    if failed is not None and not is_own(failed):
        return f"it returns a message to {_quote(failed)}"
    return ""


def _find_wrong_kind(headers: dict[str, Any], is_admin: bool) -> str:
    """Return why a party may not send a message of this kind to this receiver; empty if it may."""
    destination = str(headers.get(MessageHeaderKey.DESTINATION))
    path = FQCN.split(destination)
    if path[0] != FQCN.ROOT_SERVER or len(path) > 2:
        return f"it is for {_quote(destination)}"
    kind = headers.get(MessageHeaderKey.MSG_TYPE)
    if kind in (MessageType.REPLY, MessageType.RETURN):
        return ""  # the engine drops answers that it does not wait for
    channel, topic = str(headers.get(MessageHeaderKey.CHANNEL)), str(headers.get(MessageHeaderKey.TOPIC))
    if kind == MessageType.REQ and channel == STREAM_CHANNEL:
        if topic != STREAM_DATA_TOPIC or headers.get(StreamHeaderKey.ERROR_MSG):
            return ""  # acknowledges or ends a stream of the sender's own
        channel, topic = str(headers.get(StreamHeaderKey.CHANNEL)), str(headers.get(StreamHeaderKey.TOPIC))
    key = "admin" if is_admin else "site", _JOB if len(path) == 2 else FQCN.ROOT_SERVER
    allowed = _ALLOWED.get(key, set())
    is_allowed = kind == MessageType.REQ and not {(channel, topic), (channel, _ANY)}.isdisjoint(allowed)
    return "" if is_allowed else f"it may not send {_quote(kind)} {_quote(channel)}/{_quote(topic)}"


def _quote(text: Any) -> str:
    return clean_text(text, 60)
