"""Which modules of a model have hidden states by position, and on which axis the positions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from plait.errors import ConfigError
from plait.models import Layer, Recurrent

__all__ = ["Cell", "Place", "find_places", "time_axis_of"]

Cell = nn.RNNCellBase


@dataclass(frozen=True)
class Place:
    """A module to tap; `stack` names the modules it is stacked with, `first` the lowest of them."""

    name: str
    module: nn.Module
    stack: str
    first: bool = False


def find_places(model: nn.Module, layers: Sequence[str] | None) -> list[Place]:
    """The modules whose hidden states are watched: those named, or the ones that have positions.

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
    cells: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, Cell)}
    blocks: dict[str, nn.Module] = {n: m for n, m in modules.items() if _is_block(n, m, modules)}
    # A block inside a tapped one would be counted twice; the outer one has the positions people mean.
    outer = {n: m for n, m in blocks.items() if not any(_inside(n, o) for o in blocks)}
    convolutions: dict[str, nn.Module] = {n: m for n, m in modules.items() if isinstance(m, nn.Conv1d)}
    found = recurrent or cells or outer or convolutions
    if not found:
        raise ConfigError(
            f"{type(model).__name__} has no hidden states to probe: no recurrent layer, no stack of blocks "
            "and no convolution was found; name the modules to watch with layers=[…]"
        )
    return _stacked(found)


def _stacked(found: dict[str, nn.Module]) -> list[Place]:
    """Recurrent layers are one stack; blocks are stacked with those of the same list."""
    places, seen = [], set()
    for name, module in found.items():
        block = not isinstance(module, Layer | nn.RNNBase | Cell)
        stack = name.rpartition(".")[0] if block else ""
        places.append(Place(name, module, stack, first=block and stack not in seen))
        seen.add(stack)
    return places


def _is_block(name: str, module: nn.Module, modules: dict[str, nn.Module]) -> bool:
    if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return True
    parent = modules.get(name.rpartition(".")[0]) if "." in name else None
    return isinstance(parent, nn.ModuleList) and not isinstance(module, nn.ModuleList)


def _inside(name: str, other: str) -> bool:
    return name != other and name.startswith(other + ".")


def time_axis_of(model: nn.Module, module: nn.Module, given: int | None) -> int:
    """Where time is: said by the caller, by an attention layer, a `config`, or a convolution."""
    if given is not None:
        if given not in (0, 1, 2):
            raise ConfigError(f"time_axis: expected 0, 1 or 2, got {given}")
        return given
    for part in (*module.modules(), *model.modules()):
        if isinstance(part, nn.MultiheadAttention):
            return 1 if part.batch_first else 0
    if hasattr(model, "config"):  # the convention of Hugging Face's models
        return 1
    if any(isinstance(part, nn.Conv1d) for part in module.modules()):
        return 2
    raise ConfigError(
        "cannot tell which axis is time in the states of "
        f"{type(module).__name__}: pass time_axis=0 for (T, B, feature), 1 for (B, T, feature) or 2 for "
        "(B, feature, T)"
    )
