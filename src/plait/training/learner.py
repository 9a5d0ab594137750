"""One update: draw a batch, work through this process's rows, sum, clip, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from plait.cells import orthogonal_parameters
from plait.errors import ConfigError, DivergedError
from plait.tasks import Batch, Task, counted
from plait.training.capture import Capture, Passes, can_capture
from plait.training.carry import carried_over
from plait.training.distributed import Group
from plait.training.recipe import Recipe
from plait.training.streams import generator_for, seed_for

__all__ = ["Learner", "Step", "forward", "gradient_norm"]

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,  # its default alpha is 0.99
}


class Step(NamedTuple):
    """What an update showed: loss and score on its batch before the step, the gradient's norm before
    clipping, and whether some process was asked to stop."""

    loss: float
    score: float
    gradient_norm: float
    stop: bool


class Learner:
    """A network, its optimiser, and the state carried from batch to batch where the task has one."""

    def __init__(
        self, network: nn.Module, task: Task, recipe: Recipe, device: torch.device, group: Group
    ) -> None:
        self.network, self.task, self.recipe = network.to(device), task, recipe
        self.device, self.group = device, group
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = _OPTIMIZERS[recipe.optimizer](_rates(network, self.parameters, recipe), lr=recipe.lr)
        self.spans = group.spans(recipe.batch_size, recipe.accumulate)
        self.carry: list[Any] = [None] * len(self.spans)
        self.batches_per_epoch = task.batches_per_epoch(recipe.batch_size)
        self.capture: Capture | None = None
        if device.type == "cuda" and group.size == 1 and can_capture(network, task):
            self.capture = Capture(self._passes, self.parameters)

    def batch(self, update: int) -> Batch:
        """Batch number `update`, counted from 1; the same in every process."""
        epoch = self.batches_per_epoch  # all batches of an epoch have one generator, one order
        number = update if epoch is None else (update - 1) // epoch + 1
        generator = generator_for(self.recipe.seed, "train", number, self.device)
        return self.task.batch(self.recipe.batch_size, generator, self.device, index=update - 1)

    def _begins(self, update: int) -> bool:
        """Whether this update is the first of an epoch: the sequences of the last one have ended."""
        return self.batches_per_epoch is not None and (update - 1) % self.batches_per_epoch == 0

    def scale_rate(self, factor: float) -> None:
        """Set every learning rate to `factor` times what the recipe says."""
        for group in self.optimizer.param_groups:
            group["lr"] = group.setdefault("full_lr", group["lr"]) * factor

    def update(self, update: int, batch: Batch, stop: bool = False) -> Step:
        """Take one step. Nothing is changed if a number on the way is not finite: `DivergedError`."""
        torch.manual_seed(seed_for(self.recipe.seed, "noise", update * self.group.size + self.group.rank))
        self.network.train()
        if self._begins(update):
            self.carry = [None] * len(self.spans)
        passes = self._passes(batch, stop) if self.capture is None else self.capture(batch)
        loss, score, stopping, norm, healthy = passes.figures.tolist()
        if not healthy or not math.isfinite(loss):
            raise DivergedError(f"update {update}: {self._culprit(batch, passes.logits, loss)}")
        if self.recipe.clip:
            with_grad = (p for p in self.parameters if p.grad is not None)
            clip_grads_with_norm_(with_grad, self.recipe.clip, passes.norm.float())
        self.optimizer.step()
        self.carry = passes.carry
        return Step(loss, score, norm, stopping > 0)

    def _passes(self, batch: Batch, stop: bool = False) -> Passes:
        """Forward and backward of this process's rows, part by part; gradients summed over the processes."""
        self.optimizer.zero_grad(set_to_none=True)
        total = counted(batch.targets)
        figures = torch.zeros(3, device=self.device)
        figures[2].fill_(float(stop))
        carry, seen = list(self.carry), []
        for part, (begin, end) in enumerate(self.spans):
            rows = batch.rows(begin, end)
            logits, state = forward(self.network, rows, carry[part], self.recipe.precision)
            loss = self.task.loss(logits, rows.targets) * (counted(rows.targets) / total)
            loss.backward()
            score = self.task.score(logits.detach(), rows.targets) * (end - begin) / self.recipe.batch_size
            figures[:2] += torch.stack([loss.detach(), score]).float()
            carry[part] = (
                carried_over(self.network, state, self.task.carried) if self.task.carries_state else None
            )
            seen.append(logits.detach())
        figures = self.group.sum_gradients(self.parameters, figures)
        norm = gradient_norm([p.grad for p in self.parameters if p.grad is not None])
        # Clipped, any finite gradient will do; unclipped, the optimiser has to square it in float32.
        largest = math.inf if self.recipe.clip else torch.finfo(torch.float32).max ** 0.5
        healthy = torch.isfinite(norm) & (norm <= largest) & _finite(batch.inputs)
        return Passes(torch.stack([*figures, norm, healthy]), norm, seen, carry)

    def _culprit(self, batch: Batch, logits: Iterable[Tensor], loss: float) -> str:
        """Name the first tensor, in the order of computation, that holds a value that is not finite."""
        if not bool(_finite(batch.inputs)):
            step, row = (~torch.isfinite(batch.inputs)).flatten(2).any(-1).nonzero()[0].tolist()
            value = batch.inputs[step, row][~torch.isfinite(batch.inputs[step, row])][0].item()
            return f"inputs hold {value} at step {step + 1} of sequence {row + 1} of the batch"
        for (begin, _), part in zip(self.spans, logits, strict=True):
            if not bool(_finite(part)):
                step, row = (~torch.isfinite(part)).any(-1).nonzero()[0].tolist()
                return f"logits are not finite from step {step + 1} on, in sequence {begin + row + 1}"
        if not math.isfinite(loss):
            return f"loss is {loss}"
        for name, parameter in self.network.named_parameters():
            if parameter.grad is not None and not bool(_finite(parameter.grad)):
                return f"gradient of {name} is not finite"
        return "the gradient's norm overflows" + (
            "" if self.recipe.clip else "; clipping (clip = 1) would bound it"
        )


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """‖g‖ over all of them, in float64: in float32 the squares overflow beyond 1.8e19, and gradients of a
    thousand steps get there that clipping can still bring back.

    >>> f"{gradient_norm([torch.full((1,), 3e19), torch.full((1,), 4e19)]):.3g}"
    '5e+19'
    """
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def _rates(network: nn.Module, parameters: list[nn.Parameter], recipe: Recipe) -> list[dict[str, Any]]:
    """The optimiser's groups: one, or, with `orthogonal_lr`, those of the other rate last."""
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


def forward(network: nn.Module, batch: Batch, state: Any, precision: str) -> tuple[Tensor, Any]:
    """Logits in at least float32, and the state, of a network on some rows."""
    inputs = batch.inputs
    if inputs.is_floating_point():
        inputs = inputs.to(next(network.parameters()).dtype)
    options = {} if batch.reset is None else {"reset": batch.reset}
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits, after = network(inputs, state, **options)
    return logits.float() if logits.dtype == torch.bfloat16 else logits, after


def _finite(values: Tensor) -> Tensor:
    return torch.isfinite(values).all()
