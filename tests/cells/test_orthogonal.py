"""Matrices kept orthogonal: where they begin, that they stay, and what is left free."""

import copy

import pytest
import torch
from torch import nn

from plait import ElmanCell, GRUCell, LSTMCell, SelfAttentive
from plait.cells import INITIALISERS, initialise_, keep_orthogonal, orthogonal_parameters
from plait.errors import ConfigError

CELLS = {"elman": ElmanCell, "gru": GRUCell}


def kept(cell):
    """The block that stays orthogonal."""
    return cell.weight_hh[-cell.hidden_size :]


def distance(matrix):
    """From orthogonality, as the largest entry of VᵀV − 1."""
    return (matrix.T @ matrix - torch.eye(len(matrix), dtype=matrix.dtype)).abs().max().item()


def trained(cell, optimizer, updates=60):
    target, x = torch.randn(9, 4, cell.hidden_size), torch.randn(9, 4, cell.input_size)
    layer = SelfAttentive(cell)
    stepped = optimizer(layer.parameters())
    for _ in range(updates):
        stepped.zero_grad()
        (layer(x).output - target).square().mean().backward()
        stepped.step()
    return cell


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.parametrize("initialiser", INITIALISERS)
@pytest.mark.parametrize("kind", CELLS)
def test_begins_where_the_initialiser_says(kind, initialiser, size):
    torch.manual_seed(0)
    free = CELLS[kind](3, size, initialiser=initialiser)
    before = free.weight_hh.detach().clone()
    cell = keep_orthogonal(copy.deepcopy(free))
    assert distance(kept(cell)) < 1e-5
    assert torch.equal(cell.weight_hh[:-size], before[:-size]), "the other blocks are left alone"
    if initialiser in ("henaff", "cayley", "random", "identity"):
        torch.testing.assert_close(cell.weight_hh, before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("kind", CELLS)
def test_stays_orthogonal_while_everything_moves(kind, optimizer):
    torch.manual_seed(0)
    cell = keep_orthogonal(CELLS[kind](3, 16, nonlinearity="modrelu", initialiser="henaff"))
    before = {name: p.detach().clone() for name, p in cell.named_parameters()}
    start = cell.weight_hh.detach().clone()
    trained(cell, lambda parameters: optimizer(parameters, lr=0.03))
    assert distance(kept(cell)) < 1e-5
    assert (cell.weight_hh - start).abs().max() > 0.1
    assert all((p - before[name]).abs().max() > 1e-3 for name, p in cell.named_parameters())
    if kind == "gru":
        assert min(distance(block) for block in cell.weight_hh[:-16].split(16)) > 0.1, "the gates are free"
    free = trained(CELLS[kind](3, 16, initialiser="henaff"), lambda p: optimizer(p, lr=0.03))
    assert distance(kept(free)) > 0.1, "without the map it is lost"


@pytest.mark.parametrize("kind", CELLS)
def test_state_dict_carries_the_matrix(kind):
    one, two = (keep_orthogonal(CELLS[kind](3, 5)) for _ in range(2))
    trained(one, lambda p: torch.optim.SGD(p, lr=0.1), updates=3)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.weight_hh, two.weight_hh)


@pytest.mark.parametrize("kind", CELLS)
def test_reset_parameters_draws_again(kind):
    cell = keep_orthogonal(CELLS[kind](3, 6, initialiser="henaff"))
    trained(cell, lambda p: torch.optim.SGD(p, lr=0.1), updates=3)
    torch.manual_seed(3)
    cell.reset_parameters()
    torch.manual_seed(3)
    expected = initialise_(torch.empty_like(cell.weight_hh), "henaff")
    torch.testing.assert_close(cell.weight_hh, expected, rtol=0, atol=1e-6)
    assert cell.weight_hh.grad_fn is not None, "it is still computed from what is trained"


def test_what_is_trained_beneath():
    cells = nn.ModuleList([keep_orthogonal(ElmanCell(3, 4)), keep_orthogonal(GRUCell(3, 4)), GRUCell(3, 4)])
    assert [p.shape for p in orthogonal_parameters(cells)] == [(4, 4), (4, 4)]
    assert orthogonal_parameters(cells[2]) == []
    foreign = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    assert orthogonal_parameters(foreign) == [foreign.parametrizations.weight.original]
    other = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    assert orthogonal_parameters(other) == [], "another parametrization is not ours"


def test_an_lstm_is_refused():
    with pytest.raises(ConfigError, match="expected an Elman or GRU cell to keep orthogonal, got LSTMCell"):
        keep_orthogonal(LSTMCell(3, 4))


@pytest.mark.parametrize("kind", CELLS)
def test_the_exponential_is_taken_once_a_scan(kind, monkeypatch):
    layer = SelfAttentive(keep_orthogonal(CELLS[kind](3, 4, nonlinearity="modrelu")))
    calls, true = [], torch.matrix_exp
    monkeypatch.setattr(torch, "matrix_exp", lambda a: calls.append(a) or true(a))
    layer(torch.randn(20, 2, 3))
    assert len(calls) == 1


def test_under_autocast_the_matrix_is_computed_in_float32():
    cell = keep_orthogonal(ElmanCell(3, 16))
    seen, step = [], cell.stepper

    def spy():
        seen.append((cell.weight_hh.dtype, cell.recurrent.dtype))
        return step()

    cell.stepper = spy
    with torch.autocast("cpu", torch.bfloat16):
        SelfAttentive(cell, truncate=3)(torch.randn(5, 2, 3))  # the loop: no fused scan truncates
    assert seen == [(torch.float32, torch.bfloat16)]
