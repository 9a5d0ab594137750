"""A recurrent layer as a TorchRL module. TorchRL is imported only to build a primer."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import MissingExtraError
from plait.models.packed import packed_size, unpack
from plait.models.recurrent import Recurrent

__all__ = ["TensorDictMemory"]


class TensorDictMemory(nn.Module):
    """A TensorDict module around a recurrent layer with a bounded memory.

    Reads the input under `in_key` and writes h_t under `out_key`; the packed state is read from `state_key`
    and written, for the next step, to ("next", `state_key`). Rows marked by "is_init" start a new sequence.

    It runs one step at a time, with a tensordict (…,); or, within TorchRL's `set_recurrent_mode(True)`, whole
    sequences (…, T), from the state at their first step, ends of episodes included.

    Args:
        layer: unidirectional, with a memory of fixed size or none.
    """

    def __init__(
        self,
        layer: Recurrent,
        in_key: str = "observation",
        out_key: str = "features",
        state_key: str = "memory",
    ) -> None:
        super().__init__()
        self.layer, self.state_size = layer, packed_size(layer)
        self.in_keys: list[Any] = [in_key, state_key, "is_init"]
        self.out_keys: list[Any] = [out_key, ("next", state_key)]

    def forward(self, tensordict: Any) -> Any:
        """Write features and next state into the tensordict and return it."""
        x, state, begins = (tensordict.get(key, None) for key in self.in_keys)
        whole = _recurrent_mode()
        rows = (lambda part: part.flatten(0, -3).transpose(0, 1)) if whole else _one_step
        inputs = x.unsqueeze(0) if whole and x.dim() == 2 else x
        reset = begins.reshape(*inputs.shape[:-1], 1)
        if state is not None:
            state = state.reshape(*inputs.shape[:-1], self.state_size)
            state = unpack(rows(state)[:1], self.layer)
        output, end = self.layer(rows(inputs), state, reset=rows(reset).squeeze(-1))
        features = output.transpose(0, 1) if whole else output[0]
        tensordict.set(self.out_keys[0], features.reshape(*x.shape[:-1], -1))
        tensordict.set(self.out_keys[1], _at_the_end(end.pack(), x, whole))
        return tensordict

    def make_tensordict_primer(self) -> Any:
        """Return the transform that gives an environment's first step an empty state."""
        try:
            from torchrl.data import Unbounded
            from torchrl.envs import TensorDictPrimer
        except ImportError as error:
            raise MissingExtraError(
                "torchrl is needed here and not installed: pip install torchrl"
            ) from error
        return TensorDictPrimer({self.in_keys[1]: Unbounded(shape=(self.state_size,))})


def _one_step(part: Tensor) -> Tensor:
    """Reshape (…, F) to (1, N, F)."""
    return part.reshape(1, -1, part.shape[-1])


def _at_the_end(packed: Tensor, x: Tensor, whole: bool) -> Tensor:
    """Reshape the packed state (1, N, F) like the input; a sequence has it at the last step alone."""
    if not whole:
        return packed[0].reshape(*x.shape[:-1], -1)
    wide = packed.new_zeros(packed.shape[1], x.shape[-2], packed.shape[2])
    wide = torch.cat([wide[:, 1:], packed.transpose(0, 1)], 1)
    return wide.reshape(*x.shape[:-1], -1)


def _recurrent_mode() -> bool:
    """Return TorchRL's recurrent mode; it is off where TorchRL was never imported."""
    rnn = sys.modules.get("torchrl.modules.tensordict_module.rnn")
    return bool(rnn.recurrent_mode()) if rnn is not None else False
