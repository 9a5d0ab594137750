"""Who runs a scan, and what the custom operators promise to torch."""

from __future__ import annotations

import warnings

import pytest
import torch

import plait
from plait.errors import BackendError, ShapeError, UnknownNameError
from plait.ops.attentive_scan import attentive_scan
from plait.ops.parity import Case, make_problem
from plait.ops.scan import Scan, backends, choose_backend, record_backends

# Triton's interpreter takes minutes, and numpy warns inside it where a NaN is meant to be.
INTERPRETED = (pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning"))
FUSED_HERE = [
    pytest.param(name, marks=INTERPRETED if name == "triton" else ())
    for name in backends.MODULES
    if backends.missing(name, "cpu", torch.float32, "elman", 6, 5) is None
]
SCAN = Scan("elman", window=3, capacity=2)


@pytest.fixture
def forget_choices() -> None:
    backends._resolved.cache_clear()
    backends._warn_once.cache_clear()


def test_default_builders_take_the_fused_path() -> None:
    for model in (plait.RelRNN(3, 8), plait.RelLSTM(3, 8), plait.RelGRU(3, 8)):
        with record_backends() as ran:
            model(torch.randn(4, 2, 3))
        assert ran == [choose_backend(torch.randn(4, 2, 8), SCAN)]
        assert ran[0] in backends.MODULES


@pytest.mark.parametrize("backend", ["reference", *FUSED_HERE])
def test_a_name_is_what_runs(backend: str) -> None:
    with record_backends() as ran:
        plait.RelRNN(3, 8, backend=backend)(torch.randn(4, 2, 3))
    assert ran == [backend]


def test_a_name_never_falls_back(forget_choices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "missing", lambda *_: "the moon is full")
    with pytest.raises(BackendError, match="'torch' cannot run here: the moon is full"):
        plait.RelRNN(3, 8, backend="torch")(torch.randn(4, 2, 3))


def test_auto_falls_back_with_one_warning(forget_choices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "missing", lambda *_: "the moon is full")
    monkeypatch.setattr(backends, "PREFERRED", {"cpu": ("cluster", "triton")})
    with pytest.warns(UserWarning, match="'triton' cannot run here: the moon is full"):
        plait.RelRNN(3, 8)(torch.randn(4, 2, 3))
    with warnings.catch_warnings(), record_backends() as ran:
        warnings.simplefilter("error")
        plait.RelLSTM(3, 9)(torch.randn(4, 2, 3))
    assert ran == ["torch"]


def test_auto_takes_the_first_that_runs_and_says_nothing(
    forget_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU without clusters has Triton, which is no reason to warn."""
    monkeypatch.setattr(backends, "missing", lambda name, *_: None if name == "torch" else "it is too old")
    monkeypatch.setattr(backends, "PREFERRED", {"cpu": ("cluster", "torch")})
    with warnings.catch_warnings(), record_backends() as ran:
        warnings.simplefilter("error")
        plait.RelRNN(3, 8)(torch.randn(4, 2, 3))
    assert ran == ["torch"]


def test_unknown_backend() -> None:
    with pytest.raises(UnknownNameError, match="unknown backend 'torhc': did you mean 'torch'"):
        plait.RelRNN(3, 8, backend="torhc")


def test_shapes_are_checked_for_every_backend() -> None:
    problem = make_problem(Case(SCAN))
    with pytest.raises(ShapeError, match=r"nudge: expected \(7, 2, 5\), got \(7, 2, 4\)"):
        attentive_scan(problem.projected, problem.weights, problem.state, SCAN, nudge=torch.zeros(7, 2, 4))
    with pytest.raises(ShapeError, match=r"reset: expected bool, got torch\.float32"):
        attentive_scan(problem.projected, problem.weights, problem.state, SCAN, torch.zeros(7, 2))


@pytest.mark.parametrize("backend", FUSED_HERE)
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_opcheck(cell: str, backend: str) -> None:
    scan, learned = Scan(cell, window=3, capacity=2), cell != "gru"
    flags = {"carried": True, "reset": True, "nudge": True, "learned": learned, "noise": learned}
    tensors = attentive_scan.flat_inputs(make_problem(Case(scan, steps=6, **flags)).inputs())
    arguments = attentive_scan.joined(tensors, scan, True, True, backend)
    torch.library.opcheck(torch.ops.plait.attentive_scan.default, arguments)


@pytest.mark.parametrize("backend", FUSED_HERE)
@pytest.mark.parametrize("model", ["RelRNN", "RelLSTM", "RelGRU"])
def test_compiles_without_a_break(model: str, backend: str) -> None:
    torch.compiler.reset()  # what other tests compiled counts against the same frames
    layer = getattr(plait, model)(3, 8, window=3, capacity=2, backend=backend)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, gradients = torch.randn(9, 2, 3), []
    for run in (layer, compiled):
        output, state, (trace,) = run(x, need_trace=True)
        loss = output.square().sum() + state.hidden.sum() + state.memory[0].slots.sum()
        gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
        assert not trace.weights.requires_grad
    for eager, traced in zip(*gradients, strict=True):
        torch.testing.assert_close(eager, traced)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_compiled_layer_continues_from_its_state(backend: str) -> None:
    """And `auto` stays what it is: one operator in the graph, no loop."""
    torch.compiler.reset()
    layer, graphs = plait.RelLSTM(3, 8, window=3, capacity=2, backend=backend), []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled, x = torch.compile(layer, fullgraph=True, backend=keep), torch.randn(4, 2, 3)
    output, state = compiled(x)
    further, _ = compiled(x, state.detach())
    expected, end = layer(x)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(further, layer(x, end)[0])
    for graph in graphs:
        called = [node.target for node in graph.graph.nodes]
        assert (torch.ops.plait.attentive_scan.default in called) == (backend == "auto")


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_autocast(backend: str) -> None:
    layer, x = plait.RelLSTM(3, 8, window=3, capacity=2, backend=backend), torch.randn(9, 2, 3)
    exact, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = layer(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    assert state.memory[0].relevance.dtype == torch.float32
    torch.testing.assert_close(output.float(), exact, atol=2e-2, rtol=0)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_nothing_is_saved_without_gradients(backend: str) -> None:
    scan = Scan("lstm", 3, 2)
    tensors = attentive_scan.flat_inputs(make_problem(Case(scan, steps=9)).inputs())
    inputs = tuple(None if x is None else x.detach() for x in tensors)
    made = torch.ops.plait.attentive_scan(*attentive_scan.joined(inputs, scan, False, False, backend))
    assert [name for name, x in zip(attentive_scan.scanned, made, strict=True) if x.shape[0] == 9] == [
        "output"
    ]


@pytest.mark.parametrize("backend", ["reference", *FUSED_HERE])
def test_a_poisoned_row_stays_alone(backend: str) -> None:
    layer, x = plait.RelLSTM(3, 8, window=3, capacity=2, backend=backend), torch.randn(12, 3, 3)
    clean, _ = layer(x)
    x[4, 1] = float("nan")
    x[6, 2] = float("inf")
    output, _ = layer(x.requires_grad_())
    assert output[4:, 1].isnan().all()
    torch.testing.assert_close(output[:, 0], clean[:, 0], atol=0, rtol=0)
    (d_x,) = torch.autograd.grad(output[:, 0].sum(), x)
    assert d_x[:, 0].isfinite().all()


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_a_reset_ends_a_nan(backend: str) -> None:
    layer, x = plait.RelLSTM(3, 8, window=3, capacity=2, backend=backend), torch.randn(12, 2, 3)
    x[4, 1] = float("nan")
    reset = torch.zeros(12, 2, dtype=torch.bool)
    reset[6, 1] = True
    output, _ = layer(x, reset=reset)
    assert output[4:6, 1].isnan().all()
    torch.testing.assert_close(output[6:, 1], layer(x[6:, 1:])[0][:, 0])


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_no_second_derivative(backend: str) -> None:
    layer, x = plait.RelRNN(3, 8, backend=backend), torch.randn(4, 2, 3, requires_grad=True)
    (d_x,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative; use backend='reference'"):
        d_x.sum().backward()


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_batched_gradients(backend: str) -> None:
    layer, x = plait.RelRNN(3, 8, backend=backend), torch.randn(4, 2, 3, requires_grad=True)
    output, _ = layer(x)
    cotangents = torch.randn(3, *output.shape)
    (batched,) = torch.autograd.grad(output, x, cotangents, is_grads_batched=True, retain_graph=True)
    for cotangent, found in zip(cotangents, batched, strict=True):
        (single,) = torch.autograd.grad(output, x, cotangent, retain_graph=True)
        torch.testing.assert_close(found, single)


@pytest.mark.parametrize("backend", FUSED_HERE)
@pytest.mark.parametrize("model", ["RelRNN", "RelLSTM", "RelGRU"])
def test_one_step_at_a_time(model: str, backend: str) -> None:
    layer, x = getattr(plait, model)(3, 8, window=3, capacity=2, backend=backend), torch.randn(15, 2, 3)
    with torch.no_grad():
        whole, end = layer(x)
        state, steps = None, []
        for t in range(len(x)):
            step, state = layer(x[t : t + 1], state)
            steps.append(step)
    torch.testing.assert_close(torch.cat(steps), whole)
    assert torch.equal(state.memory[0].born, end.memory[0].born)
