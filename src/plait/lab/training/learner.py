"""Protocol of a learner, which a session trains: its schedule, its seeds, its optimiser and clipping.

Everything random is a function of (seed, purpose, index), so there is no generator state to save or to
disturb. Batch n of a run is drawn from a generator of its own, so a resumed run draws the same batches as an
uninterrupted one, and an evaluation does not change what training draws.
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
from plait.lab.runs.checkpoint import Checkpoint, load_state, state_tensors
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.stop import Stop

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
]

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,  # its default alpha is 0.99
    "amsgrad": partial(torch.optim.Adam, amsgrad=True),
}
PURPOSES = ("train", "held-out", "noise")
_SETTLES_AT = 0.03  # held-out error below which the learning rate falls in proportion to it
_SETTLED = 0.01  # smallest factor of the learning rate, at an error of 0


class Step(NamedTuple):
    """Figures of an update by name, and `stop`: whether some process was requested to stop.

    Loss and score are those before the step, the gradient's norm is that before clipping.
    """

    figures: dict[str, float | None]
    stop: bool = False

    def __getattr__(self, name: str) -> Any:
        try:
            return self.figures[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Schedule:
    """Schedule of a run. The last update is recorded and evaluated in any case."""

    updates: int
    evaluate_at: Container[int] = ()
    """Updates after which the network is evaluated."""
    record_every: int = 1
    """Updates between two records of the learning curve."""
    gradients_every: int = 0
    """Updates between two records of the norm of dL/dh_t; 0 for none."""
    goal: float | None = None
    """Held-out score at which training ends."""
    lr: float = 0.0
    """Initial learning rate."""
    rate: str = "constant"
    """Learning rate schedule: constant, halve or settle."""

    def next_rate(self, rate: float, best_score: float, better: bool) -> float:
        """Return the factor of the learning rate after an evaluation; before it, the factor was `rate`.

        Args:
            best_score: best score so far, from 0 to 1.
            better: whether the loss is the lowest so far.

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
    """Base class of learners; one with a single optimiser only needs `advance` and `evaluate`."""

    formatter: ProgressFormat = ProgressFormat()
    score: str = "accuracy"
    """Name of an evaluation's score."""
    final_key: ClassVar[str] = "tested"
    """Key of the final evaluation in the curve: tested, or held_out to add it to the held-out scores."""
    steps_per_update: int = 1
    """Units of progress per update: 1, or the steps of a policy's environments."""
    network: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    device: torch.device = torch.device("cpu")
    group: Group = Group()

    @abc.abstractmethod
    def advance(self, number: int, stop: Stop) -> Step:
        """Perform update `number`, counted from 1; `stop` says whether this process is to stop.

        Raises:
            DivergedError: if an intermediate value is not finite; nothing is changed then.
            CutShort: if the update takes long and `stop` is overdue; `tensors` are then those before it.
        """

    @abc.abstractmethod
    def evaluate(self, final: bool) -> Results:
        """Return the scores on held-out data by name, the main one first; the same in every process.

        With `final`, score the test data, which is used once, at the end; empty if there is none.
        """

    def sample(self) -> dict[str, Any]:
        """Return single predictions for the summary, as plain data; called in the first process only."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor a resume needs, by name. Called in every process, written by the first."""
        return state_tensors(self.network, self.optimizer)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint."""
        load_state(self.network, self.optimizer, checkpoint)

    def scale_rate(self, factor: float) -> None:
        """Set every learning rate to `factor` times its initial value."""
        for group in self.optimizer.param_groups:
            group["lr"] = group.setdefault("full_lr", group["lr"]) * factor

    def gradients(self, update: int) -> list[list[float]]:
        """Return the norms of dL/dh_t after `update` updates, on the next batch."""
        raise NotImplementedError


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return ‖g‖ over all gradients, in float64.

    In float32 the squares overflow beyond 1.8e19; gradients through a thousand steps reach that, and clipping
    can still use them.

    >>> f"{gradient_norm([torch.full((1,), 3e19), torch.full((1,), 4e19)]):.3g}"
    '5e+19'
    """
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float, norm: Tensor | None = None) -> Tensor:
    """Scale the gradients down to a norm of at most `max_norm` (0: do not clip); return ‖g‖ before clipping.

    Args:
        norm: ‖g‖, if it is already known.
    """
    with_grad = [p for p in parameters if p.grad is not None]
    if norm is None:
        norm = gradient_norm([p.grad for p in with_grad if p.grad is not None])
    if max_norm:
        clip_grads_with_norm_(with_grad, max_norm, norm.float())
    return norm


class UsualNorm:
    """Running mean of the gradient's norm, and the clipping threshold that follows from it.

    Gradients through long sequences and an attention that feeds back into itself are unbounded: one batch in
    thousands has a norm 10² to 10¹⁸ times the others'. Clipped to a fixed threshold it is still a hundred
    times as long as they are, in a meaningless direction, and Adam, whose second moments have shrunk with the
    other gradients, takes its longest steps along it. So the threshold follows the norm.

    Args:
        factor: a norm beyond `factor` times the mean is scaled down to that; beyond four times as much the
            update is skipped.

    >>> usual = UsualNorm(3.0)
    >>> for _ in range(20):
    ...     _ = usual.bound(1.0)
    >>> usual.bound(2.0), usual.bound(5.0) < 3.1, usual.bound(1e9)
    (3.0, True, None)
    """

    SETTLING = 20  # updates whose plain mean initialises the running mean
    LONGEST = 200  # consecutive non-finite gradients before the run is aborted

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.state = torch.zeros(3, dtype=torch.float64)  # mean, updates, non-finite in a row

    def bound(self, norm: float) -> float | None:
        """Return the clipping threshold of this update; None to skip the update."""
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
        # A skipped norm counts as the limit, so that a norm that stays high is accepted again after a while.
        mean = 0.99 * mean + 0.01 * (norm if norm < limit else limit)
        self.state = torch.tensor([mean, seen + 1, lost], dtype=torch.float64)
        return None if spike else limit


def seed_for(seed: int, purpose: str, index: int) -> int:
    """Return a 32-bit seed, since torch's CPU generator reads no more bits.

    For one `seed`, different (purpose, index < 2³⁰) never give the same value: the two are packed into one
    word, and the exclusive or and murmur3's final mix that follow are bijections.

    >>> len({seed_for(0, purpose, index) for purpose in PURPOSES for index in range(1000)})
    3000
    """
    digest = hashlib.sha256(str(seed).encode()).digest()
    word = (PURPOSES.index(purpose) << 30 | index % 2**30) ^ int.from_bytes(digest[:4], "big")
    word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
    word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def generator_for(seed: int, purpose: str, index: int, device: torch.device | str) -> torch.Generator:
    """Return a generator on `device` for one batch."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, index))


def optimizer_for(
    network: nn.Module, parameters: list[nn.Parameter], recipe: Recipe
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser; with `orthogonal_lr` the orthogonal parameters are a second group."""
    return _OPTIMIZERS[recipe.optimizer](_rates(network, parameters, recipe), lr=recipe.lr)


def _rates(network: nn.Module, parameters: list[nn.Parameter], recipe: Recipe) -> list[dict[str, Any]]:
    if recipe.orthogonal_lr is None:
        return [{"params": parameters}]
    orthogonal_ids = {id(p) for p in orthogonal_parameters(network)}
    orthogonal = [p for p in parameters if id(p) in orthogonal_ids]
    if not orthogonal:
        raise ConfigError(
            "orthogonal_lr: expected a model with an orthogonal matrix (exprnn, goru), got one without; "
            "leave it out"
        )
    rest = [p for p in parameters if id(p) not in orthogonal_ids]
    return [{"params": rest}, {"params": orthogonal, "lr": recipe.orthogonal_lr}]
