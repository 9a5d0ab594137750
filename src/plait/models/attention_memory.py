"""The memories that a Transformer's heads can have, by name and as values."""

from __future__ import annotations

import dataclasses
from typing import Any

from plait.errors import ConfigError, check_choice
from plait.memory import FullMemory, Memory, RelevancyMemory, UniformMemory, WindowMemory
from plait.models.positions import POSITIONS

__all__ = ["MEMORIES", "bounded_memory", "checked_positions", "memory_options"]

MEMORIES: dict[str, type[Memory]] = {
    "full": FullMemory,
    "window": WindowMemory,
    "relevancy": RelevancyMemory,
    "uniform": UniformMemory,
}
_RECURRENT = ("usage", "grad_limit")  # training options of a recurrent layer's score and gradient
_IF_SET = ("noise", "sinks")  # part of a description only if they differ from the default


def bounded_memory(memory: Memory | str | None, **options: Any) -> WindowMemory | None:
    """Return the memory of each head, None where all states are read.

    `options` are those of a memory passed by name. An option that is None has its default, except that
    `relevance` is "learned", because the earned one cannot be computed in one pass.

    >>> bounded_memory("relevancy", window=4, capacity=2) == RelevancyMemory(4, 2, relevance="learned")
    True
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    if isinstance(memory, str):
        kind = MEMORIES[check_choice(memory, MEMORIES, "memory")]
        names = {field.name for field in dataclasses.fields(kind)} - {*_RECURRENT}
        for name in chosen:
            if name not in names:
                has = f"one of {', '.join(sorted(names))}" if names else "no options"
                raise ConfigError(f"{name}: expected {has} with memory {memory!r}, got {chosen[name]!r}")
        if kind is RelevancyMemory:
            chosen.setdefault("relevance", "learned")
        memory = kind(**chosen)
    elif chosen:
        name, value = next(iter(chosen.items()))
        if memory is None:
            raise ConfigError(
                f"{name}: expected none without a memory, got {value!r}; add memory='relevancy'"
            )
        raise ConfigError(
            f"{name}: expected none beside {memory}, got {value!r}; set it in the memory itself"
        )
    if memory is None or type(memory) is FullMemory:
        return None
    if type(memory) not in MEMORIES.values() or not isinstance(memory, WindowMemory):
        kinds = ", ".join(kind.__name__ for kind in MEMORIES.values())
        raise ConfigError(f"memory: expected one of {kinds} or None, got {type(memory).__name__}")
    for name in _RECURRENT:
        if value := getattr(memory, name, None):
            raise ConfigError(f"{name}: expected none in a Transformer, got {value}; use a recurrent layer")
    return memory


def checked_positions(positions: str | None, memory: WindowMemory | None) -> str:
    """Return the kind of positions; without a memory they are true distances."""
    if memory is not None:
        return POSITIONS[0] if positions is None else check_choice(positions, POSITIONS, "positions")
    if positions not in (None, "rotary"):
        raise ConfigError(f"positions: expected rotary without a memory, got {positions!r}; add a memory")
    return "rotary"


def memory_options(memory: WindowMemory | None) -> dict[str, Any]:
    """Return the arguments of `bounded_memory` that rebuild a memory, ready for JSON; empty for None."""
    if memory is None:
        return {}
    name = next(name for name, kind in MEMORIES.items() if kind is type(memory))
    fields = [field for field in dataclasses.fields(memory) if field.name not in _RECURRENT]
    values = {field.name: getattr(memory, field.name) for field in fields}
    for field in fields:
        if field.name in _IF_SET and values[field.name] == field.default:
            del values[field.name]
    return {"memory": name, **values}
