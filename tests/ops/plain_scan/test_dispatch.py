"""Who runs a cell that has no memory, and what its operators promise to torch."""

from __future__ import annotations

import pytest
import torch

import plait
from plait.cells import GRUCell
from plait.errors import BackendError, ShapeError, UnknownNameError
from plait.ops.parity import Case, make_problem
from plait.ops.plain_scan import plain_scan
from plait.ops.scan import PlainScan, choose_backend, record_backends
from plait.ops.scan.backends import MODULES, missing

FUSED_HERE = [
    pytest.param(name, marks=pytest.mark.slow if name == "triton" else ())
    for name in MODULES
    if missing(name, "cpu", torch.float32, "elman", 0, 5, "plain_scan") is None
]
MODRELU = PlainScan("elman", "modrelu")
AUTO = choose_backend(torch.zeros(3, 2, 8), MODRELU)


def modrelu_rnn(backend: str = "auto") -> plait.Recurrent:
    return plait.RNN(3, 8, nonlinearity="modrelu", backend=backend)


def ran_by(model: plait.Recurrent, **options: object) -> list[str]:
    with record_backends() as ran:
        model(torch.randn(4, 2, 3), **options)
    return ran


def test_what_torch_has_no_layer_for_is_fused() -> None:
    assert AUTO in MODULES
    assert ran_by(modrelu_rnn()) == [AUTO]
    assert ran_by(plait.RNN(3, 8, nonlinearity="identity")) == [AUTO]
    assert ran_by(plait.RNN(3, 8)) == []  # torch's own


@pytest.mark.parametrize("model", [plait.RNN, plait.LSTM, plait.GRU])
def test_models_without_a_torch_layer_run_fused(model: type[plait.Recurrent]) -> None:
    layer = model(3, 8)  # type: ignore[arg-type]
    reset = torch.zeros(4, 2, dtype=torch.bool)
    reset[2] = True
    assert ran_by(layer, nudge=[torch.zeros(4, 2, 8)]) == [AUTO]
    assert ran_by(layer, reset=reset) == [AUTO]
    assert ran_by(layer, need_trace=True) == [AUTO]
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(layer(x, nudge=[torch.zeros(4, 2, 8)])[0], layer(x)[0])


@pytest.mark.parametrize("backend", ["reference", *FUSED_HERE])
def test_a_name_is_what_runs(backend: str) -> None:
    assert ran_by(modrelu_rnn(backend)) == [backend]
    assert ran_by(plait.LSTM(3, 8, backend=backend)) == [backend]


def test_truncation_keeps_the_loop() -> None:
    assert ran_by(plait.RNN(3, 8, nonlinearity="modrelu", truncate=2)) == []
    with pytest.raises(BackendError, match="'torch' has no scan for ElmanCell"):
        plait.RNN(3, 8, truncate=2, backend="torch")(torch.randn(4, 2, 3))


def test_a_candidate_with_modrelu_is_a_plain_scan_only() -> None:
    cell = GRUCell(3, 8)
    cell.nonlinearity, cell.modrelu_bias = "modrelu", torch.nn.Parameter(torch.full((8,), -0.1))
    layer = plait.SelfAttentive(cell)
    x = torch.randn(9, 2, 3)
    with record_backends() as ran:
        output = layer(x).output
    assert ran == [AUTO]
    (gradient,) = torch.autograd.grad(output.sum(), cell.modrelu_bias)
    assert gradient.abs().max() > 0
    assert plait.SelfAttentive(cell, plait.WindowMemory(3))._scan() is None


def test_shapes_and_names_are_checked() -> None:
    problem = make_problem(Case(MODRELU))
    arguments = (problem.projected, problem.weights, problem.state, MODRELU)
    with pytest.raises(ShapeError, match=r"nudge: expected \(7, 2, 5\), got \(7, 2, 4\)"):
        plain_scan(*arguments, nudge=torch.zeros(7, 2, 4))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"reset: expected bool, got torch\.float32"):
        plain_scan(*arguments, torch.zeros(7, 2))  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown nonlinearity of lstm 'modrelu'"):
        plain_scan(*arguments[:3], PlainScan("lstm", "modrelu"))  # type: ignore[arg-type]


def flat(case: Case) -> tuple[torch.Tensor | None, ...]:
    return plain_scan.flat_inputs(make_problem(case).inputs())


@pytest.mark.parametrize("backend", FUSED_HERE)
@pytest.mark.parametrize("scan", [MODRELU, PlainScan("gru", "modrelu"), PlainScan("lstm")], ids=str)
def test_opcheck(scan: PlainScan, backend: str) -> None:
    inputs = flat(Case(scan, steps=6, carried=True, reset=True, nudge=True))
    torch.library.opcheck(
        torch.ops.plait.plain_scan.default, (*inputs, *plain_scan.flat(scan), False, True, backend)
    )


@pytest.mark.parametrize("backend", ["auto", *FUSED_HERE])
@pytest.mark.parametrize("model", ["RNN", "LSTM", "GRU"])
def test_compiles_without_a_break(model: str, backend: str) -> None:
    torch.compiler.reset()  # what other tests compiled counts against the same frames
    layer = getattr(plait, model)(3, 8, backend=backend)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, gradients = torch.randn(9, 2, 3), []
    for run in (layer, compiled):
        output, state = run(x)
        loss = output.square().sum() + state.hidden.sum()
        gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
    for eager, traced in zip(*gradients, strict=True):
        torch.testing.assert_close(eager, traced)


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_autocast(backend: str) -> None:
    layer, x = plait.LSTM(3, 8, backend=backend), torch.randn(9, 2, 3)
    exact, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), exact, atol=2e-2, rtol=0)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_nothing_is_saved_without_gradients(backend: str) -> None:
    scan = PlainScan("lstm")
    inputs = (None if x is None else x.detach() for x in flat(Case(scan, steps=9)))
    made = torch.ops.plait.plain_scan(*inputs, *plain_scan.flat(scan), False, False, backend)
    assert [name for name, x in zip(plain_scan.scanned, made, strict=True) if x.shape[0] == 9] == ["output"]


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_no_second_derivative(backend: str) -> None:
    layer, x = modrelu_rnn(backend), torch.randn(4, 2, 3, requires_grad=True)
    (d_x,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative; use backend='reference'"):
        d_x.sum().backward()


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_batched_gradients(backend: str) -> None:
    layer, x = modrelu_rnn(backend), torch.randn(4, 2, 3, requires_grad=True)
    output, _ = layer(x)
    cotangents = torch.randn(3, *output.shape)
    (batched,) = torch.autograd.grad(output, x, cotangents, is_grads_batched=True, retain_graph=True)
    for cotangent, found in zip(cotangents, batched, strict=True):
        (single,) = torch.autograd.grad(output, x, cotangent, retain_graph=True)
        torch.testing.assert_close(found, single)


@pytest.mark.parametrize("backend", FUSED_HERE)
def test_a_reset_ends_a_nan(backend: str) -> None:
    layer, x = plait.LSTM(3, 8, backend=backend), torch.randn(12, 2, 3)
    x[4, 1] = float("nan")
    reset = torch.zeros(12, 2, dtype=torch.bool)
    reset[6, 1] = True
    output, state = layer(x, reset=reset)
    assert output[4:6, 1].isnan().all()
    torch.testing.assert_close(output[6:, 1], layer(x[6:, 1:])[0][:, 0])
    assert state.memory[0].age.tolist() == [12, 6]
