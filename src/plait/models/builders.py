"""Named models: `torch.nn.LSTM`'s arguments, plus those of a cell and of a memory.

A builder names its cell and its memory; everything else is written once, in `NamedModel`.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, ClassVar, Self, cast

import torch
from torch import nn

from plait.cells import Cell, ElmanCell, GatedCell, GRUCell, LSTMCell, keep_orthogonal
from plait.errors import ConfigError, at_least, known
from plait.estimates import check_weights
from plait.memory import FullMemory, Memory, NoMemory, RelevancyMemory, TopKMemory, UniformMemory
from plait.models.layer import LAYER
from plait.models.recurrent import Recurrent
from plait.models.self_attentive import Mix, SelfAttentive
from plait.models.transformer import Transformer

__all__ = [
    "GORU", "GRU", "LSTM", "MODELS", "RNN", "SAB", "ExpRNN", "MemLSTM", "MemRNN", "NamedModel", "OrthRNN",
    "RelGRU", "RelLSTM", "RelRNN", "UniLSTM", "UniRNN",
]  # fmt: skip

_TORCH_NAMESAKE: dict[type[Cell], type[nn.RNNBase]] = {
    ElmanCell: nn.RNN,
    LSTMCell: nn.LSTM,
    GRUCell: nn.GRU,
}


# options that came later: a description holds them only where they are set, so that ids of runs stay
_LATER = ("relevance", "noise", "grad_limit")


def _memory_options(memory: Memory) -> dict[str, Any]:
    defaults = {field.name: field.default for field in dataclasses.fields(memory)}
    values = dataclasses.asdict(memory)
    return {k: v for k, v in values.items() if not (k in _LATER and v == defaults[k])}


class NamedModel(Recurrent):
    """Abstract: a stack whose layers all have the class's cell and memory.

    Args:
        input_size: features of the input.
        hidden_size: features of h_t.
        num_layers, bias, batch_first, dropout, device, dtype: as in `torch.nn.LSTM`.
        bidirectional, proj_size: refused; a memory of the past has no backward direction here.
        initialiser: how recurrent matrices begin: henaff, cayley, random, xavier, kaiming, identity.
        mix: γ in s_t = γ (h_t + c_t), or a function of the two.
        truncate: cut the recurrent gradient every `truncate` steps.
        backend: "auto", or one that is never replaced by another.
        options: those of the memory (`window`, `capacity`, …), `nonlinearity` for an Elman cell,
            `forget_bias` or `chrono` for an LSTM or GRU cell, whose gate that keeps then begins open.
    """

    cell_type: ClassVar[type[Cell]]
    memory_type: ClassVar[type[Memory]] = NoMemory
    default_truncate: ClassVar[int | None] = None
    default_initialiser: ClassVar[str | None] = None  # None: the cell's own
    default_nonlinearity: ClassVar[str] = "tanh"
    orthogonal: ClassVar[bool] = False  # whether the recurrent matrix is kept so

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        initialiser: str | None = None,
        mix: Mix = 0.5,
        truncate: int | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        name = type(self).__name__
        if bidirectional or proj_size:
            raise ConfigError(
                f"{name}: bidirectional and proj_size are not supported; run a second layer on the "
                "flipped sequence, or project the output with torch.nn.Linear"
            )
        at_least(1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_weights(num_layers * (LAYER + 2 * self.cell_type.gates * hidden_size**2), device)
        memory_options = {field.name for field in dataclasses.fields(self.memory_type)}
        cell_options = self._cell_options()
        given = {k: v for k, v in options.items() if k in cell_options}
        for option in options:
            known(option, memory_options | cell_options.keys(), f"option of {name}")
        memory = self.memory_type(**{k: v for k, v in options.items() if k in memory_options})
        cell_kwargs = {
            "bias": bias, "initialiser": initialiser or self.default_initialiser, "device": device,
            "dtype": dtype, **given,
        }  # fmt: skip
        super().__init__(
            (
                SelfAttentive(
                    self._cell(input_size if index == 0 else hidden_size, hidden_size, **cell_kwargs),
                    memory,
                    mix,
                    truncate=truncate or self.default_truncate,
                    backend=backend,
                )
                for index in range(num_layers)
            ),
            batch_first,
            dropout,
        )

    @classmethod
    def _cell_options(cls) -> dict[str, Any]:
        """Those of the cell that a caller may give, with their defaults."""
        if issubclass(cls.cell_type, GatedCell):
            return {"forget_bias": None, "chrono": None}
        return {"nonlinearity": cls.default_nonlinearity} if cls.cell_type is ElmanCell else {}

    @classmethod
    def _cell(cls, input_size: int, hidden_size: int, **options: Any) -> Cell:
        if issubclass(cls.cell_type, ElmanCell | GRUCell):
            options.setdefault("nonlinearity", cls.default_nonlinearity)
        cell = cls.cell_type(input_size, hidden_size, **options)
        return keep_orthogonal(cell) if cls.orthogonal else cell

    def options(self) -> dict[str, Any] | None:
        """What `type(self)(input_size, **options)` makes this model again from, ready for JSON; None if its
        mix is a function."""
        layer = cast(SelfAttentive, self.layers[0])
        cell = layer.cell
        if callable(layer.mix):
            return None
        values = {
            "hidden_size": self.hidden_size,
            "num_layers": self.num_layers,
            "bias": cell.bias is not None,
            "dropout": self.dropout,
            "initialiser": cell.initialiser,
            "mix": float(layer.mix),
            "truncate": layer.truncate,
            **_memory_options(layer.memory),
        }
        if isinstance(cell, GatedCell):  # left out where not given: ids of runs from before they came stay
            gates = {"forget_bias": cell.forget_bias, "chrono": cell.chrono}
            return values | {name: value for name, value in gates.items() if value is not None}
        return values | ({"nonlinearity": cell.nonlinearity} if isinstance(cell, ElmanCell) else {})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the memory's and the cell's options in the signature, instead of `**options`."""
        super().__init_subclass__(**kwargs)
        base = inspect.signature(NamedModel.__init__)
        shown = [p for p in base.parameters.values() if p.kind is not p.VAR_KEYWORD][1:]
        extra = {f.name: f.default for f in dataclasses.fields(cls.memory_type)} | cls._cell_options()
        keyword = inspect.Parameter.KEYWORD_ONLY
        shown += [inspect.Parameter(name, keyword, default=default) for name, default in extra.items()]
        cls.__signature__ = base.replace(parameters=shown)  # type: ignore[attr-defined]

    @classmethod
    def from_torch(cls, module: nn.RNNBase, **options: Any) -> Self:
        """A model with the sizes and weights of a `torch.nn.RNN`, `LSTM` or `GRU`.

        The attention's own weights begin as usual; without a memory the outputs are the same.

        >>> model = RelLSTM.from_torch(nn.LSTM(3, 8, num_layers=2), window=5)
        >>> model.num_layers
        2
        """
        if cls.orthogonal:
            raise ConfigError(f"{cls.__name__}.from_torch: its orthogonal matrix cannot take over a free one")
        wanted = _TORCH_NAMESAKE[cls.cell_type]
        if not isinstance(module, wanted):
            raise ConfigError(
                f"{cls.__name__}.from_torch: expected torch.nn.{wanted.__name__}, got {type(module).__name__}"
            )
        if {"forget_bias", "chrono"} & options.keys():
            raise ConfigError(
                f"{cls.__name__}.from_torch: forget_bias and chrono say how biases begin; these are given"
            )
        if isinstance(module, nn.RNN):
            options.setdefault("nonlinearity", module.nonlinearity)
        weight = next(module.parameters())
        model = cls(
            module.input_size, module.hidden_size, module.num_layers, module.bias, module.batch_first,
            module.dropout, module.bidirectional, module.proj_size, weight.device, weight.dtype, **options,
        )  # fmt: skip
        with torch.no_grad():
            for index, layer in enumerate(model.layers):
                _copy_weights(cast(SelfAttentive, layer).cell, module, index)
        return model


def _copy_weights(cell: Cell, module: nn.RNNBase, index: int) -> None:
    """torch keeps two biases; they are summed, except a GRU's inside its reset product."""
    cell.weight_ih.copy_(getattr(module, f"weight_ih_l{index}"))
    cell.weight_hh.copy_(getattr(module, f"weight_hh_l{index}"))
    if cell.bias is None:
        return
    input_bias = getattr(module, f"bias_ih_l{index}")
    recurrent_bias = getattr(module, f"bias_hh_l{index}")
    if isinstance(cell, GRUCell) and cell.candidate_bias is not None:
        recurrent_bias = recurrent_bias.clone()
        cell.candidate_bias.copy_(recurrent_bias[2 * cell.hidden_size :])
        recurrent_bias[2 * cell.hidden_size :] = 0
    cell.bias.copy_(input_bias + recurrent_bias)


class RNN(NamedModel):
    """An Elman network without memory: `torch.nn.RNN`."""

    cell_type = ElmanCell


class LSTM(NamedModel):
    """An LSTM without memory: `torch.nn.LSTM`."""

    cell_type = LSTMCell


class GRU(NamedModel):
    """A GRU without memory: `torch.nn.GRU`."""

    cell_type = GRUCell


class OrthRNN(NamedModel):
    """An Elman network whose recurrent matrix begins as a rotation and is then free; modrelu."""

    cell_type = ElmanCell
    default_nonlinearity = "modrelu"


class ExpRNN(NamedModel):
    """An Elman network whose recurrent matrix stays orthogonal: V = V_0 exp(A − Aᵀ), A trained; modrelu.

    V_0 is the initialiser's rotation. `Recipe(orthogonal_lr=…)` trains A at a rate of its own.

    >>> V = ExpRNN(3, 8).layers[0].cell.weight_hh
    >>> torch.allclose(V.T @ V, torch.eye(8), atol=1e-6)
    True
    """

    cell_type = ElmanCell
    default_nonlinearity = "modrelu"
    orthogonal = True


class GORU(NamedModel):
    """A gated orthogonal recurrent unit: a GRU whose candidate has an orthogonal V_n, kept so, and modrelu.

    r = σ(U_r x_t + V_r h_{t−1} + b_r), z = σ(U_z x_t + V_z h_{t−1} + b_z),
    n = modrelu(U_n x_t + b_n + r (V_n h_{t−1} + b'_n)), h_t = (1 − z) n + z h_{t−1}.

    V_n = V_0 exp(A − Aᵀ) as in `ExpRNN`; V_r and V_z begin as rotations too, and are free.
    """

    cell_type = GRUCell
    default_initialiser = "henaff"
    default_nonlinearity = "modrelu"
    orthogonal = True


class MemRNN(NamedModel):
    """An Elman network that attends over all its past states."""

    cell_type = ElmanCell
    memory_type = FullMemory


class MemLSTM(NamedModel):
    """An LSTM that attends over all its past states."""

    cell_type = LSTMCell
    memory_type = FullMemory


class RelRNN(NamedModel):
    """An Elman network with relevancy screening: attention over `window` + `capacity` states.

    >>> output, state = RelRNN(10, 32, window=5, capacity=5)(torch.randn(20, 4, 10))
    >>> output.shape, state.memory[0].slots.shape
    (torch.Size([20, 4, 32]), torch.Size([4, 10, 32]))
    """

    cell_type = ElmanCell
    memory_type = RelevancyMemory


class RelLSTM(NamedModel):
    """An LSTM with relevancy screening: attention over `window` + `capacity` states."""

    cell_type = LSTMCell
    memory_type = RelevancyMemory


class RelGRU(NamedModel):
    """A GRU with relevancy screening: attention over `window` + `capacity` states."""

    cell_type = GRUCell
    memory_type = RelevancyMemory


class UniRNN(NamedModel):
    """An Elman network with uniform writing: a `window`, and every `every`-th of the states that left it."""

    cell_type = ElmanCell
    memory_type = UniformMemory


class UniLSTM(NamedModel):
    """An LSTM with uniform writing: a `window`, and every `every`-th of the states that left it."""

    cell_type = LSTMCell
    memory_type = UniformMemory


class SAB(NamedModel):
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
