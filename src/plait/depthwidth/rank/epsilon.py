"""Epsilon-ranks: the number of singular values of the matricised network above a tolerance.

Networks with softmax, ReLU or normalisation are not polynomials: their separation rank is not finite in
general, and the rank of F is the number of templates. The number of singular values above tol·σ₁ still
measures how strongly two halves of the input are coupled, but it depends on the tolerance, the number of
templates and the scale of the inputs, which are reported with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from plait.depthwidth.rank.field import FloatArray
from plait.depthwidth.rank.gram import sides_of
from plait.depthwidth.rank.network import check_sizes
from plait.errors import ConfigError, ShapeError, check_choice, check_min, require

__all__ = ["EpsilonRank", "epsilon_rank", "float_network", "measure", "network_epsilon_rank"]

_PAIRS_AT_A_TIME = 16384


@dataclass(frozen=True)
class EpsilonRank:
    """Number of singular values above `tolerance` · σ₁ for a number of templates; not a separation rank.

    `effective` is the exponential of the entropy of the normalised singular values.
    """

    value: int
    tolerance: float
    templates: int
    scale: float | None
    effective: float
    singular_values: tuple[float, ...]


def epsilon_rank(matrix: Any, tol: float = 1e-3, scale: float | None = None) -> EpsilonRank:
    """Count the singular values σ > tol·σ₁ of a real matrix; `scale` is the standard deviation of the inputs.

    >>> epsilon_rank([[1.0, 0.0], [0.0, 1e-6]], tol=1e-3).value
    1
    """
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeError(f"matrix: expected (templates, templates), got {array.shape}")
    if not 0 <= tol < 1:
        raise ConfigError(f"tol: expected 0 to 1, got {tol}")
    if not np.isfinite(array).all():
        raise ConfigError("matrix: has non-finite values; lower the depth or the scale of inputs")
    sigma = np.linalg.svd(array, compute_uv=False)
    value = int((sigma > tol * sigma[0]).sum()) if sigma[0] > 0 else 0
    share = sigma[sigma > 0] / sigma.sum() if value else np.ones(1)
    effective = float(np.exp(-(share * np.log(share)).sum())) if value else 0.0
    return EpsilonRank(value, tol, min(array.shape), scale, effective, tuple(sigma.tolist()))


def float_network(
    tokens: FloatArray,
    weights: dict[str, FloatArray],
    *,
    attention: Literal["linear", "softmax"] = "linear",
    residual: bool = False,
    feed_forward: bool = False,
    normalise: bool = False,
) -> FloatArray:
    """Apply attention layers in floating point, (batch, tokens, width) to the same shape.

    Args:
        attention: weights q kᵀ (linear) or softmax(q kᵀ / √d_a).
        residual: skip connections around each block.
        feed_forward: a block y ← ReLU(y W₁ᵀ) W₂ᵀ after each layer.
        normalise: layer normalisation without gain and bias before each block.
    """
    y = tokens
    for layer in range(len(weights["query"])):
        x = _normalised(y) if normalise else y
        q, k, v = (np.einsum("bnd,had->bhna", x, weights[name][layer]) for name in ("query", "key", "value"))
        scores = q @ np.swapaxes(k, -1, -2)
        if attention == "softmax":
            scores = scores / np.sqrt(q.shape[-1])
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("bhna,hda->bnd", scores @ v, weights["output"][layer])
        y = y + mixed if residual else mixed
        if feed_forward:
            x = _normalised(y) if normalise else y
            hidden = np.maximum(x @ weights["expand"][layer].T, 0) @ weights["shrink"][layer].T
            y = y + hidden if residual else hidden
    return y


def _normalised(x: FloatArray) -> FloatArray:
    centred = x - x.mean(-1, keepdims=True)
    normal: FloatArray = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal


def network_epsilon_rank(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    *,
    attention: Literal["linear", "softmax"] = "linear",
    residual: bool = False,
    feed_forward: bool = False,
    normalise: bool = False,
    templates: int = 512,
    tol: float = 1e-3,
    scale: float = 1.0,
    seed: int = 0,
    cut: int | None = None,
) -> EpsilonRank:
    """Return the epsilon-rank of a random network: Gaussian weights (σ = 1/√d) and tokens (σ = scale).

    >>> network_epsilon_rank(1, 4, 2, 8, templates=64).value
    5
    """
    size = check_sizes(depth, width, heads)
    check_choice(attention, ("linear", "softmax"), "attention")
    left, right = sides_of(2 * width if tokens is None else tokens, cut)
    rng = np.random.default_rng(seed)
    shapes = {
        "query": (depth, heads, size, width),
        "key": (depth, heads, size, width),
        "value": (depth, heads, size, width),
        "output": (depth, heads, width, size),
        "expand": (depth, 4 * width, width),
        "shrink": (depth, width, 4 * width),
    }
    weights = {name: rng.normal(size=shape) / np.sqrt(width) for name, shape in shapes.items()}

    def forward(sequences: FloatArray) -> FloatArray:
        return float_network(
            sequences,
            weights,
            attention=attention,
            residual=residual,
            feed_forward=feed_forward,
            normalise=normalise,
        )[:, 0, 0]

    return epsilon_rank(_matricise(forward, rng, (left, right), width, templates, scale), tol, scale)


def _matricise(
    forward: Any,
    rng: np.random.Generator,
    sides: tuple[int, int],
    width: int,
    templates: int,
    scale: float,
) -> FloatArray:
    """Return F[m, n] = forward(a_m followed by b_n)."""
    check_min(1, templates=templates)
    first, second = (rng.normal(scale=scale, size=(templates, side, width)) for side in sides)
    rows = max(1, _PAIRS_AT_A_TIME // templates)
    parts = []
    for i in range(0, templates, rows):
        block = first[i : i + rows]
        pairs = np.empty((len(block), templates, sum(sides), width))
        pairs[:, :, : sides[0]] = block[:, None]
        pairs[:, :, sides[0] :] = second
        values = forward(pairs.reshape(-1, sum(sides), width))
        parts.append(np.asarray(values).reshape(len(block), templates))
    return np.concatenate(parts)


def measure(
    module: Any,
    cut: int,
    *,
    tokens: int,
    width: int,
    position: int = -1,
    coordinate: int = 0,
    templates: int = 256,
    tol: float = 1e-3,
    scale: float = 1.0,
    seed: int = 0,
    device: str | None = None,
) -> EpsilonRank:
    """Measure how strongly a torch module couples the first `cut` tokens of its input with the rest.

    Returns the epsilon-rank of F[m, n] = module(a_m, b_n)[position, coordinate] over Gaussian templates. The
    module maps (batch, tokens, width) to the same shape; it runs in evaluation mode, without gradients. The
    default position is the last, which attends to every token in a causal module too.
    """
    torch = require("torch", "torch")
    sides = sides_of(tokens, cut)
    if not -tokens <= position < tokens or not 0 <= coordinate < width:
        raise ConfigError(f"position and coordinate: expected within ({tokens}, {width})")
    example = next(module.parameters(), torch.empty(0, dtype=torch.float64))
    target = {"device": device or example.device, "dtype": example.dtype}

    def forward(sequences: FloatArray) -> FloatArray:
        batch = torch.from_numpy(sequences).to(**target)
        output = module(batch)
        shape: Sequence[int] = tuple(getattr(output, "shape", ()))
        if tuple(shape) != tuple(batch.shape):
            raise ShapeError(
                f"module: expected output of shape {tuple(batch.shape)}, got {shape or type(output)}"
            )
        value: FloatArray = output[:, position, coordinate].double().cpu().numpy()
        return value

    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            matrix = _matricise(forward, np.random.default_rng(seed), sides, width, templates, scale)
    finally:
        module.train(was_training)
    return epsilon_rank(matrix, tol, scale)
