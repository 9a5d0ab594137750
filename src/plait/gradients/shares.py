"""Contribution of every past state to a parameter gradient, by Lemmas 7 and 8.

Lemma 7, for the parameters θ of the energies, with dL/ds_t total and ∂e/∂θ direct:

    dL/dθ = Σ_i Γ_i,      Γ_i = Σ_t α_{i,t} [ (dL/ds_t) ∂_2 f (h_i − c_t) ] ∂e_{i,t}/∂θ,

so Γ_i is the contribution of the remembered state h_i. Lemma 8, for the recurrent parameters, is a sum over
steps; for an Elman cell  dL/dV = Σ_t [ (dL/dh_t) diag(φ'(a_{t−1})) ]ᵀ s_{t−1}ᵀ, and any other cell pulls
dL/dh_t back through its own step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from plait.cells import Cell
from plait.errors import ConfigError
from plait.gradients.maps import EDGE
from plait.gradients.paths.dynamics import Dynamics
from plait.gradients.paths.model import dynamics, layer_input, step_state
from plait.memory import NoMemory
from plait.models import SelfAttentive
from plait.ops.attention import attend

__all__ = ["StateShares", "state_shares"]

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class StateShares:
    """Contributions of the states h_1..h_T of one batch row.

    `attention[name]` (T, …) holds Γ_i for each parameter of the energies, `recurrent[name]` (T, …) the term
    of step t for each parameter of the cell; both sum over time to that row's parameter gradient.
    `weights` (T,) is the mean weight a state received from all s_t, t >= i, and `presence` (T,) the share
    of those t at which it was at least `threshold` even shares.
    """

    attention: Gradients
    recurrent: Gradients
    weights: Tensor
    presence: Tensor

    def attention_norm(self) -> Tensor:
        """Return ‖Γ_i‖ over all parameters of the energies, (T,)."""
        return _norm(self.attention)

    def attention_share(self) -> Tensor:
        """Return ⟨Γ_i, dL/dθ⟩/‖dL/dθ‖², (T,): sums to 1, negative where a state opposes the others."""
        return _share(self.attention)

    def recurrent_norm(self) -> Tensor:
        """Return the norm of each step's term over all parameters of the cell, (T,)."""
        return _norm(self.recurrent)

    def recurrent_share(self) -> Tensor:
        """Return the share of each step in the cell's gradient, (T,), as `attention_share` defines it."""
        return _share(self.recurrent)

    def relevant(self, most: float = 0.5) -> list[int]:
        """Return times (from 1) of the states attended to for at least `most` of the time since: Remark 6."""
        return [int(i) + 1 for i in torch.nonzero(self.presence >= most).flatten()]


def _norm(parts: Gradients) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts.values()], dim=1).square().sum(1).sqrt()


def _share(parts: Gradients) -> Tensor:
    rows = torch.cat([part.flatten(1) for part in parts.values()], dim=1)
    total = rows.sum(0)
    square = total @ total
    if not float(square) > 0:
        raise ConfigError("shares: the parameter gradient is zero, so nothing has a share of it")
    return rows @ total / square


def state_shares(
    model: nn.Module,
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    row: int = 0,
    layer: int = -1,
    threshold: float = EDGE,
) -> StateShares:
    """Split the parameter gradient of one row by state.

    Args:
        model: a `Recurrent` or `SelfAttentive` with a memory.
        x: its input, (T, B, F), or (B, T, F) if the model is `batch_first`.
        loss: maps the layer's h_1..h_T of that row, (T, H), to a scalar.
        row, layer: batch row, by default the first, and layer, by default the top one.
        threshold: a state counts as attended to at a weight of at least this many even shares.

    >>> from plait import RelRNN
    >>> shares = state_shares(RelRNN(2, 3), torch.randn(8, 1, 2), lambda h: h[-1].sum())
    >>> round(float(shares.attention_share().sum()), 4)
    1.0
    """
    unit, inputs = layer_input(model, x, layer)
    if isinstance(unit.memory, NoMemory):
        raise ConfigError("shares: this layer has no memory, so no state is attended to")
    system, size = dynamics(model, x, row=row, layer=layer)
    with torch.no_grad():  # torch.func differentiates nevertheless
        sweep = _Sweep(unit, inputs[:, row].detach(), system, size)
        return sweep.run(_direct(loss, sweep.path.states[:, :size]), threshold)


def _direct(loss: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """Return ∂L/∂h_t through the loss's own dependence on the states."""
    with torch.enable_grad():
        leaf = states.detach().requires_grad_(True)
        value = loss(leaf)
        gradients = torch.autograd.grad(value, leaf, allow_unused=True) if value.requires_grad else (None,)
    if gradients[0] is None:
        raise ConfigError("loss: does not depend on the hidden states")
    return gradients[0]


class _Sweep:
    """Backward sweep for total dL/dS and dL/dH that adds every term to the state it belongs to."""

    def __init__(self, unit: SelfAttentive, inputs: Tensor, system: Dynamics, size: int) -> None:
        self.cell, self.scorer = _Step(unit.cell, size), cast(nn.Module, unit.scorer)
        self.inputs, self.system, self.size = inputs, system, size
        self.path = system.run()
        length = len(self.path)
        self.attention, self.recurrent = _empty(self.scorer, length), _empty(unit.cell, length)
        self.received = self.path.states.new_zeros(length)
        self.attended = self.path.states.new_zeros(length)

    def run(self, direct: Tensor, threshold: float) -> StateShares:
        """Run the sweep from `direct` (T, n), the loss's own dependence on h_1..h_T."""
        system, path = self.system, self.path
        by_mixed = torch.zeros_like(path.mixed)
        by_state = torch.zeros_like(path.states)
        by_state[:, : self.size] = direct
        for m in range(len(path), 0, -1):
            before, slots = path.mixed[m - 1], system.attended_states(m, path.states)
            to_state, to_context = vjp(system.mix, path.states[m - 1], path.contexts[m - 1])[1](by_mixed[m])
            by_state[m - 1] += to_state
            read = vjp(lambda s, h, m=m: system.context(m, s, h), before, slots)[1]
            to_query, to_slots = read(to_context)
            attended = torch.tensor(system.supports[m - 1]) - 1
            by_state[attended] += to_slots
            self._add_attention(m, attended, to_context, threshold)
            self._add_step(m, by_state[m - 1])
            (to_before,) = vjp(lambda s, m=m: system.step(m, s), before)[1](by_state[m - 1])
            by_mixed[m - 1] += to_query + to_before
        ages = torch.arange(len(path), 0, -1, dtype=self.received.dtype)
        return StateShares(self.attention, self.recurrent, self.received / ages, self.attended / ages)

    def _add_attention(self, m: int, attended: Tensor, to_context: Tensor, threshold: float) -> None:
        """Add α_i [ to_context · (h_i − c) ] ∂e_i/∂θ for every i in A_m."""
        query, states = self.path.mixed[m - 1][: self.size], self.path.states[attended][:, : self.size]
        energies = self.scorer(query.unsqueeze(0), states.unsqueeze(0))
        weights = attend(energies, states.unsqueeze(0), torch.ones_like(energies, dtype=torch.bool)).weights[
            0
        ]
        lever = weights * ((states - self.path.contexts[m - 1]) @ to_context)

        def scaled(theta: Gradients, factor: Tensor, state: Tensor) -> Tensor:
            slots = state.reshape(1, 1, -1)
            energy = functional_call(self.scorer, theta, (query.unsqueeze(0), slots))
            return factor * cast(Tensor, energy).sum()

        terms = vmap(grad(scaled), in_dims=(None, 0, 0))(dict(self.scorer.named_parameters()), lever, states)
        for name, term in terms.items():
            self.attention[name][attended] += term
        self.received[attended] += weights
        self.attended[attended] += (weights * len(attended) >= threshold).to(weights.dtype)

    def _add_step(self, m: int, cotangent: Tensor) -> None:
        """Set the term of step m for the cell's parameters: dL/dH_m pulled back through the step."""

        def step(theta: Gradients) -> Tensor:
            return cast(
                Tensor, functional_call(self.cell, theta, (self.inputs[m - 1], self.path.mixed[m - 1]))
            )

        (terms,) = vjp(step, dict(self.cell.named_parameters()))[1](cotangent)
        for name, term in terms.items():
            self.recurrent[name.removeprefix("cell.")][m - 1] = term


class _Step(nn.Module):
    """Cell's step as a module, so that `functional_call` can replace its parameters."""

    def __init__(self, cell: Cell, size: int) -> None:
        super().__init__()
        self.cell, self.size = cell, size

    def forward(self, x: Tensor, mixed: Tensor) -> Tensor:
        return step_state(self.cell, self.cell.project(x), mixed, self.size)


def _empty(module: nn.Module, length: int) -> Gradients:
    return {name: value.new_zeros(length, *value.shape) for name, value in module.named_parameters()}
