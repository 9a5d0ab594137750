"""The Elman cell: h_t = φ(V s_{t−1} + U x_t + b)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from plait.cells.base import Cell, Step
from plait.errors import check_choice
from plait.ops.steps import NONLINEARITIES, elman_step

__all__ = ["ElmanCell"]


class ElmanCell(Cell):
    """The Elman cell: h_t = φ(V s_{t−1} + U x_t + b), φ one of tanh, relu, modrelu, identity.

    modrelu has U's bias and its own.

    >>> cell = ElmanCell(3, 4)
    >>> h, _ = cell.step(cell.project(torch.zeros(2, 3)), torch.zeros(2, 4), None)
    >>> h.shape
    torch.Size([2, 4])
    """

    default_initialiser: ClassVar[str] = "henaff"

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str = "tanh", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.nonlinearity = check_choice(nonlinearity, NONLINEARITIES, "nonlinearity")
        self.modrelu_bias: nn.Parameter | None = None
        if nonlinearity == "modrelu":
            self.modrelu_bias = nn.Parameter(
                torch.empty(hidden_size, device=self.weight_hh.device, dtype=self.weight_hh.dtype)
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.modrelu_bias is not None:
            nn.init.uniform_(self.modrelu_bias, -0.01, 0.01)

    def step(
        self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return self.stepper()(projected, hidden, cell_state)

    def stepper(self) -> Step:
        weight, kind, bias = self.recurrent, self.nonlinearity, self.modrelu_bias
        return lambda z, s, c: (elman_step(z, s, weight, kind, bias), None)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity!r}"
