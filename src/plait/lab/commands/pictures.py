"""The commands `plait runs attention` and `plait runs curves`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from plait.lab.annotations import option
from plait.lab.result import CommandResult

__all__ = ["attention", "curves"]


def attention(
    run: Annotated[str, option(metavar="RUN")],
    /,
    output: Annotated[Path | None, option(aliases=("-o",))] = None,
    layer: int = 1,
    data: Path | None = None,
    out: Path = Path("runs"),
) -> CommandResult:
    """Draw the attention weights of a trained run on one held-out sequence.

    Text is written along both axes; on images the weights are drawn over the image. A Transformer with a
    bounded memory is drawn head by head, and evicted states are blank. The run's trace.json is used, or
    written first if there is none.

    Args:
        run: a run's folder, its id, or the beginning of its id.
        output: the picture, .png, .svg or .pdf; attention-RUN.png if left out.
        layer: the layer whose attention is drawn, counted from 1.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then a download.
        out: the folder of runs in which an id is searched.
    """
    from plait.lab.experiments.trace import write_trace
    from plait.lab.figures import check_picture, save_figure
    from plait.lab.report.trace_picture import draw_trace
    from plait.lab.runs.reading import find_run, read_run
    from plait.lab.tasks.sources import data_in

    if output is not None:
        check_picture(output)
    folder = find_run(run, out)
    if output is None:
        output = Path(f"attention-{folder.resolve().name}{'' if layer == 1 else f'-layer{layer}'}.png")
    existed = os.path.lexists(output)
    with data_in(data):
        if not (folder / "trace.json").exists():
            write_trace(folder, read_run(folder).description["recipe"]["seed"])
        path = save_figure(draw_trace(folder, layer - 1), output)
    result = {"picture": str(path), "trace": str(folder / "trace.json")}
    return CommandResult(result, (_written(path, existed),))


def curves(
    runs: Annotated[tuple[str, ...], option(metavar="RUNS")],
    /,
    output: Annotated[Path, option(aliases=("-o",))] = Path("curves.png"),
    out: Path = Path("runs"),
) -> CommandResult:
    """Draw curves of several runs: validation on one data set by epoch, or returns of policies by steps.

    Args:
        runs: folders, ids, or the beginnings of ids.
        output: the picture, .png, .svg or .pdf.
        out: the folder of runs in which ids are searched.
    """
    from plait.lab.figures import check_picture, save_figure
    from plait.lab.report.epoch_picture import draw_validation
    from plait.lab.runs.reading import find_run

    check_picture(output)
    existed = os.path.lexists(output)
    path = save_figure(draw_validation([find_run(run, out) for run in runs]), output)
    return CommandResult({"picture": str(path), "runs": list(runs)}, (_written(path, existed),))


def _written(path: Path, existed: bool) -> str:
    return f"{path} (replaced the previous picture)" if existed else str(path)
