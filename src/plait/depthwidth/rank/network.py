"""Network over GF(p) whose rank is measured: weights, its definition, and its Gram form.

Layer l maps token i to  y^{l+1,i} = Σ_h W^{O,h} Σ_j ⟨W^{Q,h} y^{l,i}, W^{K,h} y^{l,j}⟩ W^{V,h} y^{l,j}:
self-attention without softmax, normalisation, feed-forward block or positions. Its output is a
polynomial, so its values on random integers mod p are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.depthwidth.rank.field import FloatArray, centre, check_prime, exact_depth
from plait.errors import ConfigError, ShapeError, check_int

__all__ = [
    "Weights",
    "check_sizes",
    "draw_weights",
    "gram_forward",
    "linear_attention_forward",
    "random_residues",
]

DEEPEST, WIDEST = 8, 10_000  # limits of the exact arithmetic


@dataclass(frozen=True)
class Weights:
    """Weights W^Q, W^K, W^V, (depth, heads, head size, width), and W^O, (depth, heads, width, head size)."""

    query: FloatArray
    key: FloatArray
    value: FloatArray
    output: FloatArray

    @property
    def depth(self) -> int:
        return int(self.query.shape[0])

    @property
    def heads(self) -> int:
        return int(self.query.shape[1])

    @property
    def width(self) -> int:
        return int(self.query.shape[3])

    @classmethod
    def of_floats(cls, prime: int, query: Any, key: Any, value: Any, output: Any) -> Weights:
        """Convert floating-point weights, such as trained ones, to residues without rounding.

        A float is m·2^e with integers m and e, and 2 has an inverse mod p. So the network over GF(p) is the
        exact reduction mod p of the trained network.

        >>> Weights.of_floats(7, *[np.full((1, 1, 1, 1), 0.25)] * 4).query.item()  # 4 · 2 = 1 mod 7
        2.0
        """
        return cls(*(_residues_of_floats(x, prime) for x in (query, key, value, output)))

    def outer(self, prime: int) -> FloatArray:
        """Return P_h = W^{O,h} W^{V,h} mod p, (depth, heads, width, width)."""
        return mod(self.output @ self.value, prime)

    def inner(self, prime: int) -> FloatArray:
        """Return Q_h = (W^{K,h})ᵀ W^{Q,h} mod p, (depth, heads, width, width)."""
        return mod(np.swapaxes(self.key, -1, -2) @ self.query, prime)


def mod(x: FloatArray, prime: int | None) -> FloatArray:
    """Return the centred residues of exact integers; with `prime` None, the integers themselves."""
    if prime is None:
        return x
    reduced: FloatArray = x - prime * np.rint(x * (1.0 / prime))
    return reduced


def _residues_of_floats(values: Any, prime: int) -> FloatArray:
    check_prime(prime)
    if prime == 2:
        raise ConfigError("p: expected an odd prime: floats are fractions of powers of 2")
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ConfigError("weights: expected finite numbers, got non-finite ones")
    mantissas, exponents = np.frexp(array)
    scaled = np.ldexp(mantissas, 53).astype(np.int64) % prime
    distinct, indices = np.unique(exponents, return_inverse=True)
    powers = np.array([pow(2, int(exponent) - 53, prime) for exponent in distinct], dtype=np.int64)
    return centre(scaled * powers[indices].reshape(array.shape) % prime, prime)


def random_residues(rng: np.random.Generator, prime: int, *shape: int) -> FloatArray:
    """Draw uniform elements of GF(p) as centred residues."""
    half = prime // 2
    return rng.integers(-half, half, size=shape, endpoint=True).astype(np.float64)


def check_sizes(depth: int, width: int, heads: int) -> int:
    """Check the sizes of a network, and return its head size."""
    for name, value in (("depth", depth), ("width", width), ("heads", heads)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ConfigError(f"{name}: expected a whole number, got {value!r}")
    check_int(1, DEEPEST, depth=int(depth))
    check_int(1, WIDEST, width=int(width), heads=int(heads))
    if heads > width:
        raise ConfigError(f"heads: at most width = {width} for an exact rank, got {heads}")
    if width % heads:
        divisors = [h for h in range(1, width + 1) if width % h == 0]
        raise ConfigError(f"heads: must divide width {width}, got {heads}; one of {divisors}")
    return width // heads


def draw_weights(depth: int, width: int, heads: int, prime: int, seed: int | np.random.Generator) -> Weights:
    """Draw uniformly random weights over GF(p), which are generic with overwhelming probability."""
    size = check_sizes(depth, width, heads)
    rng = np.random.default_rng(seed)
    wide, tall = (depth, heads, size, width), (depth, heads, width, size)
    return Weights(
        query=random_residues(rng, prime, *wide),
        key=random_residues(rng, prime, *wide),
        value=random_residues(rng, prime, *wide),
        output=random_residues(rng, prime, *tall),
    )


def linear_attention_forward(
    tokens: FloatArray, weights: Weights, residual: bool = False, p: int | None = None
) -> FloatArray:
    """Evaluate the network by its definition.

    Args:
        tokens: (..., tokens, width), residues when `p` is given.
        weights: the four matrices of every layer and head.
        residual: add each layer's input to its output.
        p: compute in GF(p), exactly; None computes in floating point.

    Returns:
        (..., tokens, width).
    """
    tokens = np.asarray(tokens, dtype=np.float64)
    if tokens.ndim < 2 or tokens.shape[-1] != weights.width:
        raise ShapeError(f"tokens: expected (..., tokens, {weights.width}), got {tokens.shape}")
    if p is not None:
        deepest = max(tokens.shape[-2], weights.width * weights.heads)
        check_prime(p, products=deepest + 1, degree=0)
    y = tokens
    for layer in range(weights.depth):
        total = np.zeros_like(y)
        for h in range(weights.heads):
            q = mod(y @ weights.query[layer, h].T, p)
            k = mod(y @ weights.key[layer, h].T, p)
            v = mod(y @ weights.value[layer, h].T, p)
            scores = mod(q @ np.swapaxes(k, -1, -2), p)
            total = mod(total + mod(scores @ v, p) @ weights.output[layer, h].T, p)
        y = mod(y + total, p) if residual else total
    return y


def gram_forward(
    gram: FloatArray,
    token: FloatArray,
    weights: Weights,
    residual: bool = False,
    p: int | None = None,
) -> FloatArray:
    """Evaluate the network from S = X Xᵀ and one token x: X_{l+1} = T_l X_l, S_{l+1} = T_l S_l T_lᵀ.

    T_l = Σ_h W^{O,h} W^{V,h} S_l (W^{K,h})ᵀ W^{Q,h}, plus the identity with residual connections.

    Args:
        gram: (..., width, width), token: (..., width).

    Returns:
        (..., width): the network's output at that token.
    """
    if p is not None and exact_depth(p) < weights.width * weights.heads + 1:
        check_prime(p, products=weights.width * weights.heads + 1)
    modulus = p
    outer = mod(weights.output @ weights.value, modulus)
    inner = mod(np.swapaxes(weights.key, -1, -2) @ weights.query, modulus)
    for layer in range(weights.depth):
        step = np.zeros_like(gram)
        for h in range(weights.heads):
            step = mod(step + mod(outer[layer, h] @ gram, modulus) @ inner[layer, h], modulus)
        if residual:
            step = step + np.eye(weights.width)
        token = mod((step @ token[..., None])[..., 0], modulus)
        gram = mod(mod(step @ gram, modulus) @ np.swapaxes(step, -1, -2), modulus)
    return token
