"""Supervised training: an update (draw, forward and backward, sum, clip, step) and an evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    check_int,
)
from plait.lab.runs.checkpoint import Checkpoint, leaves, with_leaves
from plait.lab.tasks import Batch, Task, counted
from plait.lab.tasks.sequences import SequenceTask
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.carried_state import carried_over, check_carried
from plait.lab.training.description import Network, build, last_steps, states_read
from plait.lab.training.gradient_record import gradient_norms, require_nudge
from plait.lab.training.learner import (
    Learner,
    Step,
    UsualNorm,
    clip_gradients,
    generator_for,
    gradient_norm,
    optimizer_for,
    seed_for,
)
from plait.lab.training.memory_needed import check_update
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.regression_sample import SEQUENCES, sample_of
from plait.lab.training.spec import SupervisedSpec
from plait.lab.training.stop import Stop
from plait.lab.training.update_cuda_graph import Passes, UpdateCudaGraph, can_capture

__all__ = ["SupervisedLearner", "answer", "evaluate", "forward", "learner_of", "supervised_learner"]


class SupervisedLearner(Learner):
    """Learner of a network on a task, with the state carried from batch to batch where the task has one."""

    def __init__(
        self, network: nn.Module, task: Task, recipe: Recipe, device: torch.device, group: Group
    ) -> None:
        check_update(network, task, recipe, device, group.size)
        self.network, self.task, self.recipe = network.to(device), task, recipe
        self.score, self.formatter = task.score_name, ProgressFormat(task.score_name)
        self.device, self.group, self.schedule = device, group, recipe.plan()
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = optimizer_for(network, self.parameters, recipe)
        self.spans = group.spans(recipe.batch_size, recipe.accumulate)
        self.carried_state: list[Any] = [None] * len(self.spans)
        self.usual = UsualNorm(recipe.relative_clip) if recipe.relative_clip else None
        self.batches_per_epoch = task.batches_per_epoch(recipe.batch_size)
        self.cuda_graph: UpdateCudaGraph | None = None
        if device.type == "cuda" and group.size == 1 and can_capture(network, task):
            self.cuda_graph = UpdateCudaGraph(self._passes, self.parameters)

    def batch(self, update: int, task: Task | None = None) -> Batch:
        """Return training batch number `update`, counted from 1; the same in every process."""
        epoch = self.batches_per_epoch  # all batches of an epoch share a generator, and so its order
        number = update if epoch is None else (update - 1) // epoch + 1
        generator = generator_for(self.recipe.seed, "train", number, self.device)
        return (task or self.task).batch(self.recipe.batch_size, generator, self.device, index=update - 1)

    def _begins(self, update: int) -> bool:
        """Return whether this update is the first of an epoch, where no state is carried over."""
        return self.batches_per_epoch is not None and (update - 1) % self.batches_per_epoch == 0

    def advance(self, number: int, stop: Stop) -> Step:
        return self.update(number, self.batch(number), stop.requested)

    def evaluate(self, final: bool) -> Results:
        if final and not self.task.tested_on():
            return {}
        recipe, results = self.recipe, None
        if self.group.first:
            results = evaluate(
                self.network,
                self.task,
                sequences=recipe.evaluate_on,
                batch_size=recipe.batch_size,
                seed=recipe.seed,
                precision=recipe.precision,
                final=final,
            )
        shared: Results = self.group.share(results)
        return shared

    @torch.no_grad()
    def sample(self) -> dict[str, Any]:
        """Return held-out targets with their predictions, for a regression with one number."""
        task = self.task
        if not isinstance(task, SequenceTask) or task.answer != "number" or task.num_classes != 1:
            return {}
        self.network.eval()
        batches = task.held_out()["held out"].sweep(
            SEQUENCES, self.recipe.batch_size, lambda index: torch.Generator(), self.device
        )
        return sample_of(
            answer(self.network, task, batch, None, self.recipe.precision)[:2] for batch in batches
        )

    def gradients(self, update: int) -> list[list[float]]:
        whole_batch = Group().spans(self.recipe.batch_size, self.recipe.accumulate)
        scored = self.task.scored()  # training batches may have other delays
        return gradient_norms(self.network, scored, self.batch(update + 1, scored), whole_batch)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, optimiser state, and of every process `carry.<process>.<part>.<leaf>`."""
        carries = self.group.gather([leaves(state) for state in self.carried_state])
        tensors = super().tensors()
        if self.usual is not None:
            tensors["clip.usual"] = self.usual.state
        for rank, parts in enumerate(carries or ()):
            for part, named in enumerate(parts):
                tensors |= {f"carry.{rank}.{part}.{leaf}": value for leaf, value in named.items()}
        return tensors

    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        if self.usual is not None:
            self.usual.state = _usual_of(checkpoint)
        if not (self.task.carries_state and checkpoint.counters["update"]):
            return
        batch = self.batch(1)
        parts = len({name.partition(".")[0] for name in checkpoint.under(f"carry.{self.group.rank}.")})
        for part, (begin, end) in enumerate(self.spans):
            rows = batch.rows(begin, end)
            rows = rows._replace(inputs=rows.inputs[:1], reset=None if rows.reset is None else rows.reset[:1])
            with torch.no_grad():  # one step shows the shapes of the network's state
                like = forward(self.network, rows, None, self.recipe.precision)[1]
                like = carried_over(self.network, like, self.task.carried)
            saved = checkpoint.under(f"carry.{self.group.rank}.{part}.")
            count = len(leaves(like))
            if len(saved) != count or (count and parts != len(self.spans)):
                raise CheckpointError(
                    f"{checkpoint.path} was written by another number of processes or parts"
                )
            state = with_leaves(like, saved, self.device)
            check_carried(self.network, state, like, end - begin, checkpoint.path)
            self.carried_state[part] = state

    def update(self, update: int, batch: Batch, stop: bool = False) -> Step:
        """Take one optimiser step. A non-finite value raises `DivergedError` before anything is changed."""
        torch.manual_seed(seed_for(self.recipe.seed, "noise", update * self.group.size + self.group.rank))
        self.network.train()
        if self._begins(update):
            self.carried_state = [None] * len(self.spans)
        passes = self._passes(batch, stop) if self.cuda_graph is None else self.cuda_graph(batch)
        loss, score, stopping, norm, healthy = passes.figures.tolist()
        overflown = self.usual is not None and not math.isfinite(norm)  # a spike, to be skipped
        if not math.isfinite(loss) or not (healthy or overflown):
            raise DivergedError(f"update {update}: {self._culprit(batch, passes.logits, loss)}")
        fixed = self.recipe.clip or math.inf
        usual = fixed if self.usual is None else self.usual.bound(norm)
        if usual is not None:
            bound = min(fixed, usual)
            clip_gradients(self.parameters, 0.0 if bound == math.inf else bound, passes.norm)
            self.optimizer.step()
        self.carried_state = passes.carried
        shown = None if overflown else norm  # curves hold no non-finite values
        return Step({"loss": loss, "score": score, "gradient_norm": shown}, stopping > 0)

    def _passes(self, batch: Batch, stop: bool = False) -> Passes:
        """Run forward and backward on this process's rows, part by part; sum gradients over the processes."""
        self.optimizer.zero_grad(set_to_none=True)
        total = counted(batch.targets)
        figures = torch.zeros(3, device=self.device)
        figures[2].fill_(float(stop))
        carried, outputs = list(self.carried_state), []
        for part, (begin, end) in enumerate(self.spans):
            logits, targets, state = answer(
                self.network, self.task, batch.rows(begin, end), carried[part], self.recipe.precision
            )
            loss = self.task.loss(logits, targets) * (counted(targets) / total)
            loss.backward()
            score = self.task.score(logits.detach(), targets) * (end - begin) / self.recipe.batch_size
            figures[:2] += torch.stack([loss.detach(), score]).float()
            carried[part] = (
                carried_over(self.network, state, self.task.carried) if self.task.carries_state else None
            )
            outputs.append(logits.detach())
        figures = self.group.sum_gradients(self.parameters, figures)
        norm = gradient_norm([p.grad for p in self.parameters if p.grad is not None])
        # With clipping any finite gradient is usable; without, the optimiser squares it in float32.
        largest = math.inf if self.recipe.clip else torch.finfo(torch.float32).max ** 0.5
        healthy = torch.isfinite(norm) & (norm <= largest) & _finite(batch.inputs)
        return Passes(torch.stack([*figures, norm, healthy]), norm, outputs, carried)

    def _culprit(self, batch: Batch, logits: Iterable[Tensor], loss: float) -> str:
        """Return the name of the first tensor, in order of computation, with a non-finite value."""
        if not bool(_finite(batch.inputs)):
            step, row = (~torch.isfinite(batch.inputs)).flatten(2).any(-1).nonzero()[0].tolist()
            value = batch.inputs[step, row][~torch.isfinite(batch.inputs[step, row])][0].item()
            return f"inputs hold {value} at step {step + 1} of sequence {row + 1} of the batch"
        for (begin, _), part in zip(self.spans, logits, strict=True):
            if not bool(_finite(part)):
                step, row = (~torch.isfinite(part)).any(-1).nonzero()[0].tolist()
                since = f" from step {step + 1} on" if len(part) == len(batch.inputs) else ""
                return f"logits are not finite{since}, in sequence {begin + row + 1}"
        if not math.isfinite(loss):
            return f"loss is {loss}"
        for name, parameter in self.network.named_parameters():
            if parameter.grad is not None and not bool(_finite(parameter.grad)):
                return f"gradient of {name} is not finite"
        return "the gradient's norm overflows" + (
            "" if self.recipe.clip else "; clipping (clip = 1) would bound it"
        )


def _usual_of(checkpoint: Checkpoint) -> Tensor:
    """Return the state of `UsualNorm` in a checkpoint, validated."""
    state = checkpoint.under("clip.").get("usual")
    is_usual = state is not None and state.shape == (3,) and state.dtype == torch.float64
    if state is None or not is_usual or not bool(((state >= 0) & torch.isfinite(state)).all()):
        raise CheckpointError(
            f"{checkpoint.path}: expected the usual norm of the gradient as three numbers, got none or others"
        )
    return state.cpu()


def _finite(values: Tensor) -> Tensor:
    return torch.isfinite(values).all()


@torch.no_grad()
def evaluate(
    network: nn.Module,
    task: Task,
    *,
    sequences: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    precision: str = "fp32",
    final: bool = False,
) -> dict[str, dict[str, float]]:
    """Return loss and score of `network` on each of the task's held-out sets, by name.

    A non-finite loss is left out. Sequences that are drawn are a function of `seed` alone, and none is in a
    training batch of the same seed; the global random state is neither read nor changed.

    Args:
        sequences: number of sequences; left out, all of a data set, 256 of a task that draws them.
        final: evaluate on the test data instead, which are used once, at the end.

    >>> from plait.models import LSTM
    >>> from plait.lab.tasks import CopyTask
    >>> from plait.lab.training.description import Network
    >>> sorted(evaluate(Network(LSTM(10, 8), 9), CopyTask(5), sequences=8)["copy"])
    ['loss', 'score']
    """
    check_int(1, batch_size=batch_size, **({} if sequences is None else {"sequences": sequences}))
    sets = task.tested_on() if final else task.held_out()
    was_training = network.training
    network.eval()
    try:
        return {
            name: _evaluate_one(network, part, sequences, batch_size, seed, precision)
            for name, part in sets.items()
        }
    finally:
        network.train(was_training)


def _evaluate_one(
    network: nn.Module, task: Task, sequences: int | None, batch_size: int, seed: int, precision: str
) -> dict[str, float]:
    device = next(network.parameters()).device
    totals = torch.zeros(4, dtype=torch.float64, device=device)  # loss, targets, score, weight
    state = None
    for batch in task.sweep(
        sequences, batch_size, lambda index: generator_for(seed, "held-out", index, device), device
    ):
        logits, targets, after = answer(network, task, batch, state, precision)
        state = carried_over(network, after, task.carried) if task.carries_state else None
        count, weight = counted(targets), task.weight(targets)
        loss, score = task.loss(logits, targets), task.score(logits, targets)
        totals += torch.stack([loss * count, count, score * weight, torch.as_tensor(weight, device=device)])
    loss_, predicted, score_, rows = totals.tolist()
    mean, score_ = loss_ / predicted, score_ / rows
    if not math.isfinite(mean):  # states can overflow on sequences longer than those in training
        return {"score": score_}
    figures = task.figures(mean, round(predicted)) | states_read(network, batch)
    return {"loss": mean, "score": score_, **figures}


def answer(
    network: nn.Module, task: Task, batch: Batch, state: Any, precision: str
) -> tuple[Tensor, Tensor, Any]:
    """Return the logits at the steps with a target, these targets, and the state.

    A module other than `Network` has logits at every step, and then all targets are returned.
    """
    at_steps = batch.target_steps(task.answers) if task.answers and isinstance(network, Network) else None
    logits, after = forward(network, batch, state, precision, at_steps)
    return logits, batch.targets if at_steps is None else batch.targets.gather(0, at_steps), after


def forward(
    network: nn.Module, batch: Batch, state: Any, precision: str, at_steps: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Return logits, in at least float32, and the state; with `at_steps` (Q, B) only at those steps."""
    inputs = batch.inputs
    if inputs.is_floating_point():
        inputs = inputs.to(next(network.parameters()).dtype)
    options = {} if batch.reset is None else {"reset": batch.reset}
    if batch.lengths is not None and isinstance(network, Network):
        options["lengths"] = batch.lengths
    if at_steps is not None:
        options["at_steps"] = at_steps
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits, after = network(inputs, state, **options)
    if len(batch.targets) == 1 < len(logits):
        logits = last_steps(logits, batch.lengths)
    return logits.float() if logits.dtype == torch.bfloat16 else logits, after


def learner_of(
    spec: SupervisedSpec, device: torch.device, group: Group, backend: str = "auto"
) -> SupervisedLearner:
    """Return the learner of a description."""
    network, task = build(spec, backend)
    task.prepare(device)
    network.scale_by(*task.scales())
    return supervised_learner(network, task, spec.recipe, device, group)


def supervised_learner(
    network: nn.Module, task: Task, recipe: Recipe, device: torch.device, group: Group
) -> SupervisedLearner:
    """Return the learner of a network on a task; raise where they cannot be trained together."""
    if recipe.gradients_every:
        require_nudge(network)
    task.check_held_out()
    task.check_answers()
    if task.carries_state and getattr(getattr(network, "recurrent", network), "bidirectional", False):
        raise ConfigError(
            f"bidirectional: expected False on {task.name}, whose state goes on from batch to batch, got True"
        )
    return SupervisedLearner(network, task, recipe, device, group)
