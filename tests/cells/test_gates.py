"""Gates that begin open: the right gate, the right law, and nothing else moved."""

import math

import pytest
import torch

import plait
from plait.errors import ConfigError

SIZE = 2000


def blocks(model):
    return model.layers[0].cell.bias.detach().split(model.hidden_size)


@pytest.mark.parametrize("name", ["LSTM", "RelLSTM", "MemLSTM", "UniLSTM", "SAB", "GRU", "RelGRU", "GORU"])
def test_only_the_named_gates_begin_otherwise(name):
    def made(**options):
        torch.manual_seed(0)
        return getattr(plait, name)(3, 6, **options)

    usual, kept, chrono = made(), made(forget_bias=1.5), made(chrono=30)
    moved = {1} if "GRU" in name or name == "GORU" else {0, 1}
    assert torch.equal(blocks(kept)[1], torch.full((6,), 1.5))
    for place, (a, b, c) in enumerate(zip(blocks(usual), blocks(kept), blocks(chrono), strict=True)):
        assert torch.equal(a, b) == (place != 1)
        assert torch.equal(a, c) == (place not in moved)
    for (key, a), b in zip(usual.named_parameters(), kept.parameters(), strict=True):
        assert key.endswith("cell.bias") or torch.equal(a, b)


def test_chrono_is_the_log_of_a_uniform_number():
    i, f, _, _ = blocks(plait.LSTM(1, SIZE, chrono=101))
    assert torch.equal(i, -f)
    u = f.exp().double()
    assert 1 <= u.min() < 1.5
    assert 99.5 < u.max() <= 100 + 1e-4
    assert abs(u.mean() - 50.5) < 5 * 99 / math.sqrt(12 * SIZE)
    _, z, _ = blocks(plait.GRU(1, SIZE, chrono=101))
    assert abs(z.exp().mean() - 50.5) < 5 * 99 / math.sqrt(12 * SIZE)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_an_open_gate_keeps(name):
    """Read from nothing and without input, what is there lasts longer the more open the gate that keeps."""
    kept = []
    for bias in (-3.0, 0.0, 3.0, 9.0):
        torch.manual_seed(1)
        cell = getattr(plait, f"{name}Cell")(3, 200, forget_bias=bias)
        with torch.no_grad():
            cell.weight_hh.zero_()
            held = torch.ones(1, 200)
            h, c = cell.step(cell.project(torch.zeros(1, 3)), held, held if name == "LSTM" else None)
        kept.append(float((c if name == "LSTM" else h).mean()))
    assert kept == sorted(kept)
    assert kept[0] < 0.2
    assert kept[-1] > 0.95


def test_what_makes_no_sense_is_named():
    for options, message in (
        ({"forget_bias": 1.0, "chrono": 10}, "expected forget_bias or chrono, got both"),
        ({"chrono": 2}, "chrono: expected at least 3, got 2"),
        ({"chrono": 10.5}, "chrono: expected a whole number"),
        ({"forget_bias": math.nan}, "forget_bias: expected a finite number"),
        ({"forget_bias": True}, "forget_bias: expected a finite number"),
        ({"forget_bias": 1.0, "bias": False}, "expected a cell with biases"),
    ):
        with pytest.raises(ConfigError, match=message):
            plait.RelLSTM(3, 4, **options)
    for name in ("RNN", "RelRNN", "ExpRNN"):
        with pytest.raises(TypeError, match=rf"{name}.* unexpected keyword argument 'forget_bias'"):
            getattr(plait, name)(3, 4, forget_bias=1.0)
    with pytest.raises(ConfigError, match="say how biases begin"):
        plait.LSTM.from_torch(torch.nn.LSTM(3, 4), chrono=10)


def test_every_layer_begins_so_and_it_trains():
    model = plait.RelGRU(3, 6, num_layers=2, chrono=20, device="cpu", dtype=torch.float64)
    assert all((layer.cell.bias[6:12] >= 0).all() for layer in model.layers)
    model(torch.randn(5, 2, 3, dtype=torch.float64))[0].sum().backward()
    assert all(layer.cell.bias.grad is not None for layer in model.layers)


def test_biases_begin_as_those_of_torch():
    """Uniform within ±1/√H; the GRU's bias inside the reset product too."""
    cell = plait.GRUCell(1, SIZE)
    bound = 1 / math.sqrt(SIZE)
    for bias in (cell.bias, cell.candidate_bias):
        assert 0.99 * bound < bias.max() <= bound
        assert -0.99 * bound > bias.min() >= -bound
        assert abs(bias.mean()) < 5 * bound / math.sqrt(3 * SIZE)
