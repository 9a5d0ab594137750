"""Modules of a model that have hidden states by position, and the axis of those positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from plait.errors import ConfigError
from plait.models import Layer, Recurrent

__all__ = ["TapPoint", "TorchCell", "find_tap_points", "time_axis_of"]

TorchCell = nn.RNNCellBase


@dataclass(frozen=True)
class TapPoint:
    """Module to tap; `stack` names the modules it is stacked with, `first` marks the lowest of them."""

    name: str
    module: nn.Module
    stack: str
    first: bool = False

    @property
    def is_recurrent(self) -> bool:
        return isinstance(self.module, Layer | nn.RNNBase | TorchCell)


def find_tap_points(model: nn.Module, layers: Sequence[str] | None) -> list[TapPoint]:
    """Return the modules to tap: those named in `layers`, else all of the first kind that the model has.

    In this order: recurrent layers, cells that a loop calls, stacked blocks, one-dimensional convolutions.
    """
    modules = dict(model.named_modules())
    if layers is not None:
        missing = [name for name in layers if name not in modules]
        if missing:
            raise ConfigError(
                f"layers: the model has no module {missing[0]!r}; it has {sorted(modules)[:20]}"
            )
        return _stacked({name: modules[name] for name in layers})
    if any(isinstance(module, Recurrent) and module.bidirectional for module in modules.values()):
        raise ConfigError(
            "model: expected one that reads forwards, got a bidirectional one, half of whose layers count "
            "positions from the end; name those to watch with layers=[…]"
        )
    recurrent: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, Layer | nn.RNNBase)}
    cells: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, TorchCell)}
    blocks: dict[str, nn.Module] = {n: m for n, m in modules.items() if _is_block(n, m, modules)}
    # A block inside a tapped one would be counted twice; users mean the positions of the outer one.
    outer = {n: m for n, m in blocks.items() if not any(_inside(n, o) for o in blocks)}
    convolutions: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, nn.Conv1d)}
    modules_to_tap = recurrent or cells or outer
    if convolutions and not modules_to_tap:
        return _chained(convolutions)
    if not modules_to_tap:
        raise ConfigError(
            f"{type(model).__name__} has no hidden states to probe: no recurrent layer, no stack of blocks "
            "and no convolution was found; name the modules to watch with layers=[…]"
        )
    return _stacked(modules_to_tap)


def _stacked(modules: dict[str, nn.Module]) -> list[TapPoint]:
    """Assign blocks to a stack for each list that holds them.

    A recurrent module is its own stack until it runs: `taps` joins it to the one that its input comes from.
    """
    points, stacks = [], set()
    for name, module in modules.items():
        block = not TapPoint(name, module, "").is_recurrent
        stack = name.rpartition(".")[0] if block else name
        points.append(TapPoint(name, module, stack, first=block and stack not in stacks))
        stacks.add(stack)
    return points


def _chained(modules: dict[str, nn.Module]) -> list[TapPoint]:
    """Assign all convolutions to one stack, whichever containers hold them."""
    return [TapPoint(name, module, "", first=not n) for n, (name, module) in enumerate(modules.items())]


def _is_block(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> bool:
    if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return True
    if "parametrizations" in name.split("."):  # of weights (torch.nn.utils.parametrize), not of states
        return False
    parent = modules.get(name.rpartition(".")[0]) if "." in name else None
    return isinstance(parent, nn.ModuleList) and not isinstance(module, nn.ModuleList)


def _inside(name: str, other: str) -> bool:
    return name != other and name.startswith(other + ".")


def time_axis_of(model: nn.Module, module: nn.Module, time_axis: int | None) -> int | None:
    """Return the axis of time: `time_axis`, or that of an attention layer, a `config` or a convolution.

    None if it is unknown; states of two axes, from a module called in a loop, need none.
    """
    if time_axis is not None:
        if time_axis not in (0, 1, 2):
            raise ConfigError(f"time_axis: expected 0, 1 or 2, got {time_axis}")
        return time_axis
    for part in (*module.modules(), *model.modules()):
        if isinstance(part, nn.MultiheadAttention):
            return 1 if part.batch_first else 0
    if hasattr(model, "config"):  # Hugging Face models are batch-first
        return 1
    if any(isinstance(part, nn.Conv1d) for part in module.modules()):
        return 2
    return None
