"""The base class of named models: `torch.nn.LSTM`'s arguments, plus those of a cell and of a memory."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import nn

from plait.cells import Cell, ElmanCell, GatedCell, GRUCell, LSTMCell, keep_orthogonal
from plait.errors import ConfigError, check_int
from plait.estimates import check_weights
from plait.memory import Memory, NoMemory
from plait.models.layer import LAYER
from plait.models.recurrent import Recurrent
from plait.models.self_attentive import Mix, SelfAttentive

__all__ = ["NamedModel"]

Options = ParamSpec("Options")
Model = TypeVar("Model", bound="NamedModel")
Device = torch.device | str | None

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

    A subclass names its cell and its memory; its constructor has `torch.nn.LSTM`'s arguments in their order,
    then the fields of its memory and the options of its cell as keywords, with their defaults. To build a
    stack of any cell and memory use `plait.Recurrent`.

    Args:
        memory: the policy by which past states can be read.
        cell_options: arguments of `cell_type` beyond its sizes.
    """

    cell_type: ClassVar[type[Cell]]
    memory_type: ClassVar[type[Memory]] = NoMemory
    orthogonal: ClassVar[bool] = False  # whether the recurrent matrix is kept orthogonal

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
        device: Device,
        dtype: torch.dtype | None,
        memory: Memory,
        cell_options: dict[str, Any],
        mix: Mix,
        truncate: int | None,
        backend: str,
    ) -> None:
        if proj_size:
            raise ConfigError(
                f"proj_size: expected 0, got {proj_size}; project the output with torch.nn.Linear"
            )
        check_int(1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        directions = 2 if bidirectional else 1
        weights = LAYER + (1 + directions) * self.cell_type.gates * hidden_size**2
        check_weights(num_layers * directions * weights, device)

        def layer(features: int) -> SelfAttentive:
            cell = self.cell_type(
                features, hidden_size, bias=bias, device=device, dtype=dtype, **cell_options
            )
            cell = keep_orthogonal(cell) if self.orthogonal else cell
            return SelfAttentive(cell, memory, mix, truncate=truncate, backend=backend)

        widths = [input_size, *[hidden_size * directions] * (num_layers - 1)]
        layers = (layer(features) for features in widths for _ in range(directions))
        super().__init__(layers, batch_first, dropout, bidirectional)

    def options(self) -> dict[str, Any] | None:
        """Return the constructor arguments that rebuild this model, ready for JSON.

        `type(self)(input_size, **options)` has the same configuration. None if `mix` is a function.
        """
        layer = cast(SelfAttentive, self.layers[0])
        if callable(layer.mix):
            return None
        values = {
            "hidden_size": self.hidden_size,
            "num_layers": self.num_layers,
            "dropout": self.dropout,
            "bias": layer.cell.bias is not None,
            "bidirectional": self.bidirectional,
            "mix": layer.mix,
            "truncate": layer.truncate,
        }
        values |= {name: getattr(layer.cell, name) for name in self._cell_options()}
        return self._described(values, layer.memory)

    @classmethod
    def complete_options(cls, **options: Any) -> dict[str, Any]:
        """Return `options()` of the model that these arguments build, without building it.

        The values of the memory are validated; the others when the model is built.

        >>> from plait import RelLSTM
        >>> RelLSTM.complete_options(hidden_size=8, window=5) == RelLSTM(3, 8, window=5).options()
        True
        """
        parameters = inspect.signature(cls).parameters.values()
        values = {p.name: p.default for p in parameters} | options
        values["initialiser"] = values["initialiser"] or cls.cell_type.default_initialiser
        fields = _memory_defaults(cls.memory_type)
        return cls._described(values, cls.memory_type(**{name: values[name] for name in fields}))

    @classmethod
    def _described(cls, values: dict[str, Any], memory: Memory) -> dict[str, Any]:
        """Return constructor arguments in the form of a description."""
        of_cell = {name: values[name] for name in cls._cell_options()}
        gates = ("forget_bias", "chrono")  # only if set: older run ids stay the same
        return {
            "hidden_size": values["hidden_size"],
            "num_layers": values["num_layers"],
            "bias": bool(values["bias"]),
            "dropout": float(values["dropout"]),
            "initialiser": of_cell.pop("initialiser"),
            "mix": float(values["mix"]),
            "truncate": values["truncate"],
            **_memory_options(memory),
            **({"bidirectional": True} if values["bidirectional"] else {}),  # only if true: ids stay the same
            **{k: v for k, v in of_cell.items() if not (k in gates and v is None)},
        }

    @classmethod
    def _cell_options(cls) -> tuple[str, ...]:
        """Return the names of the cell's options."""
        if issubclass(cls.cell_type, GatedCell):
            return ("initialiser", "forget_bias", "chrono")
        return ("initialiser", "nonlinearity") if issubclass(cls.cell_type, ElmanCell) else ("initialiser",)

    @classmethod
    def from_torch(
        cls: Callable[
            Concatenate[int, int, int, bool, bool, float, bool, int, Device, torch.dtype | None, Options],
            Model,
        ],
        module: nn.RNNBase,
        *more: Options.args,
        **options: Options.kwargs,
    ) -> Model:
        """Return a model with the sizes and weights of a `torch.nn.RNN`, `LSTM` or `GRU`.

        The attention's own weights are initialised as in a new model; without a memory the outputs are the
        same. `options` are the keywords of the class's constructor.

        >>> from plait import RelLSTM
        >>> model = RelLSTM.from_torch(nn.LSTM(3, 8, num_layers=2), window=5)
        >>> model.num_layers
        2
        """
        named = cast("type[NamedModel]", cls)
        if named.orthogonal:
            raise ConfigError(
                f"{named.__name__}.from_torch: its orthogonal matrix cannot take over a free one"
            )
        torch_type = _TORCH_NAMESAKE[named.cell_type]
        if not isinstance(module, torch_type):
            raise ConfigError(
                f"{named.__name__}.from_torch: expected torch.nn.{torch_type.__name__}, "
                f"got {type(module).__name__}"
            )
        if {"forget_bias", "chrono"} & options.keys():
            raise ConfigError(
                f"{named.__name__}.from_torch: forget_bias and chrono say how biases begin; these are given"
            )
        if isinstance(module, nn.RNN):
            options.setdefault("nonlinearity", module.nonlinearity)
        weight = next(module.parameters())
        model = cls(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            module.bias,
            module.batch_first,
            module.dropout,
            module.bidirectional,
            module.proj_size,
            weight.device,
            weight.dtype,
            *more,
            **options,
        )
        with torch.no_grad():
            ways = ("", "_reverse") if module.bidirectional else ("",)
            names = [f"l{level}{way}" for level in range(module.num_layers) for way in ways]
            for name, layer in zip(names, model.layers, strict=True):
                _copy_weights(cast(SelfAttentive, layer).cell, module, name)
        return model


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
