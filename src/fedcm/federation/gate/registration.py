"""The engine's manager of clients, which binds a login to its connection and records who comes and goes."""

from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessagePropKey
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.client_manager import ClientManager

from fedcm.federation.gate.gatekeeper import Gatekeeper
from fedcm.federation.gate.rates import Rate, RateLimit
from fedcm.federation.trust.foreign_text import clean_text

LOGINS = Rate(per_second=0.5, burst=30)


class GuardedClientManager(ClientManager):
    """Accepts a login only over a connection of its own certificate.

    A site logs in over the connection that has the site's name, of which there is one. An admin's connections have
    names of their own.
    """

    gatekeeper: Gatekeeper  # set before the engine starts

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start without logins; called by the engine."""
        super().__init__(*args, **options)
        self._logins = RateLimit(LOGINS)

    def authenticated_client(self, request: Any, fl_ctx: FLContext, client_type: Any) -> Any:
        """Check a login; called by the engine."""
        name = clean_text(request.get_header(CellMessageHeaderKeys.CLIENT_NAME), 100)
        endpoint = clean_text(getattr(request.get_prop(MessagePropKey.ENDPOINT), "name", None), 100)
        holder = request.get_prop(MessagePropKey.COMMON_NAME)  # of the certificate of the connection
        if holder != name or (endpoint != name and not is_valid_admin_client_name(endpoint)):
            what = f"a login as {name} over the connection {endpoint} of {holder} was refused"
            self.gatekeeper.raise_alarm(what, about=f"logins of {holder}")
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, "log in over your own connection", sticky=False)
            return None
        if not self._logins.allow(name):
            self.gatekeeper.raise_alarm(f"{name} logs in again and again; its logins are refused for now")
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, "too many logins; wait a minute", sticky=False)
            return None
        client = super().authenticated_client(request, fl_ctx, client_type)
        self.gatekeeper.audit.append("joined" if client else "refused", name=name)
        return client

    def remove_client(self, token: str) -> Any:
        """Forget a login; called by the engine when a site leaves or its heartbeats stop."""
        client = super().remove_client(token)
        if client:
            self.gatekeeper.audit.append("left", name=client.name)
        return client

    def heartbeat(self, token: str, client_name: str, client_fqcn: str, fl_ctx: FLContext) -> bool:
        """Take note of a heartbeat; called by the engine. After a restart of the server, it renews the login."""
        is_new = super().heartbeat(token, client_name, client_fqcn, fl_ctx)
        if is_new:
            self.gatekeeper.audit.append("joined", name=client_name, again=True)
        return is_new
