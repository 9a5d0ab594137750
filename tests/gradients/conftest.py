"""Oracles of this room: derivatives by plain autograd through a whole trajectory, and random systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from plait.gradients.paths import Dynamics, additive_energy

Derivative = Callable[[Dynamics, int, int], Tensor]


def derivative_by_autograd(system: Dynamics, t: int, end: int) -> Tensor:
    """dS_T/dH_t with H_t a free leaf: a zero is added to H_t and differentiated by."""

    def last(nudge: Tensor) -> Tensor:
        mixed, states = system.begin, []
        for m in range(1, end + 1):
            states.append(system.step(m, mixed) + (nudge if m == t else 0))
            mixed = system.mix(states[-1], system.context(m, mixed, system.attended_states(m, states)))
        return mixed

    return torch.autograd.functional.jacobian(last, torch.zeros_like(system.begin))


@pytest.fixture(scope="session")
def autograd_derivative() -> Derivative:
    return derivative_by_autograd


@pytest.fixture(scope="session")
def frozen_system() -> Callable[..., Dynamics]:
    """Linear recurrence V, weights frozen on given supports, mixing γ(h + c): where p(V) is exact."""

    def build(
        matrix: Tensor,
        supports: Sequence[Sequence[int]],
        mix: float = 1.0,
        weights: Sequence[Sequence[float]] | None = None,
    ) -> Dynamics:
        inputs = torch.randn(
            len(supports), len(matrix), dtype=matrix.dtype, generator=torch.Generator().manual_seed(1)
        )

        def context(m: int, mixed: Tensor, held: Tensor) -> Tensor:
            if weights is None:
                return held.mean(0)
            return torch.tensor(weights[m - 1], dtype=held.dtype) @ held

        return Dynamics(
            lambda m, s: matrix @ s + inputs[m - 1],
            context,
            lambda h, c: mix * (h + c),
            supports,
            torch.zeros(len(matrix), dtype=matrix.dtype),
        )

    return build


PHI = {"tanh": torch.tanh, "softplus": torch.nn.functional.softplus}


class AdditiveSystem:
    """n = 4, m = 3, T = 10, additive energy of large scale, so that X and Y are really exercised."""

    size, inputs, length = 4, 3, 10

    def __init__(self, seed: int, phi: str = "tanh", mixing: str = "sum", full: bool = True) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int, scale: float = 1.0) -> Tensor:
            return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

        n = self.size
        self.phi = PHI[phi]
        self.v, self.u, self.b = draw(n, n, scale=0.6), draw(n, self.inputs), draw(n)
        self.w_a, self.u_a, self.v_a = draw(n, n), draw(n, n), draw(n, scale=3.0)
        self.x = draw(self.length, self.inputs)
        p, q = draw(n, n, scale=0.7), draw(n, n, scale=0.7)
        self.mix = {
            "sum": lambda h, c: h + c,
            "half": lambda h, c: 0.5 * (h + c),
            "tanh": lambda h, c: torch.tanh(p @ h + q @ c),
        }[mixing]
        times = range(1, self.length + 1)
        self.supports = [list(range(1, m + 1)) if full else sorted({m, *range(1, m + 1, 3)}) for m in times]

    def energy(self, query: Tensor, states: Tensor) -> Tensor:
        return additive_energy(query, states, self.w_a, self.u_a, self.v_a)

    def dynamics(self) -> Dynamics:
        def context(m: int, mixed: Tensor, held: Tensor) -> Tensor:
            return torch.softmax(self.energy(mixed, held), 0) @ held

        return Dynamics(
            lambda m, s: self.phi(self.v @ s + self.u @ self.x[m - 1] + self.b),
            context,
            self.mix,
            self.supports,
            torch.zeros(self.size, dtype=torch.float64),
        )


@pytest.fixture(scope="session")
def additive_system() -> type[AdditiveSystem]:
    return AdditiveSystem
