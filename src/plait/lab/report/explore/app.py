"""The explorer's web application: routes to view functions, errors as one line of JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
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
from plait.lab.report.explore.gradients import law_view, norm_runs, norms_view, path_view, reach_view
from plait.lab.report.explore.library import Library
from plait.lab.report.explore.memory import memory_runs, memory_view
from plait.lab.report.explore.picture import MOST_CHART, chart_picture, plane_picture
from plait.lab.report.explore.plane import MOST_BYTES, config_view, plan_view, plane_view
from plait.lab.report.explore.runs import beside_view, group_view, overview, plot_view
from plait.lab.report.explore.server import HOST
from plait.lab.report.page import render
from plait.lab.report.report_page import vendor_version

__all__ = ["application"]

# Worker threads for requests. More would compete for the same CPU, and each keeps memory of its own: with the
# default of forty, the memory of a server with many readers grows for hours.
ANSWERING = 4
HERE = Path(__file__).parent
SCRIPTS = {"static": HERE / "static", "shared": HERE.parent / "shared", "vendor": HERE.parent / "vendor"}
# The page may load from this server only, so none of its scripts can contact another machine. Other sites may
# not embed it in a frame, and browsers may not guess the content type of a response.
GUARD = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}

View = Callable[[Mapping[str, str]], Any]


def application(folder: Path) -> Starlette:
    """Build the explorer of the runs in a folder, which need not exist: two of the tabs need no runs."""
    library = Library(folder)

    def cached(name: str, view: Callable[[Library, Mapping[str, str]], Any]) -> View:
        return lambda query: library.once((name, *sorted(query.items())), lambda: view(library, query))

    views: dict[str, View] = {
        "memory/runs": lambda query: memory_runs(library),
        "memory": lambda query: memory_view(library, query),
        "law": law_view,
        "reach": reach_view,
        "paths": path_view,
        "norms/runs": cached("norms/runs", lambda library, query: norm_runs(library)),
        "norms": lambda query: norms_view(library, query),
        "plane": lambda query: plane_view(),
        "plan": plan_view,
        "runs": cached("runs", lambda library, query: overview(library)),
        "group": cached("group", group_view),
        "plot": cached("plot", plot_view),
        "beside": cached("beside", beside_view),
    }
    routes: list[BaseRoute] = [Route("/", _page(folder))]
    routes += [Route(f"/api/{name}", _endpoint(view)) for name, view in views.items()]
    routes.append(Route("/api/config", _config, methods=["POST"]))
    routes.append(Route("/api/picture", _chart_picture, methods=["POST"]))
    routes.append(Route("/api/plane/picture", _plane_picture))
    routes += [Mount(f"/{name}", StaticFiles(directory=path)) for name, path in SCRIPTS.items()]
    return Starlette(
        routes=routes,
        # Only local host names are accepted, so that another site cannot reach us by DNS rebinding.
        middleware=[
            Middleware(_SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        ],
        lifespan=_limit_threads,
        exception_handlers={PlaitError: _user_error, HTTPException: _http_error, Exception: _internal_error},
    )


@contextlib.asynccontextmanager
async def _limit_threads(app: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = ANSWERING
    yield


class _SecurityHeaders:
    """Middleware that adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(GUARD)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _page(folder: Path) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        text = render(
            "explore.html", folder=str(folder), version=__version__, vendor_version=vendor_version()
        )
        return HTMLResponse(text)

    return page


def _endpoint(view: View) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        began = time.perf_counter()
        return _json_response(view(request.query_params), began)

    return respond


async def _config(request: Request) -> Response:
    began = time.perf_counter()
    return _json_response(config_view(await _body(request, MOST_BYTES)), began)


async def _chart_picture(request: Request) -> Response:
    body = await _body(request, MOST_CHART)
    content, media_type = await run_in_threadpool(chart_picture, body, request.query_params)
    return Response(content, media_type=media_type)


def _plane_picture(request: Request) -> Response:
    content, media_type = plane_picture(request.query_params)
    return Response(content, media_type=media_type)


async def _body(request: Request, most: int) -> bytes:
    """Read a request's body, and stop when it has more than `most` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            break
    return bytes(body)


def _json_response(value: Any, began: float) -> Response:
    timing = f"answer;dur={1000 * (time.perf_counter() - began):.1f}"  # milliseconds, for browsers' tools
    return JSONResponse(value, headers={"Server-Timing": timing, "Cache-Control": "no-store"})


def _user_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(error).split())}, status_code=400)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.url.path}: {error.detail}"}, status_code=error.status_code)


def _internal_error(request: Request, error: Exception) -> Response:
    message = " ".join(f"{type(error).__name__}: {error}".split())
    # Starlette sends this response outside of all middleware, so it needs the headers itself.
    return JSONResponse({"error": f"a bug in plait: {message}"}, status_code=500, headers=GUARD)
