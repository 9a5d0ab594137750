"""One step of recurrence for each cell, given the input already projected.

Shapes: `projected` (B, G·H) holds U x_t + b for the cell's G gates, `hidden` (B, H) is s_{t−1} (which
stands wherever a plain cell has h_{t−1}), `weight` (G·H, H) is the recurrent matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["NONLINEARITIES", "elman_step", "gru_step", "lstm_step", "modrelu"]


def modrelu(z: Tensor, bias: Tensor) -> Tensor:
    """Return sign(z) · relu(|z| + b), elementwise.

    >>> modrelu(torch.tensor([-2.0, 0.5]), torch.tensor([-1.0, -1.0]))
    tensor([-1., 0.])
    """
    return torch.sign(z) * torch.relu(z.abs() + bias)


# name → function of the pre-activation and of a bias that only modrelu reads
NONLINEARITIES: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "tanh": lambda z, _: torch.tanh(z),
    "relu": lambda z, _: torch.relu(z),
    "identity": lambda z, _: z,
    "modrelu": lambda z, bias: modrelu(z, bias if bias is not None else z.new_zeros(())),
}


def elman_step(
    projected: Tensor, hidden: Tensor, weight: Tensor, nonlinearity: str, bias: Tensor | None = None
) -> Tensor:
    """Return h_t = φ(V s_{t−1} + U x_t + b); `bias` is modrelu's own."""
    return NONLINEARITIES[nonlinearity](projected + linear(hidden, weight), bias)


def lstm_step(projected: Tensor, hidden: Tensor, cell_state: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return h_t and the new cell state of an LSTM.

    Gates i, f, g, o in torch's order act on [s_{t−1}; x_t]; attention does not touch the cell state.

    c_t = σ(f) c_{t−1} + σ(i) tanh(g), h_t = σ(o) tanh(c_t).
    """
    i, f, g, o = (projected + linear(hidden, weight)).chunk(4, dim=-1)
    cell_state = torch.sigmoid(f) * cell_state + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell_state), cell_state


def gru_step(
    projected: Tensor,
    hidden: Tensor,
    recurrent: Tensor,
    candidate_bias: Tensor | None,
    nonlinearity: str = "tanh",
    modrelu_bias: Tensor | None = None,
) -> Tensor:
    """Return h_t of a GRU.

    r, z = σ(·), n = φ(U_n x + b_n + r (V_n s + b'_n)), h_t = (1 − z) n + z s_{t−1}.

    φ is tanh, or another of `NONLINEARITIES`; `modrelu_bias` is modrelu's own.
    """
    p_r, p_z, p_n = projected.chunk(3, dim=-1)
    v_r, v_z, v_n = linear(hidden, recurrent).chunk(3, dim=-1)
    if candidate_bias is not None:
        v_n = v_n + candidate_bias
    r, z = torch.sigmoid(p_r + v_r), torch.sigmoid(p_z + v_z)
    n = NONLINEARITIES[nonlinearity](p_n + r * v_n, modrelu_bias)
    return (1 - z) * n + z * hidden
