"""Findings of one pass: gradients by tap, the positions that the loss reads, and the reasons for zeros."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.errors import DivergedError
from plait.gradients.decay import VANISHED, Decay, later_zeros, structural_zeros
from plait.gradients.maps import AttentionProfile, from_map, from_trace, hops_through_stack
from plait.gradients.profile import GradientProfile, LayerProfile, Reach
from plait.gradients.sequences import is_reversed
from plait.gradients.tapped import Call, Floats, Gradients, Tapped, norms_of

__all__ = ["Findings", "OutputReads", "nudge_output", "with_sources"]

Grad = tuple[Tensor | None, ...]
Entry = list[tuple[Tensor, Tensor]]  # outputs, each with the gradient that enters it


@dataclass(frozen=True)
class OutputReads:
    """Tensors in a model's output, each with the loss's gradient by it."""

    parts: tuple[tuple[Tensor, Tensor], ...]

    @staticmethod
    def of(value: Tensor, nudged: Sequence[tuple[Tensor, Tensor]]) -> OutputReads:
        """Collect the gradients by outputs that `nudge_output` returned, each with its zeros.

        Gradients of the zeros are those of the loss itself. A loss computed inside the model does not use the
        returned outputs; then the gradients of the outputs are taken, which include reads by other outputs.
        """
        tensors = [tensor for tensor, _ in nudged]
        gradients = _gradients_or_none(value, [zero for _, zero in nudged])
        if all(by is None for by in gradients):
            gradients = _gradients_or_none(value, tensors)
        pairs = zip(tensors, gradients, strict=True)
        return OutputReads(tuple((tensor, by) for tensor, by in pairs if by is not None))

    def axis(self, length: int, usual: int | None) -> tuple[Tensor, Tensor, int] | None:
        """Return an output with an axis of `length` positions, its gradient and that axis, else None."""
        for tensor, gradient in self.parts:
            axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] == length]
            if axes:
                return tensor, gradient, usual if usual in axes else axes[0]
        return None

    def by_output(self, length: int, axis: int | None) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield outputs that have `length` positions along `axis`: those read, the output, its gradient.

        An output with several axes of that length is left out: it is unknown which of them is time.
        """
        for tensor, gradient in self.parts:
            shape = list(tensor.shape)
            if axis is not None and axis < len(shape) and shape[axis] == length and shape.count(length) == 1:
                yield np.flatnonzero(norms_of(gradient, axis, length)).tolist(), tensor, gradient


def with_sources(taps: list[Tapped], inputs: Mapping[str, Tensor], time_axis: int | None) -> list[Tapped]:
    """Add taps of the model's own inputs, each in the stack of the last one that reads it.

    `inputs` are the zeros added to the inputs, by name. For an input that no stack reads position by
    position, time is the axis whose length is that of a stack that depends on it, or a multiple of it.
    """
    added: dict[str, Tapped] = {}
    for tap in taps:
        source = tap.source
        if source is None or source.length != tap.length - sum(tap.padding):
            tap.source = None
            continue
        tap.name = f"{tap.name} ({source.name})"  # shown as the model's own input
        own = added.setdefault(source.name, Tapped(source.name, tap.stack, "input"))
        own.calls[:] = [Call([source.zeros], lambda g: g[0], source.time_axis)]
        own.is_backward = source.is_reversed and (own.is_backward or not own.reads)
        own.stack, own.reads = tap.stack, (*own.reads, tap)
    for name, zeros in inputs.items():
        if name not in added and (other := _as_long_as(zeros, taps, time_axis)) is not None:
            tap, axis = other
            entry = next(
                (
                    candidate
                    for candidate in taps
                    if candidate.stack == tap.stack and candidate.kind == "input"
                ),
                None,
            )
            flipped = entry is not None and is_reversed(entry, zeros, axis)
            calls = [Call([zeros], lambda g: g[0], axis)]
            added[name] = Tapped(name, tap.stack, "input", calls, is_backward=flipped)
    return [*added.values(), *taps]


def _as_long_as(zeros: Tensor, taps: Sequence[Tapped], time_axis: int | None) -> tuple[Tapped, int] | None:
    """Return the last tap that depends on an input and has the length of one of its axes; also that axis."""
    for times, tap in itertools.product((False, True), reversed(taps)):
        length = tap.length - sum(tap.padding)
        sizes = enumerate(zeros.shape)
        if times:  # a step of the stack takes several positions
            axes = [axis for axis, size in sizes if size >= 2 * length and size % length == 0]
        else:
            axes = [axis for axis, size in sizes if size == length]
        usual = next((axis for axis in (time_axis, tap.outer_axis) if axis in axes), None)
        if length < 3 or not (len(axes) == 1 or usual is not None):
            continue
        outputs = [call.output for call in tap.calls if call.output is not None and call.output.requires_grad]
        cotangents = [torch.ones_like(output) for output in outputs]
        if outputs and any(
            part is not None
            for part in torch.autograd.grad(
                outputs, [zeros], cotangents, retain_graph=True, allow_unused=True
            )
        ):
            return tap, axes[0] if usual is None else usual
    return None


class Findings:
    """Gradients by tap, the positions at which each stack is read, and the split of a loss on most."""

    def __init__(
        self, taps: list[Tapped], gradients: Grad, threshold: float, reads: OutputReads | None = None
    ) -> None:
        self.taps, self.threshold, self.reads = taps, threshold, reads
        self.by_tap = _split(taps, gradients)
        self._whole = {tap.name: _finite(tap, self.by_tap[tap.name]) for tap in taps}
        self._spans = {tap.name: self._span(tap) for tap in taps}
        self.norms = {tap.name: self._inside(tap, self._whole[tap.name]) for tap in taps}
        self._reads: dict[str, list[int]] = {}  # those of a stack's top layer, by direction
        self.acting = {tap.stack: self._read_at(tap.stack) for tap in taps}
        self.reach: dict[str, Reach] = {}
        self.built: dict[str, NDArray[np.bool_]] = {}
        self._two_way = {tap.stack for tap in taps if tap.is_backward and tap.kind != "input"}

    def _of(self, stack: str) -> list[Tapped]:
        return [tap for tap in self.taps if tap.stack == stack and tap.kind != "input"]

    def _top(self, stack: str) -> Tapped | None:
        """Return the highest tap of a stack that has a gradient, None if all have none."""
        return next((tap for tap in reversed(self._of(stack)) if self._whole[tap.name].any()), None)

    def _tops(self, stack: str) -> list[Tapped]:
        """Return the directions of the highest layer of a stack that have a gradient."""
        top = self._top(stack)
        if top is None:
            return []
        return [tap for tap in self._of(stack) if tap.layer == top.layer and self._whole[tap.name].any()]

    def _span(self, tap: Tapped) -> slice:
        """Return the positions of the sequence: neither the model's padding nor what a crop cuts off."""
        before, after = tap.padding
        end = tap.length - after
        inputs = [
            source
            for source in self.taps
            if source.stack == tap.stack and source.kind == "input" and not source.reads
        ]
        if tap.kind == "input" or not inputs:
            return slice(before, end)
        if inputs[0].length == tap.length:
            return slice(inputs[0].padding[0], tap.length - inputs[0].padding[1])
        own = inputs[0].length - sum(inputs[0].padding)
        is_cropped = own < end and not self._whole[tap.name][own:].any()
        return slice(0, own) if is_cropped else slice(0, end)

    def _inside(self, tap: Tapped, norms: Floats) -> Floats:
        return norms[self._spans[tap.name]]

    def _read_at(self, stack: str) -> list[int]:
        """Return the positions (from 0) where the top of a stack is read, by the loss or by another stack."""
        tops = self._tops(stack)
        if not tops:  # the loss may feel the stack's input by another way
            own = self._of(stack)
            return self._read_in_output(own[-1]) or [] if own else []
        by_tap = {top.name: self._read_from(top) for top in tops}
        self._reads |= by_tap
        read = {position for positions in by_tap.values() for position in positions}
        top = tops[0]
        if self.reads is not None and stack == self.taps[-1].stack and top.kind == "recurrent":
            read |= self._read_below(tops, read)
        return sorted(read)

    def _read_below(self, tops: Sequence[Tapped], read: set[int]) -> set[int]:
        """Return further positions at which a second loss reads an output that the top has no part in."""
        axis, further = tops[0].outer_axis, set()
        for positions, output, gradient in self.reads.by_output(tops[0].length, axis) if self.reads else ():
            new = set(positions) - read
            if new and axis is not None and not _depends(output, _alone(gradient, axis, min(new)), tops):
                further |= new
        return further

    def _read_from(self, top: Tapped) -> list[int]:
        norms = self._whole[top.name]
        direct = top.direct(self.by_tap[top.name])
        if direct is None:
            # Reads of the output cannot be separated from the recurrence, so they are taken from the model's
            # own output.
            return self._read_in_output(top) or [int(np.flatnonzero(norms)[-1])]
        # Nothing reads the output if the loss or another stack uses only the last cell state.
        read = np.flatnonzero(direct).tolist() or [self._last_felt(top)]
        if (top.kind == "block" or len(top.calls) > 1) and len(read) > 1:
            # A loop in the model may read many of these states for an output that is read at few positions.
            in_output = self._read_in_output(top) or read
            return min(read, in_output, key=len)
        return read

    def _last_felt(self, top: Tapped) -> int:
        """Return the last position, in the order of the run, with a gradient in any tap of a stack."""
        if top.is_backward:
            return int(np.flatnonzero(self._whole[top.name])[0])
        same = [tap for tap in self.taps if tap.stack == top.stack and tap.length == top.length]
        return max(
            int(np.flatnonzero(self._whole[tap.name])[-1])
            for tap in same
            if self._whole[tap.name].any() and not tap.is_backward
        )

    def _read_in_output(self, top: Tapped) -> list[int] | None:
        """Return the positions of the model's output that the loss reads, None if it has no axis of time."""
        part = self._output_of(top)
        if part is None:
            return None
        _, gradient, axis = part
        return np.flatnonzero(norms_of(gradient, axis, gradient.shape[axis])).tolist() or None

    def _output_of(self, top: Tapped) -> tuple[Tensor, Tensor, int] | None:
        is_last = top.stack == self.taps[-1].stack  # the output of another stack has other positions
        if self.reads is None or not is_last:
            return None
        return self.reads.axis(top.length, top.calls[0].time_axis)

    def acting_on(self, tap: Tapped) -> list[int]:
        """Return the positions of a tap (from 0) that belong to those read at the top of its stack."""
        if tap.reads:
            return sorted({position for reader in tap.reads for position in self._source_of(reader)})
        top = self._top(tap.stack)
        acting = self._reads.get(tap.name, self.acting[tap.stack])
        if top is None:
            return acting
        length, size = top.length, self.norms[tap.name].size
        if 2 * length <= tap.length:  # the stack takes steps of several positions
            if 2 * len(acting) > length > 2:
                return list(range(size))
            moved = [self._last_of_step(tap, position, tap.length / length) for position in acting]
        elif 2 * tap.length <= length:  # the top of the stack has several positions for each of this layer's
            moved = [position * tap.length // length for position in acting]
        else:
            moved = [position + max(0, tap.length - length) for position in acting]
        inside = {min(max(0, position - self._spans[tap.name].start), size - 1) for position in moved}
        return sorted({size - 1 - position for position in inside} if _is_flipped(tap) else inside)

    def _last_of_step(self, tap: Tapped, position: int, ratio: float) -> int:
        """Return the last of the positions that a step takes, or the last felt of them."""
        end = round((position + 1) * ratio)
        begin = max(0, end - round(ratio))
        felt = np.flatnonzero(self._whole[tap.name][begin:end])
        return begin + int(felt[-1]) if felt.size else end - 1

    def _source_of(self, tap: Tapped) -> list[int]:
        """Return the positions of the model's input (from 0) that enter a stack where its top is read."""
        acting = self.acting_on(tap)
        is_reversed = tap.source is not None and tap.source.is_reversed
        return [self.norms[tap.name].size - 1 - position for position in acting] if is_reversed else acting

    def split_loss(self, sampled: int) -> None:
        """Split a loss on most positions: at `sampled` of them, follow the gradient that enters there."""
        top = self._top(self.taps[-1].stack)
        if top is None:
            return
        acting, length = self.acting[top.stack], self.norms[top.name].size
        is_everywhere = 2 * len(acting) > length > 2
        if not is_everywhere and (top.kind != "block" or len(acting) == 1 or self._output_of(top)):
            return
        chosen = _chosen(acting, sampled)
        entries: list[Entry | None] = [self._enter(self._tops(top.stack), position) for position in chosen]
        part = self._output_of(top)
        if part is not None and self._has_side_path(top.stack):
            entries = list(_output_alone(part, chosen))
        rows = self._rows(top, entries)
        if rows is not None and top.kind == "block" and not _mixes(rows, chosen):
            # These modules do not mix positions, so the module that reads them does: an attention, or a loop
            # in the model.
            self.acting[top.stack] = acting = self._read_in_output(top) or [
                int(np.flatnonzero(self._whole[top.name])[-1])
            ]
            self._reads[top.name] = acting
            part = self._output_of(top)
            if not 2 * len(acting) > length or part is None:
                return
            chosen = _chosen(acting, sampled)
            rows = self._rows(top, _output_alone(part, chosen))
        elif not is_everywhere:
            return
        if rows is None and top.kind == "recurrent" and (part := self._output_of(top)) is not None:
            rows = self._rows(top, _output_alone(part, chosen))
        if rows is not None:
            begin, size = self._spans[top.name].start, self.norms[top.name].size
            labels = tuple(position - begin + 1 for position in chosen)
            self.reach = {name: Reach(labels, np.stack(part)) for name, part in rows.items()}
            for tap in self.taps:
                if tap.name in rows and _is_flipped(tap):
                    mirrored = tuple(size + 1 - label for label in labels[::-1])
                    self.reach[tap.name] = Reach(mirrored, np.stack(rows[tap.name][::-1]))

    def look_both_ways(self) -> None:
        """Find the stacks in which a read position depends on later ones, if the norms do not show it.

        The norms hide it if the last position is read as well as an earlier one.
        """
        for stack, acting in self.acting.items():
            top = self._top(stack)
            if top is None or len(acting) < 2 or top.length != acting[-1] + 1 or 2 * len(acting) > top.length:
                continue
            rows = self._rows(top, [self._enter(self._tops(stack), acting[0])])
            if rows and any(row[0][acting[0] + 1 :].any() for row in rows.values()):
                self._two_way.add(stack)

    def _has_side_path(self, stack: str) -> bool:
        """Return True if another stack reads the same input, so that a path bypasses this stack."""
        return any(reader.stack != stack for tap in self.taps if tap.stack == stack for reader in tap.reads)

    def _enter(self, tops: Sequence[Tapped], position: int) -> Entry | None:
        """Return the outputs of the calls that hold a position, and the gradients that enter there alone."""
        entry: Entry = []
        for top in tops:
            number, offset = top.locate(position)
            call = top.calls[number]
            index = sum(len(earlier.zeros) for earlier in top.calls[:number]) + (call.direct or 0)
            entering = self.by_tap[top.name][index]
            if call.output is None or entering is None or call.direct is None or not top.separable:
                return None
            entry.append((call.output, call.alone(entering, offset)))
        return entry

    def _rows(self, top: Tapped, entries: Sequence[Entry | None]) -> dict[str, list[Floats]] | None:
        """Return by tap the norms for each of `entries`, a tensor and the gradient that enters it."""
        stack = [tap for tap in self.taps if tap.stack == top.stack]
        zeros = [zero for tap in stack for zero in tap.zeros]
        rows: dict[str, list[Floats]] = {tap.name: [] for tap in stack}
        for entry in entries:
            if entry is None:
                return None
            outputs, entering = zip(*entry, strict=True)
            parts = torch.autograd.grad(outputs, zeros, entering, retain_graph=True, allow_unused=True)
            for tap, part in zip(stack, _split(stack, parts).values(), strict=True):
                rows[tap.name].append(self._inside(tap, _finite(tap, part)))
        return rows

    def row(self, tap: Tapped) -> tuple[Floats, list[int]]:
        """Return the norms for the verdict, and the positions read: a single one if the loss is split."""
        reach = self.reach.get(tap.name)
        if reach is None:
            return self.norms[tap.name], self.acting_on(tap)
        return reach.norms[-1], [reach.positions[-1] - 1]

    def unexplained(self) -> list[str]:
        """Return the taps with exact zeros that neither causality nor underflow explains."""
        names = []
        for tap in self.taps:
            norms, acting = self.row(tap)
            if not acting or tap.source is not None or self._is_read_alone(tap, norms, acting):
                continue
            if self._is_cut_off(tap):
                names.append(tap.name)
            later = later_zeros(norms, acting, tap.is_backward)
            zeros = structural_zeros(norms, acting, _dtype(tap)) & ~later
            if norms.any() and zeros.any():
                names.append(tap.name)
        return names

    def _is_cut_off(self, tap: Tapped) -> bool:
        """Return True if a tap has only zeros although the top of its stack has a gradient."""
        return self._is_used(tap) and not self.norms[tap.name].any() and self._top(tap.stack) is not None

    def _is_used(self, tap: Tapped) -> bool:
        """Return True if the loss depends on a tap and not only on the other direction of its layer."""
        top = self._top(tap.stack)
        is_other = top is not None and top is not tap and top.layer == tap.layer
        if is_other and not self.norms[tap.name].any():
            return False
        return any(gradient is not None for gradient in self.by_tap[tap.name])

    def _is_read_alone(self, tap: Tapped, norms: Floats, acting: list[int]) -> bool:
        """Return True for the top of a stack without recurrence, whose states affect only positions read."""
        built = self.built.get(tap.name)
        is_built = built is not None and bool(built[norms == 0].all())
        is_read = set(np.flatnonzero(norms).tolist()) <= set(acting)
        return (tap.kind == "block" or is_built) and tap is self._top(tap.stack) and is_read

    def explain(self, others: Sequence[Findings]) -> None:
        """Mark the zeros that `others`, with other weights, share: they are built into the model."""
        for name in self.unexplained():
            tap = next(tap for tap in self.taps if tap.name == name)
            norms, acting = self.row(tap)
            built = norms == 0
            for other in others:
                there = next((candidate for candidate in other.taps if candidate.name == name), None)
                row = None if there is None else other.row(there)[0]
                if there is None or row is None or row.shape != norms.shape or not row.any():
                    continue
                built &= structural_zeros(row, acting, _dtype(there))
            self.built[name] = built

    def profile(self, model: str, loss: float | None, note: str | None = None) -> GradientProfile:
        layers = tuple(self._layer(tap) for tap in self.taps if tap.kind != "input")
        inputs = tuple(self._layer(tap) for tap in self.taps if self._is_shown(tap))
        return GradientProfile(model, loss, layers, self._hops(), inputs, note)

    def _layer(self, tap: Tapped) -> LayerProfile:
        norms, acting = self.norms[tap.name], self.acting_on(tap)
        reach = self.reach.get(tap.name)
        row, read = self.row(tap)
        decay = None
        is_spread = self._is_spread(tap, norms, acting)
        if read and (reach is not None or not (is_spread or 2 * len(acting) > norms.size > 2)):
            structural = structural_zeros(row, read, _dtype(tap))
            if tap.name in self.built:
                structural = self.built[tap.name] | later_zeros(row, read, tap.is_backward)
            # Each direction of the top layer is read separately; those of lower layers are read by both.
            is_two_way = tap.stack in self._two_way and tap.name not in self._reads
            decay = Decay.of(row, read, structural, tap.is_backward, is_two_way)
        return LayerProfile(
            tap.name,
            norms,
            decay,
            _attention(tap, self.threshold),
            acting=tuple(position + 1 for position in acting),
            reach=reach,
            is_spread=is_spread,
            kind=tap.kind,
            has_cell_state=tap.has_cell_state,
            is_used=self._is_used(tap),
            is_read_alone=self._is_read_alone(tap, row, read),
            is_cut_off=self._is_cut_off(tap),
            zeros_built=bool(self.built.get(tap.name, np.zeros(1)).all()),
            zeros_explained=tap.name in self.built,
        )

    def _is_spread(self, tap: Tapped, norms: Floats, acting: list[int]) -> bool:
        """Return True if another stack reads this one at positions of which it feels only some."""
        is_last = tap.stack == self.taps[-1].stack
        return not is_last and len(acting) > 1 and bool((norms[acting] < VANISHED * norms.max()).any())

    def _is_shown(self, tap: Tapped) -> bool:
        """Return True for an input that adds information to that of the model's own input."""
        if tap.kind != "input" or tap.source is not None:
            return False
        norms, first = (
            self.norms[tap.name],
            next(candidate for candidate in self.taps if candidate.kind == "input"),
        )
        return tap is first or not (
            norms.size == self.norms[first.name].size
            and np.allclose(norms, self.norms[first.name], rtol=1e-6, atol=0)
        )

    def _hops(self) -> NDArray[np.int64] | None:
        """Return hops through the last stack of blocks, or None unless all of them have a map of one size."""
        stack = self._of(self.taps[-1].stack)
        maps = [_array(tap.maps[-1][0]) for tap in stack if tap.maps]
        square = [m for m in maps if m.ndim == 3 and m.shape[1] == m.shape[2]]
        if not square or len(square) != len(stack) or len({m.shape[-1] for m in square}) != 1:
            return None
        acting = self.acting[stack[-1].stack]
        return hops_through_stack(square, self.threshold, acting[-1:])


def _depends(output: Tensor, entering: Tensor, tops: Sequence[Tapped]) -> bool:
    """Return True if a gradient that enters an output reaches the outputs of a layer."""
    zeros = [call.zeros[call.direct] for top in tops for call in top.calls if call.direct is not None]
    parts = torch.autograd.grad(output, zeros, entering, retain_graph=True, allow_unused=True)
    return any(part is not None and bool(part.any()) for part in parts)


def _is_flipped(tap: Tapped) -> bool:
    """Return True for an input that the stack reads from its last position to its first."""
    return tap.kind == "input" and tap.is_backward


def _output_alone(part: tuple[Tensor, Tensor, int], chosen: Sequence[int]) -> list[Entry]:
    """Return for each position an output of the model with the gradient that enters there alone."""
    output, gradient, axis = part
    return [[(output, _alone(gradient, axis, position))] for position in chosen]


def _chosen(acting: list[int], sampled: int) -> list[int]:
    return sorted({acting[round((len(acting) - 1) * (i + 1) / sampled)] for i in range(sampled)})


def _mixes(rows: Mapping[str, list[Floats]], chosen: list[int]) -> bool:
    """Return True if a gradient that enters at one position reaches another."""
    return any(
        len(alive := np.flatnonzero(row)) > 1 or (len(alive) == 1 and int(alive[0]) != position)
        for part in rows.values()
        for position, row in zip(chosen, part, strict=True)
    )


def _alone(gradient: Tensor, axis: int, position: int) -> Tensor:
    kept = torch.zeros_like(gradient)
    kept.select(axis, position).copy_(gradient.select(axis, position))
    return kept


def nudge_output(output: Any) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
    """Return an output with zeros added to its tensors, and the tensors as they were, each with its zeros."""
    nudged: list[tuple[Tensor, Tensor]] = []

    def replaced(part: Any) -> Any:
        if isinstance(part, Tensor) and part.requires_grad and part.dim() > 1:
            nudged.append((part, torch.zeros_like(part, requires_grad=True)))
            return part + nudged[-1][1]
        if isinstance(part, Mapping):
            other = copy.copy(part)
            for key, value in part.items():
                other[key] = replaced(value)  # type: ignore[index]
            return other
        if isinstance(part, tuple | list):
            values = [replaced(value) for value in part]
            return type(part)(*values) if hasattr(part, "_fields") else type(part)(values)
        return part

    return replaced(output), nudged


def _gradients_or_none(value: Tensor, tensors: list[Tensor]) -> Gradients:
    if not tensors or not value.requires_grad:
        return [None] * len(tensors)
    return torch.autograd.grad(value, tensors, allow_unused=True, retain_graph=True)


def _split(taps: list[Tapped], gradients: Grad) -> dict[str, Grad]:
    parts, rest = {}, gradients
    for tap in taps:
        number = len(tap.zeros)
        parts[tap.name], rest = rest[:number], rest[number:]
    return parts


def _finite(tap: Tapped, gradients: Grad) -> Floats:
    norms = tap.norms(gradients)
    if not np.all(np.isfinite(norms)):
        first = int(np.flatnonzero(~np.isfinite(norms))[-1]) + 1
        raise DivergedError(f"{tap.name}: the gradient at position {first} is not finite")
    return norms


def _attention(tap: Tapped, threshold: float) -> AttentionProfile | None:
    if tap.traces:
        trace = tap.traces[-1].merged()
        return from_trace(trace.born.cpu().numpy(), trace.weights.double().cpu().numpy(), threshold)
    return from_map(_array(tap.maps[-1]), threshold) if tap.maps else None


def _dtype(tap: Tapped) -> str:
    return str(tap.zeros[0].dtype).removeprefix("torch.")


def _array(weights: Tensor) -> Floats:
    return np.asarray(weights.double().cpu())
