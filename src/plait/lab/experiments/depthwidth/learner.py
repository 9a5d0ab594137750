"""Training of a network on a text, with all data of an update on the device.

Small networks are bound by kernel launches, not by arithmetic. So an update reads its batch, its learning
rate and its own number from tensors, and on a GPU it is captured once as a CUDA graph and replayed. Replays
of several learners, each on its own stream, run in parallel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from plait.errors import DataError
from plait.lab.experiments.depthwidth.figure1 import TrainingRun
from plait.lab.tasks.text import CharacterText
from plait.lab.training.callbacks import Results
from plait.lab.training.learner import Learner, Schedule, Step, clip_gradients
from plait.lab.training.stop import Stop
from plait.models.character_networks import CausalTransformer, LinearAttentionNetwork

__all__ = ["DeviceText", "SideBySide", "TextLearner"]

_NETWORKS = {"softmax": CausalTransformer, "linear": LinearAttentionNetwork}
_EAGER = 3  # updates before the capture: they allocate the optimiser's state and the libraries' workspaces
_EVALUATED_TOGETHER = 65_536  # characters per batch
_UPDATES_BETWEEN_SYNCHRONISATIONS = 25  # updates


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


class TextLearner:
    """Learner of a run; `losses[:updates]` are the training losses, in nats per character."""

    def __init__(self, run: TrainingRun, text: DeviceText, graphs: bool = True) -> None:
        recipe, device = run.training, text.train.device
        shortest = min(len(text.train), len(text.valid), len(text.test))
        if shortest <= recipe.context:
            raise DataError(
                f"text: expected over {recipe.context} characters in every part (one window), got {shortest}"
            )
        self.run, self.text, self.device, self.updates = run, text, device, 0
        self.on_gpu = device.type == "cuda"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed)  # on the CPU: the same weights and batches for every device
            network = _NETWORKS[run.architecture](text.vocab, run.depth, run.width, run.heads, recipe.context)
            last = len(text.train) - recipe.context
            starts = torch.randint(last, (recipe.updates, recipe.batch), generator=_batches(run.seed))
        self.network: nn.Module = network.to(device)
        self.num_block_params = network.num_block_params
        self.starts = starts.to(device)
        self.rates = torch.tensor([recipe.rate(u, run.width) for u in range(recipe.updates)], device=device)
        self.losses = torch.zeros(recipe.updates, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.window = torch.arange(recipe.context + 1, device=device)
        self.optimiser = self._optimiser()
        self.stream = torch.cuda.Stream(device) if self.on_gpu else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.graphs = graphs and self.on_gpu
        if self.on_gpu:
            torch.cuda.synchronize(device)  # the tensors above were computed on another stream

    def _optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW with weight decay on matrices, except embeddings and readout; none on norm gains."""
        outside = {"symbols", "positions", "readout.weight"}
        named = list(self.network.named_parameters())
        decayed = [p for name, p in named if p.ndim == 2 and name not in outside]
        others = [p for name, p in named if p.ndim != 2 or name in outside]
        groups = [
            {"params": decayed, "weight_decay": self.run.training.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        rate = torch.tensor(0.0, device=self.device)
        return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True, capturable=self.on_gpu)

    def _update(self) -> None:
        """Make one update without synchronising with the device, so that it can be captured."""
        starts = self.starts.index_select(0, self.number)[0]
        windows = self.text.train[starts[:, None] + self.window]
        rate = self.rates.index_select(0, self.number)[0]
        for group in self.optimiser.param_groups:
            group["lr"].copy_(rate)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._loss(windows[:, :-1], windows[:, 1:])
        loss.backward()
        clip_gradients(list(self.network.parameters()), self.run.training.clip)
        self.optimiser.step()
        self.losses.index_copy_(0, self.number, loss.detach().reshape(1))
        self.number += 1

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean nats per character; products in bfloat16 on a GPU, all in float32 on a CPU."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            logits = self.network(inputs)
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def advance(self) -> None:
        """Launch the next update on this learner's stream; it may still be running on return."""
        with self._on_stream():
            if self.graphs and self.graph is None and self.updates >= _EAGER:
                self._capture()
            if self.graph is not None:
                self.graph.replay()
            else:
                self._update()
        self.updates += 1

    def _capture(self) -> None:
        """Capture one update. Capturing runs nothing: the replay that follows is the next update.

        The stream is this learner's own, as matrix products keep a workspace per stream, and two graphs
        captured on one stream must not be replayed at the same time.
        """
        torch.cuda.synchronize(self.device)
        self.optimiser.zero_grad(set_to_none=True)  # gradients must be in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._update()
        self.graph = graph

    @torch.no_grad()
    def evaluate(self, part: Tensor) -> float:
        """Return the mean nats per character over a part of the text, in consecutive windows.

        The first characters of a window are predicted from little context, and count like all others.
        """
        context = self.run.training.context
        count = (min(len(part), self.run.training.held_out) - 1) // context
        inputs = part[: count * context].view(count, context)
        targets = part[1 : count * context + 1].view(count, context)
        rows = max(1, _EVALUATED_TOGETHER // context)
        with self._on_stream():
            sums = [
                self._loss(batch, labels).double() * len(batch)
                for batch, labels in zip(inputs.split(rows), targets.split(rows), strict=True)
            ]
            return float(torch.stack(sums).sum() / count)

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def _batches(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(10_000 + seed)


class SideBySide(Learner):
    """Networks of one recipe as a single learner: an update of each at a time, each on its own stream."""

    def __init__(self, learners: Sequence[TextLearner], text: DeviceText) -> None:
        self.learners, self.text, self.device = learners, text, text.train.device
        self.network = nn.ModuleList(learner.network for learner in learners)
        recipe = learners[0].run.training
        evaluations = {recipe.updates * (i + 1) // recipe.looks for i in range(recipe.looks)}
        self.schedule = Schedule(recipe.updates, evaluations)

    def advance(self, number: int, stop: Stop) -> Step:
        for learner in self.learners:
            learner.advance()
        if number % _UPDATES_BETWEEN_SYNCHRONISATIONS == 0 and self.text.train.is_cuda:
            torch.cuda.synchronize()  # else the launches queued would be minutes ahead of the clock
        return Step({})  # the losses stay on the device until the end

    def evaluate(self, final: bool) -> Results:
        part = self.text.test if final else self.text.valid
        losses = [learner.evaluate(part) for learner in self.learners]
        return {str(index): {"loss": loss, "score": -loss} for index, loss in enumerate(losses)}
