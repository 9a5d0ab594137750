"""Recurrent matrices that stay orthogonal in training, through the exponential map."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList, register_parametrization

from plait.cells.base import Cell
from plait.cells.elman import ElmanCell
from plait.cells.gated import GRUCell
from plait.errors import ConfigError

__all__ = ["keep_orthogonal", "orthogonal_parameters"]

SomeCell = TypeVar("SomeCell", bound=Cell)


def keep_orthogonal(cell: SomeCell) -> SomeCell:
    """Keep V of an Elman cell, or V_n of a GRU's candidate, orthogonal: V = V_0 exp(A − Aᵀ).

    V_0 is the present matrix, orthogonalised where it is not orthogonal; the trained parameter is A, strictly
    lower triangular and 0 at first. Any step of any optimiser leaves V orthogonal. The map is
    `torch.nn.utils.parametrizations.orthogonal`. Changes `cell` in place and returns it.

    >>> cell = keep_orthogonal(ElmanCell(3, 4))
    >>> torch.allclose(cell.weight_hh @ cell.weight_hh.T, torch.eye(4), atol=1e-6)
    True
    """
    if isinstance(cell, GRUCell):
        register_parametrization(cell, "weight_hh", _LastBlock(cell.weight_hh))
    elif isinstance(cell, ElmanCell):
        _orthogonal(cell, "weight_hh")
    else:
        raise ConfigError(
            f"cell: expected an Elman or GRU cell to keep orthogonal, got {type(cell).__name__}"
        )
    return cell


def orthogonal_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the trained generators of the orthogonal matrices of `network`, parametrised by any code.

    >>> [p.shape for p in orthogonal_parameters(keep_orthogonal(GRUCell(3, 4)))]
    [torch.Size([4, 4])]
    """
    return [
        original
        for module in network.modules()
        if isinstance(module, ParametrizationList)
        and any(isinstance(part, parametrizations._Orthogonal) for part in module)
        for original in module.parameters(recurse=False)
    ]


class _LastBlock(nn.Module):
    """A parametrization of (G·H, H): the last square block is orthogonal, the blocks above it are free."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach()[-weight.shape[1] :].clone())
        _orthogonal(self, "weight")

    def forward(self, above: Tensor) -> Tensor:
        return torch.cat([above, self.weight])

    def right_inverse(self, weight: Tensor) -> Tensor:
        size = weight.shape[1]
        # assignment goes through the block's own parametrization
        self.weight = weight.detach()[-size:]  # type: ignore[assignment]
        return weight[:-size].clone()


def _orthogonal(module: nn.Module, name: str) -> None:
    # Without a trivialisation torch cannot start from a chosen matrix.
    parametrizations.orthogonal(module, name, orthogonal_map="matrix_exp", use_trivialization=True)
