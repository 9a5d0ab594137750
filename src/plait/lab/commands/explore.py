"""The command `plait explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from plait.errors import ConfigError, require
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.lab.runs.reading import folder_of_runs

__all__ = ["explore"]

USUAL = Path("runs")


def explore(
    runs: Annotated[Path | None, option(metavar="RUNS")] = None,
    /,
    port: int | None = None,
    no_browser: bool = False,
) -> CommandResult:
    """Open a local page to explore memory contents, gradients, depth and width, and runs.

    The page is served on 127.0.0.1 only and loads nothing from other machines. Ctrl-C stops the server.
    The tabs on gradients and on depth and width need no runs.

    Args:
        runs: a folder of runs or of experiments, or one run; runs/ by default.
        port: the port to serve on; any free one if left out.
        no_browser: serve without opening a browser.
    """
    for module in ("starlette", "uvicorn"):
        require(module, "explore")
    if runs is not None:
        folder_of_runs(runs)
    if port is not None and not 1 <= port <= 65535:
        raise ConfigError(f"port: expected 1 to 65535, got {port}")
    from plait.lab.report.explore.app import application
    from plait.lab.report.explore.server import bind, serve

    socket, address = bind(port)
    folder = USUAL if runs is None else runs
    stream = serve(application(folder), socket, None if no_browser else address)
    return CommandResult(
        {"address": address, "runs": str(folder)}, (address, "Ctrl-C ends it"), stream=stream
    )
