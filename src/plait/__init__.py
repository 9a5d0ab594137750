"""plait: recurrence, attention, sparse memory, depth and width; what they buy and what they cost.

Public names are resolved when first used, so `import plait` stays light and `plait.depthwidth` never
loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from plait._version import __version__

if TYPE_CHECKING:
    from plait.cells import ElmanCell, GRUCell, LSTMCell
    from plait.memory import (
        FullMemory,
        NoMemory,
        RelevancyMemory,
        TopKMemory,
        UniformMemory,
        WindowMemory,
    )
    from plait.models import (
        GORU,
        GRU,
        LSTM,
        RNN,
        SAB,
        ExpRNN,
        MemLSTM,
        MemRNN,
        OrthRNN,
        Recurrent,
        RelGRU,
        RelLSTM,
        RelRNN,
        SelfAttentive,
        State,
        Trace,
        Transformer,
        UniLSTM,
        UniRNN,
    )
    from plait.training.catalogue import load
    from plait.training.supervised import fit

# module -> the public names it holds
_NAMES: dict[str, tuple[str, ...]] = {
    "plait.cells": ("ElmanCell", "GRUCell", "LSTMCell"),
    "plait.memory": (
        "FullMemory", "NoMemory", "RelevancyMemory", "TopKMemory", "UniformMemory", "WindowMemory",
    ),
    "plait.models": (
        "ExpRNN", "GORU", "GRU", "LSTM", "MemLSTM", "MemRNN", "OrthRNN", "Recurrent", "RelGRU", "RelLSTM",
        "RelRNN", "RNN", "SAB", "SelfAttentive", "State", "Trace", "Transformer", "UniLSTM", "UniRNN",
    ),
    "plait.training.catalogue": ("load",),
    "plait.training.supervised": ("fit",),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
_ROOMS = (
    "cells",
    "depthwidth",
    "errors",
    "figures",
    "gradients",
    "memory",
    "models",
    "ops",
    "report",
    "tasks",
    "training",
)

__all__ = [
    "GORU", "GRU", "LSTM", "RNN", "SAB", "ElmanCell", "ExpRNN", "FullMemory", "GRUCell", "LSTMCell",
    "MemLSTM", "MemRNN", "NoMemory", "OrthRNN", "Recurrent", "RelGRU", "RelLSTM", "RelRNN",
    "RelevancyMemory", "SelfAttentive", "State", "TopKMemory", "Trace", "Transformer", "UniLSTM", "UniRNN",
    "UniformMemory", "WindowMemory", "__version__", "fit", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"plait.{name}")
    raise AttributeError(f"module 'plait' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
