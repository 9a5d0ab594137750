"""The base class of cells: an input projection for all steps at once, and one step of recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from plait.cells.initialisers import initialise_
from plait.errors import ConfigError, check_int
from plait.estimates import check_weights
from plait.ops.scan.contract import Projection

__all__ = ["Cell", "Step"]

# z_t (B, G·H), s_{t−1} (B, H), cell state (B, H) or None → h_t, cell state
Step = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


class Cell(nn.Module):
    """Abstract base class of recurrent cells: it holds weights and no state.

    Laws: `step` is a pure function of its arguments and treats batch rows independently; with no memory the
    scan of a cell equals its `torch.nn` namesake.
    """

    gates: ClassVar[int] = 1
    has_cell_state: ClassVar[bool] = False
    default_initialiser: ClassVar[str] = "xavier"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        initialiser: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_int(1, input_size=input_size, hidden_size=hidden_size)
        check_weights(self.gates * hidden_size * (input_size + hidden_size), device)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.initialiser = initialiser or self.default_initialiser
        rows = self.gates * hidden_size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if bias else None
        if type(self).__init__ is Cell.__init__:  # a cell with more weights calls it after creating them
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the recurrent matrix by the initialiser, input weights xavier-normal, biases as torch does."""
        if is_parametrized(self, "weight_hh"):  # a computed weight can only be set by assignment
            weight = initialise_(torch.empty_like(self.weight_hh), self.initialiser)
            self.weight_hh = weight  # type: ignore[assignment]
        else:
            initialise_(self.weight_hh, self.initialiser)
        for block in self.weight_ih.split(self.hidden_size):
            nn.init.xavier_normal_(block)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.hidden_size)
            nn.init.uniform_(self.bias, -bound, bound)

    @property
    def recurrent(self) -> Tensor:
        """The recurrent matrix `weight_hh` in the dtype of the other weights.

        A matrix kept orthogonal is computed at each access, in full precision even where the layer computes
        in less.
        """
        weight = self.weight_hh
        if weight.dtype.itemsize < 4 and is_parametrized(self, "weight_hh"):
            raise ConfigError(  # too few digits for orthogonality, and matrix_exp's gradient is NaN
                f"an orthogonal recurrent matrix needs weights in float32 or float64, got {weight.dtype}; "
                "leave them in float32 and use torch.autocast"
            )
        dtype = self.weight_ih.dtype
        return weight if weight.dtype is dtype else weight.to(dtype)

    def project(self, x: Tensor) -> Tensor:
        """Return U x + b for every step at once: (..., input_size) → (..., G·H)."""
        return Projection(x, self.weight_ih, self.bias).project()

    def step(
        self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return h_t and the new cell state.

        Args:
            projected: z_t (B, G·H), from `project`.
            hidden: s_{t−1} (B, H).
            cell_state: (B, H), or None for a cell without one.
        """
        raise NotImplementedError

    def stepper(self) -> Step:
        """Return `step` for a whole scan, with the recurrent matrix looked up once."""
        return self.step

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, bias={self.bias is not None}, "
            f"initialiser={self.initialiser!r}"
        )
