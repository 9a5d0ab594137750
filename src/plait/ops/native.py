"""Plain recurrence by torch's own fused layers (cuDNN, oneDNN): a scan without a memory."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["NATIVE", "native_scan"]

# (cell, nonlinearity) of the layers that torch has fused
NATIVE = {("elman", "tanh"), ("elman", "relu"), ("lstm", "tanh"), ("gru", "tanh")}


def native_scan(
    x: Tensor,
    hidden: Tensor,
    cell_state: Tensor | None,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    cell: str,
    nonlinearity: str,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return h_t for every step, and the last h and cell state, of one layer without memory.

    `x` (T, B, F); `hidden`, `cell_state` (B, H); `weights`: input, recurrent, bias, a GRU's candidate bias.
    torch has two biases: ours is the first, the second is zero except for a GRU's candidate.
    """
    input_weight, recurrent, bias, candidate_bias = weights
    parameters = [input_weight, recurrent]
    if bias is not None:
        second = torch.zeros_like(bias)
        if candidate_bias is not None:
            second = torch.cat([second[: -len(candidate_bias)], candidate_bias])
        parameters += [bias, second]
    rest = (parameters, bias is not None, 1, 0.0, train, False, False)
    with _quiet() if x.is_cuda else contextlib.nullcontext():
        if cell == "lstm":
            assert cell_state is not None
            output, h, c = torch.lstm(x, (hidden.unsqueeze(0), cell_state.unsqueeze(0)), *rest)
            return output, h.squeeze(0), c.squeeze(0)
        run = torch.gru if cell == "gru" else torch.rnn_tanh if nonlinearity == "tanh" else torch.rnn_relu
        output, h = run(x, hidden.unsqueeze(0), *rest)
        return output, h.squeeze(0), None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence cuDNN's warning about separate weights.

    A cell's weights are separate parameters, so cuDNN copies them into one buffer at every call; that is a
    small part of a scan, and the user cannot change it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="RNN module weights are not part of single contiguous chunk"
        )
        yield
