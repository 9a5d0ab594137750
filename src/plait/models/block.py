"""The pre-norm Transformer block of all causal networks here."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

__all__ = ["Block", "by_head", "causal", "linear_layer"]

# queries, keys, values (batch, head, time, head size) → attention output in the same shape
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Apply softmax attention of every step over itself and the steps before it."""
    return scaled_dot_product_attention(query, key, value, is_causal=True)


class Block(nn.Module):
    """A pre-norm block over (batch, time, width): x += W_O·attention(norm x), x += W_2·gelu(W_1·norm x).

    `depth` is the number of blocks of the network, by which initial weights are scaled; `bias` switches the
    biases of the linear maps and norms.

    >>> Block(width=8, heads=2, depth=1)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        depth: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width, bias=bias, device=device, dtype=dtype)
        self.before_mlp = nn.LayerNorm(width, bias=bias, device=device, dtype=dtype)
        # Layers that add to the residual stream are initialised smaller the more of them there are.
        shrink = 1 / math.sqrt(2 * depth)
        self.into_heads = linear_layer(width, 3 * width, 1.0, bias, device, dtype)
        self.out_of_heads = linear_layer(width, width, shrink, bias, device, dtype)
        self.widen = linear_layer(width, 4 * width, 1.0, bias, device, dtype)
        self.narrow = linear_layer(4 * width, width, shrink, bias, device, dtype)

    def forward(self, x: Tensor, attend: Attend = causal) -> Tensor:
        return self.after(x, attend(*self.projected(self.before_attention(x))))

    def projected(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of the normalised stream."""
        return by_head(self.into_heads(normed), self.heads)

    def after(self, x: Tensor, read: Tensor) -> Tensor:
        """Add the heads' outputs (batch, head, time, head size) and the feed-forward block to the stream."""
        x = x + self.out_of_heads(read.transpose(1, 2).flatten(2))
        mlp: Tensor = self.narrow(gelu(self.widen(self.before_mlp(x))))
        return x + mlp


def linear_layer(
    inputs: int,
    outputs: int,
    shrink: float = 1.0,
    bias: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """Return a linear layer with weights of variance shrink²/inputs and a bias of 0.

    With this variance activations do not grow with the width.
    """
    layer = nn.Linear(inputs, outputs, bias=bias, device=device, dtype=dtype)
    nn.init.normal_(layer.weight, std=shrink / math.sqrt(inputs))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def by_head(joint: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split (batch, time, 3·width) into queries, keys and values (batch, head, time, head size)."""
    batch, time, triple = joint.shape
    parts = joint.view(batch, time, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]
