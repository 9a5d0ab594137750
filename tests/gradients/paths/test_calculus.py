"""Lemmas 1–4 and Proposition 1 against autograd and against the list of all paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.errors import ConfigError
from plait.gradients.paths import (
    Blocks,
    breakdown,
    by_degree,
    by_hops,
    closed_form,
    derivatives_to,
    path_weights,
    recursion,
)

TOLERANCE = 1e-10
SETTINGS = list(itertools.product(range(3), ["tanh", "softplus"], ["sum", "half", "tanh"]))


def close(got: Tensor, expected: Tensor) -> None:
    assert (got - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max()))


def listed(blocks: Blocks, start: int, end: int) -> dict[tuple[int, ...], Tensor]:
    """The product of every path m_1 < … < T, all 2^k of them."""
    found = {}
    for size in range(end - start + 1):
        for middle in itertools.combinations(range(start, end), size):
            nodes = (*middle, end)
            product = blocks.enter(start, nodes[0])
            for j, m in itertools.pairwise(nodes):
                product = blocks.edge(m, j) @ product
            found[nodes] = product
    return found


@pytest.mark.parametrize(("seed", "phi", "mixing"), SETTINGS)
def test_recursion_equals_autograd(
    seed: int, phi: str, mixing: str, additive_system: Any, autograd_derivative: Callable[..., Tensor]
) -> None:
    system = additive_system(seed, phi, mixing).dynamics()
    blocks = system.blocks()
    for start in (1, 2, 4, 7):
        derivatives = recursion(blocks, start, 10)
        for end in (start, start + 1, 10):
            close(derivatives[end - start], autograd_derivative(system, start, end))
        close(closed_form(blocks, start, 10), derivatives[-1])


@pytest.mark.parametrize(("seed", "phi", "mixing"), SETTINGS[::4])
def test_path_sums_equal_enumeration(seed: int, phi: str, mixing: str, additive_system: Any) -> None:
    blocks = additive_system(seed, phi, mixing, full=seed != 1).dynamics().blocks()
    start, end = 2, 10
    paths = listed(blocks, start, end)
    degrees = by_degree(blocks, start, end)
    for s in range(end - start + 1):
        close(degrees[s], sum(p for nodes, p in paths.items() if len(nodes) == s + 1))
        assert sum(len(nodes) == s + 1 for nodes in paths) == math.comb(end - start, s)
    total = recursion(blocks, start, end)[-1]
    close(degrees.sum(0), total)
    close(by_degree(blocks, start, end, degree=3), degrees[:4])
    # Lemma 3: C_k = Ξ_{0:k} C_0 + Σ_{r>=1} Ξ_{r:k} E_r
    weight = path_weights(blocks, start, end)
    lemma3 = weight[start] @ blocks.enter(start, start)
    lemma3 = lemma3 + sum(weight[m] @ blocks.enter(start, m) for m in range(start + 1, end + 1))
    close(lemma3, total)


def test_lemma_1(additive_system: Any, autograd_derivative: Callable[..., Tensor]) -> None:
    """ds_{T}/dh_t = ∂s_T/∂h_t + Σ_j ∂s_T/∂h_j · dh_j/dh_t + ∂s_T/∂s_{T−1} · ds_{T−1}/dh_t."""
    system = additive_system(0).dynamics()
    blocks, start, end = system.blocks(), 3, 9
    derivative = {m: autograd_derivative(system, start, m) for m in range(start, end + 1)}
    total = blocks.by_state(end, start) + blocks.by_query(end) @ derivative[end - 1]
    for j in range(start + 1, end + 1):
        total = total + blocks.by_state(end, j) @ blocks.jump[j - 1] @ derivative[j - 1]
    close(total, derivative[end])


@pytest.mark.parametrize("full", [True, False])
def test_hops_equal_enumeration(full: bool, additive_system: Any) -> None:
    """Every path as a word of attention edges (α D) and recurrent edges (R)."""
    blocks = additive_system(2, mixing="tanh", full=full).dynamics().blocks()
    start, end = 3, 9
    expected = torch.zeros(end - start + 3, 4, 4, dtype=torch.float64)
    for nodes in listed(blocks, start, end):
        words = [{1: blocks.attention(nodes[0], start)}]
        if nodes[0] == start:
            words[0][0] = blocks.direct[start]
        for j, m in itertools.pairwise(nodes):
            kinds = {1: blocks.attention(m, j + 1) @ blocks.jump[j]}
            if j == m - 1:
                kinds[0] = blocks.recurrent(m)
            words.append(kinds)
        for word in itertools.product(*words):
            product = torch.eye(4, dtype=torch.float64)
            for kinds, kind in zip(words, word, strict=True):
                product = kinds[kind] @ product
            expected[sum(word)] += product
    got = by_hops(blocks, start, end)
    close(got, expected[: len(got)])
    few = by_hops(blocks, start, end, most=2)
    close(few[:3], got[:3])
    close(few[3], got[3:].sum(0))
    close(few.sum(0), recursion(blocks, start, end)[-1])


def test_breakdown_shares_sum_to_one(additive_system: Any) -> None:
    blocks = additive_system(1).dynamics().blocks()
    parts = breakdown(blocks, 2, 8)
    assert float(parts.share.sum()) == pytest.approx(1)
    assert parts.recurrent_share + parts.attention_share == pytest.approx(1)
    close(parts.total, recursion(blocks, 2, 8)[-1])
    assert parts.norm.tolist() == pytest.approx(parts.parts.flatten(1).norm(dim=1).tolist())


def test_breakdown_of_nothing(frozen_system: Callable[..., Any]) -> None:
    system = frozen_system(-torch.eye(2, dtype=torch.float64) / 2, [[1], [1], *[[1, 2]] * 4])
    with pytest.raises(ConfigError, match="ds_6/dh_1 is zero"):
        breakdown(system.blocks(), 1, 6)


def test_uniform_weights_are_not_enough(additive_system: Any, autograd_derivative: Callable) -> None:
    """Uniform α with energies that depend on the states: X ≠ 0, and the closed form is far off."""
    from plait.gradients.uniform import chi

    class Flat(additive_system):  # type: ignore[misc]
        def energy(self, query: Tensor, states: Tensor) -> Tensor:
            energies = super().energy(query, states)
            return energies - energies.detach()

    flat = Flat(0)
    flat.phi = lambda z: z
    system = flat.dynamics()
    expected = autograd_derivative(system, 2, 10)
    coefficients = chi(2, 8)[8]
    closed = sum(float(c) * torch.linalg.matrix_power(flat.v, s) for s, c in enumerate(coefficients))
    assert (closed - expected).norm() / expected.norm() > 0.3
    flat.v_a = torch.zeros_like(flat.v_a)
    exact = autograd_derivative(flat.dynamics(), 2, 10)
    assert (closed - exact).abs().max() < 1e-12 * exact.abs().max()


@pytest.mark.parametrize("full", [True, False])
def test_all_starts_at_once(full: bool, additive_system: Any) -> None:
    system = additive_system(1, mixing="tanh", full=full).dynamics()
    blocks = system.blocks()
    for start, derivative in enumerate(derivatives_to(system, 9), start=1):
        close(derivative, recursion(blocks, start, 9)[-1])


def test_times_are_checked(additive_system: Any) -> None:
    system = additive_system(0).dynamics()
    with pytest.raises(ConfigError, match="first <= last <= 10"):
        system.blocks(3, 11)
    with pytest.raises(ConfigError, match="3 <= start <= end <= 8"):
        recursion(system.blocks(3, 8), 2, 8)
