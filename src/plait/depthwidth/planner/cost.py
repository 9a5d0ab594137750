"""What a stack costs to run: operations and cache per token, and layers that wait for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from plait.depthwidth.planner.count import Architecture, Count, count_params
from plait.errors import at_least

__all__ = ["TWO_LENGTHS", "Attention", "Price", "Stack", "no_verdict", "price", "price_stack", "stack_of"]

TWO_LENGTHS = "those of an encoder and a decoder depend on how long both sequences are"

Kind = Literal["decoder", "encoder", "encoder and decoder", "other"]


class Attention(NamedTuple):
    """The attention of one layer.

    Attributes:
        window: how many tokens back it goes; 0 for all.
        flops: operations for each token attended to.
        cache: numbers a token leaves in the cache; 0 in an encoder, and where the cache is another layer's.
    """

    window: int
    flops: int
    cache: int


@dataclass(frozen=True)
class Stack:
    """What the layers of a network are, as far as its costs and the guideline depend on it.

    Attributes:
        depth: layers.
        kind: a decoder attends to what came before, an encoder to everything.
        attention: one for each layer that attends by softmax.
        recurrent: layers with a state of fixed size, alone or beside attention.
        state: numbers in those states together; None where the size is not known.
        output: weights of the output layer, used once a token.
        unknown: why operations and cache cannot be counted; empty where they can.
        note: what their count leaves out.
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
    """Costs of one token that comes after `context` others.

    Attributes:
        params: all parameters, embeddings included.
        flops: forward operations: two for each weight a token goes through, and attention over the context.
        cache_bytes: bytes by which the cache of keys and values grows with a token, however long the context.
        layers: one after the other; no amount of parallel hardware shortens this chain.
        window_bytes: cache of the layers that attend to a window, once it is full.
        state_bytes: recurrent states, of whatever length the context is; None where not known.
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
    """Return operations, cache and depth of one stack of this architecture.

    >>> price(Architecture(12, 768, 12), context=1024).cache_bytes
    36864
    """
    return price_stack(stack_of(shape), count_params(shape), context, bytes_per_number)


def price_stack(stack: Stack, count: Count, context: int = 2048, bytes_per_number: int = 2) -> Price:
    """Return operations, cache and depth of a stack whose parameters were counted."""
    at_least(0, context=context)
    at_least(1, bytes_per_number=bytes_per_number)
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
    """Return why the guideline says nothing of a stack; empty where it does.

    >>> no_verdict(stack_of(Architecture(12, 768, 12, causal=False)))
    'the law is about decoders, in which a token attends to those before it; this is an encoder'
    """
    if stack.kind == "encoder and decoder":
        return "the law is about one stack of layers; this is an encoder and a decoder"
    if stack.kind == "encoder":
        return "the law is about decoders, in which a token attends to those before it; this is an encoder"
    if stack.kind == "other":
        return "the law is about language models that predict the next token; this is none"
    every = "the law is about stacks in which every layer attends"
    if len(stack.attention) < stack.depth:
        count = len(stack.attention)
        here = f"{count} of {stack.depth} {'does' if count == 1 else 'do'}" if count else "none does"
        return f"{every}; here {here}"
    if stack.recurrent:
        here = f"{stack.recurrent} of {stack.depth} are recurrent too"
        return f"{every} and does nothing else across tokens; here {here}"
    return ""
