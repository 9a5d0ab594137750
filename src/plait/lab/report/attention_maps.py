"""Attention heat maps from `trace.json`: the weights of one held-out sequence's steps over past states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.errors import ShapeError
from plait.lab.figures import attention_matrix
from plait.lab.report.gather import Group
from plait.lab.runs.reading import RunFolder

__all__ = ["AttentionMap", "attention_maps"]

MOST_MAPS = 12  # maps of a group on a page; the traces hold the rest
MOST_BLOCKS = 300  # blocks per side of a map: about one per pixel


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of one layer on one sequence of `steps` steps, in blocks of `block` steps.

    `weights` is (n, n): in row i, column j the largest weight that a step of block i gave to a state of block
    j, NaN where no such state was in memory.
    """

    key: str
    title: str
    run: str
    seed: int | None
    layer: int
    steps: int
    block: int
    weights: Any

    def cells(self) -> list[list[int]]:
        """Return, for each row, column and weight in thousandths of every non-empty cell, flattened."""
        rows = []
        for row in self.weights:
            columns = np.flatnonzero(~np.isnan(row))
            pairs = np.stack([columns, np.rint(1000 * row[columns]).astype(int)], axis=1)
            rows.append(pairs.reshape(-1).tolist())
        return rows


def attention_maps(group: Group) -> list[AttentionMap]:
    """Return a map for each layer of the first run with a trace in each cell."""
    maps = []
    for index, cell in enumerate(group.cells):
        run = next((run for run in cell.runs if run.trace is not None), None)
        if run is None or run.trace is None:
            continue
        title = f"{cell.row}: attention of {cell.column}"
        for layer, trace in enumerate(_layers(run)):
            try:
                matrix = attention_matrix(trace["born"], trace["weights"])
            except (ShapeError, KeyError, TypeError, ValueError):
                continue  # a layer without memory has nothing to draw
            weights, block = in_blocks(matrix)
            name = title if layer == 0 else f"{title}, layer {layer + 1}"
            key = f"{group.name}-{index}-{layer}-attention"
            maps.append(AttentionMap(key, name, run.name, run.seed, layer, len(matrix), block, weights))
    return maps[:MOST_MAPS]


def in_blocks(weights: Any, most: int = MOST_BLOCKS) -> tuple[Any, int]:
    """Reduce a matrix to at most `most` rows and columns by block maxima, and return it with the block size.

    >>> in_blocks(np.array([[1.0, np.nan], [0.25, 0.75]]), most=1)
    (array([[1.]]), 2)
    """
    block = -(-len(weights) // most)
    size = -(-len(weights) // block)
    padded = np.full((size * block, size * block), -1.0)
    padded[: len(weights), : len(weights)] = np.nan_to_num(weights, nan=-1.0)
    largest = padded.reshape(size, block, size, block).max(axis=(1, 3))
    return np.where(largest < 0, np.nan, largest), block


def _layers(run: RunFolder) -> Sequence[dict[str, Any]]:
    layers = (run.trace or {}).get("layers", [])
    return layers if isinstance(layers, list) else []
