"""The layers behave as `torch.nn` modules do."""

import copy
import inspect

import pytest
import torch

import plait
from plait.cells import orthogonal_parameters
from plait.errors import ConfigError
from plait.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_state_dict_and_deepcopy(name):
    model, other = MODELS[name](3, 6, num_layers=2), MODELS[name](3, 6, num_layers=2)
    x = torch.randn(7, 2, 3)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(x)[0], model(x)[0], rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(model)(x)[0], model(x)[0], rtol=0, atol=0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(name, dtype):
    model = MODELS[name](3, 6).to(dtype)
    if dtype == torch.bfloat16 and orthogonal_parameters(model):
        with pytest.raises(ConfigError, match=r"orthogonal .* float32 or float64, got torch.bfloat16"):
            model(torch.randn(15, 2, 3, dtype=dtype))
        return
    output, state = model(torch.randn(15, 2, 3, dtype=dtype))
    assert output.dtype == dtype
    assert state.hidden.dtype == dtype
    output.float().sum().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_autocast(name):
    model, x = MODELS[name](3, 6), torch.randn(15, 2, 3)
    exact, _ = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, state, (trace,) = model(x, need_trace=True)
        again, _ = model(x, state)
    assert output.dtype == again.dtype == torch.bfloat16
    assert trace.weights.dtype == torch.float32
    # of what is there: a modrelu's states are not bounded by 1
    assert (output.float() - exact).abs().max() < 0.1 * max(1.0, float(exact.detach().abs().max()))
    output.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


# After a graph break dynamo reads .grad of a tensor that is no leaf, and a warning of it would be an error.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", MODELS)
def test_compile(name):
    model, x = MODELS[name](3, 6), torch.randn(4, 2, 3)
    compiled = torch.compile(model, backend="aot_eager")
    output, _ = compiled(x)
    torch.testing.assert_close(output, model(x)[0])
    output.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["relrnn", "rellstm", "relgru", "lstm", "exprnn", "goru", "transformer"])
def test_export_of_one_step(name):
    model = MODELS[name](3, 6).eval()
    x = torch.randn(1, 2, 3)
    _, state = model(torch.randn(4, 2, 3))
    state = state.detach()
    with torch.no_grad():
        program = torch.export.export(model, (x, state))
        output, end = program.module()(x, state)
        expected, expected_end = model(x, state)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(end.hidden, expected_end.hidden)


def test_moves_to_another_device():
    model = plait.RelLSTM(3, 6, device="meta")
    output, state = model(torch.randn(5, 2, 3, device="meta"))
    assert output.device.type == state.memory[0].born.device.type == "meta"


def test_signatures_name_every_option():
    names = set(inspect.signature(plait.RelRNN).parameters)
    wanted = "input_size hidden_size num_layers bias batch_first dropout device dtype window capacity"
    assert {*wanted.split(), "nonlinearity", "initialiser", "mix", "backend"} <= names
    assert "nonlinearity" not in inspect.signature(plait.RelLSTM).parameters
    assert {"top_k", "every", "truncate"} <= set(inspect.signature(plait.SAB).parameters)


def test_dropout_between_layers_while_training_only():
    model, x = plait.RelRNN(3, 6, num_layers=2, dropout=0.5), torch.randn(5, 2, 3)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_flatten_parameters_is_there():
    assert plait.RelLSTM(3, 4).flatten_parameters() is None
