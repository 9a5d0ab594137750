"""The orthogonal, gated orthogonal and uniform-writing models by name."""

import pytest
import torch
from torch import nn

import plait
from plait.errors import ConfigError
from plait.models import MODELS
from plait.ops.native import native_scan
from plait.ops.steps import modrelu

DOUBLE = torch.float64


def cell_of(model):
    return model.layers[0].cell


def test_orthrnn_begins_as_a_rotation_and_is_free():
    model = plait.OrthRNN(3, 8, dtype=DOUBLE)
    weight = cell_of(model).weight_hh
    torch.testing.assert_close(weight.T @ weight, torch.eye(8, dtype=DOUBLE))
    assert isinstance(weight, nn.Parameter)
    assert cell_of(model).nonlinearity == "modrelu"
    assert cell_of(plait.OrthRNN(3, 8, nonlinearity="tanh")).modrelu_bias is None


@pytest.mark.parametrize("bias", [True, False])
def test_exprnn_by_hand(bias):
    model, x = plait.ExpRNN(3, 6, bias=bias, dtype=DOUBLE), torch.randn(9, 2, 3, dtype=DOUBLE)
    cell, h = cell_of(model), torch.zeros(2, 6, dtype=DOUBLE)
    added = cell.bias if bias else 0
    for step, expected in zip(x, model(x)[0], strict=True):
        h = modrelu(step @ cell.weight_ih.T + added + h @ cell.weight_hh.T, cell.modrelu_bias)
        torch.testing.assert_close(h, expected)


@pytest.mark.parametrize("bias", [True, False])
def test_goru_by_hand(bias):
    """The docstring's equations, gate by gate."""
    model, x = plait.GORU(3, 6, bias=bias, dtype=DOUBLE), torch.randn(9, 2, 3, dtype=DOUBLE)
    cell, h = cell_of(model), torch.zeros(2, 6, dtype=DOUBLE)
    u_r, u_z, u_n = cell.weight_ih.split(6)
    v_r, v_z, v_n = cell.weight_hh.split(6)
    b_r, b_z, b_n = cell.bias.split(6) if bias else (0, 0, 0)
    inner = cell.candidate_bias if bias else 0
    torch.testing.assert_close(v_n.T @ v_n, torch.eye(6, dtype=DOUBLE))
    for step, expected in zip(x, model(x)[0], strict=True):
        r = torch.sigmoid(step @ u_r.T + h @ v_r.T + b_r)
        z = torch.sigmoid(step @ u_z.T + h @ v_z.T + b_z)
        n = modrelu(step @ u_n.T + b_n + r * (h @ v_n.T + inner), cell.modrelu_bias)
        h = (1 - z) * n + z * h
        torch.testing.assert_close(h, expected)


@pytest.mark.parametrize("name", ["gru", "goru", "exprnn", "orthrnn"])
def test_torchs_scan_runs_for_a_tanh_candidate_alone(name, monkeypatch):
    model = MODELS[name](3, 4)
    monkeypatch.setattr("plait.models.self_attentive.native_scan", None)
    if name == "gru":
        with pytest.raises(TypeError):
            model(torch.randn(5, 2, 3))
    else:
        model(torch.randn(5, 2, 3))


def test_an_orthogonal_tanh_network_takes_torchs_scan(monkeypatch):
    fast = plait.ExpRNN(3, 4, nonlinearity="tanh")
    slow = plait.ExpRNN(3, 4, nonlinearity="tanh", backend="reference")
    slow.load_state_dict(fast.state_dict())
    x = torch.randn(7, 2, 3)
    torch.testing.assert_close(fast(x)[0], slow(x)[0])
    monkeypatch.setattr("plait.models.self_attentive.walk", None)
    fast(x)[0].sum().backward()
    assert cell_of(fast).parametrizations.weight_hh.original.grad.abs().max() > 0


def test_a_memory_never_swaps_the_candidates_nonlinearity():
    """The scans over a memory know a tanh candidate: another takes the loop, and differs from tanh."""
    x = torch.randn(12, 2, 3, dtype=DOUBLE)
    outputs = []
    for kind in ("modrelu", "relu", "tanh"):
        torch.manual_seed(0)
        cell = plait.GRUCell(3, 4, nonlinearity=kind, dtype=DOUBLE)
        torch.manual_seed(1)
        layer = plait.SelfAttentive(cell, plait.RelevancyMemory(3, 2))
        outputs.append(layer(x).output)
        h, _ = cell.step(cell.project(x[0]), torch.zeros(2, 4, dtype=DOUBLE), None)
        torch.testing.assert_close(outputs[-1][0], h)
    assert min((a - b).abs().max() for a, b in zip(outputs, [*outputs[1:], outputs[0]], strict=True)) > 1e-3


@pytest.mark.parametrize(("name", "reference"), [("exprnn", nn.RNN), ("goru", nn.GRU)])
def test_free_weights_cannot_become_orthogonal_ones(name, reference):
    with pytest.raises(ConfigError, match="cannot take over a free one"):
        MODELS[name].from_torch(reference(3, 4))


@pytest.mark.parametrize(("model", "cell"), [(plait.UniRNN, "ElmanCell"), (plait.UniLSTM, "LSTMCell")])
def test_uniform_writing_by_name(model, cell):
    made = model(3, 4, window=3, capacity=2, every=2)
    assert type(cell_of(made)).__name__ == cell
    _, _, (trace,) = made(torch.randn(14, 1, 3), need_trace=True)
    assert sorted(trace.born[-1, 0].tolist()) == [8, 10, 11, 12, 13]


@pytest.mark.parametrize("name", MODELS)
def test_options_make_the_model_again(name):
    torch.manual_seed(0)
    one = MODELS[name](3, 6, num_layers=2, dropout=0.25)
    torch.manual_seed(0)
    two = MODELS[name](3, **one.options())
    assert two.options() == one.options()
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)
    assert repr(one) == repr(two)


def test_a_mix_that_is_a_function_has_no_options():
    assert plait.RelRNN(3, 4, mix=lambda h, c: h + c).options() is None


@pytest.mark.parametrize("model", [plait.RNN, plait.LSTM, plait.GRU])
def test_gradients_in_evaluation_mode(model, monkeypatch):
    """cuDNN refuses a backward pass after a forward pass in evaluation mode."""
    modes = []

    def recorded(*args):
        modes.append(args[-1])
        return native_scan(*args)

    monkeypatch.setattr("plait.models.self_attentive.native_scan", recorded)
    layer, x = model(3, 4).eval(), torch.randn(5, 2, 3)
    layer(x)[0].sum().backward()
    with torch.no_grad():
        layer(x)
    assert modes == [True, False]


@pytest.mark.gpu
@pytest.mark.parametrize("model", [plait.RNN, plait.LSTM, plait.GRU])
def test_on_a_gpu_gradients_in_evaluation_mode(model):
    layer, x = model(3, 4).cuda().eval(), torch.randn(5, 2, 3, device="cuda")
    layer(x)[0].sum().backward()
    assert layer.layers[0].cell.weight_ih.grad.isfinite().all()
