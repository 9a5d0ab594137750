"""Bounded attention: each backend against the dense definition, outputs and every gradient."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from plait.errors import BackendError, ConfigError, ShapeError
from plait.ops.bounded_attention import bounded_attention, torch_attention
from plait.ops.bounded_attention.older import older_states
from plait.ops.lifetimes import empty_state, gather_kept, lifetimes
from plait.ops.parity import TOLERANCE

try:
    from plait.ops.bounded_attention import triton_attention
except ImportError:
    triton_attention = None

interpreted = pytest.mark.skipif(
    triton_attention is None or torch.cuda.is_available(),
    reason="without triton there are no kernels, with a GPU they do not run in the interpreter",
)


@dataclass(frozen=True)
class Case:
    """Sizes and circumstances of a call; `ties`: all keys are equal; `far`: a second pair of them."""

    steps: int = 33
    size: int = 8
    rows: int = 2
    heads: int = 2
    group: int = 1
    window: int = 5
    capacity: int = 4
    sinks: int = 0
    dtype: torch.dtype = torch.float32
    scores: str | None = None
    carried: int | None = None
    marks: bool = False
    strided: bool = False
    ties: bool = False
    far: bool = False

    @property
    def rule(self):
        return {"window": self.window, "capacity": self.capacity, "sinks": self.sinks}

    def problem(self):
        """Return the tensors that gradients are taken of, and the other arguments."""
        generator = torch.Generator().manual_seed(self.steps + self.size)
        states = self.steps if self.carried is None else self.steps + sum(self.rule.values())

        def leaf(*shape):
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64).to(self.dtype)
            return (
                drawn.transpose(1, 2).contiguous().transpose(1, 2) if self.strided else drawn
            ).requires_grad_()

        def chunk(steps, state):
            keys = torch.randn(self.rows, self.heads, steps, generator=generator)
            flags = (torch.rand(self.rows, steps, generator=generator) < share for share in (0.85, 0.06))
            marks = dict(zip(("valid", "reset"), flags, strict=True)) if self.marks else {}
            return lifetimes(keys * (not self.ties), **self.rule, **marks, state=state)

        state = None
        if self.carried is not None:
            state = chunk(self.carried, empty_state(self.rows, self.heads, sum(self.rule.values()))).state
        leaves = {
            "query": leaf(self.rows, self.heads * self.group, self.steps, self.size),
            "key": leaf(self.rows, self.heads, states, self.size),
            "value": leaf(self.rows, self.heads, states, self.size),
        }
        if self.scores:
            leaves["scores"] = leaf(self.rows, self.heads, states)
        if self.far:
            leaves |= {f"far {name}": leaf(*leaves[name].shape) for name in ("query", "key")}
        rest = {"deaths": chunk(self.steps, state).deaths, **self.rule}
        if state is not None:
            rest["births"] = state.births
        return leaves, rest | ({"score_from": self.scores} if self.scores else {})


def attended(leaves, rest, backend):
    """Call the operator with a problem's tensors, the far ones as a pair."""
    near = {name: x for name, x in leaves.items() if not name.startswith("far ")}
    far = (leaves["far query"], leaves["far key"]) if "far key" in leaves else None
    return bounded_attention(**near, **rest, far=far, backend=backend)


def results(leaves, rest, backend, device="cpu"):
    """Return the output and the gradients of every leaf, by name."""
    leaves = {name: x.detach().to(device).requires_grad_() for name, x in leaves.items()}
    rest = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in rest.items()}
    output = attended(leaves, rest, backend)
    arriving = torch.randn(output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    arriving = arriving.to(output).contiguous()
    gradients = torch.autograd.grad(output, list(leaves.values()), arriving)
    return {"output": output, **{f"d {name}": x for name, x in zip(leaves, gradients, strict=True)}}


def differences(expected, got, dtype):
    lines = []
    for name, x in expected.items():
        y = got[name].cpu()
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        worst = (x.double() - y.double()).abs().max().item() / max(1.0, x.double().abs().max().item())
        if not worst <= TOLERANCE[dtype]:
            lines.append(f"{name}: off by {worst:.1e}")
    return lines


def compared(case, backend, device="cpu"):
    problem = case.problem()
    return differences(results(*problem, "reference"), results(*problem, backend, device), case.dtype)


CASES = [
    Case(),
    Case(steps=1),
    Case(steps=63, size=7, scores="birth", marks=True),
    Case(steps=97, size=24, rows=1, window=20, capacity=30, sinks=3, scores="leaving"),
    Case(steps=97, size=1, rows=1, scores="birth", ties=True),
    Case(steps=70, size=64, rows=1, heads=1, window=33, capacity=16, scores="leaving", marks=True),
    Case(steps=66, size=96, rows=1, heads=1, group=2, capacity=1),
    Case(group=3, scores="birth", strided=True),
    Case(steps=40, carried=30, sinks=2, scores="leaving", marks=True, group=2),
    Case(steps=1, carried=30, sinks=1, scores="birth", group=2),
    Case(steps=3, carried=2, window=9, scores="leaving"),
    Case(capacity=0, window=1),
    Case(capacity=0, sinks=2, carried=5, scores="birth"),
    Case(capacity=100, window=100, marks=True),
    Case(steps=70, dtype=torch.bfloat16, scores="birth", marks=True),
    Case(steps=70, dtype=torch.float16, scores="leaving", size=16),
    Case(steps=97, far=True),
    Case(steps=97, size=24, rows=1, window=20, capacity=30, sinks=3, scores="leaving", far=True),
    Case(steps=63, size=7, group=3, scores="birth", marks=True, strided=True, far=True),
    Case(steps=70, carried=30, sinks=2, scores="leaving", marks=True, group=2, far=True),
    Case(steps=1, carried=30, sinks=1, scores="birth", group=2, far=True),
    Case(steps=40, carried=3, window=9, far=True),
    Case(steps=50, capacity=0, window=1, far=True),
    Case(steps=50, capacity=100, window=100, marks=True, far=True),
    Case(steps=70, dtype=torch.bfloat16, scores="birth", marks=True, far=True),
]
DOUBLE = [replace(case, dtype=torch.float64) for case in CASES if case.dtype == torch.float32]


@pytest.mark.parametrize("case", [*CASES, *DOUBLE], ids=str)
def test_parity_of_plain_torch(case):
    assert compared(case, "torch") == []


ONE = {"rows": 1, "heads": 1}
SMALL = [
    Case(steps=40, size=7, rows=1, group=2, sinks=2, carried=30, scores="leaving", marks=True),
    Case(steps=50, size=24, heads=1, window=7, capacity=20, scores="birth", marks=True),
    Case(steps=1, carried=30, sinks=1, scores="birth", **ONE),
    Case(steps=33, size=1, strided=True, **ONE),
    Case(steps=20, capacity=0, window=1, **ONE),
    Case(steps=40, size=7, rows=1, group=2, sinks=2, carried=30, scores="leaving", marks=True, far=True),
    Case(steps=50, size=24, window=7, capacity=20, marks=True, far=True, **ONE),
]


@interpreted
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_parity_of_the_kernels_in_the_interpreter(case, monkeypatch, poison):
    """Tiles of 16 instead of 32 or 64: more blocks, fewer steps; memory that nobody wrote to is NaN."""
    poison(torch, "empty", "empty_like")
    tiles = triton_attention._tiles
    monkeypatch.setattr(triton_attention, "_tiles", lambda *which: {**tiles(*which), "BT": 16, "BS": 16})
    assert compared(case, "triton") == []


@interpreted
@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("case", [SMALL[1], SMALL[5]], ids=str)
def test_parity_of_the_kernels_in_spans(case, span, monkeypatch, poison):
    """States whose slot is walked by several programs, which add to them in a fixed order."""
    poison(torch, "empty", "empty_like")
    tiles = triton_attention._tiles
    monkeypatch.setattr(triton_attention, "_tiles", lambda *which: {**tiles(*which), "BT": 16, "BS": 16})
    monkeypatch.setattr(triton_attention, "_SPAN", span)
    case = replace(case, steps=120)
    assert compared(case, "triton") == []


@interpreted
@pytest.mark.parametrize(
    "case",
    [
        Case(steps=97, size=64, window=33, capacity=40, scores="leaving", **ONE),
        Case(steps=70, scores="birth", marks=True, dtype=torch.bfloat16, **ONE),
        Case(steps=34, size=96, dtype=torch.float16, **ONE),
        Case(steps=70, scores="birth", marks=True, dtype=torch.bfloat16, far=True, **ONE),
    ],
    ids=str,
)
def test_parity_of_the_kernels_with_their_own_tiles(case):
    assert compared(case, "triton") == []


@pytest.mark.gpu
@pytest.mark.parametrize("size", [64, 128, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_parity_on_a_gpu(dtype, size, backend):
    case = Case(steps=700, size=size, group=2, window=100, capacity=150, sinks=4, dtype=dtype, marks=True)
    for changes in (
        {"scores": "birth"},
        {"scores": "leaving", "carried": 300},
        {},
        {"scores": "leaving", "carried": 300, "far": True},
    ):
        assert compared(replace(case, **changes), backend, "cuda") == []


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_a_run_is_reproducible(backend):
    problem = Case(
        steps=3000, size=64, window=64, capacity=192, scores="birth", dtype=torch.bfloat16
    ).problem()
    first, second = (results(*problem, backend, "cuda") for _ in range(2))
    assert all(torch.equal(x, second[name]) for name, x in first.items())


@pytest.mark.parametrize("block", [1, 2, 7, 40])
@pytest.mark.parametrize(
    "case", [CASES[3], CASES[8], *(replace(CASES[n], far=True) for n in (3, 8))], ids=str
)
def test_blocks_of_any_length(case, block, monkeypatch):
    monkeypatch.setattr(torch_attention, "block_length", lambda steps, slots: block)
    assert compared(replace(case, dtype=torch.float64), "torch") == []


@pytest.mark.parametrize("scores", [None, "birth", "leaving"])
@pytest.mark.parametrize("far", [False, True])
def test_the_definition_has_the_gradients_of_finite_differences(scores, far):
    leaves, rest = Case(
        steps=5,
        size=2,
        rows=1,
        heads=1,
        group=2,
        window=2,
        capacity=1,
        dtype=torch.float64,
        scores=scores,
        far=far,
        carried=4,
    ).problem()

    def run(*tensors):
        return attended(dict(zip(leaves, tensors, strict=True)), rest, "reference")

    assert torch.autograd.gradcheck(run, tuple(leaves.values()))


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_window_over_everything_is_full_attention(backend):
    q, k, v = (torch.randn(2, 3, 50, 8) for _ in range(3))
    deaths = lifetimes(torch.randn(2, 3, 50), window=50, capacity=0).deaths
    output = bounded_attention(q, k, v, deaths, window=50, capacity=0, backend=backend)
    torch.testing.assert_close(output, scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_far_queries_and_keys_meet_what_left_the_window_and_nothing_else(backend):
    """Against single steps: each state's energy is of the far pair or of the other, by its age alone."""
    generator = torch.Generator().manual_seed(3)
    q, far_q, k, far_k, v = (torch.randn(1, 1, 50, 4, generator=generator) for _ in range(5))
    deaths = lifetimes(torch.randn(1, 1, 50, generator=generator), window=6, capacity=3).deaths
    output = bounded_attention(q, k, v, deaths, window=6, capacity=3, far=(far_q, far_k), backend=backend)
    for t in (4, 5, 6, 7, 31, 49):
        alive = [j for j in range(t + 1) if deaths[0, 0, j] > t]
        pairs = ((far_q, far_k) if t - j >= 6 else (q, k) for j in alive)
        energies = torch.stack([x[0, 0, t] @ y[0, 0, j] / 2 for (x, y), j in zip(pairs, alive, strict=True)])
        expected = energies.softmax(0) @ v[0, 0, alive]
        torch.testing.assert_close(output[0, 0, t], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("cuts", [(0, 13, 14, 50, 50, 90), (0, 1, 2, 3, 90), (0, 40, 90)])
@pytest.mark.parametrize("score_from", ["birth", "leaving"])
def test_a_sequence_in_chunks_gives_what_one_pass_gives(backend, cuts, score_from):
    rule = {"window": 7, "capacity": 5, "sinks": 2}
    q = torch.randn(2, 4, 90, 8, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 90, 8, dtype=torch.float64) for _ in range(2))
    keys, r = torch.randn(2, 2, 90), torch.randn(2, 2, 90, dtype=torch.float64)
    marks = {"valid": torch.rand(2, 90) < 0.9, "reset": torch.rand(2, 90) < 0.03}
    more = {"score_from": score_from, "backend": backend, **rule}
    whole = bounded_attention(q, k, v, lifetimes(keys, **rule, **marks).deaths, scores=r, **more)
    state = empty_state(2, 2, 14)
    cache = [torch.zeros(2, 2, 14, *x.shape[3:], dtype=x.dtype) for x in (k, v, r)]
    parts = []
    for start, end in itertools.pairwise(cuts):
        here = slice(start, end)
        flags = {name: mark[:, here] for name, mark in marks.items()}
        chunk = lifetimes(keys[:, :, here], **rule, **flags, state=state)
        cache = [torch.cat([old, new[:, :, here]], dim=2) for old, new in zip(cache, (k, v, r), strict=True)]
        parts.append(
            bounded_attention(
                q[:, :, here], *cache[:2], chunk.deaths, scores=cache[2], births=state.births, **more
            )
        )
        cache, state = [gather_kept(x, chunk.sources) for x in cache], chunk.state
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_padding_that_reads_nothing_has_output_0_and_passes_no_gradient(backend):
    q, k, v = (torch.randn(1, 1, 40, 4, requires_grad=True) for _ in range(3))
    valid = torch.ones(1, 40, dtype=torch.bool)
    valid[0, :9] = False
    deaths = lifetimes(torch.randn(1, 1, 40), window=3, capacity=2, valid=valid).deaths
    output = bounded_attention(q, k, v, deaths, window=3, capacity=2, backend=backend)
    output.sum().backward()
    assert not output[:, :, :9].any()
    assert output[:, :, 9:].all()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert not x.grad[:, :, :9].any()


@pytest.mark.parametrize("size", [8, 1e4, 1e17])
def test_large_energies_and_scores(size):
    """Rounding decides which of two states with energies of 1e8 is read, so that float32 is only finite."""
    leaves, rest = Case(steps=70, scores="birth", marks=True).problem()
    large = {name: x.detach() * size for name, x in leaves.items()}
    for backend in ("reference", "torch"):
        assert all(x.isfinite().all() for x in results(large, rest, backend).values())
    if size == 8:
        large = {name: x.double() for name, x in large.items()}
        assert (
            differences(*(results(large, rest, name) for name in ("reference", "torch")), torch.float64) == []
        )


@pytest.mark.parametrize("shape", [(0, 2, 40), (2, 2, 0)])
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_nothing_to_do(backend, shape):
    q, k, v = (torch.randn(*shape, 4, requires_grad=True) for _ in range(3))
    deaths = lifetimes(torch.randn(shape), window=2, capacity=1).deaths
    output = bounded_attention(q, k, v, deaths, window=2, capacity=1, backend=backend)
    assert output.shape == (*shape, 4)
    output.sum().backward()
    assert q.grad.shape == q.shape


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_autocast_decides_the_type_of_what_comes_and_of_nothing_inside(backend):
    leaves, rest = Case(steps=50, scores="birth", far=True).problem()
    narrow = {name: x.bfloat16() if name != "scores" else x for name, x in leaves.items()}
    expected = attended(narrow, rest, backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attended(leaves, rest, backend)
    assert torch.equal(output, expected)
    output.float().sum().backward()
    assert leaves["query"].grad.dtype == torch.float32


def test_memory_is_linear_in_the_number_of_steps():
    """The mask alone over all pairs of 32,768 steps would take a gigabyte; autograd keeps what came in."""
    q, k, v = (torch.randn(1, 1, 32_768, 4, requires_grad=True) for _ in range(3))
    deaths = lifetimes(torch.randn(1, 1, 32_768), window=16, capacity=16).deaths
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        bounded_attention(q, k, v, deaths, window=16, capacity=16).sum().backward()
    assert sum(kept) < 32_768 * 32


def test_the_table_of_older_states_holds_each_block_s_own():
    rule = {"window": 6, "capacity": 9, "sinks": 2}
    reset = torch.rand(2, 150) < 0.02
    deaths = lifetimes(torch.randint(9, (2, 3, 150)).float(), **rule, reset=reset).deaths
    births = torch.arange(150).expand(2, 3, -1)
    table = older_states(deaths, births, 150, 6, 4, 11)
    slot_of = {}
    for b, h, n in torch.cartesian_prod(
        torch.arange(2), torch.arange(3), torch.arange(len(table[0, 0]))
    ).tolist():
        named = table[b, h, n].tolist()
        alive = {j for j in range(150) if j <= 4 * n - 6 and deaths[b, h, j] > 4 * n}
        assert sorted(j for j in named if j >= 0) == sorted(alive)
        for j in alive:  # and a state stays where it is
            assert slot_of.setdefault((b, h, j), named.index(j)) == named.index(j)


MUTATIONS = {
    "one death is off by one": lambda rest: (
        rest["deaths"].view(-1).__setitem__(20, rest["deaths"].view(-1)[20] + 1)
    ),
    "a score enters too early": lambda rest: rest.update(score_from="birth"),
    "the window is one step longer": lambda rest: rest.update(window=rest["window"] + 1),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_parity_can_fail(mutation):
    case = Case(steps=60, capacity=6, scores="leaving", dtype=torch.float64)
    leaves, rest = case.problem()
    expected = results(leaves, rest, "reference")
    assert int(rest["deaths"].view(-1)[20]) < 60
    MUTATIONS[mutation](rest)
    assert differences(expected, results(leaves, rest, "torch"), torch.float64) != []


@interpreted
@pytest.mark.parametrize(
    "argument", ["window", "sums", "older", "scores", "products", "far_query", "far_key"]
)
def test_parity_of_the_kernels_can_fail(argument, monkeypatch):
    """Each argument of the kernels, slightly wrong."""
    original = triton_attention._arguments

    class Perturbed(dict):
        def __ior__(self, more):
            self.update({name: x * 1.01 if name == argument else x for name, x in more.items()})
            return self

    def perturbed(*inputs):
        tensors, sizes = original(*inputs)
        if argument == "window":
            sizes["window"] += 1
        elif argument in tensors:
            tensors[argument] = tensors[argument].flip(2)
        return Perturbed(tensors), sizes

    monkeypatch.setattr(triton_attention, "_arguments", perturbed)
    assert compared(Case(steps=70, capacity=6, scores="leaving", far=True, **ONE), "triton") != []


@pytest.mark.parametrize("part", ["bias", "older", "counts", "left", "near"])
def test_parity_can_fail_inside_a_block(part, monkeypatch):
    original = torch_attention._States.__getitem__

    def perturbed(states, number):
        block = original(states, number)
        if part == "bias":
            block.bias[:, -1, 0].zero_()
        elif part == "older":
            return block._replace(older=block.older.flip(0))
        elif part == "left":
            return block._replace(left=block.left.roll(1, 2))
        elif part == "near":  # no state has left the window
            return block._replace(left=torch.zeros_like(block.left))
        else:
            return block._replace(counts=None)
        return block

    monkeypatch.setattr(torch_attention._States, "__getitem__", perturbed)
    case = Case(steps=97, capacity=6, scores="leaving", dtype=torch.float64, far=part in ("left", "near"))
    assert compared(case, "torch") != []


def test_what_is_wrong_is_one_clear_error():
    q, k, v = (torch.randn(2, 4, 9, 8) for _ in range(3))
    deaths = lifetimes(torch.randn(2, 4, 9), window=2, capacity=1).deaths
    rule = {"window": 2, "capacity": 1}
    with pytest.raises(ShapeError, match=r"query: expected 2 rows, a multiple of 4 heads, .*\(2, 3, 9, 8\)"):
        bounded_attention(q[:, :3], k, v, deaths, **rule)
    with pytest.raises(ShapeError, match="births: expected those of the 2 cached states, got None"):
        bounded_attention(q[:, :, :7], k, v, deaths, **rule)
    with pytest.raises(ShapeError, match=r"scores: expected \(2, 4, 9\), got \(2, 4, 8\)"):
        bounded_attention(q, k, v, deaths, **rule, scores=torch.randn(2, 4, 8))
    with pytest.raises(ShapeError, match="query, key, value: expected one type of float"):
        bounded_attention(q, k.double(), v, deaths, **rule)
    with pytest.raises(ShapeError, match=r"deaths: expected int32 or int64, got torch.float32"):
        bounded_attention(q, k, v, deaths.float(), **rule)
    with pytest.raises(ShapeError, match=r"far key: expected \(2, 4, 9, 8\), got \(2, 4, 8, 8\)"):
        bounded_attention(q, k, v, deaths, **rule, far=(q, k[:, :, 1:]))
    with pytest.raises(ShapeError, match="query, key, value, far query, far key: expected one type of float"):
        bounded_attention(q, k, v, deaths, **rule, far=(q, k.half()))
    with pytest.raises(ConfigError, match="unknown score_from 'leave'"):
        bounded_attention(q, k, v, deaths, **rule, score_from="leave")
    with pytest.raises(ConfigError, match="unknown backend 'naive'"):
        bounded_attention(q, k, v, deaths, **rule, backend="naive")
    q, k, v = q.double(), k.double(), v.double()
    with pytest.raises(BackendError, match=r"backend 'triton' cannot run here: it .*; use backend='auto'"):
        bounded_attention(q, k, v, deaths, **rule, backend="triton")


def test_deaths_of_a_larger_memory_are_refused():
    q, k, v = (torch.randn(1, 1, 140, 4) for _ in range(3))
    deaths = lifetimes(torch.randn(1, 1, 140), window=2, capacity=8).deaths
    with pytest.raises(ShapeError, match="deaths: expected at most 7 older states alive together, got 8"):
        bounded_attention(q, k, v, deaths, window=2, capacity=7, backend="torch")


def test_the_first_call_of_a_process():
    code = (
        "import torch; from plait.ops.bounded_attention import bounded_attention; "
        "x = torch.ones(1, 1, 40, 2); deaths = torch.full((1, 1, 40), 2**31 - 1); "
        "print(bounded_attention(x, x, x, deaths, window=40, capacity=0).sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(80)


@pytest.mark.slow
def test_torch_compile_sees_one_graph():
    q, k, v, r = (torch.randn(*shape, requires_grad=True) for shape in [(2, 2, 70, 8)] * 3 + [(2, 2, 70)])

    def run(q, k, v, r):
        deaths = lifetimes(r, window=4, capacity=5).deaths
        return bounded_attention(q, k, v, deaths, window=4, capacity=5, scores=r)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    outputs = run(q, k, v, r), compiled(q, k, v, r)
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(output.sum(), (q, k, v, r)) for output in outputs))
