"""Initialisers of recurrent matrices. All draw from torch's generator, work in place and end in `_`.

The three rotation initialisers give an orthogonal matrix, the exponential of a skew-symmetric one; training
does not keep it orthogonal. With an odd size the last eigenvalue is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from plait.errors import check_choice

__all__ = [
    "INITIALISERS",
    "cayley_",
    "henaff_",
    "identity_",
    "initialise_",
    "kaiming_",
    "random_orthogonal_",
    "xavier_",
]


def initialise_(weight: Tensor, name: str) -> Tensor:
    """Fill `weight` (G·H, H) by the initialiser of this name, each square block separately."""
    initialiser = INITIALISERS[check_choice(name, INITIALISERS, "initialiser")]
    with torch.no_grad():
        for block in weight.split(weight.shape[1]):
            initialiser(block)
    return weight


def henaff_(weight: Tensor) -> Tensor:
    """Fill with rotation blocks, angles uniform in (−π, 0): eigenvalues e^{±iφ} uniform on the circle."""
    return _rotations_(weight, torch.empty(len(weight) // 2).uniform_(-math.pi, 0))


def cayley_(weight: Tensor) -> Tensor:
    """Fill with rotation blocks, angles −tan(φ/2), φ uniform in (0, π/2): all within (−1, 0] radian."""
    return _rotations_(weight, -torch.tan(torch.empty(len(weight) // 2).uniform_(0, math.pi / 2) / 2))


def random_orthogonal_(weight: Tensor) -> Tensor:
    """Fill with a rotation drawn uniformly from SO(n): an orthogonal draw with its determinant made 1."""
    square = torch.linalg.qr(torch.randn(len(weight), len(weight), dtype=torch.float64))
    rotation = square.Q * torch.sign(torch.diagonal(square.R))
    rotation[:, 0] *= torch.sign(torch.linalg.det(rotation))
    return weight.copy_(rotation)


def xavier_(weight: Tensor) -> Tensor:
    """Fill with normal draws of variance 2 / (fan in + fan out)."""
    return nn.init.xavier_normal_(weight)


def kaiming_(weight: Tensor) -> Tensor:
    """Fill with normal draws of variance 2 / fan in."""
    return nn.init.kaiming_normal_(weight)


def identity_(weight: Tensor) -> Tensor:
    """Fill with the identity."""
    return nn.init.eye_(weight)


def _rotations_(weight: Tensor, angles: Tensor) -> Tensor:
    """Fill with block-diagonal rotations: exp of the skew matrix with these angles next to its diagonal."""
    weight.zero_().fill_diagonal_(1)
    even = torch.arange(0, 2 * len(angles), 2)
    cos, sin = torch.cos(angles).to(weight), torch.sin(angles).to(weight)
    weight[even, even], weight[even + 1, even + 1] = cos, cos
    weight[even, even + 1], weight[even + 1, even] = sin, -sin
    return weight


INITIALISERS: dict[str, Callable[[Tensor], Tensor]] = {
    "henaff": henaff_,
    "cayley": cayley_,
    "random": random_orthogonal_,
    "xavier": xavier_,
    "kaiming": kaiming_,
    "identity": identity_,
}
