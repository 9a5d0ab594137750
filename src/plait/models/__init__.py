"""Cells times memories, scanned over time: the layers people use."""

from plait.models.builders import (
    GRU,
    LSTM,
    MODELS,
    RNN,
    SAB,
    MemLSTM,
    MemRNN,
    NamedModel,
    RelGRU,
    RelLSTM,
    RelRNN,
)
from plait.models.recurrent import Recurrent
from plait.models.scorer import AdditiveScorer
from plait.models.self_attentive import SelfAttentive
from plait.models.state import State
from plait.models.transformer import CausalTransformer, LinearAttentionNetwork
from plait.ops.walk import Trace

__all__ = [
    "GRU",
    "LSTM",
    "MODELS",
    "RNN",
    "SAB",
    "AdditiveScorer",
    "CausalTransformer",
    "LinearAttentionNetwork",
    "MemLSTM",
    "MemRNN",
    "NamedModel",
    "Recurrent",
    "RelGRU",
    "RelLSTM",
    "RelRNN",
    "SelfAttentive",
    "State",
    "Trace",
]
