"""The page and what it asks for: addresses to functions, errors to one line of JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait._version import __version__
from plait.errors import PlaitError
from plait.report.explore.gradients import law_view, norm_runs, norms_view, path_view, reach_view
from plait.report.explore.library import Library
from plait.report.explore.memory import memory_runs, memory_view
from plait.report.explore.plane import MOST_BYTES, config_view, plan_view, plane_view
from plait.report.explore.runs import beside_view, group_view, overview, plot_view
from plait.report.explore.server import HOST
from plait.report.page import render

__all__ = ["application"]

# Threads that answer. More would take turns at the same processor, and each keeps memory of its own: with the
# forty that are usual a server with many readers grows for hours.
ANSWERING = 4
STATIC = Path(__file__).with_name("static")
# The page may load from here alone, so no script of it can talk to another machine.
# Nor may another site's page show it in a frame, or a browser take an answer for something it is not.
GUARD = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}

View = Callable[[Mapping[str, str]], Any]


def application(folder: Path) -> Starlette:
    """The explorer of the runs in a folder, which need not be there: two of the tabs need none."""
    library = Library(folder)

    def kept(name: str, view: Callable[[Library, Mapping[str, str]], Any]) -> View:
        return lambda query: library.once((name, *sorted(query.items())), lambda: view(library, query))

    views: dict[str, View] = {
        "memory/runs": lambda query: memory_runs(library),
        "memory": lambda query: memory_view(library, query),
        "law": law_view,
        "reach": reach_view,
        "paths": path_view,
        "norms/runs": kept("norms/runs", lambda library, query: norm_runs(library)),
        "norms": lambda query: norms_view(library, query),
        "plane": lambda query: plane_view(),
        "plan": plan_view,
        "runs": kept("runs", lambda library, query: overview(library)),
        "group": kept("group", group_view),
        "plot": kept("plot", plot_view),
        "beside": kept("beside", beside_view),
    }
    routes: list[BaseRoute] = [Route("/", _page(folder))]
    routes += [Route(f"/api/{name}", _endpoint(view)) for name, view in views.items()]
    routes.append(Route("/api/config", _config, methods=["POST"]))
    routes.append(Mount("/static", StaticFiles(directory=STATIC)))
    return Starlette(
        routes=routes,
        # Another site's page must not reach us under a name of its own (DNS rebinding).
        middleware=[
            Middleware(_Guarded),
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        ],
        lifespan=_few_threads,
        exception_handlers={PlaitError: _told, HTTPException: _refused, Exception: _failed},
    )


@contextlib.asynccontextmanager
async def _few_threads(app: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = ANSWERING
    yield


class _Guarded:
    """Puts the guard's headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(GUARD)
            await send(message)

        await self.app(scope, receive, guarded)


def _page(folder: Path) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        text = render("explore.html", folder=str(folder), version=__version__)
        return HTMLResponse(text)

    return page


def _endpoint(view: View) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        began = time.perf_counter()
        return _answered(view(request.query_params), began)

    return respond


async def _config(request: Request) -> Response:
    began = time.perf_counter()
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            break
    return _answered(config_view(body), began)


def _answered(value: Any, began: float) -> Response:
    taken = f"answer;dur={1000 * (time.perf_counter() - began):.1f}"  # milliseconds, seen in any browser
    return JSONResponse(value, headers={"Server-Timing": taken, "Cache-Control": "no-store"})


def _told(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(error).split())}, status_code=400)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.url.path}: {error.detail}"}, status_code=error.status_code)


def _failed(request: Request, error: Exception) -> Response:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    # Starlette answers this outside of all middleware.
    return JSONResponse(
        {"error": f"this is a fault of plait, not yours: {said}"}, status_code=500, headers=GUARD
    )
