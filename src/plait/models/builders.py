"""Named models: a cell and a memory under one name.

All behaviour is in `NamedModel`. The abstract classes between it and the models only declare the options to
type checkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

import torch
from torch import nn

from plait.cells import ElmanCell, GRUCell, LSTMCell
from plait.memory import FullMemory, RelevancyMemory, TopKMemory, UniformMemory
from plait.models.keywords import (
    ElmanOptions,
    ElmanRelevancyOptions,
    ElmanUniformOptions,
    GatedOptions,
    GatedRelevancyOptions,
    GatedTopKOptions,
    GatedUniformOptions,
)
from plait.models.named import NamedModel
from plait.models.transformer import Transformer

__all__ = [
    "GORU", "GRU", "LSTM", "MODELS", "RNN", "SAB", "ExpRNN", "MemLSTM", "MemRNN", "NamedModel", "OrthRNN",
    "RelGRU", "RelLSTM", "RelRNN", "UniLSTM", "UniRNN",
]  # fmt: skip


class ElmanModel(NamedModel):
    """Abstract: the typed signature of models with an Elman cell."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[ElmanOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[ElmanOptions]) -> Self: ...  # type: ignore[override]


class GatedModel(NamedModel):
    """Abstract: the typed signature of models with an LSTM or GRU cell."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[GatedOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[GatedOptions]) -> Self: ...  # type: ignore[override]


class ElmanRelevancyModel(NamedModel):
    """Abstract: the typed signature of models with an Elman cell and a relevancy memory."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[ElmanRelevancyOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[ElmanRelevancyOptions]) -> Self: ...  # type: ignore[override]


class GatedRelevancyModel(NamedModel):
    """Abstract: the typed signature of models with a gated cell and a relevancy memory."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[GatedRelevancyOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[GatedRelevancyOptions]) -> Self: ...  # type: ignore[override]


class ElmanUniformModel(NamedModel):
    """Abstract: the typed signature of models with an Elman cell and uniform writing."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[ElmanUniformOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[ElmanUniformOptions]) -> Self: ...  # type: ignore[override]


class GatedUniformModel(NamedModel):
    """Abstract: the typed signature of models with a gated cell and uniform writing."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[GatedUniformOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[GatedUniformOptions]) -> Self: ...  # type: ignore[override]


class GatedTopKModel(NamedModel):
    """Abstract: the typed signature of models with a gated cell and a top-k memory."""

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
            device: torch.device | str | None = None, dtype: torch.dtype | None = None,
            **options: Unpack[GatedTopKOptions],
        ) -> None: ...  # fmt: skip
        @classmethod
        def from_torch(cls, module: nn.RNNBase, **options: Unpack[GatedTopKOptions]) -> Self: ...  # type: ignore[override]


class RNN(ElmanModel):
    """An Elman network without memory: `torch.nn.RNN`."""

    cell_type = ElmanCell


class LSTM(GatedModel):
    """An LSTM without memory: `torch.nn.LSTM`."""

    cell_type = LSTMCell


class GRU(GatedModel):
    """A GRU without memory: `torch.nn.GRU`."""

    cell_type = GRUCell


class OrthRNN(ElmanModel):
    """An Elman network with modrelu whose recurrent matrix is initialised as a rotation.

    The matrix is trained freely; use `ExpRNN` to keep it orthogonal.
    """

    cell_type = ElmanCell
    default_nonlinearity = "modrelu"


class ExpRNN(ElmanModel):
    """An Elman network with modrelu whose recurrent matrix stays orthogonal: V = V_0 exp(A − Aᵀ), A trained.

    V_0 is the initialiser's rotation. `Recipe(orthogonal_lr=…)` sets a separate learning rate for A.

    >>> V = ExpRNN(3, 8).layers[0].cell.weight_hh
    >>> torch.allclose(V.T @ V, torch.eye(8), atol=1e-6)
    True
    """

    cell_type = ElmanCell
    default_nonlinearity = "modrelu"
    orthogonal = True


class GORU(GatedModel):
    """A gated orthogonal recurrent unit: a GRU with modrelu whose candidate's matrix V_n stays orthogonal.

    r = σ(U_r x_t + V_r h_{t−1} + b_r), z = σ(U_z x_t + V_z h_{t−1} + b_z),
    n = modrelu(U_n x_t + b_n + r (V_n h_{t−1} + b'_n)), h_t = (1 − z) n + z h_{t−1}.

    V_n = V_0 exp(A − Aᵀ) as in `ExpRNN`; V_r and V_z are initialised as rotations too, and trained freely.
    """

    cell_type = GRUCell
    default_initialiser = "henaff"
    default_nonlinearity = "modrelu"
    orthogonal = True


class MemRNN(ElmanModel):
    """An Elman network that attends over all its past states; time grows with T², memory with T."""

    cell_type = ElmanCell
    memory_type = FullMemory


class MemLSTM(GatedModel):
    """An LSTM that attends over all its past states; time grows with T², memory with T."""

    cell_type = LSTMCell
    memory_type = FullMemory


class RelRNN(ElmanRelevancyModel):
    """An Elman network with relevancy screening: attention over `window` + `capacity` states.

    >>> output, state = RelRNN(10, 32, window=5, capacity=5)(torch.randn(20, 4, 10))
    >>> output.shape, state.memory[0].slots.shape
    (torch.Size([20, 4, 32]), torch.Size([4, 10, 32]))
    """

    cell_type = ElmanCell
    memory_type = RelevancyMemory


class RelLSTM(GatedRelevancyModel):
    """An LSTM with relevancy screening: attention over `window` + `capacity` states."""

    cell_type = LSTMCell
    memory_type = RelevancyMemory


class RelGRU(GatedRelevancyModel):
    """A GRU with relevancy screening: attention over `window` + `capacity` states."""

    cell_type = GRUCell
    memory_type = RelevancyMemory


class UniRNN(ElmanUniformModel):
    """An Elman network with uniform writing: a `window`, and every `every`-th state that left it."""

    cell_type = ElmanCell
    memory_type = UniformMemory


class UniLSTM(GatedUniformModel):
    """An LSTM with uniform writing: a `window`, and every `every`-th state that left it."""

    cell_type = LSTMCell
    memory_type = UniformMemory


class SAB(GatedTopKModel):
    """Sparse attentive backtracking on an LSTM, in our definition.

    Every `every`-th state is kept, the `top_k` of highest energy are read, and the recurrent gradient is
    cut every `truncate` steps while attention carries it further back.
    """

    cell_type = LSTMCell
    memory_type = TopKMemory
    default_truncate = 10


# names on the command line and in experiments
MODELS: dict[str, type[NamedModel | Transformer]] = {
    model.__name__.lower(): model
    for model in (
        RNN, LSTM, GRU, OrthRNN, ExpRNN, GORU, MemRNN, MemLSTM, RelRNN, RelLSTM, RelGRU, UniRNN, UniLSTM, SAB,
        Transformer,
    )
}  # fmt: skip
