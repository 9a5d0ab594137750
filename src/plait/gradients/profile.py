"""Results of a probe: norms by layer and position, their decay, and a verdict in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import require
from plait.files import jsonable, save_figure
from plait.gradients.decay import Decay
from plait.gradients.maps import AttentionProfile
from plait.gradients.verdict import sentence

__all__ = ["Decay", "GradientProfile", "LayerProfile", "Reach"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reach:
    """Influence of position t on what the loss reads at position T: `norms` (sampled T, t).

    `positions` are those T, counted from 1, in increasing order.
    """

    positions: tuple[int, ...]
    norms: Floats


@dataclass(frozen=True)
class LayerProfile:
    """Profile of one layer: `norms` (T,) holds the total ‖∂L/∂h_t‖ over the whole batch.

    `acting` are the positions (from 1) that are read from the top of its stack, by the loss or by another
    stack. If they are more than half of all, no position has a single distance: `reach` then holds the
    influence of every position on some of them, and `decay` belongs to its last row; in a stack that another
    stack reads, both are then None.

    `is_spread` marks a stack that another reads at several positions, some of which are not felt.

    `kind` is "recurrent" or "block", for hidden states, or "input". With `has_cell_state` the norms leave out
    what travels through the cell state. `is_read_alone` marks states that can be felt only where they are
    read, since nothing above mixes positions, `is_cut_off` states without a gradient below others with one.
    `zeros_explained` is True if exact zeros were compared with those under random weights, `zeros_built` if
    all positions have them under those too.
    """

    name: str
    norms: Floats
    decay: Decay | None
    attention: AttentionProfile | None = None
    acting: tuple[int, ...] = ()
    reach: Reach | None = None
    kind: str = "recurrent"
    has_cell_state: bool = False
    is_spread: bool = False
    is_used: bool = True
    is_read_alone: bool = False
    is_cut_off: bool = False
    zeros_explained: bool = False
    zeros_built: bool = False

    @property
    def everywhere(self) -> bool:
        """True if there is no single distance: more than half of the positions are read, or `is_spread`."""
        return self.is_spread or 2 * len(self.acting) > self.norms.size > 2

    def verdict(self) -> str:
        """Return one to three sentences on how far the gradient reaches, and what to do."""
        return sentence(self)


@dataclass(frozen=True)
class GradientProfile:
    """Profiles of all layers of one model under one loss.

    `inputs` are what enters the first layer of each stack, and what the loss feels of them through all paths;
    `layers` the hidden states. `hops` is the attention depth of a stack of blocks, from where the loss acts.
    `note` says what looks wrong with the arguments of the probe.
    """

    model: str
    loss: float | None
    layers: tuple[LayerProfile, ...]
    hops: NDArray[np.int64] | None = None
    inputs: tuple[LayerProfile, ...] = ()
    note: str | None = None

    def summary(self) -> str:
        """Return the verdict on every layer, one line each."""
        loss = "" if self.loss is None else f"loss {self.loss:.6g}, "
        sizes = dict.fromkeys(layer.norms.size for layer in self.inputs or self.layers)
        plural = "" if set(sizes) == {1} else "s"
        lines = [f"{self.model}: {loss}{' and '.join(map(str, sizes))} position{plural}"]
        if self.note is not None:
            lines.append(f"  {self.note}.")
        lines += [f"  {layer.name or 'model'}: {layer.verdict()}" for layer in (*self.inputs, *self.layers)]
        if self.hops is not None:
            lines.append(f"  {_hop_words(self.hops, self.layers[-1])}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON."""
        result: dict[str, Any] = jsonable(self)
        for group in ("layers", "inputs"):
            for record, layer in zip(result[group], getattr(self, group), strict=True):
                record["verdict"] = layer.verdict()
        return result

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw ‖∂L/∂h_t‖ against the position, a curve per layer; save to `path` unless it is None."""
        figure = require("matplotlib.figure", "lab").Figure(figsize=(7.0, 4.3), layout="constrained")
        axes = figure.subplots()
        for layer in self.layers:
            positive = np.flatnonzero(layer.norms)
            axes.semilogy(positive + 1, layer.norms[positive], label=layer.name or "model")
        axes.set(xlabel="position t (steps)", ylabel="‖∂L/∂h_t‖")
        axes.set_title(f"{self.model}: total gradient by position", fontsize=10)
        axes.grid(True, alpha=0.25)
        axes.legend(fontsize=8, frameon=False)
        if path is not None:
            save_figure(figure, path)
        return figure


def _hop_words(hops: NDArray[np.int64], top: LayerProfile) -> str:
    reached = hops[hops >= 0]
    share = "" if top.attention is None else f" of at least {top.attention.threshold:g} of an even share"
    read = f" at position {top.acting[-1]}" if len(top.acting) > 1 else ""
    most = int(reached.max())
    return (
        f"attention connects what the loss reads{read} to {reached.size} of {hops.size} positions within "
        f"{most} hop{'s' if most != 1 else ''}, by weights{share}."
    )
