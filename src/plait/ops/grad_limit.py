"""A limit on the gradient that flows back through time.

A screened memory bounds dL/dh_t from below but not from above: the loop query → weights → context → state can
amplify it at every step, and one batch in thousands has a gradient 10² to 10¹⁸ times the usual one. Its
direction is that of the step at which it grew, so gradient-norm clipping afterwards cannot repair it. Here no
element of dL/ds_t, the gradient of the state passed to the next step, exceeds `factor` times the largest
element of the incoming gradient, which stops the growth where it begins. The gradient that a state collects
from later reads is not limited: it teaches the network to remember, and is up to ten times the incoming one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["largest_of", "limit_of"]


def limit_of(arriving: Iterable[Tensor | None], factor: Tensor | None) -> Tensor | None:
    """Return `factor` times the largest element of the arriving gradients, None where there is no limit.

    The result stays on the device.

    >>> limit_of([torch.tensor([1.0, -3.0]), None], torch.tensor(2.0))
    tensor(6.)
    """
    return None if factor is None else factor * largest_of(arriving, factor)


def largest_of(arriving: Iterable[Tensor | None], like: Tensor) -> Tensor:
    """Return the largest absolute element of the arriving gradients, in the type of `like`; a NaN stays NaN.

    >>> largest_of([torch.tensor([1.0, -3.0]), None], torch.tensor(2.0))
    tensor(3.)
    """
    there = [gradient for gradient in arriving if gradient is not None and gradient.numel()]
    if not there:
        return torch.zeros_like(like)
    # usually there is one incoming gradient, for which one operation is enough
    norms = [torch.linalg.vector_norm(gradient, torch.inf).to(like.dtype) for gradient in there]
    return norms[0] if len(norms) == 1 else torch.stack(norms).amax()
