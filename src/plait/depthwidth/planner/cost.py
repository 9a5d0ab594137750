"""Inference costs of a stack of layers: operations and KV cache per token, and layers in series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from plait.depthwidth.planner.count import Architecture, Count, count_params
from plait.errors import check_min

__all__ = ["TWO_LENGTHS", "Attention", "Price", "Stack", "no_verdict", "price", "price_stack", "stack_of"]

TWO_LENGTHS = "those of an encoder and a decoder depend on how long both sequences are"

Kind = Literal["decoder", "encoder", "encoder and decoder", "other"]


class Attention(NamedTuple):
    """Attention of one layer.

    Attributes:
        window: tokens a query attends to at most; 0 for all.
        flops: operations per attended token.
        cache: numbers per token in the KV cache; 0 in an encoder and in a layer that shares another's cache.
    """

    window: int
    flops: int
    cache: int


@dataclass(frozen=True)
class Stack:
    """Layers of a network, as far as its costs and the guideline depend on them.

    Attributes:
        depth: number of layers.
        kind: a decoder's attention is causal, an encoder's is bidirectional.
        attention: one entry per layer with softmax attention.
        recurrent: layers with a recurrent state of fixed size, with or without attention.
        state: total size of those states, in numbers; None if unknown.
        output: weights of the output layer, used once per token.
        unknown: reason why operations and cache cannot be counted; empty if they can.
        note: terms that the count leaves out.
    """

    depth: int
    kind: Kind
    attention: tuple[Attention, ...]
    recurrent: int = 0
    state: int | None = 0
    output: int = 0
    unknown: str = ""
    note: str = ""


@dataclass(frozen=True)
class Price:
    """Costs of decoding one token after a context of `context` tokens.

    Attributes:
        params: all parameters, embeddings included.
        flops: forward operations: two per weight that a token uses, and attention over the context.
        cache_bytes: growth of the KV cache per token, at any context length.
        layers: layers in series, which parallel hardware cannot shorten.
        window_bytes: KV cache of the layers with windowed attention, once the window is full.
        state_bytes: recurrent states, at any context length; None if unknown.
    """

    params: int
    flops: int
    cache_bytes: int
    layers: int
    window_bytes: int = 0
    state_bytes: int | None = 0


def stack_of(shape: Architecture) -> Stack:
    """Return the layers of an architecture."""
    flops, cache = 4 * shape.query_width, 2 * shape.key_width if shape.causal else 0
    windows = shape.windows or (0,) * shape.depth
    return Stack(
        depth=shape.depth,
        kind="encoder and decoder" if shape.decoder else "decoder" if shape.causal else "encoder",
        attention=tuple(Attention(window, flops, cache) for window in windows),
        output=shape.vocab * (shape.embedding_size or shape.width),
        unknown=TWO_LENGTHS if shape.decoder else "",
    )


def price(shape: Architecture, context: int = 2048, bytes_per_number: int = 2) -> Price:
    """Return the costs of one stack of this architecture.

    >>> price(Architecture(12, 768, 12), context=1024).cache_bytes
    36864
    """
    return price_stack(stack_of(shape), count_params(shape), context, bytes_per_number)


def price_stack(stack: Stack, count: Count, context: int = 2048, bytes_per_number: int = 2) -> Price:
    """Return the costs of a stack, given its parameter count."""
    check_min(0, context=context)
    check_min(1, bytes_per_number=bytes_per_number)
    attention = sum(layer.flops * min(context, layer.window or context) for layer in stack.attention)
    return Price(
        params=count.total,
        flops=2 * count.active + 2 * stack.output + attention,
        cache_bytes=bytes_per_number * sum(layer.cache for layer in stack.attention if not layer.window),
        layers=stack.depth,
        window_bytes=bytes_per_number * sum(layer.cache * layer.window for layer in stack.attention),
        state_bytes=None if stack.state is None else bytes_per_number * stack.state,
    )


def no_verdict(stack: Stack) -> str:
    """Return the reason why the guideline does not apply to a stack; empty if it does.

    >>> no_verdict(stack_of(Architecture(12, 768, 12, causal=False)))
    'the law is about decoders, in which a token attends to those before it; this is an encoder'
    """
    if stack.kind == "encoder and decoder":
        return "the law is about one stack of layers; this is an encoder and a decoder"
    if stack.kind == "encoder":
        return "the law is about decoders, in which a token attends to those before it; this is an encoder"
    if stack.kind == "other":
        return "the law is about language models that predict the next token; this is not one"
    every = "the law is about stacks in which every layer attends"
    if len(stack.attention) < stack.depth:
        count = len(stack.attention)
        here = f"{count} of {stack.depth} {'does' if count == 1 else 'do'}" if count else "none does"
        return f"{every}; here {here}"
    if stack.recurrent:
        here = f"{stack.recurrent} of {stack.depth} are recurrent too"
        return f"{every} and does nothing else across tokens; here {here}"
    return ""
