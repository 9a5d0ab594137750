"""Pictures of a run's trace by the kind of its task: over the text, over the image, or step against state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from plait.errors import ConfigError
from plait.lab.figures import (
    attention_matrix,
    draw_heads,
    draw_heatmap,
    draw_image_attention,
    draw_text_attention,
)
from plait.lab.runs.folder import read_json
from plait.lab.runs.reading import read_run
from plait.lab.tasks import ImageTask, LanguageTask, task_named

__all__ = ["draw_trace"]


def draw_trace(folder: Path, layer: int = 0) -> Any:
    """Draw `trace.json` of a run's folder and return the figure.

    Args:
        folder: the run's folder; the run's task decides the kind of picture.
        layer: the layer whose attention is drawn, counted from 0.
    """
    record, trace = read_run(folder), read_json(folder / "trace.json")
    if not 0 <= layer < len(trace["layers"]):
        raise ConfigError(f"layer: expected 1 to {len(trace['layers'])}, got {layer + 1}")
    task = task_named(**record.description["task"])
    born, weights = (trace["layers"][layer][key] for key in ("born", "weights"))
    title = f"{record.model} on {task.name}, {record.updates:,} updates"
    if isinstance(task, LanguageTask):
        return draw_text_attention(
            [task.characters()[i] for i in trace["inputs"]], born, weights, title=title
        )
    if isinstance(task, ImageTask):
        return _over_image(task, trace, born, weights, title)
    if heads := trace["layers"][layer].get("heads"):
        return draw_heads(_by_head(born, weights, heads), value_label="attention weight α", title=title)
    return draw_heatmap(
        attention_matrix(born, weights),
        x_label="state j (step)",
        y_label="step t",
        value_label="attention weight α",
        title=title,
    )


def _by_head(born: Any, weights: Any, heads: int) -> list[Any]:
    """Return a (T, T) matrix for each head, scaled so that its rows sum to 1; in a trace all heads' do."""
    parts = (np.split(np.asarray(part), heads, axis=1) for part in (born, weights))
    return [attention_matrix(head_born, heads * share) for head_born, share in zip(*parts, strict=True)]


def _over_image(task: ImageTask, trace: dict[str, Any], born: Any, weights: Any, title: str) -> Any:
    matrix = attention_matrix(born, weights)
    readable = ~np.isnan(matrix)
    mean = np.nansum(matrix, axis=0) / np.maximum(readable.sum(axis=0), 1)
    mean[~readable.any(axis=0)] = np.nan
    image = torch.tensor(trace["inputs"], dtype=torch.float64) / 255
    parts = (image, torch.from_numpy(matrix[-1]), torch.from_numpy(mean))
    titled = f"{title}; it shows a {trace['targets'][-1]}"
    pixels, last, average = (task.as_image(part).numpy() for part in parts)
    return draw_image_attention(pixels, last, average, title=titled)
