"""Recurrent and attention layers and the named models: cells times memories, scanned over time."""

from plait.models.baselines import SAB, MemLSTM, MemRNN, UniLSTM, UniRNN
from plait.models.character_networks import CausalTransformer, LinearAttentionNetwork
from plait.models.layer import Layer
from plait.models.named import NamedModel
from plait.models.packed import Packed, unpack
from plait.models.plain import GORU, GRU, LSTM, RNN, ExpRNN, OrthRNN
from plait.models.recurrent import Recurrent
from plait.models.relevancy import RelGRU, RelLSTM, RelRNN
from plait.models.scorer import AdditiveScorer
from plait.models.self_attentive import SelfAttentive
from plait.models.state import State
from plait.models.table import MODELS
from plait.models.transformer import Transformer
from plait.ops.walk import Trace

__all__ = [
    "GORU",
    "GRU",
    "LSTM",
    "MODELS",
    "RNN",
    "SAB",
    "AdditiveScorer",
    "CausalTransformer",
    "ExpRNN",
    "Layer",
    "LinearAttentionNetwork",
    "MemLSTM",
    "MemRNN",
    "NamedModel",
    "OrthRNN",
    "Packed",
    "Recurrent",
    "RelGRU",
    "RelLSTM",
    "RelRNN",
    "SelfAttentive",
    "State",
    "Trace",
    "Transformer",
    "UniLSTM",
    "UniRNN",
    "unpack",
]
