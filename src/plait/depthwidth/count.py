"""Exact parameter counts of decoder-only Transformers, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import ConfigError, at_least

__all__ = ["Architecture", "Count", "count_params"]


@dataclass(frozen=True)
class Architecture:
    """What decides the number of parameters. The defaults are GPT-2's choices.

    Attributes:
        inner: width of the feed-forward part; None means 4·width.
        kv_heads: key and value heads; fewer than `heads` when queries are grouped.
        head_size: None means width/heads.
        gated: a third feed-forward matrix (SwiGLU and its relatives).
        positions: learned position embeddings; 0 for rotary or none.
        tied: the output layer reuses the token embedding.
        norms: normalisations a layer; `final_norm` one more after the last.
        norm_params: parameters a feature of each (2 with an offset, 1 without, 0 without gain).
    """

    depth: int
    width: int
    heads: int
    vocab: int = 50257
    inner: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    gated: bool = False
    positions: int = 1024
    tied: bool = True
    query_key_value_bias: bool = True
    output_bias: bool = True
    feed_forward_bias: bool = True
    norms: int = 2
    norm_params: int = 2
    final_norm: bool = True
    head_norms: int = 0

    def __post_init__(self) -> None:
        at_least(1, depth=self.depth, width=self.width, heads=self.heads)
        at_least(0, vocab=self.vocab, positions=self.positions)
        if self.head_size is None and self.width % self.heads:
            raise ConfigError(f"heads: must divide width {self.width}, got {self.heads}; or give head_size")
        if self.heads % (self.kv_heads or self.heads):
            raise ConfigError(f"kv_heads: must divide heads {self.heads}, got {self.kv_heads}")


@dataclass(frozen=True)
class Count:
    """Parameters by part; `layers` is everything but embeddings and the output layer."""

    attention: int
    feed_forward: int
    norms: int
    embeddings: int
    output: int

    @property
    def layers(self) -> int:
        return self.attention + self.feed_forward + self.norms

    @property
    def total(self) -> int:
        return self.layers + self.embeddings + self.output


def count_params(shape: Architecture) -> Count:
    """Count every weight, bias and gain.

    >>> count_params(Architecture(12, 768, 12)).total  # GPT-2 small
    124439808
    """
    d = shape.width
    inner = shape.inner or 4 * d
    size = shape.head_size or d // shape.heads
    queries = shape.heads * size
    keys_values = 2 * (shape.kv_heads or shape.heads) * size
    attention = d * (queries + keys_values) + queries * d
    attention += (queries + keys_values) * shape.query_key_value_bias + d * shape.output_bias
    attention += shape.head_norms * size
    matrices = 3 if shape.gated else 2
    feed_forward = matrices * d * inner
    feed_forward += ((matrices - 1) * inner + d) * shape.feed_forward_bias
    norms = (shape.depth * shape.norms + shape.final_norm) * shape.norm_params * d
    return Count(
        attention=shape.depth * attention,
        feed_forward=shape.depth * feed_forward,
        norms=norms,
        embeddings=(shape.vocab + shape.positions) * d,
        output=0 if shape.tied else shape.vocab * d,
    )
