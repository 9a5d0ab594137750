"""Figures of regressions: the predictions of held-out targets against the targets."""

from __future__ import annotations

import math

from plait.lab.figures import Curve, draw_curves
from plait.lab.report.exhibit import Exhibit, Picture
from plait.lab.report.gather import Group
from plait.lab.runs.reading import RunFolder

__all__ = ["predictions_exhibit"]

_POINTS, _DIAGONAL = 0, 7  # palette indices


def predictions_exhibit(group: Group) -> Exhibit | None:
    """Return a picture for each cell with a run whose summary holds predictions; None if there is none."""
    pictures: list[Picture] = []
    for cell in group.cells:
        sampled = ((run, _pairs(run)) for run in cell.sound)
        run, (targets, predicted) = next((item for item in sampled if item[1][0]), (None, ([], [])))
        if run is None:
            continue
        ends = [min(targets), max(targets)]
        figure = draw_curves(
            [
                Curve(ends, ends, style="dashed", color=_DIAGONAL),
                Curve(targets, predicted, style="dots", color=_POINTS),
            ],
            x_label="true",
            y_label="predicted",
            size=(4.8, 3.1),
        )
        title = f"{cell.row}: predicted against true, {cell.column}"
        pictures.append(Picture(title, _caption(run, len(targets)), figure, f"predicted-{len(pictures)}"))
    return Exhibit(pictures) if pictures else None


def _caption(run: RunFolder, count: int) -> str:
    seed = "" if run.seed is None else f", seed {run.seed}"
    values = f"{count} held-out value" + "s" * (count > 1)
    results = run.marks[-1].results.values() if run.marks else ()
    scores = [
        f" Of all: R² {result['score']:.3f}, root mean squared error {result['rmse']:.4g}."
        for result in results
        if "rmse" in result
    ]
    return f"Run {run.name}{seed}: {values}; on the dashed line they agree.{''.join(scores[:1])}"


def _pairs(run: RunFolder) -> tuple[list[float], list[float]]:
    """Return the targets and predictions that a run's summary holds; empty of any other run."""
    sample = run.summary.get("sample")
    if not isinstance(sample, dict):
        return [], []
    columns = [sample.get(name) for name in ("target", "predicted")]
    if not all(isinstance(column, list) for column in columns):
        return [], []
    pairs = [
        (float(target), float(value))
        for target, value in zip(*columns, strict=False)
        if all(isinstance(x, float) and math.isfinite(x) for x in (target, value))
    ]
    return [target for target, _ in pairs], [value for _, value in pairs]
