"""Variants of a Transformer's bounded memory that were tried beside the default, for whole sequences alone.

    cd results/bounded && plait reproduce bounded-settings --models variants:Leaving,variants:Annealed

trains them on the rows of `bounded-settings`; README.md says what was run. They compute all pairs of steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

import plait
from plait.models.bounded_attention_layer import BoundedAttentionLayer
from plait.models.layer import gumbel_noise
from plait.models.reading import Readable, Reading
from plait.models.rotation import rotated
from plait.ops.slots import ages_before
from plait.ops.walk import LayerResult, LayerState

_LEARNED = plait.RelevancyMemory(10, 15, relevance="learned")
_SHAPE = {"num_layers": 2, "heads": 4}
_SOFTNESS = 0.3  # of the straight-through gate, in units of the score
_UNTIL = 150  # updates over which a schedule runs


class _Variant(plait.Transformer):
    """A Transformer with 25 states a head whose layers are of the class `layer`."""

    layer: type[BoundedAttentionLayer] = BoundedAttentionLayer

    def __init__(
        self, input_size: int, hidden_size: int = 64, memory: plait.RelevancyMemory = _LEARNED
    ) -> None:
        super().__init__(input_size, hidden_size, memory=memory, **_SHAPE)
        for layer in self.layers:
            layer.__class__ = self.layer
            layer.add_parameters()


class _AllPairs(BoundedAttentionLayer):
    """A layer that compares all pairs of steps of a whole sequence."""

    def add_parameters(self) -> None:
        """Create what a variant needs beside the weights of the default."""

    def score(self, normed: Tensor, energies: Tensor, age: Tensor) -> Tensor:
        """Return r_j (B, heads, T)."""
        scores: Tensor = (normed @ self.worth.t()).transpose(1, 2)
        return scores

    def term(self, scores: Tensor, age: Tensor) -> Tensor:
        """Return what r_j adds to the energies, (B, heads, T or 1, T)."""
        return scores.unsqueeze(2)

    def weights(self, energies: Tensor, readable: Tensor, scores: Tensor, age: Tensor) -> Tensor:
        """Return the weights (B, heads, T, T)."""
        return energies.masked_fill(~readable, -torch.inf).softmax(-1)

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        *,
        reset: Tensor | None = None,
        nudge: Tensor | None = None,
        need_trace: bool = False,
    ) -> LayerResult:
        if state is not None or reset is not None or nudge is not None:
            raise NotImplementedError("this variant reads whole sequences")
        steps, rows = x.shape[:2]
        stream, times = x.transpose(0, 1), torch.arange(steps, device=x.device)
        normed = self.block.before_attention(stream)
        query, key, value = self.block.projected(normed)
        energies = rotated(query, times[None]) @ rotated(key, times[None]).mT / query.shape[3] ** 0.5
        age = times[:, None] - times
        scores = self.score(normed, energies, age)
        ranks = scores.detach()
        if self.training and (noise := self.memory.noise or 0.0):
            ranks = ranks + gumbel_noise(noise, ranks.shape, ranks)
        age_before = torch.zeros(rows, dtype=torch.int64, device=x.device)
        life = self.memory.lifetimes(ranks, age=age_before, reset=None, state=None)
        readable = (age >= 0) & (times[:, None] < life.deaths.unsqueeze(2))
        weights = self.weights(energies + self.term(scores, age), readable, scores, age)
        read = weights @ value
        births = times.expand(ranks.shape)
        entries = torch.cat([key, value, scores.unsqueeze(-1)], dim=-1)
        every = Readable(entries, births, life.deaths, ranks, torch.zeros_like(births))
        ages = ages_before(age_before, None, steps)
        output = self.block.after(stream, read).transpose(0, 1)
        after = self._packed(every.select(life.sources), ages[-1] + 1, steps)
        trace = self._trace([Reading(read, weights, readable, every)], ages) if need_trace else None
        return LayerResult(output, LayerState(output[-1], None, after), trace)


class _OnLeaving(_AllPairs):
    """A score fixed on leaving the window: g·norm(x_j) + g_e·(the weight j received in the window).

    The weights in it are those of a softmax over the window alone. The score enters the energies from there
    on, as it would see later steps before.
    """

    def add_parameters(self) -> None:
        self.worth_of_earned = nn.Parameter(torch.zeros(self.heads, 1))

    def score(self, normed: Tensor, energies: Tensor, age: Tensor) -> Tensor:
        in_window = (age >= 0) & (age < self.memory.window)
        weights = energies.detach().masked_fill(~in_window, -torch.inf).softmax(-1)
        return super().score(normed, energies, age) + self.worth_of_earned * weights.sum(2)

    def term(self, scores: Tensor, age: Tensor) -> Tensor:
        return scores.unsqueeze(2) * (age >= self.memory.window)


class _Gated(_AllPairs):
    """The choice with a straight-through gradient: forward 0 or 1, backward that of σ((r_j − θ_t)/τ).

    θ_t is the lowest score that is kept at t; the weight of a state is exp(energy) times its gate.
    """

    def weights(self, energies: Tensor, readable: Tensor, scores: Tensor, age: Tensor) -> Tensor:
        older = readable & (age >= self.memory.window)
        fixed = scores.detach().unsqueeze(2)
        is_full = older.sum(-1, keepdim=True) >= self.memory.capacity
        lowest = fixed.masked_fill(~older, torch.inf).amin(-1, keepdim=True)
        soft = torch.sigmoid((scores.unsqueeze(2) - lowest.masked_fill(~is_full, -torch.inf)) / _SOFTNESS)
        gate = readable + (soft - soft.detach()) * (age >= self.memory.window)
        highest = energies.detach().masked_fill(~readable, -torch.inf).amax(-1, keepdim=True)
        mass = (energies - highest).clamp_max(20).exp() * gate
        return mass / mass.sum(-1, keepdim=True)


class AtBirth(_Variant):
    """The default, by the code of the variants: a check that they compute what they should."""

    layer = _AllPairs


class Leaving(_Variant):
    """Scores fixed on leaving the window, with what was earned there; without noise."""

    layer = _OnLeaving


class LeavingNoise(_Variant):
    """The same with noise of scale 0.3."""

    layer = _OnLeaving

    def __init__(self, input_size: int, hidden_size: int = 64) -> None:
        super().__init__(input_size, hidden_size, dataclasses.replace(_LEARNED, noise=0.3))


class StraightThrough(_Variant):
    """A straight-through gradient of the choice."""

    layer = _Gated


class _Scheduled(plait.Transformer):
    """A Transformer whose memory changes while it is trained; evaluated with 25 states a head."""

    def __init__(self, input_size: int, hidden_size: int = 64) -> None:
        super().__init__(input_size, hidden_size, memory=_LEARNED, **_SHAPE)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def scheduled(self, done: float) -> plait.RelevancyMemory:
        """Return the memory after the share `done` of the schedule."""
        raise NotImplementedError

    def _run(self, *arguments: Any) -> Any:
        memory = _LEARNED
        if self.training and torch.is_grad_enabled():
            memory = self.scheduled(min(1.0, int(self.updates) / _UNTIL))
            self.updates += 1
        for layer in self.layers:
            layer.memory, layer.slots = memory, memory.initial_width
            layer.initial_width = layer.heads * memory.initial_width
        return super()._run(*arguments)


class Annealed(_Scheduled):
    """Noise that falls from 1 to 0 over 150 updates."""

    def scheduled(self, done: float) -> plait.RelevancyMemory:
        return dataclasses.replace(_LEARNED, noise=1 - done)


class Shrinking(_Scheduled):
    """A capacity that falls from 54 to 15 over 150 updates."""

    def scheduled(self, done: float) -> plait.RelevancyMemory:
        return dataclasses.replace(_LEARNED, capacity=round(54 - 39 * done))
