"""A limit on the gradient that flows back through time.

A screened memory bounds dL/dh_t from below, nothing bounds it from above: the loop query → weights →
context → state can gain at every step, and one batch in thousands comes back with a gradient 10² to 10¹⁸
times the usual one. Its direction is that of the step it grew at, so scaling it down later saves nothing.
Here no element of dL/ds_t, of the state that a step hands to the next, is larger than `factor` times the
largest element of what arrives from outside: growth ends where it begins. What a state gathers by being read
later is left as it is: there lies what teaches a network to remember, up to ten times what arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["GradLimit", "limit_of"]


def limit_of(arriving: Iterable[Tensor | None], factor: Tensor | None) -> Tensor | None:
    """`factor` times the largest element of what arrives, None where there is no limit. Stays on the device.

    >>> limit_of([torch.tensor([1.0, -3.0]), None], torch.tensor(2.0))
    tensor(6.)
    """
    if factor is None:
        return None
    there = [gradient for gradient in arriving if gradient is not None and gradient.numel()]
    if not there:
        return torch.zeros_like(factor)
    largest = torch.stack([gradient.abs().amax().to(factor.dtype) for gradient in there]).amax()
    return factor * largest


class GradLimit:
    """The same for autograd: `arriving` is what leaves a walk, `below` each of its states."""

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor
        self.limit: Tensor | None = None

    def below(self, state: Tensor) -> Tensor:
        """`state`, whose gradient is kept below the limit."""
        limited: Tensor = _Below.apply(state, self)
        return limited

    def arriving(self, output: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The results of a walk: the gradients that arrive at them set the limit before any of it flows."""
        memory = state.memory
        given = (output, state.hidden, state.cell_state, memory.slots)
        found = iter(_Arriving.apply(self, *(x for x in given if x is not None)))
        output, hidden = next(found), next(found)
        cell_state = None if state.cell_state is None else next(found)
        return output, state._replace(
            hidden=hidden, cell_state=cell_state, memory=memory._replace(slots=next(found))
        )


class _Arriving(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, limit: GradLimit, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.limit = limit
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.limit.limit = limit_of(gradients, ctx.limit.factor)
        return (None, *gradients)


class _Below(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: Tensor, limit: GradLimit) -> Tensor:
        ctx.limit = limit
        return state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        most = ctx.limit.limit.to(gradient.dtype)
        return gradient.clamp(-most, most), None
