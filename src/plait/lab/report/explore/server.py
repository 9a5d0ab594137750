"""Local web server of the explorer, reachable from this machine only."""

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
    """Return a listening local socket and its URL; any free port if none is given.

    Raises:
        BusyError: if the port is in use.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Allow a port that was just closed to be bound again; one with a listener still fails.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError(f"port {port} is in use; name another with --port, or leave it out") from error
        raise OutputError(f"cannot serve at port {port}: {error.strerror or error}") from error
    return listener, f"http://{HOST}:{listener.getsockname()[1]}/"


def server_for(app: Starlette) -> uvicorn.Server:
    """Return a server that logs nothing: errors are shown on the page."""
    return uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="on"))


def serve(app: Starlette, listener: socket.socket, address: str | None = None) -> Iterator[str]:
    """Serve until Ctrl-C, and open a browser at `address` if it is given.

    Yields an empty string once before blocking, so that the caller prints the address first.
    """
    from plait.lab.report.explore.warm import warm

    yield ""
    threading.Thread(target=warm, daemon=True).start()
    if address is not None:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        server_for(app).run(sockets=[listener])
    except KeyboardInterrupt:  # the documented way to stop the server
        pass
    finally:
        listener.close()
