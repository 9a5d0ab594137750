"""The base class of named models: `torch.nn.LSTM`'s arguments, plus those of a cell and of a memory."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, ClassVar, Self, cast

import torch
from torch import nn

from plait.cells import Cell, ElmanCell, GatedCell, GRUCell, LSTMCell, keep_orthogonal
from plait.errors import ConfigError, known, whole
from plait.estimates import check_weights
from plait.memory import Memory, NoMemory
from plait.models.keywords import with_arguments
from plait.models.layer import LAYER
from plait.models.recurrent import Recurrent
from plait.models.self_attentive import Mix, SelfAttentive

__all__ = ["NamedModel"]

_TORCH_NAMESAKE: dict[type[Cell], type[nn.RNNBase]] = {
    ElmanCell: nn.RNN,
    LSTMCell: nn.LSTM,
    GRUCell: nn.GRU,
}


# options added later: a description has them only where they are set, so that run ids stay the same
_LATER = ("relevance", "noise", "usage", "grad_limit")
_OF_A_TRANSFORMER = ("sinks",)  # fields of a memory that only a Transformer uses


def _memory_defaults(memory_type: type[Memory]) -> dict[str, Any]:
    """Return the options of a recurrent layer's memory with their defaults."""
    fields = dataclasses.fields(memory_type)
    return {field.name: field.default for field in fields if field.name not in _OF_A_TRANSFORMER}


def _memory_options(memory: Memory) -> dict[str, Any]:
    defaults = _memory_defaults(type(memory))
    values = {name: getattr(memory, name) for name in defaults}
    return {k: v for k, v in values.items() if not (k in _LATER and v == defaults[k])}


class NamedModel(Recurrent):
    """Abstract base class of named models: a stack whose layers all have the class's cell and memory.

    A subclass names the two; its signature and the arguments in its docstring follow from them. `options` are
    those of the memory (`window`, `capacity`, …) and of the cell (`nonlinearity`; `forget_bias`, `chrono`).
    """

    cell_type: ClassVar[type[Cell]]
    memory_type: ClassVar[type[Memory]] = NoMemory
    default_truncate: ClassVar[int | None] = None
    default_initialiser: ClassVar[str | None] = None  # None: the cell's own
    default_nonlinearity: ClassVar[str] = "tanh"
    orthogonal: ClassVar[bool] = False  # whether the recurrent matrix is kept orthogonal

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
        if proj_size:
            raise ConfigError(
                f"proj_size: expected 0, got {proj_size}; project the output with torch.nn.Linear"
            )
        whole(1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        directions = 2 if bidirectional else 1
        weights = LAYER + (1 + directions) * self.cell_type.gates * hidden_size**2
        check_weights(num_layers * directions * weights, device)
        memory_options = _memory_defaults(self.memory_type).keys()
        cell_options = self._cell_options()
        cell_only = {k: v for k, v in options.items() if k in cell_options}
        for option in options:
            known(option, memory_options | cell_options.keys(), f"option of {name}")
        memory = self.memory_type(**{k: v for k, v in options.items() if k in memory_options})
        cell_kwargs = {
            "bias": bias, "initialiser": initialiser or self.default_initialiser, "device": device,
            "dtype": dtype, **cell_only,
        }  # fmt: skip
        wide = [input_size, *[hidden_size * directions] * (num_layers - 1)]
        super().__init__(
            (
                SelfAttentive(
                    self._cell(features, hidden_size, **cell_kwargs),
                    memory,
                    mix,
                    truncate=truncate or self.default_truncate,
                    backend=backend,
                )
                for features in wide
                for _ in range(directions)
            ),
            batch_first,
            dropout,
            bidirectional,
        )

    @classmethod
    def _cell_options(cls) -> dict[str, Any]:
        """Return the cell's options that a caller may pass, with their defaults."""
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
        """Return the constructor arguments that rebuild this model, ready for JSON.

        `type(self)(input_size, **options)` has the same configuration. None if `mix` is a function.
        """
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
            **({"bidirectional": True} if self.bidirectional else {}),  # only if true: run ids stay the same
        }
        if isinstance(cell, GatedCell):  # only if set: older run ids stay the same
            gates = {"forget_bias": cell.forget_bias, "chrono": cell.chrono}
            return values | {name: value for name, value in gates.items() if value is not None}
        return values | ({"nonlinearity": cell.nonlinearity} if isinstance(cell, ElmanCell) else {})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the memory's and the cell's options to the signature and docstring of a named model."""
        super().__init_subclass__(**kwargs)
        if "cell_type" in cls.__dict__ and "__init__" not in cls.__dict__:
            _show_options(cls)

    @classmethod
    def from_torch(cls, module: nn.RNNBase, **options: Any) -> Self:
        """Return a model with the sizes and weights of a `torch.nn.RNN`, `LSTM` or `GRU`.

        The attention's own weights are initialised as in a new model; without a memory the outputs are the
        same.

        >>> from plait import RelLSTM
        >>> model = RelLSTM.from_torch(nn.LSTM(3, 8, num_layers=2), window=5)
        >>> model.num_layers
        2
        """
        if cls.orthogonal:
            raise ConfigError(f"{cls.__name__}.from_torch: its orthogonal matrix cannot take over a free one")
        torch_type = _TORCH_NAMESAKE[cls.cell_type]
        if not isinstance(module, torch_type):
            raise ConfigError(
                f"{cls.__name__}.from_torch: expected torch.nn.{torch_type.__name__}, "
                f"got {type(module).__name__}"
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
            ways = ("", "_reverse") if module.bidirectional else ("",)
            names = [f"l{level}{way}" for level in range(module.num_layers) for way in ways]
            for name, layer in zip(names, model.layers, strict=True):
                _copy_weights(cast(SelfAttentive, layer).cell, module, name)
        return model


def _show_options(cls: type[NamedModel]) -> None:
    base = inspect.signature(NamedModel.__init__)
    parameters_shown = [p for p in base.parameters.values() if p.kind is not p.VAR_KEYWORD]
    extra = _memory_defaults(cls.memory_type) | cls._cell_options()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters_shown += [inspect.Parameter(name, keyword, default=default) for name, default in extra.items()]

    def __init__(self: NamedModel, *arguments: Any, **options: Any) -> None:
        NamedModel.__init__(self, *arguments, **options)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__signature__ = base.replace(parameters=parameters_shown)  # type: ignore[attr-defined]
    cls.__init__ = __init__  # type: ignore[method-assign]
    cls.__doc__ = with_arguments(cls.__doc__ or "", [p.name for p in parameters_shown[1:]])


def _copy_weights(cell: Cell, module: nn.RNNBase, name: str) -> None:
    """Copy a `torch.nn` layer's weights into `cell`.

    torch has two biases; they are summed, except a GRU's inside its reset product.
    """
    cell.weight_ih.copy_(getattr(module, f"weight_ih_{name}"))
    cell.weight_hh.copy_(getattr(module, f"weight_hh_{name}"))
    if cell.bias is None:
        return
    input_bias = getattr(module, f"bias_ih_{name}")
    recurrent_bias = getattr(module, f"bias_hh_{name}")
    if isinstance(cell, GRUCell) and cell.candidate_bias is not None:
        recurrent_bias = recurrent_bias.clone()
        cell.candidate_bias.copy_(recurrent_bias[2 * cell.hidden_size :])
        recurrent_bias[2 * cell.hidden_size :] = 0
    cell.bias.copy_(input_bias + recurrent_bias)
