"""Gated cells: LSTM and GRU, with s_{t−1} wherever the plain cell has h_{t−1}."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor, nn

from plait.cells.base import Cell, Step
from plait.errors import LARGEST_NUMBER, ConfigError, check_choice, check_int
from plait.ops.steps import NONLINEARITIES, gru_step, lstm_step

__all__ = ["GRUCell", "GatedCell", "LSTMCell"]


class GatedCell(Cell):
    """Abstract base class of cells with a forget gate whose bias can be initialised open.

    Args:
        forget_bias: initial bias of the forget gate; None draws it near 0, as torch does.
        chrono: T, at least 3; the forget gate's bias is initialised to log u, u uniform in 1 … T − 1 and
            drawn for each unit, so that units forget over 2 to T steps; an LSTM's input gate gets −log u. Not
            together with `forget_bias`.
    """

    keeps: ClassVar[int] = 1  # index of the forget gate
    admits: ClassVar[int | None] = None  # index of the input gate, None without one

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        forget_bias: float | None = None,
        chrono: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, **options)
        if forget_bias is not None and chrono is not None:
            raise ConfigError("expected forget_bias or chrono, got both; each says how the same gate begins")
        if (forget_bias is not None or chrono is not None) and not bias:
            raise ConfigError("forget_bias, chrono: expected a cell with biases, got bias=False")
        if forget_bias is not None and (
            isinstance(forget_bias, bool)
            or not isinstance(forget_bias, int | float)
            or not abs(forget_bias) <= LARGEST_NUMBER
        ):
            raise ConfigError(
                f"forget_bias: expected a finite number of at most {LARGEST_NUMBER:g}, got {forget_bias!r}"
            )
        if chrono is not None:
            check_int(3, chrono=chrono)
        self.forget_bias, self.chrono = forget_bias, chrono

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias is None or (self.forget_bias is None and self.chrono is None):
            return
        blocks = self.bias.detach().split(self.hidden_size)
        if self.chrono is None:
            blocks[self.keeps].fill_(float(self.forget_bias or 0.0))
            return
        blocks[self.keeps].uniform_(1, self.chrono - 1).log_()
        if self.admits is not None:
            blocks[self.admits].copy_(-blocks[self.keeps])


class LSTMCell(GatedCell):
    """The LSTM cell: gates on [s_{t−1}; x_t] in torch's order i, f, g, o.

    Attention leaves the cell state alone.

    >>> cell = LSTMCell(3, 4)
    >>> h, c = cell.step(cell.project(torch.zeros(2, 3)), torch.zeros(2, 4), torch.zeros(2, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    gates: ClassVar[int] = 4
    has_cell_state: ClassVar[bool] = True
    admits: ClassVar[int | None] = 0

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.reset_parameters()

    def step(self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, Tensor]:
        assert cell_state is not None
        return lstm_step(projected, hidden, cell_state, self.weight_hh)


class GRUCell(GatedCell):
    """The GRU cell: h_t = (1 − z) n + z s_{t−1}, the candidate n = φ(U_n x_t + b_n + r (V_n s_{t−1} + b'_n)).

    Gates in torch's order r, z, n, with r and z = σ(U x_t + V s_{t−1} + b). `candidate_bias` is b'_n, inside
    the reset product, which cannot be merged into `bias`. φ is tanh or another nonlinearity of the Elman
    cell; modrelu has both biases and its own.

    >>> cell = GRUCell(3, 4)
    >>> cell.step(cell.project(torch.zeros(2, 3)), torch.zeros(2, 4), None)[0].shape
    torch.Size([2, 4])
    """

    gates: ClassVar[int] = 3

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str = "tanh", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.nonlinearity = check_choice(nonlinearity, NONLINEARITIES, "nonlinearity")
        self.candidate_bias: nn.Parameter | None = None
        if self.bias is not None:
            self.candidate_bias = nn.Parameter(self.bias.new_empty(hidden_size))
        self.modrelu_bias: nn.Parameter | None = None
        if nonlinearity == "modrelu":
            self.modrelu_bias = nn.Parameter(self.weight_ih.new_empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.candidate_bias is not None:
            bound = 1 / math.sqrt(self.hidden_size)
            nn.init.uniform_(self.candidate_bias, -bound, bound)
        if self.modrelu_bias is not None:
            nn.init.uniform_(self.modrelu_bias, -0.01, 0.01)

    def step(
        self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return self.stepper()(projected, hidden, cell_state)

    def stepper(self) -> Step:
        weight, bias = self.recurrent, self.candidate_bias
        kind, own = self.nonlinearity, self.modrelu_bias
        return lambda z, s, c: (gru_step(z, s, weight, bias, kind, own), None)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity!r}"
