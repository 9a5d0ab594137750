"""The laws every cell × memory pair obeys."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plait import (
    ElmanCell,
    FullMemory,
    GRUCell,
    LSTMCell,
    NoMemory,
    Recurrent,
    RelevancyMemory,
    SelfAttentive,
    TopKMemory,
    Transformer,
    UniformMemory,
    WindowMemory,
)
from plait.cells import keep_orthogonal

CELLS = {
    "elman-tanh": lambda f, h: ElmanCell(f, h, dtype=torch.float64),
    "elman-modrelu": lambda f, h: ElmanCell(f, h, nonlinearity="modrelu", dtype=torch.float64),
    "elman-relu": lambda f, h: ElmanCell(f, h, nonlinearity="relu", dtype=torch.float64),
    "elman-identity": lambda f, h: ElmanCell(f, h, nonlinearity="identity", dtype=torch.float64),
    "lstm": lambda f, h: LSTMCell(f, h, dtype=torch.float64),
    "gru": lambda f, h: GRUCell(f, h, dtype=torch.float64),
    "elman-orthogonal": lambda f, h: keep_orthogonal(ElmanCell(f, h, "modrelu", dtype=torch.float64)),
    "gru-orthogonal": lambda f, h: keep_orthogonal(GRUCell(f, h, "modrelu", dtype=torch.float64)),
}
MEMORIES = {
    "none": NoMemory(),
    "full": FullMemory(),
    "window": WindowMemory(3),
    "relevancy": RelevancyMemory(3, 2),
    "learned": RelevancyMemory(3, 2, relevance="learned", noise=0.0),
    "uniform": UniformMemory(3, 2, every=2),
    "top-k": TopKMemory(top_k=2, every=2),
}
CELL_TIMES_MEMORY = [pytest.param(c, m, id=f"{c}×{m}") for c in CELLS for m in MEMORIES]
BOUNDED = ["window", "learned", "uniform"]  # what the heads of a Transformer can have in one pass
PAIRS = [
    *CELL_TIMES_MEMORY,
    pytest.param("transformer", None, id="transformer"),
    *(pytest.param("transformer", m, id=f"transformer×{m}") for m in BOUNDED),
]
TINY = {"atol": 1e-12, "rtol": 1e-10}


def build(cell, memory, features=3, hidden=5, **options):
    if cell == "transformer":
        kind = MEMORIES.get(memory)
        model = Transformer(
            features, hidden, num_layers=2, heads=1, dtype=torch.float64, memory=kind, **options
        )
        for layer in model.layers:
            if kind and kind.learns:
                torch.nn.init.normal_(layer.worth)
        return model
    policy = MEMORIES[memory] if isinstance(memory, str) else memory
    layer = SelfAttentive(CELLS[cell](features, hidden), policy, **options)
    if policy.learns:  # it begins at zero, where every state is worth the same
        torch.nn.init.normal_(layer.scorer.worth)
    return Recurrent([layer])


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def assert_states_equal(a, b):
    for x, y in zip(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b), strict=True):
        torch.testing.assert_close(x, y, **TINY)


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
@settings(max_examples=6, deadline=None)
@given(steps=st.integers(2, 14), cut=st.integers(1, 13), rows=st.integers(1, 4), seed=st.integers(0, 99))
def test_one_scan_is_two_scans_is_single_steps(cell, memory, steps, cut, rows, seed):
    torch.manual_seed(seed)
    model, x = build(cell, memory), draw(steps, rows, 3)
    whole, end = model(x)
    cut = min(cut, steps - 1)
    first, middle = model(x[:cut])
    second, last = model(x[cut:], middle)
    torch.testing.assert_close(torch.cat([first, second]), whole, **TINY)
    assert_states_equal(last, end)
    state, singles = None, []
    for x_t in x:
        h, state = model(x_t[None], state)
        singles.append(h)
    torch.testing.assert_close(torch.cat(singles), whole, **TINY)
    assert_states_equal(state, end)


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
def test_carried_state_carries_gradients(cell, memory):
    model, x = build(cell, memory), draw(9, 2, 3)
    model(x)[0].square().sum().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    first, state = model(x[:4])
    second, _ = model(x[4:], state)
    torch.cat([first, second]).square().sum().backward()
    for expected, p in zip(whole, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
@settings(max_examples=4, deadline=None)
@given(rows=st.integers(1, 5), seed=st.integers(0, 99))
def test_permuting_the_batch_permutes_the_output(cell, memory, rows, seed):
    torch.manual_seed(seed)
    model, x = build(cell, memory), draw(11, rows, 3)
    order = torch.randperm(rows)
    output, state = model(x)
    permuted, permuted_state = model(x[:, order])
    torch.testing.assert_close(permuted, output[:, order], **TINY)
    assert_states_equal(permuted_state, state.rows(order))


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
def test_no_output_sees_a_later_input(cell, memory):
    model, x = build(cell, memory), draw(9, 2, 3).requires_grad_()
    output, _ = model(x)
    (seen,) = torch.autograd.grad(output[4].sum(), x)
    assert seen[5:].abs().max() == 0
    assert seen[4].abs().max() > 0


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=5, deadline=None)
@given(steps=st.integers(1, 9), extra=st.integers(0, 3), seed=st.integers(0, 99))
def test_a_window_as_long_as_the_sequence_is_full_memory(cell, steps, extra, seed):
    torch.manual_seed(seed)
    full, x = build(cell, "full"), draw(steps, 2, 3)
    window = build(cell, WindowMemory(steps + extra))
    window.load_state_dict(full.state_dict())
    torch.testing.assert_close(window(x)[0], full(x)[0], **TINY)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "memory", [RelevancyMemory(4, 0), UniformMemory(4, 0)], ids=lambda m: type(m).__name__
)
def test_capacity_zero_is_a_window(cell, memory):
    bounded, window, x = build(cell, memory), build(cell, WindowMemory(4)), draw(13, 2, 3)
    window.load_state_dict(bounded.state_dict())
    torch.testing.assert_close(bounded(x)[0], window(x)[0], rtol=0, atol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_attention_is_full_until_the_slots_run_out(cell):
    """The kept set fills unconditionally, so |A_t| = min(t, κ)."""
    _, _, (trace,) = build(cell, "relevancy")(draw(12, 3, 3), need_trace=True)
    occupied = (trace.born >= 0).sum(-1)
    assert occupied.tolist() == [[min(t, 5)] * 3 for t in range(1, 13)]
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(12, 3, dtype=torch.float64))


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
def test_a_reset_affects_its_row_alone(cell, memory):
    model, x = build(cell, memory), draw(10, 3, 3)
    reset = torch.zeros(10, 3, dtype=torch.bool)
    reset[6, 1] = True
    output, state, (trace, *_) = model(x, reset=reset, need_trace=True)
    plain, _ = model(x)
    fresh, fresh_state = model(x[6:, 1:2])
    torch.testing.assert_close(output[:, [0, 2]], plain[:, [0, 2]], **TINY)
    torch.testing.assert_close(output[:6, 1], plain[:6, 1], **TINY)
    torch.testing.assert_close(output[6:, 1:2], fresh, **TINY)
    torch.testing.assert_close(state.hidden[:, 1:2], fresh_state.hidden, **TINY)
    assert state.memory[0].age.tolist() == [10, 4, 10]
    assert not (trace.born[6, 1] > 0).any()


@pytest.mark.parametrize(("cell", "memory"), CELL_TIMES_MEMORY)
def test_the_reference_passes_gradcheck(cell, memory, monkeypatch):
    monkeypatch.setattr("plait.memory.bounded._USAGE", 0.0)  # what trains a learned score beside the loss
    model = build(cell, memory, features=2, hidden=3, backend="reference")
    if cell == "elman-relu":
        pytest.skip("relu has a kink: finite differences across it are not derivatives")
    x = draw(5, 2, 2).requires_grad_()
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]

    def run(x, *values):
        output, state = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,))
        return output, state.hidden

    assert torch.autograd.gradcheck(run, (x, *values), atol=1e-6)


@pytest.mark.parametrize(("cell", "memory"), CELL_TIMES_MEMORY)
def test_the_named_scan_and_the_generic_loop_agree(cell, memory):
    """A mix given as a function takes the generic loop; the same mix as a number may take a fused scan."""
    number = build(cell, memory, mix=0.5)
    function = build(cell, memory, mix=lambda h, c: 0.5 * (h + c))
    function.load_state_dict(number.state_dict())
    x = draw(12, 3, 3)
    for a, b in zip(number(x, need_trace=True), function(x, need_trace=True), strict=True):
        for p, q in zip(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b), strict=True):
            torch.testing.assert_close(p, q, **TINY)


@pytest.mark.parametrize(("cell", "memory"), PAIRS)
def test_nan_in_one_row_stays_there(cell, memory):
    model, x = build(cell, memory), draw(12, 3, 3)
    clean, _ = model(x)
    dirty = x.clone()
    dirty[2, 1] = float("nan")
    output, state = model(dirty)
    torch.testing.assert_close(output[:, [0, 2]], clean[:, [0, 2]], rtol=0, atol=0)
    assert output[2:, 1].isnan().any()
    assert not state.hidden[:, [0, 2]].isnan().any()
    reset = torch.zeros(12, 3, dtype=torch.bool)
    reset[5, 1] = True
    cured, _ = model(dirty, reset=reset)
    assert not cured[5:].isnan().any()


@pytest.mark.parametrize("memory", ["none", "full", "window", "relevancy", "uniform", "top-k"])
def test_the_nudge_receives_the_total_derivative(memory):
    """dL/dh_t by the nudge equals a finite difference of the loss along h_t."""
    model, x = build("lstm", memory), draw(8, 2, 3)
    nudge = torch.zeros(8, 2, 5, dtype=torch.float64, requires_grad=True)
    loss = model(x, nudge=[nudge])[0][-1].sum()
    (total,) = torch.autograd.grad(loss, nudge)
    direction, eps = draw(2, 5), 1e-6
    for t in (0, 3, 7):
        shifted = torch.zeros_like(nudge)
        with torch.no_grad():
            shifted[t] = eps * direction
            up = model(x, nudge=[shifted])[0][-1].sum()
            down = model(x, nudge=[-shifted])[0][-1].sum()
        torch.testing.assert_close(
            (up - down) / (2 * eps), (total[t] * direction).sum(), atol=1e-7, rtol=1e-5
        )


def test_truncation_cuts_recurrence_and_not_attention():
    model, x = build("lstm", TopKMemory(top_k=2, every=3), truncate=4), draw(12, 1, 3)
    free, cut = build("lstm", "none"), build("lstm", "none", truncate=4)
    cut.load_state_dict(free.state_dict())
    x.requires_grad_()
    (through,) = torch.autograd.grad(model(x)[0][-1].sum(), x)
    (plain,) = torch.autograd.grad(free(x)[0][-1].sum(), x)
    (short,) = torch.autograd.grad(cut(x)[0][-1].sum(), x)
    assert short[:8].abs().max() == 0
    assert short[8:].abs().min() > 0
    assert plain[:8].abs().min() > 0
    assert through[0].abs().max() > 0
    torch.testing.assert_close(cut(x)[0], free(x)[0])


@pytest.mark.parametrize("cell", ["elman-tanh", "elman-relu", "lstm", "gru"])
def test_without_memory_torchs_own_scan_runs_and_agrees(cell, monkeypatch):
    fast, slow = build(cell, "none"), build(cell, "none", backend="reference")
    slow.load_state_dict(fast.state_dict())
    x = draw(7, 2, 3)
    torch.testing.assert_close(slow(x)[0], fast(x)[0], **TINY)
    assert_states_equal(slow(x)[1], fast(x)[1])
    monkeypatch.setattr("plait.models.self_attentive.plain_scan", None)  # what runs where torch has no layer
    fast(x)[0].sum().backward()
    with pytest.raises(TypeError):
        slow(x)
