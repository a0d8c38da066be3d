"""Which of the engine's messages a party may send over its connection.

The engine lets every party that has logged in send any message to any process of the federation, and its sites and jobs
execute what comes through the server. The sender's name, its login and its path are fields of a message that the sender
fills in. So each message that comes from outside is compared with the certificate of its connection and with a list.
"""

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
_TO_SERVER = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
_ALLOWED: dict[tuple[str, str], set[tuple[str, str]]] = {  # by sender and destination: channels and topics
    ("site", FQCN.ROOT_SERVER): _TO_SERVER
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
    ("admin", FQCN.ROOT_SERVER): _TO_SERVER
    | {
        (CellChannel.HCI, _ANY),
        (CellChannel.AUX_COMMUNICATION, _ANY),
        (OBJ_DOWNLOADER_CHANNEL, _ANY),
        (CellChannel.RETURN_ONLY, _ANY),
    },
}


def find_objection(message: Any, endpoint: str, holder: str) -> str:
    """Return why the holder of a certificate may not send this message over this connection; empty if it may."""
    headers = message.headers
    origin, destination = str(headers.get(MessageHeaderKey.ORIGIN)), str(headers.get(MessageHeaderKey.DESTINATION))
    is_admins = is_valid_admin_client_name(endpoint)
    if not (origin == endpoint or (not is_admins and FQCN.is_ancestor(holder, origin))):
        return f"it says that it comes from {_quote(origin)}"
    name = headers.get(CellMessageHeaderKeys.CLIENT_NAME)
    if name is not None and name != holder:
        return f"it has the login of {_quote(name)}"
    kind = headers.get(CellMessageHeaderKeys.CLIENT_TYPE)
    if kind is not None and kind != (ClientType.ADMIN if is_admins else ClientType.REGULAR):
        return f"it logs in as {_quote(kind)}"
    path = FQCN.split(destination)
    if path[0] != FQCN.ROOT_SERVER or len(path) > 2:
        return f"it is for {_quote(destination)}"
    if headers.get(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return ""  # an answer; the receiver drops those that it does not wait for
    channel, topic = headers.get(MessageHeaderKey.CHANNEL), headers.get(MessageHeaderKey.TOPIC)
    if channel == STREAM_CHANNEL:
        if topic != STREAM_DATA_TOPIC:
            return ""  # acknowledges a part of a stream, or ends it
        channel, topic = headers.get(StreamHeaderKey.CHANNEL), headers.get(StreamHeaderKey.TOPIC)
    key = "admin" if is_admins else "site", _JOB if len(path) == 2 else FQCN.ROOT_SERVER
    allowed = _ALLOWED.get(key, set())
    is_allowed = (channel, topic) in allowed or (channel, _ANY) in allowed
    return "" if is_allowed else f"{_quote(channel)}/{_quote(topic)} is not for it"


def _quote(text: Any) -> str:
    return clean_text(text, 60)
