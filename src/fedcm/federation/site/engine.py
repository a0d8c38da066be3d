"""The engine's process at a site, which logs out from the server when it is asked to end.

The engine itself would just exit, and the server would count on the site until several heartbeats are missing.

It would also continue for ever with a login that the server does not accept any more. The server signs logins with its
key, so a login ends when the server has a new key. Then this process ends, and the site's command starts it again. It
also does so if heartbeats fail to start, as they do on a machine that was suspended at that moment: without them, the
server would never count on the site again.
"""

import logging
import os
import signal
import sys
import threading
from typing import Any, final

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.defs import CellChannelTopic
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.fed_client_base import FederatedClientBase
from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor
from nvflare.private.fed.client.sys_cmd import ConfigureSiteLogProcessor, ReportEnvProcessor, SysInfoProcessor
from nvflare.private.fed.client.training_cmds import (
    ConfigureJobLogProcessor,
    DeleteRunNumberProcessor,
    RestartClientProcessor,
    ShutdownClientProcessor,
)

LOGIN_ENDED = 75  # exit code: the login is not valid any more
_REFUSALS = 2  # heartbeats that are refused in a row
_DROPPED = (
    ShellCommandProcessor,
    SysInfoProcessor,
    ReportEnvProcessor,
    ConfigureSiteLogProcessor,
    ConfigureJobLogProcessor,
    DeleteRunNumberProcessor,
    RestartClientProcessor,
    ShutdownClientProcessor,
)


@final
class LoginWatch:
    """Counts heartbeats that the server refuses."""

    def __init__(self) -> None:
        """Start with an accepted login."""
        self.refusals = 0

    def has_ended(self, topic: Any, reply: Any) -> bool:
        """Return whether the login has ended, given a request's topic and its reply."""
        if topic != CellChannelTopic.HEART_BEAT:
            return False
        refused = reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.UNAUTHENTICATED
        self.refusals = self.refusals + 1 if refused else 0
        return self.refusals >= _REFUSALS


@final
class GracefulClientEngine(ClientEngine):
    """The engine with a handler for SIGTERM, which ends when its login has ended."""

    def set_agent(self, admin_agent: Any) -> None:
        """Install the handler; the engine calls this once the site is registered."""
        super().set_agent(admin_agent)
        self._watch_login()
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.shutdown, daemon=True).start())

    def _watch_login(self) -> None:
        cell: Any = self.client.cell
        send, watch = cell.send_request, LoginWatch()

        def send_request(*args: Any, **options: Any) -> Any:
            reply = send(*args, **options)
            if watch.has_ended(options.get("topic"), reply):
                reason = reply.get_header(MessageHeaderKey.ERROR)
                logging.getLogger("SiteLogin").error(f"the server has ended the login ({reason}); logging in again")
                os._exit(LOGIN_ENDED)  # a shutdown would count as one by an admin
            return reply

        cell.send_request = send_request


def drop_commands() -> None:
    """Take away the engine's commands that no admin may use: files, machines, restarts, deletions and log levels.

    The server denies them to every admin. Here they are gone, so that a hostile server cannot use them either.
    """
    ClientRequestProcessors.request_processors = [
        kept for kept in ClientRequestProcessors.request_processors if not isinstance(kept, _DROPPED)
    ]


def run_heartbeat(self: Any, interval: float) -> None:
    """Send heartbeats until the engine ends; called by the engine in a thread."""
    try:
        self.heartbeat(interval)
    except Exception as error:  # the engine would continue without heartbeats
        logging.getLogger("SiteLogin").error(f"no heartbeats can be sent ({error}); logging in again")
        os._exit(LOGIN_ENDED)


def main() -> Any:
    """Run the engine's own main function with `GracefulClientEngine`."""
    client_train.version_check()
    drop_commands()
    FederatedClientBase.run_heartbeat = run_heartbeat
    client_train.ClientEngine = GracefulClientEngine
    arguments = client_train.parse_arguments()
    # no grace time, because after logging out only the connection is left to close
    return MainProcessMonitor.run(client_train.main, arguments.workspace, 0, 2, args=arguments)


if __name__ == "__main__":
    sys.exit(main())
