"""`plait explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from plait.errors import ConfigError, require
from plait.marks import option
from plait.result import CommandResult
from plait.runs.reading import folder_of_runs

__all__ = ["explore"]

USUAL = Path("runs")


def explore(
    runs: Annotated[Path | None, option(metavar="RUNS")] = None,
    /,
    port: int | None = None,
    no_browser: bool = False,
) -> CommandResult:
    """Open a page on this machine: what a memory holds, how gradients travel, depth and width, runs.

    The page is served to this machine alone (127.0.0.1) and asks nothing of any other. Ctrl-C ends it.
    The tabs on gradients and on depth and width need no runs.

    Args:
        runs: a folder of runs or of experiments, or one run; runs/ where nothing is said.
        port: where to serve; left out, any that is free.
        no_browser: only serve, do not open a browser.
    """
    for module in ("starlette", "uvicorn"):
        require(module, "explore")
    if runs is not None:
        folder_of_runs(runs)
    if port is not None and not 1 <= port <= 65535:
        raise ConfigError(f"port: expected 1 to 65535, got {port}")
    from plait.report.explore.app import application
    from plait.report.explore.server import bind, serve

    socket, address = bind(port)
    folder = USUAL if runs is None else runs
    stream = serve(application(folder), socket, None if no_browser else address)
    return CommandResult(
        {"address": address, "runs": str(folder)}, (address, "Ctrl-C ends it"), stream=stream
    )
