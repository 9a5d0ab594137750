"""Lifetimes against the rule itself, backend by backend, on keys that tie everywhere."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plait.errors import BackendError, ConfigError, ShapeError
from plait.ops.lifetimes import (
    SURVIVES,
    LifetimeState,
    cpu,
    empty_state,
    gather_kept,
    lifetimes,
    torch_lifetimes,
)

INF = float("inf")
NO_COMPILER = cpu.missing("cpu")
BACKENDS = [
    "reference",
    "torch",
    pytest.param("cpu", marks=pytest.mark.skipif(NO_COMPILER is not None, reason=str(NO_COMPILER))),
]
VALUES = torch.tensor([-INF, -1.0, -0.0, 0.0, 1.0, 2.0, INF])


@st.composite
def problems(draw):
    """A few rows of up to 20 steps: keys of seven values, resets and padding in some."""
    rows, heads, steps = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 20))
    rule = {
        "window": draw(st.integers(1, 5)),
        "capacity": draw(st.integers(0, 4)),
        "sinks": draw(st.integers(0, 3)),
    }
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    keys = VALUES[torch.randint(len(VALUES), (rows, heads, steps), generator=generator)]

    def flags(share):
        return torch.rand(rows, steps, generator=generator) < share

    marks = {
        "valid": flags(draw(st.sampled_from((0.7, 1.1)))),
        "reset": flags(draw(st.sampled_from((0, 0.15)))),
    }
    cut = sorted(draw(st.lists(st.integers(0, steps), max_size=3)))
    return keys, rule, marks, [0, *cut, steps]


def readable_by_rule(keys, t, window, capacity, sinks, valid, reset):
    """Return what one head can read at step t, by sorting the whole past of that step."""
    start = max((s for s in range(t + 1) if reset[s]), default=0)
    states = [j for j in range(start, t + 1) if valid[j]]
    old = sorted((j for j in states[sinks:] if j <= t - window), key=lambda j: (-keys[j], j))
    return {*states[:sinks], *old[:capacity], *(j for j in states if j > t - window)}


@pytest.mark.parametrize("backend", BACKENDS)
@given(problem=problems())
@settings(max_examples=60)
def test_what_is_readable_is_the_top_of_the_prefix_at_every_step(backend, problem):
    keys, rule, marks, _ = problem
    deaths = lifetimes(keys, **rule, **marks, backend=backend).deaths
    for (row, head), steps in (
        (index, keys.shape[2]) for index in torch.cartesian_prod(*map(torch.arange, keys.shape[:2])).tolist()
    ):
        flags = marks["valid"][row].tolist(), marks["reset"][row].tolist()
        for t in range(steps):
            by_rule = readable_by_rule(keys[row, head].tolist(), t, *rule.values(), *flags)
            assert {j for j in range(t + 1) if t < deaths[row, head, j]} == by_rule
            assert len(by_rule) <= sum(rule.values())


@pytest.mark.parametrize("backend", BACKENDS)
@given(problem=problems())
@settings(max_examples=60)
def test_chunks_of_any_size_give_what_one_pass_gives(backend, problem):
    keys, rule, marks, cuts = problem
    whole = lifetimes(keys, **rule, **marks, backend=backend)
    rows, heads, steps = keys.shape
    state = empty_state(rows, heads, sum(rule.values()))
    # names of the states in the slots; −1 is an empty one
    names = torch.full_like(state.births, -1)
    deaths = torch.full_like(whole.deaths, SURVIVES)
    for start, end in itertools.pairwise(cuts):
        flags = {name: mark[:, start:end] for name, mark in marks.items()}
        chunk = lifetimes(keys[:, :, start:end], **rule, **flags, state=state, backend=backend)
        new = torch.arange(start, end).expand(rows, heads, -1)
        slots = torch.cat([names, new], dim=2)
        died = (chunk.deaths != SURVIVES) & (slots >= 0)
        for index in died.nonzero().tolist():
            b, h, slot = index
            deaths[b, h, slots[b, h, slot]] = start + chunk.deaths[b, h, slot]
        assert (chunk.deaths[slots < 0] <= 0).all()
        names, state = gather_kept(slots + 1, chunk.sources) - 1, chunk.state
        kept = names >= 0
        assert torch.equal(state.births[kept], names[kept] - end)
        assert (state.births[~kept] == 0).all()
    assert torch.equal(deaths, whole.deaths)
    if steps:  # the state of one pass has no history of slots: the same states stand in the same order
        assert torch.equal(state.births, whole.state.births)
        assert torch.equal(state.keys, whole.state.keys)


@pytest.mark.parametrize("backend", BACKENDS)
def test_long_sequences_agree_with_the_definition(backend):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randint(200, (2, 2, 257), generator=generator).float()
    reset = torch.rand(2, 257, generator=generator) < 0.01
    rule = {"window": 16, "capacity": 23, "sinks": 2, "reset": reset}
    assert torch.equal(
        lifetimes(keys, **rule, backend=backend).deaths, lifetimes(keys, **rule, backend="reference").deaths
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_of_nan_comes_last_and_is_not_refused(backend):
    keys = torch.tensor([[[float("nan"), 1.0, -INF, 2.0, float("nan")]]])
    deaths = lifetimes(keys, window=1, capacity=2, backend=backend).deaths.flatten().tolist()
    assert deaths == [4, SURVIVES, 3, SURVIVES, SURVIVES]


@pytest.mark.parametrize("backend", BACKENDS)
def test_types_and_layouts_of_keys(backend):
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(3, 2, 40, generator=generator, dtype=torch.float64)
    rule = {"window": 4, "capacity": 5, "backend": backend}
    in_float32 = lifetimes(keys.float(), **rule).deaths
    strided = keys.transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    assert torch.equal(lifetimes(strided, **rule).deaths, in_float32)
    narrow = keys.bfloat16()
    assert torch.equal(lifetimes(narrow, **rule).deaths, lifetimes(narrow.float(), **rule).deaths)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0, 2, 5), (2, 0, 5), (2, 2, 0), (1, 1, 1)])
def test_nothing_and_one_step(backend, shape):
    chunk = lifetimes(torch.zeros(shape), window=3, capacity=2, sinks=1, backend=backend)
    assert chunk.deaths.shape == shape
    assert (chunk.deaths == SURVIVES).all()
    assert chunk.sources.shape == chunk.state.births.shape == (*shape[:2], 6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_and_a_capacity_far_beyond_each_other(backend):
    keys = torch.arange(9.0).view(1, 1, 9)
    assert (lifetimes(keys, window=1, capacity=10**6, backend=backend).deaths == SURVIVES).all()
    deaths = lifetimes(keys, window=1, capacity=0, backend=backend).deaths.flatten().tolist()
    assert deaths == [1, 2, 3, 4, 5, 6, 7, 8, SURVIVES]


def test_a_long_sequence_takes_memory_linear_in_it():
    """A mask over all pairs of 32,768 steps would take a gigabyte."""
    deaths = lifetimes(torch.randn(1, 1, 32_768), window=64, capacity=448, backend="torch").deaths
    alive = [
        int(((torch.arange(32_768) <= t) & (t < deaths[0, 0])).sum()) for t in (511, 512, 20_000, 32_767)
    ]
    assert alive == [512] * 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_stay_as_they_were(backend):
    keys = torch.tensor([[[float("nan"), -0.0, 1.0, 3.0]]])
    state = LifetimeState(torch.ones(1, 1, 3), torch.tensor([[[0, -2, -1]]]))
    before = keys.clone(), *map(torch.clone, state)
    lifetimes(keys, window=2, capacity=1, state=state, backend=backend)
    for tensor, copy in zip((keys, *state), before, strict=True):
        assert torch.equal(tensor.nan_to_num(9), copy.nan_to_num(9))


def compared_in_chunks(generator, device="cpu", most=150):
    """Compare the kernel with plain torch on a random problem in two chunks; return a difference or None."""

    def number(least, largest):
        return int(torch.randint(least, largest + 1, (1,), generator=generator))

    rows, heads, steps = number(1, 2), number(1, 2), number(0, most)
    rule = {"window": number(1, 9), "capacity": number(0, number(3, 40)), "sinks": number(0, 3)}
    keys = torch.randint(-3, number(0, 40), (rows, heads, steps), generator=generator).float().to(device)
    padding, resets = number(0, 1) * 0.3, number(0, 1) * 0.04
    flags = {
        "valid": torch.rand(rows, steps, generator=generator).ge(padding).to(device),
        "reset": torch.rand(rows, steps, generator=generator).lt(resets).to(device),
    }
    if not padding and not resets:
        flags = {}  # the first chunk takes the shortcut
    cut, states = number(0, steps), [None, None]
    for part in (slice(0, cut), slice(cut, steps)):
        marks = {name: mark[:, part] for name, mark in flags.items()}
        chunks = [
            lifetimes(keys[:, :, part], **rule, **marks, state=state, backend=backend)
            for state, backend in zip(states, ("torch", "triton"), strict=True)
        ]
        if not torch.equal(chunks[0].deaths, chunks[1].deaths):
            return rule, (rows, heads, steps), cut
        states = [chunk.state for chunk in chunks]
    return None


interpreted = pytest.mark.skipif(
    torch.cuda.is_available() or find_spec("triton") is None,
    reason="without triton there is no kernel, with a GPU it does not run in the interpreter",
)


@interpreted
@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_in_the_interpreter(seed):
    assert compared_in_chunks(torch.Generator().manual_seed(seed), most=400) is None


@pytest.mark.gpu
def test_the_kernel_on_a_gpu():
    for seed in range(40):
        assert compared_in_chunks(torch.Generator().manual_seed(seed), "cuda", 3000) is None
    keys = torch.randn(4, 8, 8192, device="cuda")
    for capacity in (15, 256, 1000):
        rule = {"window": 64, "capacity": capacity}
        assert torch.equal(
            lifetimes(keys, **rule, backend="triton").deaths, lifetimes(keys, **rule, backend="torch").deaths
        )


@interpreted
def test_the_kernel_without_rows():
    assert lifetimes(torch.zeros(0, 1, 4), window=1, capacity=2, backend="triton").deaths.shape == (0, 1, 4)


def test_what_is_wrong_is_one_clear_error():
    keys = torch.zeros(2, 3, 4)
    with pytest.raises(ShapeError, match=r"keys: expected floats \(B, H, T\), got torch.int64 \(2, 3, 4\)"):
        lifetimes(keys.long(), window=1, capacity=1)
    with pytest.raises(ConfigError, match="window: expected at least 1, got 0"):
        lifetimes(keys, window=0, capacity=1)
    with pytest.raises(ShapeError, match=r"valid: expected bool \(2, 4\) on cpu, got torch.float32 \(2, 4\)"):
        lifetimes(keys, window=1, capacity=1, valid=torch.ones(2, 4))
    with pytest.raises(ShapeError, match=r"state.keys: expected torch.float32 \(2, 3, 3\)"):
        lifetimes(keys, window=2, capacity=1, state=empty_state(2, 3, 4))
    wrong = LifetimeState(torch.zeros(2, 3, 3), torch.zeros(2, 3, 3, dtype=torch.int32))
    with pytest.raises(ShapeError, match=r"state.births: expected torch.int64"):
        lifetimes(keys, window=2, capacity=1, state=wrong)
    with pytest.raises(ConfigError, match="unknown backend 'tritn'"):
        lifetimes(keys, window=1, capacity=1, backend="tritn")


def test_no_compiler_is_an_error_only_for_a_named_backend(monkeypatch):
    monkeypatch.setattr(cpu, "missing", lambda device: "no C++ compiler was found")
    keys = torch.randn(1, 2, 9)
    assert torch.equal(
        lifetimes(keys, window=2, capacity=2).deaths,
        lifetimes(keys, window=2, capacity=2, backend="reference").deaths,
    )
    with pytest.raises(
        BackendError, match=re.escape("backend 'cpu' cannot run here: no C++ compiler was found")
    ):
        lifetimes(keys, window=2, capacity=2, backend="cpu")


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_smallest_of_prefixes(k):
    values = torch.stack([torch.randperm(33), torch.arange(33), torch.arange(33).flip(0)])
    expected = [[sorted(row[:r])[k - 1] if r >= k else 33 for r in range(33)] for row in values.tolist()]
    assert torch_lifetimes.smallest_of_prefixes(values, k).tolist() == expected


def test_the_first_call_of_a_process():
    code = (
        "import torch; from plait.ops.lifetimes import lifetimes; "
        "print(lifetimes(torch.tensor([[[2.0, 1.0, 3.0]]]), window=1, capacity=1).deaths.flatten().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{SURVIVES}, 2, {SURVIVES}]"


@pytest.mark.skipif(NO_COMPILER is not None, reason=str(NO_COMPILER))
def test_auto_takes_the_compiled_backend_on_a_cpu(monkeypatch):
    taken, runner = [], lifetimes.__globals__["_runner"]
    monkeypatch.setitem(lifetimes.__globals__, "_runner", lambda name: taken.append(name) or runner(name))
    lifetimes(torch.zeros(1, 1, 3), window=1, capacity=1)
    assert taken == ["cpu"]
