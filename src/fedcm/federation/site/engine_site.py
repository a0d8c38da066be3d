"""The engine's process at a site, which takes leave of the server when it is asked to end.

By itself it would vanish, and the server would count on it until its heartbeat has been missed for long.
"""

import signal
import sys
import threading
from typing import Any, final

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.client.client_engine import ClientEngine


@final
class LeavingEngine(ClientEngine):
    def set_agent(self, admin_agent: Any) -> None:
        """Called once the site is registered: before that there is nobody to take leave of."""
        super().set_agent(admin_agent)
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.shutdown, daemon=True).start())


def main() -> Any:
    client_train.version_check()
    client_train.ClientEngine = LeavingEngine
    given = client_train.parse_arguments()
    # what is still to be done when it has taken leave is to close the connection
    return MainProcessMonitor.run(client_train.main, given.workspace, 0, 2, args=given)


if __name__ == "__main__":
    sys.exit(main())
