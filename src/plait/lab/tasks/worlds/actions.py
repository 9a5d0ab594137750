"""Actions: discrete, multi-discrete or continuous; sampling, log-probability and format for an environment.

Noise is drawn separately from the outputs, so that an action is a function of a policy's outputs and of the
numbers of a generator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

__all__ = ["NO_ACTION", "Actions", "Amounts", "Choices", "gumbel"]

NO_ACTION = 255  # padding for environments with fewer actions, where actions are stored as bytes
_NARROWEST, _WIDEST = -5.0, 2.0  # range of the log standard deviation of a continuous action


class Actions(ABC):
    """Base class of the actions of an environment, parametrised by the last axis of a policy's outputs."""

    outputs: int
    """Number of outputs of the actor."""
    free: int = 0
    """Number of further outputs that are parameters, independent of the observation."""
    shape: tuple[int, ...] = ()
    """Shape of one action."""
    dtype: torch.dtype = torch.int64

    @abstractmethod
    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise for `shape` actions."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Sample one action for each row; non-finite outputs are not detected here, but by the collector."""

    @abstractmethod
    def likeliest(self, outputs: Tensor) -> Tensor:
        """Return the most likely action of each row."""

    @abstractmethod
    def chosen(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each action, and the entropy of its distribution."""

    @abstractmethod
    def for_world(self, action: Any) -> Any:
        """Convert an action, as from `tolist`, to the format of the environment."""

    @abstractmethod
    def kept(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        """Pack the actions of several environments into one tensor; shorter rows are padded."""

    @abstractmethod
    def rows(self, kept: Tensor) -> list[list[Any]]:
        """Unpack the tensor of `kept`."""

    @abstractmethod
    def could_be(self, kept: Tensor) -> bool:
        """Return whether every value is a valid action or padding."""

    @abstractmethod
    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        """Return an action of one row as text, and its probability; None for a continuous action."""


class Choices(Actions):
    """Discrete actions: one of `counts[0]` choices and, with more counts, one of each of the others.

    The outputs are logits, count after count; the largest of logits + Gumbel noise is a draw from their
    softmax.

    Args:
        single: whether an action is an integer instead of a row of one.
        starts: the environment's value of the first choice of each count; 0 if left out.
        names: names of the choices, if there is one count.

    >>> both = Choices((2, 3))
    >>> both.outputs, both.likeliest(torch.tensor([[0.0, 1.0, 5.0, 0.0, 1.0]])).tolist()
    (5, [[1, 0]])
    """

    def __init__(
        self,
        counts: Sequence[int],
        single: bool = False,
        starts: Sequence[int] = (),
        names: Sequence[str] = (),
        form: tuple[int, ...] | None = None,
        kind: Any = np.int64,
    ) -> None:
        self.counts, self.names = tuple(int(count) for count in counts), tuple(names)
        self.outputs, self.single, self.kind = sum(self.counts), single, kind
        self.shape = () if single else (len(self.counts),)
        self.starts = np.array(starts or [0] * len(self.counts), np.int64)
        self.form = form or self.shape
        self._bytes = max(self.counts) <= NO_ACTION

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return gumbel((*shape, self.outputs), generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.likeliest(outputs + noise)

    def likeliest(self, outputs: Tensor) -> Tensor:
        if self.single:
            return outputs.argmax(-1)
        return torch.stack([part.argmax(-1) for part in outputs.split(self.counts, -1)], -1)

    def chosen(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        if self.single:
            return _of_choice(outputs, actions)
        pairs = zip(outputs.split(self.counts, -1), actions.unbind(-1), strict=True)
        logarithms, entropies = zip(*(_of_choice(*pair) for pair in pairs), strict=True)
        return torch.stack(logarithms).sum(0), torch.stack(entropies).sum(0)

    def for_world(self, action: Any) -> Any:
        if self.single:
            return action + int(self.starts[0])
        return (np.array(action, np.int64) + self.starts).reshape(self.form).astype(self.kind)

    def kept(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        kind, filler = (torch.uint8, NO_ACTION) if self._bytes else (torch.int64, -1)
        return _side_by_side(rows, self.shape, kind, filler)

    def rows(self, kept: Tensor) -> list[list[Any]]:
        filler = NO_ACTION if self._bytes else -1
        first = kept if self.single else kept[..., 0]
        return _trimmed(kept, first != filler)

    def could_be(self, kept: Tensor) -> bool:
        filler = NO_ACTION if self._bytes else -1
        counts = torch.tensor(self.counts)
        real = ((kept >= 0) & (kept < (counts[0] if self.single else counts))) | (kept == filler)
        return bool(real.all())

    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        chance = self.chosen(outputs, action)[0].exp().item()
        if self.single and self.names:
            return self.names[int(action)], chance
        return str(self.for_world(action.tolist())), chance


class Amounts(Actions):
    """Continuous actions with normal distributions.

    The actor gives the means; the log standard deviations are parameters, independent of the observation. A
    bounded action is scaled so that −1 and 1 are its bounds, and clipped to them for the environment.

    Args:
        low, high: the bounds, of the shape of the environment's actions; infinite for none.
    """

    dtype = torch.float32

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        self.form, self.kind = low.shape, low.dtype
        self.low, self.high = low.reshape(-1).astype(np.float64), high.reshape(-1).astype(np.float64)
        self.outputs = self.free = len(self.low)
        self.shape = (self.outputs,)
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        with np.errstate(invalid="ignore", over="ignore"):
            self._middle = np.where(bounded, (self.low + self.high) / 2, 0.0)
            self._half = np.where(bounded, (self.high - self.low) / 2, 1.0)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.randn((*shape, self.outputs), generator=generator, device=generator.device)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        means, spreads = self._parts(outputs)
        return means + spreads.exp() * noise

    def likeliest(self, outputs: Tensor) -> Tensor:
        return self._parts(outputs)[0]

    def chosen(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        means, spreads = self._parts(outputs)
        distance = (actions - means) * (-spreads).exp()
        logarithm = -distance.square() / 2 - spreads - math.log(2 * math.pi) / 2
        entropy = spreads + math.log(2 * math.pi * math.e) / 2
        return logarithm.sum(-1), entropy.sum(-1).expand(logarithm.shape[:-1])

    def for_world(self, action: Any) -> Any:
        amount = np.clip(self._middle + self._half * np.array(action, np.float64), self.low, self.high)
        amount = amount if np.issubdtype(self.kind, np.floating) else np.rint(amount)
        return amount.reshape(self.form).astype(self.kind)

    def kept(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        return _side_by_side(rows, self.shape, torch.float32, math.nan)

    def rows(self, kept: Tensor) -> list[list[Any]]:
        return _trimmed(kept, ~kept[..., 0].isnan())

    def could_be(self, kept: Tensor) -> bool:
        return not bool(kept.isinf().any())

    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        amounts = self.for_world(action.tolist()).reshape(-1)
        return " ".join(f"{amount:.3g}" for amount in amounts), None

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        means, spreads = outputs.split(self.outputs, -1)
        return means, spreads.clamp(_NARROWEST, _WIDEST)


def _of_choice(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    logarithms = log_softmax(logits, dim=-1)
    entropy = -(logarithms.exp() * logarithms).sum(-1)
    return logarithms.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy


def _side_by_side(
    rows: Sequence[Sequence[Any]], shape: tuple[int, ...], kind: torch.dtype, filler: float
) -> Tensor:
    kept = torch.full((len(rows), max(map(len, rows)), *shape), filler, dtype=kind)
    for index, row in enumerate(rows):
        if row:
            kept[index, : len(row)] = torch.tensor(row, dtype=kind)
    return kept


def _trimmed(kept: Tensor, real: Tensor) -> list[list[Any]]:
    lengths = real.long().cumprod(1).sum(1).tolist()
    return [row[:length] for row, length in zip(kept.tolist(), lengths, strict=True)]


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw Gumbel noise: the argmax of logits + noise is a sample from softmax(logits)."""
    uniform = torch.rand(shape, generator=generator, device=generator.device)
    return -(-uniform.clamp_min(1e-20).log()).clamp_min(1e-20).log()
