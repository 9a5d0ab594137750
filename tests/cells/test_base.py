"""A cell of one's own needs `gates` and `step`, no constructor."""

from typing import ClassVar

import torch

from plait.cells import Cell, LSTMCell
from plait.cells.initialisers import initialise_


class Own(Cell):
    gates: ClassVar[int] = 2

    def step(self, projected, hidden, cell_state):
        a, b = (projected + hidden @ self.weight_hh.t()).chunk(2, dim=-1)
        return torch.sigmoid(a) * torch.tanh(b), None


def test_its_weights_begin_as_those_of_the_others():
    """The constructor draws what `reset_parameters` draws, which is what is said of a cell."""
    torch.manual_seed(1)
    own = Own(3, 4)
    again = Own(3, 4)
    torch.manual_seed(1)
    again.reset_parameters()
    for one, two in zip(own.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)
    torch.manual_seed(1)
    recurrent = initialise_(torch.empty(8, 4), "xavier")
    assert torch.equal(own.weight_hh, recurrent)
    assert own.bias.abs().max() <= 0.5  # uniform, 1/sqrt(hidden)
    assert own.bias.unique().numel() == 8


def test_a_cell_with_a_constructor_draws_once():
    torch.manual_seed(1)
    cell = LSTMCell(3, 4)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    cell.reset_parameters()
    assert torch.equal(torch.rand(1), drawn)
