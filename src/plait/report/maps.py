"""Attention heat maps from `trace.json`: what one held-out sequence's steps read of their past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.errors import ShapeError
from plait.figures import attention_matrix
from plait.report.gather import Group
from plait.runs.reading import RunFolder

__all__ = ["AttentionMap", "attention_maps"]

MOST_MAPS = 12  # of a group; a page is for looking, the traces hold the rest
MOST_BLOCKS = 300  # a side: about one a pixel


@dataclass(frozen=True)
class AttentionMap:
    """`weights` (n, n): row i, column j the largest weight that a step of block i gave to a state of block
    j, nan where no such state was in the memory; a block is `block` steps. `steps` is T."""

    key: str
    title: str
    run: str
    seed: int | None
    layer: int
    steps: int
    block: int
    weights: Any

    def cells(self) -> list[list[int]]:
        """Row by row: column and weight in thousandths, one after the other, of what is there."""
        rows = []
        for row in self.weights:
            there = np.flatnonzero(~np.isnan(row))
            pairs = np.stack([there, np.rint(1000 * row[there]).astype(int)], axis=1)
            rows.append(pairs.reshape(-1).tolist())
        return rows


def attention_maps(group: Group) -> list[AttentionMap]:
    """A map for each layer of the first run of each cell that left a trace."""
    found = []
    for place, cell in enumerate(group.cells):
        run = next((run for run in cell.runs if run.trace is not None), None)
        if run is None or run.trace is None:
            continue
        title = f"{cell.row}: what {cell.column} reads"
        for layer, trace in enumerate(_layers(run)):
            try:
                whole = attention_matrix(trace["born"], trace["weights"])
            except (ShapeError, KeyError, TypeError, ValueError):
                continue  # a layer without memory has nothing to draw
            weights, block = in_blocks(whole)
            name = title if layer == 0 else f"{title}, layer {layer + 1}"
            key = f"{group.name}-{place}-{layer}-attention"
            found.append(AttentionMap(key, name, run.name, run.seed, layer, len(whole), block, weights))
    return found[:MOST_MAPS]


def in_blocks(weights: Any, most: int = MOST_BLOCKS) -> tuple[Any, int]:
    """The matrix with at most `most` rows and columns, and how many steps a block is.

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
