"""Sum over paths through a stack of layers without recurrence: Proposition 1 for a Transformer.

    x^{l+1}_i = f_l,i(x^l_1, …, x^l_T)          dx^L_T/dx^0_t = Σ  Π_l ∂x^{l+1}_{i_{l+1}}/∂x^l_{i_l}

The sum runs over all paths t = i_0, i_1, …, i_L = T of positions, one edge a layer. Depth takes the place
of time: an edge that stays at its position (residual stream, feed-forward part, attention to itself) takes
that of the recurrent edge, and an edge between positions can only be attention. A causal stack of L layers
has C(T − t + L − 1, L − 1) paths, which are summed without being enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

from plait.errors import ConfigError, ShapeError
from plait.gradients.paths.calculus import Breakdown, taken_apart
from plait.models import Recurrent

__all__ = ["stack_breakdown", "stack_derivatives", "stack_of"]

Layer = Callable[[Tensor], Tensor]  # (T, N) → (T, N)


def stack_of(model: Recurrent) -> list[Layer]:
    """Return the layers of a `Recurrent`, for example a `plait.Transformer`, as functions (T, N) → (T, N)."""
    if model.bidirectional:
        raise ConfigError("model: expected one that reads forwards, got a bidirectional one")

    def alone(layer: Callable[..., object]) -> Layer:
        def walk(x: Tensor) -> Tensor:
            output: Tensor = layer(x[:, None]).output[:, 0]  # type: ignore[attr-defined]
            return output

        return walk

    return [alone(layer) for layer in model._layers()]


def stack_derivatives(layers: Sequence[Layer], x: Tensor, t: int, T: int) -> Tensor:
    """Return dx^L_T/dx^0_t by the number of attention edges on a path, (L + 1, N, N); positions count from 1.

    Entry a sums the paths with exactly a edges between different positions. A layer takes T² N² numbers.

    >>> shift = lambda x: x + torch.cat([torch.zeros(1, 2), x[:-1]])  # each position reads the one before
    >>> stack_derivatives([shift, shift, shift], torch.randn(5, 2), t=2, T=4)[:, 0, 0].tolist()
    [0.0, 0.0, 3.0, 0.0]
    """
    if x.dim() != 2:
        raise ShapeError(f"x: expected (T, N), the states below the first layer, got {tuple(x.shape)}")
    if not 1 <= t <= T <= len(x):
        raise ConfigError(f"positions: expected 1 <= t <= T <= {len(x)}, got t = {t}, T = {T}")
    if not layers:
        raise ConfigError("layers: expected at least one, got none")
    length, width = x.shape
    parts = x.new_zeros(len(layers) + 1, length, width, width)
    parts[0, t - 1] = torch.eye(width, dtype=x.dtype, device=x.device)
    stays = torch.eye(length, dtype=torch.bool, device=x.device)[:, None, :, None]
    for layer in layers:
        # torch's fused attention has no batched backward pass; the unfused one gives the same numbers
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            edge = jacrev(layer)(x)  # (T, N, T, N): by position above and below
            x = layer(x)
        moved = _along(edge.masked_fill(stays, 0.0), parts)
        parts = _along(edge.masked_fill(~stays, 0.0), parts)
        parts[1:] += moved[:-1]
    return parts[:, T - 1]


def _along(edge: Tensor, parts: Tensor) -> Tensor:
    return torch.einsum("infm,afmk->aink", edge, parts)


def stack_breakdown(layers: Sequence[Layer], x: Tensor, t: int, T: int) -> Breakdown:
    """Return `stack_derivatives` as norms and shares of the whole."""
    return taken_apart(stack_derivatives(layers, x, t, T), f"dx_{T}/dx_{t}")
