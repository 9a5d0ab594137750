"""Lemmas 5 and 6, Corollary 1, Proposition 2, and the rank-one reverse sweep."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.errors import ConfigError, ShapeError
from plait.gradients.paths import (
    Attention,
    Dynamics,
    additive_slopes,
    energy_slopes,
    recursion,
    reverse_sweep,
    reverse_sweep_blocks,
)

SETTINGS = list(itertools.product(range(3), ["tanh", "softplus"], ["sum", "half", "tanh"]))


def readings(made: Any, system: Dynamics) -> list[Attention]:
    path = system.run()
    found = []
    for m, attended in enumerate(system.supports, start=1):
        held, query = path.states[[i - 1 for i in attended]], path.mixed[m - 1]
        by_state, by_query = additive_slopes(query, held, made.w_a, made.u_a, made.v_a)
        found.append(Attention(held, torch.softmax(made.energy(query, held), 0), by_state, by_query))
    return found


def close(got: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    assert (got - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("seed", "phi", "mixing"), SETTINGS)
def test_blocks_from_weights_and_slopes(seed: int, phi: str, mixing: str, additive_system: Any) -> None:
    made = additive_system(seed, phi, mixing, full=seed != 2)
    system = made.dynamics()
    blocks = system.blocks()
    for m, reading in enumerate(readings(made, system), start=1):
        close(blocks.query[m], reading.context_by_query())
        summed = sum(reading.weights[i] * reading.y(i) for i in range(len(reading.weights)))
        close(reading.context_by_query(), summed)
        for place, i in enumerate(system.supports[m - 1]):
            close(blocks.attention(m, i), blocks.through[m] @ reading.context_by_state(place))
    # Lemma 5 at t = 1: one candidate, so nothing depends on who asks
    assert blocks.by_query(1).abs().max() == 0


def test_x_and_y_are_exercised(additive_system: Any) -> None:
    """The setting would prove little if both corrections were small."""
    made = additive_system(0)
    found = readings(made, made.dynamics())
    assert max(float(r.x(i).norm()) for r in found for i in range(len(r.weights))) > 2
    assert max(float(r.context_by_query().norm()) for r in found) > 0.3


def test_additive_slopes_equal_autograd(additive_system: Any) -> None:
    made = additive_system(1)
    query, states = torch.randn(4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    for one, two in zip(
        additive_slopes(query, states, made.w_a, made.u_a, made.v_a),
        energy_slopes(made.energy, query, states),
        strict=True,
    ):
        close(one, two, 1e-13)


def test_corollary_1(additive_system: Any) -> None:
    """E and F for f = h + c in terms of α, X, Y and J alone (Remark 4)."""
    made = additive_system(0)
    system = made.dynamics()
    blocks, found, eye = system.blocks(), readings(made, system), torch.eye(4, dtype=torch.float64)
    for m in range(2, 11):
        reading = found[m - 1]
        for i in range(1, m + 1):
            enter = (m == i) * eye + reading.weights[i - 1] * (eye + reading.x(i - 1))
            close(blocks.enter(i, m), enter)
        for j in range(1, m):
            edge = reading.weights[j] * (eye + reading.x(j)) @ blocks.jump[j]
            if j == m - 1:
                edge = edge + blocks.jump[j] + reading.context_by_query()
            close(blocks.edge(m, j), edge)


def loss_parts(system: Dynamics, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(system), system.begin.shape[0])
    draws = (torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return tuple(draws)  # type: ignore[return-value]


def total_gradients(system: Dynamics, by_mixed: Tensor, by_state: Tensor) -> tuple[Tensor, Tensor]:
    """dL/ds_m and dL/dh_m for L = Σ ⟨a_m, s_m⟩ + ⟨b_m, h_m⟩, by zeros added to every s and h."""
    nudge_h = torch.zeros_like(by_state, requires_grad=True)
    nudge_s = torch.zeros_like(by_mixed, requires_grad=True)
    mixed, states, loss = system.begin, [], torch.zeros((), dtype=torch.float64)
    for m in range(1, len(system) + 1):
        states.append(system.step(m, mixed) + nudge_h[m - 1])
        mixed = (
            system.mix(states[-1], system.context(m, mixed, system.attended_states(m, states)))
            + nudge_s[m - 1]
        )
        loss = loss + by_mixed[m - 1] @ mixed + by_state[m - 1] @ states[-1]
    found = torch.autograd.grad(loss, (nudge_s, nudge_h))
    return found[0], found[1]


@pytest.mark.parametrize(("seed", "phi", "mixing"), SETTINGS[::2])
def test_reverse_sweep(seed: int, phi: str, mixing: str, additive_system: Any) -> None:
    made = additive_system(seed, phi, mixing, full=seed != 1)
    system = made.dynamics()
    blocks, length = system.blocks(), len(system)
    by_mixed, by_state = loss_parts(system, seed)
    expected = total_gradients(system, by_mixed, by_state)

    def stacked(held: dict[int, Tensor], first: int) -> Tensor:
        return torch.stack([held[m] for m in range(first, length + (first == 1 and held is not blocks.jump))])

    sweep = reverse_sweep(
        readings(made, system),
        system.supports,
        stacked(blocks.jump, 1),
        stacked(blocks.direct, 1),
        stacked(blocks.through, 1),
        by_mixed,
        by_state,
    )
    full = reverse_sweep_blocks(blocks, by_mixed, by_state)
    for found in (sweep, full):
        close(found.by_mixed, expected[0])
        close(found.by_state, expected[1])


def test_remark_6_gradient_formula(additive_system: Any) -> None:
    """dL/dh_t sums over all T; the one-term form is right only if the loss sees s_T alone."""
    system = additive_system(0).dynamics()
    blocks, length, t = system.blocks(), 10, 3
    by_mixed, by_state = loss_parts(system, 7)
    derivatives = recursion(blocks, t, length)
    total = by_state[t - 1].clone()
    for end in range(t, length + 1):
        total = total + by_mixed[end - 1] @ derivatives[end - t]
        if end > t:
            total = total + by_state[end - 1] @ blocks.jump[end - 1] @ derivatives[end - 1 - t]
    close(total, total_gradients(system, by_mixed, by_state)[1][t - 1])
    one_term = by_mixed[-1] @ derivatives[-1]
    assert (one_term - total).abs().max() > 0.1
    only_last = torch.zeros_like(by_mixed)
    only_last[-1] = by_mixed[-1]
    close(one_term, total_gradients(system, only_last, torch.zeros_like(by_state))[1][t - 1])


def test_an_unattended_state_still_contributes(additive_system: Any) -> None:
    """Remark 6 says such a state contributes nothing; the recurrent edge says otherwise."""
    made = additive_system(0)
    made.supports = [[i for i in range(1, m + 1) if i != 3] or [m] for m in range(1, 11)]
    system = made.dynamics()
    blocks = system.blocks()
    by_mixed = torch.zeros(10, 4, dtype=torch.float64)
    by_mixed[-1] = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sweep = reverse_sweep_blocks(blocks, by_mixed, torch.zeros_like(by_mixed))
    assert sweep.by_state[2].norm() > 0
    close(sweep.by_state[2], sweep.by_mixed[2] @ blocks.direct[3], 1e-14)


def test_shapes_are_checked(additive_system: Any) -> None:
    states = torch.zeros(3, 4)
    with pytest.raises(ShapeError, match=r"expected \(k, n\) and \(k,\)"):
        Attention(states, torch.zeros(2), states, states)
    with pytest.raises(ShapeError, match="slopes"):
        Attention(states, torch.zeros(3), states, torch.zeros(3, 5))
    empty = torch.zeros(0, 4)
    with pytest.raises(ConfigError, match="at least one step"):
        reverse_sweep([], [], empty, empty, empty, empty, empty)
    blocks = additive_system(0).dynamics().blocks(2, 10)
    with pytest.raises(ShapeError, match="blocks from 1"):
        reverse_sweep_blocks(blocks, torch.zeros(10, 4), torch.zeros(10, 4))
    with pytest.raises(ShapeError, match="edge: expected"):
        blocks.edge(3, 3)
    with pytest.raises(ConfigError, match=r"A_1: expected times in 1\.\.1"):
        Dynamics(lambda m, s: s, lambda m, s, h: s, lambda h, c: h, [[2]], torch.zeros(2))
