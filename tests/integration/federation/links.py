"""A link between a site and the server that can be cut: a TCP proxy on this machine."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final


@final
class Link:
    """Forwards connections to a port of this machine while it is up.

    `cut` stops all bytes without a word, as if a cable was pulled. `break_off` closes all connections and refuses new
    ones, as a restarted router does. `mend` ends both.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._up = threading.Event()
        self._up.set()
        self._refuses = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._up.clear()

    def break_off(self) -> None:
        self._refuses = True
        for one in list(self._open):
            self._close(one)

    def mend(self) -> None:
        self._refuses = False
        self._up.set()

    def close(self) -> None:
        self.break_off()
        self._up.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                site, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(site,), daemon=True).start()

    def _connect(self, site: socket.socket) -> None:
        self._up.wait()
        try:
            if self._refuses:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            site.close()
            return
        self._open |= {site, server}
        for one, other in ((site, server), (server, site)):
            threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                self._up.wait()
                sink.sendall(data)
        for one in (source, sink):
            self._close(one)

    def _close(self, one: socket.socket) -> None:
        self._open.discard(one)
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def link_for(kit: Path) -> Iterator[Link]:
    """Make a link and change a site's kit to use it."""
    file = kit / "startup" / "fed_client.json"
    table = json.loads(file.read_text())
    service = table["servers"][0]["service"]
    host, _, port = service["target"].rpartition(":")
    link = Link(int(port))
    service["target"] = f"{host}:{link.port}"
    file.write_text(json.dumps(table))
    try:
        yield link
    finally:
        link.close()
