"""Who runs a full memory, what its operators promise to torch, and how its memory grows."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
import torch

import plait
from plait.errors import BackendError, ShapeError
from plait.ops.full_scan import full_scan
from plait.ops.parity import Case, make_problem
from plait.ops.scan import FullScan, backends, record_backends

BUILDERS = {
    "rnn": lambda **options: plait.MemRNN(3, 8, **options),
    "lstm": lambda **options: plait.MemLSTM(3, 8, **options),
    "gru": lambda **options: plait.Recurrent(
        [plait.SelfAttentive(plait.GRUCell(3, 8), plait.FullMemory(), **options)]
    ),
}
every_model = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


@every_model
def test_default_models_take_the_fused_path(build) -> None:  # type: ignore[no-untyped-def]
    for backend in ("auto", "cpu", "torch", "reference"):
        with record_backends() as ran:
            layer = build(backend=backend)
            _, state = layer(torch.randn(4, 2, 3))
            layer(torch.randn(1, 2, 3), state, reset=torch.tensor([[True, False]]))
        assert ran == [{"auto": "cpu"}.get(backend, backend)] * 2  # on a CPU


def test_auto_takes_torch_where_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.ops.full_scan.cpu.missing", lambda *_: "no compiler today")
    for remembered in (backends._resolved, backends._warn_once):
        monkeypatch.setattr(backends, remembered.__name__, lru_cache(remembered.__wrapped__))
    with (
        record_backends() as ran,
        pytest.warns(UserWarning, match="full_scan: backend 'cpu' cannot run here: no compiler today"),
    ):
        plait.MemLSTM(3, 8)(torch.randn(4, 2, 3))
    assert ran == ["torch"]
    with pytest.raises(BackendError, match="backend 'cpu' cannot run here: no compiler today"):
        plait.MemLSTM(3, 8, backend="cpu")(torch.randn(4, 2, 3))


def test_a_name_never_falls_back() -> None:
    with pytest.raises(BackendError, match="backend 'triton' cannot run here"):
        plait.MemRNN(3, 8, backend="triton").double()(torch.randn(4, 2, 3).double())


def test_nothing_comes_from_an_empty_slot() -> None:
    """Neither a number nor a NaN, in the outputs, the memory left behind or any gradient."""
    problem = make_problem(Case(FullScan("lstm"), steps=4, rows=3, carried=True))
    memory = problem.state.memory
    empty = (memory.born < 0).unsqueeze(2)
    assert empty.any()
    found = []
    for content in (0.0, float("nan")):
        slots = memory.slots.detach().masked_fill(empty, content).requires_grad_()
        state = problem.state._replace(memory=memory._replace(slots=slots))
        output, end, _ = full_scan(problem.projected, problem.weights, state, FullScan("lstm"), backend="cpu")
        leaves = [problem.projected, slots, *(w for w in problem.weights if w is not None)]
        gradients = torch.autograd.grad(output.sum() + end.memory.slots.square().sum(), leaves)
        found.append([output, end.memory.slots, *gradients])
    for clean, poisoned in zip(*found, strict=True):
        torch.testing.assert_close(clean, poisoned, atol=0, rtol=0)


def test_what_has_no_fused_twin_walks() -> None:
    with record_backends() as ran:
        plait.MemRNN(3, 8, truncate=2)(torch.randn(4, 2, 3))
        plait.MemRNN(3, 8, mix=lambda h, c: h - c)(torch.randn(4, 2, 3))
    assert ran == []


def test_shapes_are_checked() -> None:
    problem = make_problem(Case(FullScan("elman"), carried=True))
    short = problem.state.memory._replace(born=problem.state.memory.born[:, 1:])
    with pytest.raises(ShapeError, match=r"state\.memory\.slots: expected \(2, 4, 5\), got \(2, 5, 5\)"):
        full_scan(problem.projected, problem.weights, problem.state._replace(memory=short), FullScan("elman"))


def flat(case: Case) -> tuple[torch.Tensor | None, ...]:
    return full_scan.flat_inputs(make_problem(case).inputs())


# Triton's interpreter takes a minute, and numpy warns inside it where a NaN is meant to be.
INTERPRETED = (pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning"))


@pytest.mark.parametrize("backend", ["torch", "cpu", pytest.param("triton", marks=INTERPRETED)])
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_opcheck(cell: str, backend: str) -> None:
    steps = 2 if backend == "triton" else 6
    inputs = flat(Case(FullScan(cell), steps=steps, rows=1, carried=True, reset=True, nudge=True))
    arguments = (*inputs, *full_scan.flat(FullScan(cell)), True, True, backend)
    torch.library.opcheck(torch.ops.plait.full_scan.default, arguments)


@every_model
def test_compiles_without_a_break(build) -> None:  # type: ignore[no-untyped-def]
    torch.compiler.reset()  # what other tests compiled counts against the same frames
    layer, x, gradients = build(), torch.randn(9, 2, 3), []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        output, state, (trace,) = run(x, need_trace=True)
        loss = output.square().sum() + state.hidden.sum() + state.memory[0].slots.sum()
        gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
        assert not trace.weights.requires_grad
    for eager, traced in zip(*gradients, strict=True):
        torch.testing.assert_close(eager, traced)


def test_autocast() -> None:
    layer, x = plait.MemLSTM(3, 8), torch.randn(9, 2, 3)
    exact, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = layer(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    assert state.memory[0].relevance.dtype == torch.float32
    torch.testing.assert_close(output.float(), exact, atol=2e-2, rtol=0)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_nothing_is_saved_without_gradients(backend: str) -> None:
    inputs = (None if x is None else x.detach() for x in flat(Case(FullScan("lstm"), steps=9)))
    made = torch.ops.plait.full_scan(*inputs, *full_scan.flat(FullScan("lstm")), False, False, backend)
    assert [name for name, x in zip(full_scan.scanned, made, strict=True) if x.shape[0] == 9] == ["output"]


@every_model
def test_a_poisoned_row_stays_alone(build) -> None:  # type: ignore[no-untyped-def]
    layer, x = build(), torch.randn(12, 3, 3)
    clean, _ = layer(x)
    x[4, 1] = float("nan")
    x[6, 2] = float("inf")
    output, _ = layer(x.requires_grad_())
    assert output[4:, 1].isnan().all()
    torch.testing.assert_close(output[:, 0], clean[:, 0], atol=0, rtol=0)
    (d_x,) = torch.autograd.grad(output[:, 0].sum(), x)
    assert d_x[:, 0].isfinite().all()


@every_model
def test_a_reset_ends_a_nan(build) -> None:  # type: ignore[no-untyped-def]
    layer, x = build(), torch.randn(12, 2, 3)
    x[4, 1] = float("nan")
    reset = torch.zeros(12, 2, dtype=torch.bool)
    reset[6, 1] = True
    output, _ = layer(x.requires_grad_(), reset=reset)
    assert output[4:6, 1].isnan().all()
    alone, _ = layer(x[6:, 1:])
    torch.testing.assert_close(output[6:, 1], alone[:, 0])
    (d_x,) = torch.autograd.grad(output[6:, 1].sum(), x)
    (d_alone,) = torch.autograd.grad(alone.sum(), x)
    torch.testing.assert_close(d_x[6:], d_alone[6:])


def test_no_second_derivative() -> None:
    layer, x = plait.MemRNN(3, 8), torch.randn(4, 2, 3, requires_grad=True)
    (d_x,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative; use backend='reference'"):
        d_x.sum().backward()


# VmHWM, not getrusage: the latter begins at the peak of the process that started this one
_PEAK = """
import re, sys, torch, plait
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
torch.set_num_threads(1)
layer = plait.MemRNN(4, 64, backend=sys.argv[2])
layer(torch.randn(8, 4, 4))[0].sum().backward()
before = peak()
layer(torch.randn(int(sys.argv[1]), 4, 4))[0].sum().backward()
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_memory_grows_with_the_length(backend: str) -> None:
    """T × B × H numbers take 0.75 MiB, one T × T × B × H / 2 tensor of the reference 288 MiB."""
    answer = subprocess.run(
        [sys.executable, "-c", _PEAK, "768", backend], capture_output=True, text=True, check=True, timeout=100
    )
    assert 768 < int(answer.stdout) < 30 * 768  # KiB
