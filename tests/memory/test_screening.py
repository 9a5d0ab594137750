"""Relevancy screening against an independent re-statement with lists, one row at a time."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plait import ElmanCell, RelevancyMemory, SelfAttentive, TopKMemory, UniformMemory
from plait.errors import ConfigError
from plait.models import MODELS


def screened(layer, x, window, capacity, noise=None):
    """h_t, A_t with weights, and the kept ids, from the rule written out with Python lists."""
    worth = layer.scorer.worth
    cell, scorer = layer.cell, layer.scorer
    s = torch.zeros(cell.hidden_size, dtype=x.dtype)
    ring, kept, outputs, reads = [], [None] * capacity, [], []
    for t, x_t in enumerate(x):
        h = torch.tanh(cell.weight_hh @ s + cell.weight_ih @ x_t + cell.bias)
        if len(ring) == window:
            leaving = ring.pop(0)
            free = [j for j in range(capacity) if kept[j] is None]
            if free:
                kept[free[0]] = leaving
            elif capacity:
                worst = min(range(capacity), key=lambda j: (kept[j][2], j))
                if leaving[2] > kept[worst][2]:
                    kept[worst] = leaving
        score = 0.0 if worth is None else (worth @ h + (0.0 if noise is None else noise[t])).item()
        ring.append([t, h, score])
        candidates = ring + [entry for entry in kept if entry is not None]
        energies = torch.stack(
            [scorer.energy @ torch.tanh(scorer.query @ s + scorer.key @ entry[1]) for entry in candidates]
        )
        if worth is not None:
            energies = energies + torch.stack([worth @ entry[1] for entry in candidates])
        weights = torch.softmax(energies, 0)
        for entry, weight in zip(candidates[: len(ring)], weights, strict=False):
            entry[2] += weight.item() if worth is None else 0.0
        context = sum(w * entry[1] for w, entry in zip(weights, candidates, strict=True))
        s = 0.5 * (h + context)
        outputs.append(h)
        reads.append({entry[0]: w.item() for entry, w in zip(candidates, weights, strict=True)})
    return torch.stack(outputs), reads, [None if e is None else e[0] for e in kept]


@settings(max_examples=25, deadline=None)
@given(
    window=st.integers(1, 5),
    capacity=st.integers(0, 5),
    steps=st.integers(1, 25),
    seed=st.integers(0, 999),
    learned=st.booleans(),
)
def test_screening_equals_its_restatement(window, capacity, steps, seed, learned):
    torch.manual_seed(seed)
    memory = RelevancyMemory(window, capacity, "learned" if learned else "earned", 0.0 if learned else None)
    layer = SelfAttentive(ElmanCell(3, 6, dtype=torch.float64), memory)
    with torch.no_grad():
        layer.scorer.energy.mul_(4)  # spread the weights, so that margins are wide
        if memory.learns:
            layer.scorer.worth.normal_()
        x = torch.randn(steps, 2, 3, dtype=torch.float64)
        output, state, trace = layer(x, need_trace=True)
        for row in range(2):
            expected, reads, kept = screened(layer, x[:, row], window, capacity)
            torch.testing.assert_close(output[:, row], expected, atol=1e-12, rtol=1e-10)
            for t, read in enumerate(reads):
                pairs = zip(trace.born[t, row].tolist(), trace.weights[t, row].tolist(), strict=True)
                ours = {born: weight for born, weight in pairs if born >= 0}
                assert ours.keys() == read.keys()
                assert all(math.isclose(ours[k], read[k], abs_tol=1e-12) for k in read)
            ids = [None if b < 0 else b for b in state.memory.born[row, window:].tolist()]
            assert ids == kept


def uniform_layer(memory):
    layer = SelfAttentive(ElmanCell(2, 4, dtype=torch.float64), memory)
    torch.nn.init.zeros_(layer.scorer.energy)
    return layer


def test_uniform_energies_never_evict_the_first_states():
    """score(i) = Σ 1/min(τ, κ) over the window; ties do not evict."""
    layer = uniform_layer(RelevancyMemory(3, 2))
    _, state, trace = layer(torch.randn(30, 1, 2, dtype=torch.float64), need_trace=True)
    assert state.memory.born[0, 3:].tolist() == [0, 1]
    scores = state.memory.relevance[0, 3:].tolist()
    assert scores == pytest.approx([1 + 1 / 2 + 1 / 3, 1 / 2 + 1 / 3 + 1 / 4])
    assert trace.relevance.max() <= 3


def test_published_scores_for_window_ten_capacity_ten():
    layer = uniform_layer(RelevancyMemory(10, 10))
    _, state, _ = layer(torch.randn(40, 1, 2, dtype=torch.float64), need_trace=True)
    assert state.memory.relevance[0, 10:13].tolist() == pytest.approx([2.929, 2.0199, 1.6032], abs=1e-3)


def test_ties_evict_nothing_and_the_lowest_slot_leaves_first():
    from plait.ops.slots import MemoryState, relevancy_write

    memory = MemoryState(
        slots=torch.arange(4.0).view(1, 4, 1),
        relevance=torch.tensor([[0.7, 0.2, 0.5, 0.5]]),
        born=torch.tensor([[2, 3, 0, 1]]),
        age=torch.tensor([4]),
    )
    after = relevancy_write(torch.tensor([[9.0]]), memory, window=2)
    assert after.born.tolist() == [[4, 3, 2, 1]]  # slots 2 and 3 tie: the lower index leaves
    tied = memory._replace(relevance=torch.tensor([[0.5, 0.2, 0.5, 0.5]]))
    assert relevancy_write(torch.tensor([[9.0]]), tied, window=2).born.tolist() == [[4, 3, 0, 1]]


@given(
    window=st.integers(1, 4), capacity=st.integers(1, 4), every=st.integers(1, 4), steps=st.integers(1, 40)
)
@settings(max_examples=30, deadline=None)
def test_uniform_writing_keeps_every_nth(window, capacity, every, steps):
    layer = uniform_layer(UniformMemory(window, capacity, every))
    _, state, _ = layer(torch.randn(steps, 1, 2, dtype=torch.float64))
    left = range(max(0, steps - window))
    expected = [b for b in left if b % every == 0][-capacity:]
    assert sorted(b for b in state.memory.born[0, window:].tolist() if b >= 0) == expected


def test_top_k_reads_the_k_best_and_the_earlier_one_on_ties():
    layer = uniform_layer(TopKMemory(top_k=2, every=3))
    _, _, trace = layer(torch.randn(10, 1, 2, dtype=torch.float64), need_trace=True)
    assert trace.born[-1, 0].tolist() == [0, 3, 6, 9]
    assert trace.weights[-1, 0].tolist() == [0.5, 0.5, 0, 0]


def test_gradients_flow_through_stored_states_and_not_through_scores():
    layer = SelfAttentive(ElmanCell(2, 4, dtype=torch.float64), RelevancyMemory(2, 2))
    x = torch.randn(12, 1, 2, dtype=torch.float64, requires_grad=True)
    _, state, _ = layer(x)
    assert not state.memory.relevance.requires_grad
    kept = state.memory.slots[0, 2:]
    assert torch.autograd.grad(kept.sum(), x)[0].abs().max() > 0


@pytest.mark.parametrize("name", ["relrnn", "rellstm"])
def test_untrained_screening_keeps_what_comes_first(name):
    """States of the first 20 of 300 steps of noise hold most of what is kept; a score does not care when."""
    held = {}
    for relevance in ("earned", "learned"):
        torch.manual_seed(0)
        model = MODELS[name](8, 32, window=10, capacity=10, relevance=relevance)
        if relevance == "learned":
            torch.nn.init.normal_(model.layers[0].scorer.worth)
        with torch.no_grad():
            _, state = model.eval()(torch.randn(300, 16, 8))
        held[relevance] = (state.memory[0].born[:, 10:] < 20).float().mean().item()
    assert held["earned"] > 0.6
    assert held["learned"] < 0.2


def test_a_uniform_memory_of_no_states_is_refused():
    with pytest.raises(ConfigError, match="every: expected at least 1, got 0"):
        UniformMemory(2, 3, every=0)
