"""What a session trains: the protocol of a learner, when it does what, and where its randomness comes from.

Everything random is a function of (seed, purpose, index): nothing to save, nothing to disturb. Batch n of a
run is drawn from a generator made for it alone, so a resumed run draws what an uninterrupted one would have
drawn, and looking at held-out data moves nothing.
"""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from plait.cells import orthogonal_parameters
from plait.errors import ConfigError, DivergedError
from plait.runs.checkpoint import Checkpoint, load_state, state_tensors
from plait.training.callbacks import Results, Words
from plait.training.process import Group
from plait.training.recipe import Recipe
from plait.training.stop import Stop

__all__ = [
    "PURPOSES",
    "Learner",
    "Schedule",
    "Step",
    "UsualNorm",
    "clip_gradients",
    "generator_for",
    "gradient_norm",
    "optimizer_for",
    "seed_for",
]  # fmt: skip

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,  # its default alpha is 0.99
    "amsgrad": partial(torch.optim.Adam, amsgrad=True),
}
PURPOSES = ("train", "held-out", "noise")
_SETTLES_AT = 0.03  # of the held-out answers wrong: from there on the learning rate falls with them
_SETTLED = 0.01  # of the learning rate is left when none is


class Step(NamedTuple):
    """What an update showed, by name (loss and score before the step, the gradient's norm before clipping),
    and whether some process was asked to stop."""

    figures: dict[str, float | None]
    stop: bool = False

    def __getattr__(self, name: str) -> Any:
        try:
            return self.figures[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Schedule:
    """When to do what. The last update is recorded and followed by an evaluation in any case."""

    updates: int
    evaluate_at: Container[int] = ()
    """Updates that an evaluation follows."""
    record_every: int = 1
    """Updates between two lines of the learning curve."""
    gradients_every: int = 0
    """Updates between two records of the norm of dL/dh_t; 0 for none."""
    goal: float | None = None
    """End once the held-out score is this high."""
    lr: float = 0.0
    """The learning rate to begin with."""
    rate: str = "constant"
    """How evaluations change it: not at all, halve, or settle."""

    def next_rate(self, rate: float, best_score: float, better: bool) -> float:
        """What the learning rate is multiplied by after an evaluation, `rate` before it.

        Args:
            best_score: the best so far, from 0 to 1.
            better: whether the loss is lower than ever before.

        >>> plan = Schedule(1, rate="settle")
        >>> [round(plan.next_rate(1.0, score, True), 3) for score in (0.5, 0.97, 0.99, 1.0)]
        [1.0, 1.0, 0.333, 0.01]
        """
        if self.rate == "halve":
            return rate if better else rate / 2
        if self.rate == "settle":
            return min(rate, max(_SETTLED, (1 - best_score) / _SETTLES_AT))
        return rate


class Learner(abc.ABC):
    """What a session trains. `advance` and `evaluate` are all a learner with one optimiser must have."""

    words: Words = Words()
    score: str = "accuracy"
    """What the score of an evaluation is."""
    tested: ClassVar[str] = "tested"
    """What the curve calls the evaluation at the end: tested, or held_out where it is one more of those."""
    units: int = 1
    """Counted per update: 1, or steps of a policy's worlds."""
    network: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    device: torch.device = torch.device("cpu")
    group: Group = Group()

    @abc.abstractmethod
    def advance(self, number: int, stop: Stop) -> Step:
        """Make update `number`, counted from 1; `stop` knows whether this process was asked to.

        Raises:
            DivergedError: if a number on the way is not finite; nothing is changed then.
            CutShort: if it would take long and `stop` is overdue; `tensors` are then those before it.
        """

    @abc.abstractmethod
    def evaluate(self, final: bool) -> Results:
        """Scores on held-out data by name, the one that counts first; `final`: on what is looked at once,
        at the end, and nothing where there is no such thing. The same in every process."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resume needs, by name. Called in every process, written by the first."""
        return state_tensors(self.network, self.optimizer)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put everything where a checkpoint left it."""
        load_state(self.network, self.optimizer, checkpoint)

    def scale_rate(self, factor: float) -> None:
        """Set every learning rate to `factor` times what it began with."""
        for group in self.optimizer.param_groups:
            group["lr"] = group.setdefault("full_lr", group["lr"]) * factor

    def gradients(self, update: int) -> list[list[float]]:
        """The norms of dL/dh_t after `update` updates, on the batch that comes next."""
        raise NotImplementedError


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """‖g‖ over all of them, in float64: in float32 the squares overflow beyond 1.8e19, and gradients of a
    thousand steps get there that clipping can still bring back.

    >>> f"{gradient_norm([torch.full((1,), 3e19), torch.full((1,), 4e19)]):.3g}"
    '5e+19'
    """
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float, norm: Tensor | None = None) -> Tensor:
    """Scale the gradients down to a norm of at most `max_norm`, 0 for as they are; return ‖g‖ as it was.

    Args:
        norm: where it is known already.
    """
    with_grad = [p for p in parameters if p.grad is not None]
    if norm is None:
        norm = gradient_norm([p.grad for p in with_grad if p.grad is not None])
    if max_norm:
        clip_grads_with_norm_(with_grad, max_norm, norm.float())
    return norm


class UsualNorm:
    """What the norm of the gradient usually is, and what that lets through.

    Gradients through long sequences and an attention that feeds back into itself have no bound from above:
    one batch in thousands has a norm 10² to 10¹⁸ times the others'. Scaled down to a fixed bound it is still
    a hundred times as long as they are, of a direction that means nothing, and Adam, whose second moments
    have shrunk with them, takes its longest steps along it. So the bound follows the norm.

    Args:
        factor: a norm beyond `factor` times the usual one is scaled down to that; beyond four times as much
            the update is left out.

    >>> usual = UsualNorm(3.0)
    >>> for _ in range(20):
    ...     _ = usual.bound(1.0)
    >>> usual.bound(2.0), usual.bound(5.0) < 3.1, usual.bound(1e9)
    (3.0, True, None)
    """

    SETTLING = 20  # updates whose plain mean begins the running one
    LONGEST = 200  # gradients in a row that are not finite before the run is given up

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.state = torch.zeros(3, dtype=torch.float64)  # the mean, updates seen, not finite in a row

    def bound(self, norm: float) -> float | None:
        """The largest norm to let through at this update, None to leave it out."""
        mean, seen, lost = self.state.tolist()
        lost = 0.0 if math.isfinite(norm) else lost + 1
        if lost > self.LONGEST:
            raise DivergedError(
                f"the gradient was not finite in {self.LONGEST} updates in a row; try a smaller lr, or, "
                "with a screened memory, grad_limit = 1"
            )
        if seen < self.SETTLING:
            settled = min(norm, 1e3) if math.isfinite(norm) else mean
            mean = (mean * seen + settled) / (seen + 1)
            self.state = torch.tensor([mean, seen + 1, lost], dtype=torch.float64)
            return math.inf if math.isfinite(norm) else None
        limit = self.factor * mean
        spike = not norm <= 4 * limit
        # what is left out counts as the limit, so that a norm that stays high is let in again after a while
        mean = 0.99 * mean + 0.01 * (norm if norm < limit else limit)
        self.state = torch.tensor([mean, seen + 1, lost], dtype=torch.float64)
        return None if spike else limit


def seed_for(seed: int, purpose: str, index: int) -> int:
    """A 32-bit seed. torch's CPU generator reads no more than that.

    For one `seed`, different (purpose, index < 2³⁰) never give the same value: the two are laid side by side
    in one word, and what follows (an exclusive or, then murmur3's final mix) is a bijection.

    >>> len({seed_for(0, purpose, index) for purpose in PURPOSES for index in range(1000)})
    3000
    """
    digest = hashlib.sha256(str(seed).encode()).digest()
    word = (PURPOSES.index(purpose) << 30 | index % 2**30) ^ int.from_bytes(digest[:4], "big")
    word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
    word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def generator_for(seed: int, purpose: str, index: int, device: torch.device | str) -> torch.Generator:
    """A generator on `device` for one batch."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, index))


def optimizer_for(
    network: nn.Module, parameters: list[nn.Parameter], recipe: Recipe
) -> torch.optim.Optimizer:
    """The recipe's, over one group, or, with `orthogonal_lr`, two: those of the other rate last."""
    return _OPTIMIZERS[recipe.optimizer](_rates(network, parameters, recipe), lr=recipe.lr)


def _rates(network: nn.Module, parameters: list[nn.Parameter], recipe: Recipe) -> list[dict[str, Any]]:
    if recipe.orthogonal_lr is None:
        return [{"params": parameters}]
    apart = {id(p) for p in orthogonal_parameters(network)}
    slow = [p for p in parameters if id(p) in apart]
    if not slow:
        raise ConfigError(
            "orthogonal_lr: expected a model with an orthogonal matrix (exprnn, goru), got one without; "
            "leave it out"
        )
    rest = [p for p in parameters if id(p) not in apart]
    return [{"params": rest}, {"params": slow, "lr": recipe.orthogonal_lr}]
