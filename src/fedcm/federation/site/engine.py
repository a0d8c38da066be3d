"""The engine's process at a site, which logs out from the server when it is asked to end.

The engine itself would just exit, and the server would count on the site until several heartbeats are missing.
"""

import signal
import sys
import threading
from typing import Any, final

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.client.client_engine import ClientEngine


@final
class GracefulClientEngine(ClientEngine):
    """The engine with a handler for SIGTERM."""

    def set_agent(self, admin_agent: Any) -> None:
        """Install the handler; the engine calls this once the site is registered."""
        super().set_agent(admin_agent)
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.shutdown, daemon=True).start())


def main() -> Any:
    """Run the engine's own main function with `GracefulClientEngine`."""
    client_train.version_check()
    client_train.ClientEngine = GracefulClientEngine
    arguments = client_train.parse_arguments()
    # no grace time, because after logging out only the connection is left to close
    return MainProcessMonitor.run(client_train.main, arguments.workspace, 0, 2, args=arguments)


if __name__ == "__main__":
    sys.exit(main())
