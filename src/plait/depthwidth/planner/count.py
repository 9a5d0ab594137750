"""Exact parameter counts of Transformers, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import ConfigError, check_min

__all__ = ["Architecture", "Count", "Experts", "count_params"]


@dataclass(frozen=True)
class Experts:
    """Mixture of experts in place of the feed-forward block.

    Attributes:
        number, active: experts in total, and experts per token.
        inner: hidden width of an expert.
        shared_inner: hidden width of the shared expert that every token uses; 0 for none.
        shared_gate: the shared expert has a gate.
        router_bias, bias: the router, and the experts themselves, have biases.
        dense_layers: layers with an ordinary feed-forward block instead.
    """

    number: int
    active: int
    inner: int
    shared_inner: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False
    dense_layers: int = 0

    def __post_init__(self) -> None:
        check_min(1, experts=self.number, active_experts=self.active, expert_inner=self.inner)
        if self.active > self.number:
            raise ConfigError(
                f"active experts: expected at most the {self.number} there are, got {self.active}"
            )


@dataclass(frozen=True)
class Architecture:
    """Hyperparameters that determine the number of parameters. The defaults are GPT-2's.

    Attributes:
        inner: hidden width of the feed-forward block; None means 4·width.
        kv_heads: key and value heads; fewer than `heads` with grouped-query attention.
        head_size: None means width/heads.
        gated: a third feed-forward matrix (SwiGLU and similar).
        positions: learned position embeddings; 0 for rotary or none.
        tied: the output layer reuses the token embedding.
        norms: normalisations per layer; `final_norm` adds one after the last layer.
        norm_params: parameters per feature of a normalisation (2: gain and bias, 1: gain, 0: neither).
        attention_extra: further attention parameters per layer: query and key norms, attention sinks.
        experts: mixture of experts in place of the feed-forward block.
        embedding_size: width of the embeddings; None means `width`.
        embedding_extra, output_extra: other parameters before the first layer (norms, token types,
            projections, a table of relative positions) and after the last (biases, a transform).
        decoder: layers of a decoder with cross-attention to these layers; 0 for a single stack.
        windows: attention window of each layer in tokens, 0 for none; empty if no layer has one.
        causal: causal attention; False in an encoder.
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
    attention_extra: int = 0
    experts: Experts | None = None
    embedding_size: int | None = None
    embedding_extra: int = 0
    output_extra: int = 0
    decoder: int = 0
    windows: tuple[int, ...] = ()
    causal: bool = True

    def __post_init__(self) -> None:
        check_min(1, depth=self.depth, width=self.width, heads=self.heads)
        check_min(0, vocab=self.vocab, positions=self.positions, decoder=self.decoder)
        if self.windows and len(self.windows) != self.depth:
            raise ConfigError(
                f"windows: expected one for each of {self.depth} layers, got {len(self.windows)}"
            )
        for window in set(self.windows):
            check_min(0, windows=window)
        if self.head_size is None and self.width % self.heads:
            raise ConfigError(f"heads: must divide width {self.width}, got {self.heads}; or give head_size")
        if self.heads % (self.kv_heads or self.heads):
            raise ConfigError(f"kv_heads: must divide heads {self.heads}, got {self.kv_heads}")

    @property
    def query_width(self) -> int:
        """Width of the query projection, heads · head_size."""
        return self.heads * (self.head_size or self.width // self.heads)

    @property
    def key_width(self) -> int:
        """Width of the key projection, which is also that of the value projection."""
        return self.query_width // self.heads * (self.kv_heads or self.heads)


@dataclass(frozen=True)
class Count:
    """Parameters by part; `layers` are all but the embeddings and the output layer.

    `inactive` counts the experts that a token does not use; `active` is `layers` without them.
    """

    attention: int
    feed_forward: int
    norms: int
    embeddings: int
    output: int
    inactive: int = 0

    @property
    def layers(self) -> int:
        return self.attention + self.feed_forward + self.norms

    @property
    def active(self) -> int:
        return self.layers - self.inactive

    @property
    def total(self) -> int:
        return self.layers + self.embeddings + self.output


def count_params(shape: Architecture) -> Count:
    """Count every weight, bias and gain.

    >>> count_params(Architecture(12, 768, 12)).total  # GPT-2 small
    124439808
    """
    d = shape.width
    queries, keys = shape.query_width, shape.key_width
    attention = d * (queries + 2 * keys) + queries * d
    attention += (queries + 2 * keys) * shape.query_key_value_bias + d * shape.output_bias
    attention += shape.attention_extra
    dense = _feed_forward(shape, shape.inner or 4 * d, shape.feed_forward_bias)
    feed_forward, inactive = shape.depth * dense, 0
    if shape.experts is not None:
        feed_forward, inactive = _mixture(shape, shape.experts, dense)
    stacks = 2 if shape.decoder else 1
    # A decoder layer has cross-attention and a norm for it in addition.
    norms = shape.depth * shape.norms + shape.decoder * (shape.norms + 1) + stacks * shape.final_norm
    size = shape.embedding_size or d
    return Count(
        attention=(shape.depth + 2 * shape.decoder) * attention,
        feed_forward=feed_forward + shape.decoder * dense,
        norms=norms * shape.norm_params * d,
        embeddings=(shape.vocab + shape.positions) * size + shape.embedding_extra,
        output=(0 if shape.tied else shape.vocab * size) + shape.output_extra,
        inactive=inactive,
    )


def _feed_forward(shape: Architecture, inner: int, bias: bool) -> int:
    matrices = 3 if shape.gated else 2
    return matrices * shape.width * inner + ((matrices - 1) * inner + shape.width) * bias


def _mixture(shape: Architecture, experts: Experts, dense: int) -> tuple[int, int]:
    """Return the parameters of all feed-forward blocks, and those of them that a token does not use."""
    expert = _feed_forward(shape, experts.inner, experts.bias)
    router = experts.number * (shape.width + experts.router_bias)
    shared = _feed_forward(shape, experts.shared_inner, experts.bias) if experts.shared_inner else 0
    shared += shape.width * experts.shared_gate
    sparse = shape.depth - experts.dense_layers
    total = sparse * (experts.number * expert + router + shared) + experts.dense_layers * dense
    return total, sparse * (experts.number - experts.active) * expert
