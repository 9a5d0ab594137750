"""What a probe found: norms by layer and position, their decay, and a verdict in plain words."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.gradients.maps import AttentionProfile

__all__ = ["Decay", "GradientProfile", "LayerProfile"]

VANISHED = 1e-6
EXPLODED = 1e3


@dataclass(frozen=True)
class Decay:
    """How the norm changes with the distance from the last position that the loss reaches.

    `rate` is the fitted factor per step back (below 1: it shrinks); `power` the fitted exponent of the
    distance; `follows` which of the two fits better, "exponential" or "power". `farthest` is the norm at
    the first position over the norm at the last, and `reached` the number of positions with at least 1e-6
    of it. `vanishes_at` is the distance from which on the norm stays below that, `explodes_at` the nearest
    at which it is above 1e3 times its value at the last; None where never.
    """

    rate: float
    power: float
    follows: str
    farthest: float
    reached: int
    vanishes_at: int | None
    explodes_at: int | None

    @staticmethod
    def of(norms: NDArray[np.float64]) -> Decay | None:
        """From norms at t = 1..T; None where fewer than three positions carry a gradient."""
        last = int(np.flatnonzero(norms)[-1]) if np.any(norms) else -1
        backwards = norms[: last + 1][::-1]
        distance = np.arange(backwards.size)
        alive = backwards > 0
        if alive.sum() < 3:
            return None
        logs = np.log(backwards[alive])
        rate, rate_error = _fit(distance[alive].astype(float), logs)
        power, power_error = _fit(np.log1p(distance[alive]), logs)
        relative = backwards / backwards[0]
        above, large = np.flatnonzero(relative >= VANISHED), np.flatnonzero(relative > EXPLODED)
        beyond = int(above[-1]) + 1
        return Decay(
            rate=math.exp(rate),
            power=power,
            follows="exponential" if rate_error <= power_error else "power",
            farthest=float(relative[-1]),
            reached=above.size,
            vanishes_at=beyond if beyond < relative.size else None,
            explodes_at=int(large[0]) if large.size else None,
        )


def _fit(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Slope of a straight line through the points, and the sum of squares it leaves."""
    slope, level = np.polyfit(x, y, 1)
    return float(slope), float(((y - slope * x - level) ** 2).sum())


@dataclass(frozen=True)
class LayerProfile:
    """One layer: `norms` (T,) holds the total ‖∂L/∂h_t‖ over the whole batch."""

    name: str
    norms: NDArray[np.float64]
    decay: Decay | None
    attention: AttentionProfile | None = None

    def verdict(self) -> str:
        """One or two sentences a person can act on."""
        if not np.any(self.norms):
            return "receives no gradient: the loss does not depend on these states."
        if self.decay is None:
            return "receives a gradient at too few positions to speak of a decay."
        if self.decay.explodes_at is not None:
            words = f"explodes: 1000 times larger {self.decay.explodes_at} steps back than where the loss is."
        elif self.decay.vanishes_at is not None:
            words = (
                f"vanishes: below a millionth from {self.decay.vanishes_at} steps back; "
                f"it reaches {self.decay.reached} of {self.norms.size} positions."
            )
        else:
            words = f"reaches the first position at {self.decay.farthest:.3g} of its size at the last."
        fit = (
            f"a factor of {self.decay.rate:.4g} per step"
            if self.decay.follows == "exponential"
            else f"the power {self.decay.power:.3g} of the distance"
        )
        return f"{words} It follows {fit}.{self._attention_words()}"

    def _attention_words(self) -> str:
        if self.attention is None:
            return ""
        words = f" A step reads {self.attention.participation:.3g} states effectively"
        if self.attention.depth is not None:
            words += f", and the deepest state is {int(self.attention.depth.max())} hops away"
        return words + "."


@dataclass(frozen=True)
class GradientProfile:
    """All layers of one model under one loss; `hops` is the attention depth of a stack of blocks."""

    model: str
    loss: float
    layers: tuple[LayerProfile, ...]
    hops: NDArray[np.int64] | None = None

    def summary(self) -> str:
        """The verdict on every layer, one line each."""
        lines = [f"{self.model}: loss {self.loss:.6g}, {self.layers[0].norms.size} positions"]
        lines += [f"  {layer.name or 'model'}: {layer.verdict()}" for layer in self.layers]
        if self.hops is not None:
            reach = self.hops[self.hops >= 0]
            unreached = int((self.hops < 0).sum())
            lines.append(
                f"  attention connects the last position to {reach.size} positions within "
                f"{int(reach.max())} hops, and to {unreached} not at all."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        for record, layer in zip(plain["layers"], self.layers, strict=True):
            record["verdict"] = layer.verdict()
        return plain

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False)

    def plot(self, path: str | Path | None = None) -> Any:
        """‖∂L/∂h_t‖ against the position, a curve for each layer; written to `path` if given."""
        from plait.figures import Curve, draw_curves, save

        curves = []
        for place, layer in enumerate(self.layers):
            alive = np.flatnonzero(layer.norms)
            if alive.size:
                curves.append(
                    Curve(alive + 1, np.log10(layer.norms[alive]), layer.name or "model", "solid", place)
                )
        figure = draw_curves(
            curves,
            x_label="position t (steps)",
            y_label="‖∂L/∂h_t‖",
            title=f"{self.model}: total gradient by position",
            powers_y=True,
        )
        if path is not None:
            save(figure, path)
        return figure


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
