"""What a shape costs to run: operations and cache per token, and layers that wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

from plait.depthwidth.count import Architecture, count_params
from plait.errors import at_least

__all__ = ["Price", "price"]


@dataclass(frozen=True)
class Price:
    """Of one token, read with `context` tokens before it.

    Attributes:
        params: all parameters, embeddings included.
        flops: forward operations: two for each weight a token goes through, and attention over the context.
        cache_bytes: what a token leaves in the cache of keys and values.
        layers: one after the other; no amount of parallel hardware shortens this chain.
    """

    params: int
    flops: int
    cache_bytes: int
    layers: int


def price(shape: Architecture, context: int = 2048, bytes_per_number: int = 2) -> Price:
    """Operations, cache and depth of a decoder of this architecture.

    >>> price(Architecture(12, 768, 12), context=1024)
    Price(params=124439808, flops=285055488, cache_bytes=36864, layers=12)
    """
    at_least(0, context=context)
    at_least(1, bytes_per_number=bytes_per_number)
    count = count_params(shape)
    attention = 4 * shape.depth * shape.query_width * context
    output = 2 * shape.vocab * (shape.embedding_size or shape.width)
    return Price(
        params=count.total,
        flops=2 * count.active + output + attention,
        cache_bytes=2 * shape.depth * shape.key_width * bytes_per_number,
        layers=shape.depth,
    )
