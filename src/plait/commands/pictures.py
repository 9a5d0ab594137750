"""`plait runs attention` and `plait runs curves`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from plait.marks import option
from plait.result import CommandResult

__all__ = ["attention", "curves"]


def attention(
    run: Annotated[str, option(metavar="RUN")],
    /,
    output: Annotated[Path, option(aliases=["-o"])] = Path("attention.png"),
    layer: int = 1,
    data: Path | None = None,
    out: Path = Path("runs"),
) -> CommandResult:
    """Draw what a trained run read while it worked through one held-out sequence.

    On text the characters stand on both axes, on images the weights lie over the image. Of a Transformer with
    a bounded memory every head is drawn: blank is what it does not keep. The run's trace.json is used, or
    written if it is not there yet.

    Args:
        run: its folder, its id, or the beginning of its id.
        output: the picture, .png, .svg or .pdf.
        layer: which layer's attention.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then the net.
        out: the folder of runs, where an id is looked for.
    """
    from plait.experiments.trace import write_trace
    from plait.figures import checked, save
    from plait.report.trace_picture import draw_trace
    from plait.runs.reading import find_run, read_run

    checked(output)
    if data is not None:
        os.environ["PLAIT_DATA"] = str(data)
    folder = find_run(run, out)
    if not (folder / "trace.json").exists():
        write_trace(folder, read_run(folder).description["recipe"]["seed"])
    path = save(draw_trace(folder, layer - 1), output)
    return CommandResult({"picture": str(path), "trace": str(folder / "trace.json")}, (str(path),))


def curves(
    runs: Annotated[tuple[str, ...], option(metavar="RUNS")],
    /,
    output: Annotated[Path, option(aliases=["-o"])] = Path("curves.png"),
    out: Path = Path("runs"),
) -> CommandResult:
    """Draw validation by epoch of several runs on one data set.

    Args:
        runs: folders, ids, or the beginnings of ids.
        output: the picture, .png, .svg or .pdf.
        out: the folder of runs, where an id is looked for.
    """
    from plait.figures import checked, save
    from plait.report.epoch_picture import draw_validation
    from plait.runs.reading import find_run

    checked(output)
    path = save(draw_validation([find_run(run, out) for run in runs]), output)
    return CommandResult({"picture": str(path), "runs": list(runs)}, (str(path),))
