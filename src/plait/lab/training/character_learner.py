"""Learner of a small network on characters, with all data of an update on the device.

Small networks are bound by kernel launches, not by arithmetic. So an update reads its batch, its learning
rate and its own number from tensors, and on a GPU it is captured once as a CUDA graph and replayed.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError, DataError, DivergedError
from plait.lab.runs.checkpoint import Checkpoint, check_alike
from plait.lab.tasks.text import CharacterText
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.characters import CharacterSpec
from plait.lab.training.learner import Learner, Schedule, Step, clip_gradients
from plait.lab.training.process import Group
from plait.lab.training.stop import Stop
from plait.models.character_networks import CausalTransformer, LinearAttentionNetwork
from plait.ops.scan.cuda_graph import uncollected

__all__ = ["CharacterLearner", "DeviceText", "learner_of", "network_of"]

_EAGER = 3  # updates before the capture: they allocate the optimiser's state and the libraries' workspaces
_EVALUATED_TOGETHER = 65_536  # characters per batch
_UPDATES_BETWEEN_SYNCHRONISATIONS = 25  # updates
_POINTS = 50  # of the curve of the training loss


@dataclass(frozen=True)
class DeviceText:
    """The three parts of a text as tensors on the device."""

    vocab: int
    train: Tensor
    valid: Tensor
    test: Tensor

    @staticmethod
    def of(text: CharacterText, device: torch.device) -> DeviceText:
        parts = (torch.from_numpy(part).to(device) for part in (text.train, text.valid, text.test))
        return DeviceText(len(text.symbols), *parts)


def learner_of(spec: CharacterSpec, device: torch.device, group: Group, backend: str) -> CharacterLearner:
    """Return the learner of a run, its text on the device; there is one backend and one process."""
    if group.size > 1:
        raise ConfigError(f"characters: expected one process, got {group.size}; leave torchrun out")
    return CharacterLearner(spec, DeviceText.of(spec.task.read(), device))


def network_of(spec: CharacterSpec, backend: str = "auto") -> CausalTransformer | LinearAttentionNetwork:
    """Return the network of a run, with weights drawn from torch's global generator."""
    shape = spec.model
    network = CausalTransformer if shape.name == "softmax" else LinearAttentionNetwork
    return network(spec.task.symbols, shape.depth, shape.width, shape.heads, spec.recipe.context)


class _Format(ProgressFormat):
    """Progress lines of a learner that reads its loss only now and then."""

    def step(self, step: Step) -> str:
        loss = step.figures.get("loss")
        return "" if loss is None else f"loss {loss:.5f} (training)"

    def bar(self, step: Step, last: Results) -> str:
        held_out = f"held out: loss {next(iter(last.values()))['loss']:.4f}" if last else ""
        return "  ".join(filter(None, (self.step(step), held_out)))


class CharacterLearner(Learner):
    """Learner of a network on the characters of a text; `losses` are those of the updates, in nats.

    The recorded losses are means over a fiftieth of the run, so that the device seldom waits for the host.

    Args:
        spec: the description of the run.
        text: the text, on the device to train on.
        graphs: on a GPU, capture an update as a CUDA graph and replay it (True).
    """

    score = "log-likelihood (bits)"
    final_key = "held_out"

    def __init__(self, spec: CharacterSpec, text: DeviceText, graphs: bool = True) -> None:
        recipe, device = spec.recipe, text.train.device
        shortest = min(len(text.train), len(text.valid), len(text.test))
        if shortest <= recipe.context:
            raise DataError(
                f"text: expected over {recipe.context} characters in every part (one window), got {shortest}"
            )
        self.spec, self.text, self.device = spec, text, device
        self.formatter = _Format(self.score)
        self.on_gpu = device.type == "cuda"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)  # on the CPU: the same weights and batches for every device
            self.network: nn.Module = network_of(spec)
            last = len(text.train) - recipe.context
            starts = torch.randint(last, (recipe.updates, recipe.batch), generator=_batches(recipe.seed))
        self.network.to(device)
        self.starts = starts.to(device)
        rates = [recipe.rate(update, spec.model.width) for update in range(recipe.updates)]
        self.rates = torch.tensor(rates, device=device)
        self.losses = torch.zeros(recipe.updates, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.window = torch.arange(recipe.context + 1, device=device)
        self.optimizer = self._optimizer()
        evaluations = {recipe.updates * (i + 1) // recipe.looks for i in range(recipe.looks)}
        self.schedule = Schedule(recipe.updates, evaluations, max(1, recipe.updates // _POINTS))
        self.stream = torch.cuda.Stream(device) if self.on_gpu else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.graphs, self.eager = graphs and self.on_gpu, 0
        self._synchronise()  # the tensors above were computed on another stream

    def _optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW with weight decay on matrices, except embeddings and readout; none on norm gains."""
        outside = {"symbols", "positions", "readout.weight"}
        named = list(self.network.named_parameters())
        decayed = [p for name, p in named if p.ndim == 2 and name not in outside]
        others = [p for name, p in named if p.ndim != 2 or name in outside]
        groups = [
            {"params": decayed, "weight_decay": self.spec.recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        rate = torch.tensor(0.0, device=self.device)
        return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True, capturable=self.on_gpu)

    def _update(self) -> None:
        """Make one update without synchronising with the device, so that it can be captured."""
        starts = self.starts.index_select(0, self.number)[0]
        windows = self.text.train[starts[:, None] + self.window]
        rate = self.rates.index_select(0, self.number)[0]
        for group in self.optimizer.param_groups:
            group["lr"].copy_(rate)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(windows[:, :-1], windows[:, 1:])
        loss.backward()
        clip_gradients(list(self.network.parameters()), self.spec.recipe.clip)
        self.optimizer.step()
        self.losses.index_copy_(0, self.number, loss.detach().reshape(1))
        self.number += 1

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean nats per character; products in bfloat16 on a GPU, all in float32 on a CPU."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            logits = self.network(inputs)
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def advance(self, number: int, stop: Stop) -> Step:
        """Launch the next update on this learner's stream; it may still be running on return.

        Updates follow each other: `number` is the number of updates so far, plus one.
        """
        with self._on_stream():
            if self.graphs and self.graph is None and self.eager >= _EAGER:
                self._capture()
            if self.graph is not None:
                self.graph.replay()
            else:
                self._update()
                self.eager += 1
        if number % _UPDATES_BETWEEN_SYNCHRONISATIONS == 0:
            self._synchronise()  # else the launches queued would be minutes ahead of the clock
        every = self.schedule.record_every
        if number % every and number < self.schedule.updates:
            return Step({})
        with self._on_stream():
            losses = self.losses[(number - 1) // every * every : number].tolist()
        return Step({"loss": _finite(sum(losses) / len(losses), f"update {number}: the training loss")})

    def _capture(self) -> None:
        """Capture one update. Capturing runs nothing: the replay that follows is the next update.

        The stream is this learner's own, as matrix products keep a workspace per stream, and two graphs
        captured on one stream must not be replayed at the same time.
        """
        self._synchronise()
        self.optimizer.zero_grad(set_to_none=True)  # gradients must be in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(graph, stream=self.stream):
            self._update()
        self.graph = graph

    def evaluate(self, final: bool) -> Results:
        """Return the loss on the validation text, with `final` on the test text."""
        name, part = ("test", self.text.test) if final else ("validation", self.text.valid)
        loss = _finite(self.loss_on(part), f"the loss on the {name} text")
        bits = loss / math.log(2)
        return {name: {"score": -bits, "loss": loss, "bits_per_character": bits}}

    @torch.no_grad()
    def loss_on(self, part: Tensor) -> float:
        """Return the mean nats per character over a part of the text, in consecutive windows.

        The first characters of a window are predicted from little context, and count like all others.
        """
        context = self.spec.recipe.context
        count = (min(len(part), self.spec.recipe.held_out) - 1) // context
        inputs = part[: count * context].view(count, context)
        targets = part[1 : count * context + 1].view(count, context)
        rows = max(1, _EVALUATED_TOGETHER // context)
        with self._on_stream():
            sums = [
                self._loss(batch, labels).double() * len(batch)
                for batch, labels in zip(inputs.split(rows), targets.split(rows), strict=True)
            ]
            return float(torch.stack(sums).sum() / count)

    def tensors(self) -> dict[str, Tensor]:
        self._synchronise()
        return {**super().tensors(), "losses": self.losses, "number": self.number}

    def restore(self, checkpoint: Checkpoint) -> None:
        own = {"losses": self.losses, "number": self.number}
        saved = {name: value for name, value in checkpoint.tensors.items() if name in own}
        check_alike(saved, own, checkpoint.path)
        super().restore(checkpoint)
        for name, tensor in own.items():
            tensor.copy_(saved[name])
        self._synchronise()

    def _synchronise(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def _batches(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(10_000 + seed)


def _finite(loss: float, what: str) -> float:
    """Return a loss; raise if it is not finite, as the weights are lost then."""
    if not math.isfinite(loss):
        raise DivergedError(f"{what} is not finite")
    return loss
