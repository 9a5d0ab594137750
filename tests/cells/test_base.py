"""A cell of one's own needs `gates` and `step`, no constructor."""

from typing import ClassVar

import torch

from plait.cells import Cell, LSTMCell


class Own(Cell):
    gates: ClassVar[int] = 2

    def step(self, projected, hidden, cell_state):
        a, b = (projected + hidden @ self.weight_hh.t()).chunk(2, dim=-1)
        return torch.sigmoid(a) * torch.tanh(b), None


def test_its_weights_begin_as_those_of_the_others(monkeypatch):
    filled = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: filled(*a, **k).fill_(torch.nan))
    cell = Own(3, 4)
    assert all(parameter.isfinite().all() for parameter in cell.parameters())
    torch.manual_seed(1)
    own = Own(3, 4)
    torch.manual_seed(1)
    again = Own(3, 4)
    again.reset_parameters()  # drawn once in the constructor, and once more here
    assert not torch.equal(own.weight_hh, again.weight_hh)


def test_a_cell_with_a_constructor_draws_once():
    torch.manual_seed(1)
    cell = LSTMCell(3, 4)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    cell.reset_parameters()
    assert torch.equal(torch.rand(1), drawn)
