"""The engine's main process at the server, with the gatekeeper in place of the engine's own rules."""

import sys
from pathlib import Path
from typing import Any

from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.deployer import server_deployer
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.server import fed_server

from fedcm.federation.gate.connections import GuardedConnManager
from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.gate.registration import GuardedClientManager
from fedcm.federation.kit import read_kit
from fedcm.federation.trust.audit import AuditLog


class GuardedServer(fed_server.FederatedServer):
    """The engine's server, which ends the logins and connections of removed members."""

    gatekeeper: Gatekeeper  # set before the engine starts

    def deploy(self, *args: Any, **options: Any) -> None:
        """Start to listen and to watch the list of members; called by the engine."""
        super().deploy(*args, **options)
        self.gatekeeper.watch(self.remove_members)
        self.remove_members()

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
    communicator.ConnManager = GuardedConnManager
    fed_server.ClientManager = GuardedClientManager
    server_deployer.FederatedServer = GuardedServer
    audit.append("started", server=kit.name, federation=kit.federation, list=gatekeeper.members.number)
    return MainProcessMonitor.run(server_train.main, arguments.workspace, args=arguments)


if __name__ == "__main__":
    sys.exit(main())
