"""The named models by their names on the command line and in descriptions of runs."""

from __future__ import annotations

from collections.abc import Callable

from plait.models.baselines import SAB, MemLSTM, MemRNN, UniLSTM, UniRNN
from plait.models.named import NamedModel
from plait.models.plain import GORU, GRU, LSTM, RNN, ExpRNN, OrthRNN
from plait.models.relevancy import RelGRU, RelLSTM, RelRNN
from plait.models.transformer import Transformer

__all__ = ["MODELS"]

# constructors: every class has a signature of its own
MODELS: dict[str, Callable[..., NamedModel | Transformer]] = {
    "rnn": RNN,
    "lstm": LSTM,
    "gru": GRU,
    "orthrnn": OrthRNN,
    "exprnn": ExpRNN,
    "goru": GORU,
    "memrnn": MemRNN,
    "memlstm": MemLSTM,
    "relrnn": RelRNN,
    "rellstm": RelLSTM,
    "relgru": RelGRU,
    "unirnn": UniRNN,
    "unilstm": UniLSTM,
    "sab": SAB,
    "transformer": Transformer,
}
