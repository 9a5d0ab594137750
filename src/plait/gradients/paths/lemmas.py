"""Jacobian blocks from weights, states and the energies' derivatives, by Lemmas 5 and 6.

One step m of one sequence attends over A_m with weights α and energies e_i = a(s_{m−1}, h_i). Both
corrections have rank one per state, because a weight moves the context only along h_i − c_m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from plait.errors import ShapeError

__all__ = ["Attention", "additive_energy", "additive_slopes", "energy_slopes"]


@dataclass(frozen=True)
class Attention:
    """Attention of one step: `states` (k, n), `weights` (k,), and the energies' derivatives.

    `by_state` (k, n) holds ∂e_i/∂h_i, `by_query` (k, n) holds ∂e_i/∂s_{m−1}.
    """

    states: Tensor
    weights: Tensor
    by_state: Tensor
    by_query: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.states.shape)
        if len(shape) != 2 or tuple(self.weights.shape) != shape[:1]:
            raise ShapeError(f"states and weights: expected (k, n) and (k,), got {shape}")
        if any(tuple(slope.shape) != shape for slope in (self.by_state, self.by_query)):
            raise ShapeError(f"slopes: expected {shape} as the states")

    @property
    def context(self) -> Tensor:
        """Context c = Σ α_i h_i."""
        return self.weights @ self.states

    @property
    def lever(self) -> Tensor:
        """Directions h_i − c, (k, n), in which the weights move the context."""
        return self.states - self.context

    def x(self, i: int) -> Tensor:
        """Return X_i = (h_i − c) · ∂e_i/∂h_i, an outer product (n, n)."""
        return torch.outer(self.lever[i], self.by_state[i])

    def y(self, i: int) -> Tensor:
        """Return Y_i = h_i · (∂e_i/∂s − Σ_j α_j ∂e_j/∂s), an outer product (n, n)."""
        return torch.outer(self.states[i], self.by_query[i] - self.weights @ self.by_query)

    def context_by_state(self, i: int) -> Tensor:
        """Return ∂c/∂h_i = α_i (I + X_i), by Lemma 6."""
        identity = torch.eye(self.states.shape[1], dtype=self.states.dtype, device=self.states.device)
        return self.weights[i] * (identity + self.x(i))

    def context_by_query(self) -> Tensor:
        """Return ∂c/∂s = Σ_i α_i Y_i = Σ_i α_i (h_i − c) · ∂e_i/∂s, by Lemma 5."""
        return (self.weights[:, None] * self.lever).T @ self.by_query

    def pull_state(self, row: Tensor) -> Tensor:
        """Return row · ∂c/∂h_i for all i, (k, n), without forming a matrix: q + (q·(h_i − c)) ∂e_i/∂h_i."""
        return self.weights[:, None] * (row + (self.lever @ row)[:, None] * self.by_state)

    def pull_query(self, row: Tensor) -> Tensor:
        """Return row · ∂c/∂s, (n,): Σ_i α_i (q·(h_i − c)) ∂e_i/∂s."""
        return (self.weights * (self.lever @ row)) @ self.by_query


def additive_energy(query: Tensor, states: Tensor, w_a: Tensor, u_a: Tensor, v_a: Tensor) -> Tensor:
    """Return e_i = v_aᵀ tanh(W_a s + U_a h_i), (k,), from s (n,) and states (k, n)."""
    return torch.tanh(query @ w_a.T + states @ u_a.T) @ v_a


def additive_slopes(
    query: Tensor, states: Tensor, w_a: Tensor, u_a: Tensor, v_a: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ∂e_i/∂h_i = v_aᵀ diag(1 − tanh²) U_a and ∂e_i/∂s, with W_a instead; both (k, n) (Remark 5)."""
    inner = torch.tanh(query @ w_a.T + states @ u_a.T)
    slope = v_a * (1 - inner * inner)
    return slope @ u_a, slope @ w_a


def energy_slopes(
    energy: Callable[[Tensor, Tensor], Tensor], query: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ∂e_i/∂h_i and ∂e_i/∂s, both (k, n), for any `energy` (query (n,), states (k, n)) → (k,)."""

    def single(s: Tensor, h: Tensor) -> Tensor:
        return energy(s, h.unsqueeze(0)).squeeze(0)

    by_query, by_state = vmap(jacrev(single, argnums=(0, 1)), in_dims=(None, 0))(query, states)
    return by_state, by_query
