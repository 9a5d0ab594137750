"""plait: recurrence, attention, sparse memory, depth and width; what they buy and what they cost.

Public names are resolved when first used, so `import plait` stays light and `plait.depthwidth` never
loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait._version import __version__
from plait.lazy import before, lazily

if TYPE_CHECKING:
    from plait.cells import ElmanCell, GRUCell, LSTMCell
    from plait.lab.training.session import load
    from plait.lab.training.supervised import fit
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

# module -> the public names it holds
_NAMES: dict[str, tuple[str, ...]] = {
    "plait._version": ("__version__",),
    "plait.cells": ("ElmanCell", "GRUCell", "LSTMCell"),
    "plait.memory": (
        "FullMemory", "NoMemory", "RelevancyMemory", "TopKMemory", "UniformMemory", "WindowMemory",
    ),
    "plait.models": (
        "ExpRNN", "GORU", "GRU", "LSTM", "MemLSTM", "MemRNN", "OrthRNN", "Recurrent", "RelGRU", "RelLSTM",
        "RelRNN", "RNN", "SAB", "SelfAttentive", "State", "Trace", "Transformer", "UniLSTM", "UniRNN",
    ),
    "plait.lab.training.session": ("load",),
    "plait.lab.training.supervised": ("fit",),
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
    "runs",
    "tasks",
    "training",
)

__all__ = [
    "GORU", "GRU", "LSTM", "RNN", "SAB", "ElmanCell", "ExpRNN", "FullMemory", "GRUCell", "LSTMCell",
    "MemLSTM", "MemRNN", "NoMemory", "OrthRNN", "Recurrent", "RelGRU", "RelLSTM", "RelRNN",
    "RelevancyMemory", "SelfAttentive", "State", "TopKMemory", "Trace", "Transformer", "UniLSTM", "UniRNN",
    "UniformMemory", "WindowMemory", "__version__", "fit", "load",
]  # fmt: skip


__getattr__, __dir__ = lazily(__name__, _HOMES, _ROOMS)
# A saved program (torch.export.load) names our operators and our state: they have to be there by then. torch
# imports what reads such files when the first one is read, and nobody else pays for it.
before("torch._export.serde", "plait.models")
