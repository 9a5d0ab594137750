"""The gated cells: LSTM and GRU, with s_{t−1} wherever the plain cell has h_{t−1}."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor, nn

from plait.cells.base import Cell
from plait.ops.steps import gru_step, lstm_step

__all__ = ["GRUCell", "LSTMCell"]


class LSTMCell(Cell):
    """Gates on [s_{t−1}; x_t], in torch's order i, f, g, o; attention leaves the cell state alone.

    >>> cell = LSTMCell(3, 4)
    >>> h, c = cell.step(cell.project(torch.zeros(2, 3)), torch.zeros(2, 4), torch.zeros(2, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    gates: ClassVar[int] = 4
    has_cell_state: ClassVar[bool] = True

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.reset_parameters()

    def step(self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, Tensor]:
        assert cell_state is not None
        return lstm_step(projected, hidden, cell_state, self.weight_hh)


class GRUCell(Cell):
    """Gates in torch's order r, z, n; s_{t−1} stands in the convex sum too.

    `candidate_bias` is the recurrent bias inside the reset product, which cannot be merged into `bias`.

    >>> cell = GRUCell(3, 4)
    >>> cell.step(cell.project(torch.zeros(2, 3)), torch.zeros(2, 4), None)[0].shape
    torch.Size([2, 4])
    """

    gates: ClassVar[int] = 3

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.candidate_bias: nn.Parameter | None = None
        if self.bias is not None:
            self.candidate_bias = nn.Parameter(self.bias.new_empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.candidate_bias is not None:
            bound = 1 / math.sqrt(self.hidden_size)
            nn.init.uniform_(self.candidate_bias, -bound, bound)

    def step(self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, None]:
        return gru_step(projected, hidden, self.weight_hh, self.candidate_bias), None
