"""Serving the page to this machine alone, until someone ends it."""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from plait.errors import BusyError, OutputError

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["HOST", "bind", "serve", "server_for"]

HOST = "127.0.0.1"


def bind(port: int | None = None) -> tuple[socket.socket, str]:
    """A socket of this machine's own, and the address it answers at; any free port if none is named.

    Raises:
        BusyError: if something else answers at the port.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port that was ours a moment ago may be taken again; one that somebody listens at may not.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port or 0))
        found.listen()
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError(f"port {port} is in use; name another with --port, or leave it out") from error
        raise OutputError(f"cannot serve at port {port}: {error.strerror or error}") from error
    return found, f"http://{HOST}:{found.getsockname()[1]}/"


def server_for(app: Starlette) -> uvicorn.Server:
    """A quiet server: what goes wrong is told on the page."""
    return uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="on"))


def serve(app: Starlette, where: socket.socket, address: str | None = None) -> Iterator[str]:
    """Serve until Ctrl-C; opens a browser at `address`, if there is one. Says nothing, but first: whoever
    prints what it says prints all before it, the address, before the wait begins."""
    from plait.report.explore.warm import warm

    yield ""
    threading.Thread(target=warm, daemon=True).start()
    if address is not None:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        server_for(app).run(sockets=[where])
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        where.close()
