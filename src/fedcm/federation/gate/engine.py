"""The engine's main process at the server, with the gatekeeper in place of the engine's own rules."""

import sys
import time
from pathlib import Path
from typing import Any

from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.fuel.common.exit_codes import ProcessExitCode
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet.core_cell import make_reply
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, MessageType, ReturnCode
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.defs import CellChannelTopic, CellMessageHeaderKeys, JobFailureMsgKey
from nvflare.private.fed.app.deployer import server_deployer
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.server import fed_server

from fedcm.federation.gate.connections import GuardedConnManager
from fedcm.federation.gate.crashes import CrashCounter
from fedcm.federation.gate.decoding import limit_decoding
from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.gate.registration import GuardedClientManager
from fedcm.federation.gate.sizes import SizeLimit
from fedcm.federation.gate.traffic import find_objection
from fedcm.federation.gate.transport import harden_transport
from fedcm.federation.kit import read_kit
from fedcm.federation.trust.audit import AuditLog

_CRASHES = (  # codes with which the engine ends a job for all sites
    ProcessExitCode.CONFIG_ERROR,
    ProcessExitCode.EXCEPTION,
    ProcessExitCode.INFRASTRUCTURE_ERROR,
    JobReturnCode.ABORTED,
)


class GuardedServer(fed_server.FederatedServer):
    """The engine's server, which ends the logins and connections of removed members."""

    gatekeeper: Gatekeeper  # set before the engine starts

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start without crashes; called by the engine."""
        super().__init__(*args, **options)
        self.crashes = CrashCounter()

    def deploy(self, *args: Any, **options: Any) -> None:
        """Start to listen and to watch the list of members; called by the engine."""
        super().deploy(*args, **options)
        self.gatekeeper.watch(self.remove_members)
        self.remove_members()

    def _validate_auth_headers(self, message: Any) -> Any:
        """Check whether a message may pass and its login; called by the engine for every message, also relayed ones.

        The engine drops a refused message without an answer. A site would then never know that its login has ended,
        because the server has a new key, so a refused heartbeat is answered.
        """
        endpoint = message.get_prop(MessagePropKey.ENDPOINT)
        message.remove_header(MessageHeaderKey.CONN_URL)  # an address that the receiver would connect to
        refusal = self._refuse_traffic(message, endpoint)
        if refusal is not None:
            return refusal
        refusal = super()._validate_auth_headers(message)
        is_heartbeat = message.get_header(MessageHeaderKey.TOPIC) == CellChannelTopic.HEART_BEAT
        if refusal is not None and is_heartbeat and endpoint is not None:
            self._answer(message, refusal, endpoint)
        return refusal

    def _refuse_traffic(self, message: Any, endpoint: Any) -> Any:
        """Return the answer to a message that the holder of the connection may not send; None if it may."""
        holder = message.get_prop(MessagePropKey.COMMON_NAME)
        if holder is None or endpoint is None:
            return None  # from one of the server's own processes
        if not (reason := find_objection(message, endpoint.name, holder)):
            return None
        self.gatekeeper.raise_alarm(f"a message of {holder} was refused: {reason}", about=f"messages of {holder}")
        return make_reply(ReturnCode.UNAUTHENTICATED, reason)

    def process_job_failure(self, request: Any) -> Any:
        """Take note that a site's part of a job has crashed; called by the engine.

        The engine then ends the job for all sites, and the run resumes in a new job. For a site that crashes again and
        again, the job continues without it.
        """
        payload = request.payload if isinstance(request.payload, dict) else {}
        job, code = str(payload.get(JobFailureMsgKey.JOB_ID)), payload.get(JobFailureMsgKey.CODE)
        client = self.client_manager.clients.get(request.get_header(CellMessageHeaderKeys.TOKEN))
        if client is None or code not in _CRASHES or job not in self.engine.run_processes:
            return super().process_job_failure(request)
        self.gatekeeper.audit.append("crashed", name=client.name, job=job)
        if not self.crashes.add(client.name):
            return super().process_job_failure(request)
        self.gatekeeper.raise_alarm(f"{client.name} crashes again and again; jobs continue without it")
        self._notify_dead_job(client, job, "it crashes again and again")
        job_runner: Any = self.engine.job_runner
        job_runner.resolve_client_outcome(job, client.name)
        return make_reply(ReturnCode.OK, "", None)

    def _answer(self, message: Any, reply: Any, endpoint: Any) -> None:
        assert self.cell is not None
        names = (MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC, MessageHeaderKey.REQ_ID)
        reply.add_headers(
            {name: message.get_header(name) for name in names}
            | {
                MessageHeaderKey.FROM_CELL: self.cell.get_fqcn(),
                MessageHeaderKey.TO_CELL: endpoint.name,
                MessageHeaderKey.ORIGIN: self.cell.get_fqcn(),
                MessageHeaderKey.DESTINATION: message.get_header(MessageHeaderKey.ORIGIN),
                MessageHeaderKey.MSG_TYPE: MessageType.REPLY,
                MessageHeaderKey.ROUTE: [(self.cell.get_fqcn(), time.time())],
            }
        )
        self.cell.core_cell._send_reply(reply, endpoint)

    def remove_members(self) -> None:
        """Close what is connected and not a member any more."""
        assert self.cell is not None
        manager: Any = self.cell.core_cell.communicator.conn_manager
        removed = manager.close_removed()
        for token, client in list(self.client_manager.get_clients().items()):
            if client.name in removed:
                self.logout_client(token)


def main() -> Any:
    """Run the engine's own main function with the guarded classes."""
    server_train.version_check()
    arguments = server_train.parse_arguments()
    kit = read_kit(Path(arguments.workspace))
    audit = AuditLog(kit.path)
    gatekeeper = Gatekeeper(kit, audit)
    for guarded in (GuardedConnManager, GuardedClientManager, GuardedServer):
        guarded.gatekeeper = gatekeeper
    limit_decoding()
    SizeLimit(lambda sender, reason: gatekeeper.raise_alarm(f"{sender}: {reason}")).install()
    harden_transport()
    communicator.ConnManager = GuardedConnManager
    fed_server.ClientManager = GuardedClientManager
    server_deployer.FederatedServer = GuardedServer
    audit.append("started", server=kit.name, federation=kit.federation, list=gatekeeper.members.number)
    return MainProcessMonitor.run(server_train.main, arguments.workspace, args=arguments)


if __name__ == "__main__":
    sys.exit(main())
