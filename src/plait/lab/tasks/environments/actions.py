"""Action spaces: discrete, multi-discrete or continuous; sampling, log-probabilities and conversion.

Noise is drawn separately from the policy's outputs, so that an action is a function of these outputs and of
the numbers of a generator.
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

__all__ = ["PADDING", "Actions", "ContinuousActions", "DiscreteActions", "gumbel"]

PADDING = 255  # for environments with fewer actions, where actions are stored as bytes
_MIN_LOG_STD, _MAX_LOG_STD = -5.0, 2.0  # range of the log standard deviation of a continuous action


class Actions(ABC):
    """Base class of action spaces, parametrised by the last axis of a policy's outputs."""

    num_outputs: int
    """Number of outputs of the actor."""
    num_log_stds: int = 0
    """Number of log standard deviations: parameters that do not depend on the observation."""
    shape: tuple[int, ...] = ()
    """Shape of one action."""
    dtype: torch.dtype = torch.int64

    @abstractmethod
    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise for `shape` actions."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Sample one action for each row; non-finite outputs are detected by the collector, not here."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """Return the most likely action of each row."""

    @abstractmethod
    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each action, and the entropy of its distribution."""

    @abstractmethod
    def to_env(self, action: Any) -> Any:
        """Convert an action, as from `tolist`, to the format of the environment."""

    @abstractmethod
    def pack(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        """Pack the actions of several environments into one tensor; shorter rows are padded."""

    @abstractmethod
    def unpack(self, packed: Tensor) -> list[list[Any]]:
        """Unpack a tensor of `pack` without its padding."""

    @abstractmethod
    def are_valid(self, packed: Tensor) -> bool:
        """Return whether every value of a tensor of `pack` is a valid action or padding."""

    @abstractmethod
    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        """Return an action of one row as text, and its probability; None for a continuous action."""


class DiscreteActions(Actions):
    """Discrete actions: one of `counts[0]` choices and, with more counts, one of each of the others.

    The outputs are logits, count after count; the argmax of logits + Gumbel noise is a sample from their
    softmax.

    Args:
        single: whether an action is an integer instead of a row of length one.
        starts: the environment's value of the first choice of each count; 0 if left out.
        names: names of the choices, if there is one count.
        env_shape: shape of an action in the environment.
        env_dtype: dtype of an action in the environment.

    >>> both = DiscreteActions((2, 3))
    >>> both.num_outputs, both.mode(torch.tensor([[0.0, 1.0, 5.0, 0.0, 1.0]])).tolist()
    (5, [[1, 0]])
    """

    def __init__(
        self,
        counts: Sequence[int],
        single: bool = False,
        starts: Sequence[int] = (),
        names: Sequence[str] = (),
        env_shape: tuple[int, ...] | None = None,
        env_dtype: Any = np.int64,
    ) -> None:
        self.counts, self.names = tuple(int(count) for count in counts), tuple(names)
        self.num_outputs, self.single, self.env_dtype = sum(self.counts), single, env_dtype
        self.shape = () if single else (len(self.counts),)
        self.starts = np.array(starts or [0] * len(self.counts), np.int64)
        self.env_shape = env_shape or self.shape
        fits_byte = max(self.counts) <= PADDING
        self._packed_dtype, self._padding = (torch.uint8, PADDING) if fits_byte else (torch.int64, -1)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return gumbel((*shape, self.num_outputs), generator)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        if self.single:
            return outputs.argmax(-1)
        return torch.stack([part.argmax(-1) for part in outputs.split(self.counts, -1)], -1)

    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        if self.single:
            return _categorical(outputs, actions)
        pairs = zip(outputs.split(self.counts, -1), actions.unbind(-1), strict=True)
        log_probs, entropies = zip(*(_categorical(*pair) for pair in pairs), strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def to_env(self, action: Any) -> Any:
        if self.single:
            return action + int(self.starts[0])
        return (np.array(action, np.int64) + self.starts).reshape(self.env_shape).astype(self.env_dtype)

    def pack(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        return _padded(rows, self.shape, self._packed_dtype, self._padding)

    def unpack(self, packed: Tensor) -> list[list[Any]]:
        first = packed if self.single else packed[..., 0]
        return _without_padding(packed, first != self._padding)

    def are_valid(self, packed: Tensor) -> bool:
        counts = torch.tensor(self.counts[0] if self.single else self.counts)
        valid = ((packed >= 0) & (packed < counts)) | (packed == self._padding)
        return bool(valid.all())

    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        probability = self.evaluate(outputs, action)[0].exp().item()
        if self.single and self.names:
            return self.names[int(action)], probability
        return str(self.to_env(action.tolist())), probability


class ContinuousActions(Actions):
    """Continuous actions with normal distributions.

    The actor gives the means; the log standard deviations are parameters, independent of the observation. A
    bounded action is scaled so that −1 and 1 are its bounds, and clipped to them for the environment.

    Args:
        low, high: the bounds, of the shape of the environment's actions; infinite for none.
    """

    dtype = torch.float32

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        self.env_shape, self.env_dtype = low.shape, low.dtype
        self.low, self.high = low.reshape(-1).astype(np.float64), high.reshape(-1).astype(np.float64)
        self.num_outputs = self.num_log_stds = len(self.low)
        self.shape = (self.num_outputs,)
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        with np.errstate(invalid="ignore", over="ignore"):
            self._centre = np.where(bounded, (self.low + self.high) / 2, 0.0)
            self._half_width = np.where(bounded, (self.high - self.low) / 2, 1.0)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.randn((*shape, self.num_outputs), generator=generator, device=generator.device)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        means, log_stds = self._split(outputs)
        return means + log_stds.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        return self._split(outputs)[0]

    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        means, log_stds = self._split(outputs)
        z = (actions - means) * (-log_stds).exp()
        log_probs = -z.square() / 2 - log_stds - math.log(2 * math.pi) / 2
        entropy = log_stds + math.log(2 * math.pi * math.e) / 2
        return log_probs.sum(-1), entropy.sum(-1).expand(log_probs.shape[:-1])

    def to_env(self, action: Any) -> Any:
        scaled = self._centre + self._half_width * np.array(action, np.float64)
        clipped = np.clip(scaled, self.low, self.high)
        rounded = clipped if np.issubdtype(self.env_dtype, np.floating) else np.rint(clipped)
        return rounded.reshape(self.env_shape).astype(self.env_dtype)

    def pack(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        return _padded(rows, self.shape, torch.float32, math.nan)

    def unpack(self, packed: Tensor) -> list[list[Any]]:
        return _without_padding(packed, ~packed[..., 0].isnan())

    def are_valid(self, packed: Tensor) -> bool:
        return not bool(packed.isinf().any())

    def describe(self, outputs: Tensor, action: Tensor) -> tuple[str, float | None]:
        values = self.to_env(action.tolist()).reshape(-1)
        return " ".join(f"{value:.3g}" for value in values), None

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and the clamped log standard deviations."""
        means, log_stds = outputs.split(self.num_outputs, -1)
        return means, log_stds.clamp(_MIN_LOG_STD, _MAX_LOG_STD)


def _categorical(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropy of a categorical distribution."""
    log_probs = log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy


def _padded(
    rows: Sequence[Sequence[Any]], shape: tuple[int, ...], dtype: torch.dtype, padding: float
) -> Tensor:
    packed = torch.full((len(rows), max(map(len, rows)), *shape), padding, dtype=dtype)
    for index, row in enumerate(rows):
        if row:
            packed[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return packed


def _without_padding(packed: Tensor, valid: Tensor) -> list[list[Any]]:
    lengths = valid.long().cumprod(1).sum(1).tolist()
    return [row[:length] for row, length in zip(packed.tolist(), lengths, strict=True)]


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw Gumbel noise: the argmax of logits + noise is a sample from softmax(logits)."""
    uniform = torch.rand(shape, generator=generator, device=generator.device)
    return -(-uniform.clamp_min(1e-20).log()).clamp_min(1e-20).log()
