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

import torch
from torch import Tensor

__all__ = ["largest_of", "limit_of"]


def limit_of(arriving: Iterable[Tensor | None], factor: Tensor | None) -> Tensor | None:
    """`factor` times the largest element of what arrives, None where there is no limit. Stays on the device.

    >>> limit_of([torch.tensor([1.0, -3.0]), None], torch.tensor(2.0))
    tensor(6.)
    """
    return None if factor is None else factor * largest_of(arriving, factor)


def largest_of(arriving: Iterable[Tensor | None], like: Tensor) -> Tensor:
    """The largest element of what arrives, whatever its sign, in the type of `like`. A NaN stays one.

    >>> largest_of([torch.tensor([1.0, -3.0]), None], torch.tensor(2.0))
    tensor(3.)
    """
    there = [gradient for gradient in arriving if gradient is not None and gradient.numel()]
    if not there:
        return torch.zeros_like(like)
    # one operation where one gradient arrives, as most often
    found = [torch.linalg.vector_norm(gradient, torch.inf).to(like.dtype) for gradient in there]
    return found[0] if len(found) == 1 else torch.stack(found).amax()
