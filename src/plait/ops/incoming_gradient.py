"""The incoming gradients of a walk's results, recorded before its backward pass begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plait.ops.grad_limit import limit_of

__all__ = ["IncomingGradient"]


class IncomingGradient:
    """A record that is filled as a backward pass begins.

    `output` (T, B, H) is the incoming gradient of every h_t, None if there is none; `limit` is the resulting
    limit of `grad_limit`. `step` is the current step of a walk.
    """

    def __init__(self, grad_limit: Tensor | None = None) -> None:
        self.step, self.grad_limit = 0, grad_limit
        self.output: Tensor | None = None
        self.limit: Tensor | None = None

    def at(self, output: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the results of a walk unchanged, with a hook by which their gradients fill this record."""
        memory = state.memory
        tensors = (output, state.hidden, state.cell_state, memory.slots)
        results = iter(_Arriving.apply(self, *(x for x in tensors if x is not None)))
        output, hidden = next(results), next(results)
        cell_state = None if state.cell_state is None else next(results)
        return output, state._replace(
            hidden=hidden, cell_state=cell_state, memory=memory._replace(slots=next(results))
        )

    def below_limit(self, state: Tensor) -> Tensor:
        """Return `state` unchanged; its gradient is clipped to the limit, where there is one."""
        if self.grad_limit is None:
            return state
        limited: Tensor = _Below.apply(state, self)
        return limited


class _Arriving(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, incoming: IncomingGradient, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.incoming = incoming
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.incoming.output = gradients[0]
        ctx.incoming.limit = limit_of(gradients, ctx.incoming.grad_limit)
        return (None, *gradients)


class _Below(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: Tensor, incoming: IncomingGradient) -> Tensor:
        ctx.incoming = incoming
        return state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        most = ctx.incoming.limit.to(gradient.dtype)
        return gradient.clamp(-most, most), None
