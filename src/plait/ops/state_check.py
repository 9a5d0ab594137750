"""Validation of a layer's state before compiled code reads it.

Shapes, types and devices are compared at every call; that needs no synchronisation. The steps in a memory
(`born`, `age`) are values: reading them waits for a GPU. So they are checked once, and the memory itself
records it (`MemoryState.validation`) with torch's version counters of the two. A state returned by one of our
layers, and what `State` derives from it, is valid by construction and is recorded at once; a state that was
built, loaded or written to has no valid record, and is checked when it is passed in. A check at every call
would take 17 µs of a step of 200 on a CPU, and would stall the stream at every step on a GPU; a device-side
assertion would not stall it, but aborts the process without a message.

Where tensors have no values (meta or traced tensors, a CUDA graph being recorded, a transform of torch.func)
nothing is checked; none of our compiled code addresses memory by these values then.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.errors import ShapeError
from plait.ops.slots import MemoryState, Validation
from plait.ops.walk import LayerState

__all__ = ["check_shapes", "check_state", "follow", "has_values", "is_known", "known_keys", "remember"]

# More steps than any run has; with the length of a call added they fit the 32 bits of the GPU kernels.
LATEST = 2**30


def check_state(state: LayerState, like: Tensor, window: int | None) -> None:
    """Raise a `ShapeError` for wrong types or devices, or for steps that no layer could have returned.

    `like` has the right device; `window` is that of the ring in the memory's first slots, None if it has
    none. Shapes must have been checked before.
    """
    hidden, cell_state, memory = state
    device = like.device
    if (
        is_known(memory, window)
        and hidden.device == memory.slots.device == memory.relevance.device == device
        and (cell_state is None or cell_state.device == device)
    ):
        return
    for name, tensor, is_whole in (
        ("hidden", hidden, False),
        ("cell_state", cell_state, False),
        ("memory.slots", memory.slots, False),
        ("memory.relevance", memory.relevance, False),
        ("memory.born", memory.born, True),
        ("memory.age", memory.age, True),
    ):
        if tensor is not None and (
            tensor.device != device
            or (tensor.dtype != torch.int64 if is_whole else not tensor.is_floating_point())
        ):
            got, wanted = str(tensor.dtype).removeprefix("torch."), "int64" if is_whole else "floating point"
            raise ShapeError(
                f"state.{name}: expected {wanted} on {device}, got {got} on {tensor.device}; "
                "pass the state this model returned"
            )
    if has_values(memory.age):
        _check_values(memory, window)
        remember(memory, window)


def check_shapes(state: LayerState, rows: int, size: int, slot_size: int, width: int | None) -> None:
    """Raise a `ShapeError` for wrong sizes; `width` is that of the memory, None if it grows."""
    hidden, cell_state, (slots, relevance, born, age) = state
    wide = born.shape[-1] if width is None and born.dim() else width
    for name, tensor, shape in (
        ("hidden", hidden, (rows, size)),
        ("cell_state", cell_state, (rows, size)),
        ("memory.slots", slots, (rows, wide, slot_size)),
        ("memory.relevance", relevance, (rows, wide)),
        ("memory.born", born, (rows, wide)),
        ("memory.age", age, (rows,)),
    ):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(
                f"state.{name}: expected {shape}, got {tuple(tensor.shape)}; "
                "pass the state this model returned"
            )


def remember(memory: MemoryState, window: int | None, keys: Tensor | None = None) -> None:
    """Record a memory's steps as valid, so that they are not checked again; `keys` are those of its slots."""
    if not torch.compiler.is_compiling():
        memory.validation = Validation(window, _versions(memory), keys)


def follow(before: MemoryState, after: MemoryState) -> MemoryState:
    """Return `after`, recorded as valid with its keys if `before` is.

    Use it for copies that keep every row's steps.
    """
    record = before.validation
    if record is not None and is_known(before, record.window):
        remember(after, record.window, record.keys)
    return after


def known_keys(memory: MemoryState) -> Tensor | None:
    """Return the keys recorded with a memory.

    The reader has to check that they still belong to its slots and weights: each carries a mark of what it
    was computed from.
    """
    return None if memory.validation is None else memory.validation.keys


def is_known(memory: MemoryState, window: int | None) -> bool:
    """Return whether this memory's steps are recorded as valid for this window and unwritten since."""
    if torch.compiler.is_compiling():
        return False
    record = memory.validation
    return record is not None and record.window == window and record.versions == _versions(memory)


def _versions(memory: MemoryState) -> tuple[int, int] | None:
    """Return the version counters of the steps, None for tensors of inference mode, which have none."""
    try:
        return memory.age._version, memory.born._version
    except RuntimeError:
        return None


def has_values(tensor: Tensor) -> bool:
    """Return whether the tensor has values that can be read: see the module's docstring."""
    return (
        type(tensor) is Tensor
        and not tensor.is_meta
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def _check_values(memory: MemoryState, window: int | None) -> None:
    """Check all values with a single synchronisation."""
    age, born = memory.age.unsqueeze(1), memory.born
    laws = {
        f"0 <= age <= {LATEST}": (age < 0) | (age > LATEST),
        "-1 <= born < age (-1 where a slot is empty)": (born < -1) | (born >= age),
    }
    if window is not None:
        slot = torch.arange(window, device=born.device)
        ring, latest = born[:, :window], age - 1 - (age - 1 - slot) % window
        laws[f"the state born at step b in slot b mod {window}"] = (ring >= 0) & (ring != latest)
    broken = torch.stack([law.any() for law in laws.values()]).tolist()
    for law, where, is_broken in zip(laws, laws.values(), broken, strict=True):
        if is_broken:
            row = int(where.any(1).int().argmax())
            raise ShapeError(
                f"state.memory: expected {law}, got in row {row} age {int(age[row])} and born "
                f"{_short(born[row])}; pass the state this model returned"
            )


def _short(row: Tensor) -> str:
    """Format the first numbers of a row: a memory that grows can be long."""
    return str(row[:12].tolist())[:-1] + (", ...]" if len(row) > 12 else "]")
