"""Causal networks over characters: a standard Transformer, and the theory's network made trainable.

For input features instead of symbols, with the interface of the recurrent models, use
`plait.models.transformer.Transformer`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from plait.errors import ConfigError, ShapeError, check_int
from plait.models.block import Block, by_head, linear_layer

__all__ = ["CausalTransformer", "LinearAttentionNetwork"]


class _CharacterNetwork(nn.Module):
    """Abstract base class: symbols and positions in, blocks, a linear readout.

    Maps integers (batch, time) to logits (batch, time, vocab); embedding and readout are not tied.
    `per_layer` is c in the c·L·d² weights of the blocks. The readout is initialised to zero, so training
    starts from the uniform distribution, loss ln(vocab).
    """

    per_layer: int

    def __init__(self, vocab: int, depth: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        check_int(1, vocab=vocab, depth=depth, width=width, heads=heads, context=context)
        if width % heads:
            raise ConfigError(f"heads: expected a divisor of width {width}, got {heads}")
        self.vocab, self.depth, self.width, self.heads, self.context = vocab, depth, width, heads, context
        # the sum of symbol and position has variance 1
        self.symbols = nn.Parameter(torch.randn(vocab, width) / math.sqrt(2))
        self.positions = nn.Parameter(torch.randn(context, width) / math.sqrt(2))
        self.readout = nn.Linear(width, vocab, bias=False)
        nn.init.zeros_(self.readout.weight)

    @property
    def num_block_params(self) -> int:
        """The number of parameters besides embeddings, positions and readout: c·L·d², and norm gains."""
        outside = (self.symbols, self.positions, self.readout.weight)
        return sum(p.numel() for p in self.parameters()) - sum(p.numel() for p in outside)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the sum of symbol and position embeddings.

        A product with one-hot rows: cheap for so few symbols, and unlike a table lookup's its gradient is
        summed in a fixed order.
        """
        if tokens.ndim != 2 or tokens.shape[1] > self.context:
            raise ShapeError(
                f"tokens: expected (batch, time) with time at most {self.context}, got {tuple(tokens.shape)}"
            )
        chosen = one_hot(tokens, self.vocab).to(self.symbols.dtype) @ self.symbols
        return chosen + self.positions[: tokens.shape[1]]


class CausalTransformer(_CharacterNetwork):
    """A pre-norm decoder: x += W_O·attention(norm x), x += W_2·gelu(W_1·norm x), L times.

    It has no biases and no dropout. The blocks have 12·L·d² weights and (2L + 1)·d norm gains.

    >>> model = CausalTransformer(vocab=50, depth=2, width=32, heads=2, context=16)
    >>> model(torch.zeros(3, 16, dtype=torch.int64)).shape, model.num_block_params - 12 * 2 * 32**2
    (torch.Size([3, 16, 50]), 160)
    """

    per_layer = 12

    def __init__(self, vocab: int, depth: int, width: int, heads: int, context: int) -> None:
        super().__init__(vocab, depth, width, heads, context)
        self.blocks = nn.ModuleList(Block(width, heads, depth) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.readout(self.norm(x))
        return logits


class LinearAttentionNetwork(_CharacterNetwork):
    r"""The network of the depth-width theory, extended so that it can be trained on text; 4·L·d² weights.

    The theory's layer is $y_i = \sum_h W^O_h \sum_j \langle W^Q_h x_i, W^K_h x_j\rangle W^V_h x_j$: no
    softmax, no normalisation, no feed-forward part. The same holds here, where
    $x_i \mathrel{+}= (d_a\,i)^{-1/2} \sum_h W^O_h \sum_{j \le i} \langle\cdot,\cdot\rangle W^V_h x_j$.
    Added, because the bare polynomial of degree $3^L$ neither reads text nor trains:

    - a causal mask (the theory sums over all positions);
    - the factor $1/\sqrt{d_a\,i}$ at position i = 1, 2, ...: a sum of i terms of random sign keeps its size.
      It depends on the position alone, so the output stays a polynomial of degree $3^L$ in the embeddings;
    - the residual connection, for which the theory has its own corrected bound;
    - embeddings of symbols and positions below, a linear readout above;
    - output matrices $W^O$ that start small, $1/(4\sqrt{L})$ of the usual size.

    Nothing bounds the activations: a run can diverge, and then counts as diverged.

    >>> model = LinearAttentionNetwork(vocab=50, depth=2, width=32, heads=2, context=16)
    >>> model(torch.zeros(3, 16, dtype=torch.int64)).shape, model.num_block_params - 4 * 2 * 32**2
    (torch.Size([3, 16, 50]), 0)
    """

    per_layer = 4
    scale: Tensor

    def __init__(self, vocab: int, depth: int, width: int, heads: int, context: int) -> None:
        super().__init__(vocab, depth, width, heads, context)
        self.into_heads = nn.ModuleList(linear_layer(width, 3 * width) for _ in range(depth))
        shrink = 1 / (4 * math.sqrt(depth))
        self.out_of_heads = nn.ModuleList(linear_layer(width, width, shrink) for _ in range(depth))
        row = torch.rsqrt(torch.arange(1.0, context + 1) * (width // heads))
        self.register_buffer("scale", row[:, None] * torch.ones(context, context).tril(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        scale = self.scale[: tokens.shape[1], : tokens.shape[1]]
        for into_heads, out_of_heads in zip(self.into_heads, self.out_of_heads, strict=True):
            query, key, value = by_head(into_heads(x), self.heads)
            scores = (query @ key.transpose(-1, -2)) * scale.to(query.dtype)
            x = x + out_of_heads((scores @ value).transpose(1, 2).flatten(2))
        logits: Tensor = self.readout(x)
        return logits
