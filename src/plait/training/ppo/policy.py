"""A policy: what is seen, a memory through time, what to do and what it is worth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from plait.models import Layer, Recurrent, State
from plait.ops.slots import MemoryState
from plait.tasks.minigrid import ACTIONS, WORDS, Observation

__all__ = ["Encoder", "Policy"]

_KINDS = (11, 6, 4)  # objects, colours and states a cell can hold


class Encoder(nn.Module):
    """One observation as a vector: e = relu(W conv(one-hot planes) + d[direction] + Σ m[word]).

    >>> from plait.tasks.minigrid import open_worlds
    >>> Encoder(32)(open_worlds("Empty-5x5", envs=3).reset().observation).shape
    torch.Size([3, 32])
    """

    planes: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        width = sum(_KINDS)
        # Row (kind, value) of this table is one plane set; looking up beats comparing on a CPU.
        begin = torch.tensor([0, _KINDS[0], _KINDS[0] + _KINDS[1]])
        self.register_buffer("begin", begin, persistent=False)
        self.register_buffer("planes", torch.eye(width), persistent=False)
        self.view = nn.Sequential(
            nn.Conv2d(width, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 3 * 3, features),
        )  # fmt: skip
        self.direction = nn.Embedding(4, features)
        self.mission = nn.EmbeddingBag(len(WORDS) + 1, features, mode="sum", padding_idx=0)
        for part in self.view:
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(part.weight, 2**0.5)
                nn.init.zeros_(cast(Tensor, part.bias))
        for table in (self.direction, self.mission):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, observation: Observation) -> Tensor:
        """(N, features) of an observation of N worlds."""
        cells = observation.image.long() + self.begin  # type: ignore[operator]
        planes = self.planes[cells].sum(3).permute(0, 3, 1, 2)
        told = self.direction(observation.direction.int()) + self.mission(observation.mission.int())
        return torch.relu(self.view(planes) + told)


class Policy(nn.Module):
    """logits_t = W_a h_t, V_t = W_v h_t, h_t from `recurrent` over encoded observations.

    Args:
        recurrent: any of the library's layers over `encoder.features` inputs; None for a policy that sees
            the present alone, whose h_t is one more layer.
        features: of the encoder, where there is no layer to say it.
    """

    def __init__(self, recurrent: Recurrent | None, features: int = 64) -> None:
        super().__init__()
        features = features if recurrent is None else recurrent.input_size
        hidden = features if recurrent is None else recurrent.hidden_size
        self.encoder = Encoder(features)
        self.recurrent = recurrent
        self.present = nn.Sequential(nn.Linear(features, hidden), nn.Tanh()) if recurrent is None else None
        self.actor = nn.Linear(hidden, len(ACTIONS))
        self.critic = nn.Linear(hidden, 1)
        for head, gain in ((self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(head.weight, gain)
            nn.init.zeros_(head.bias)

    def forward(
        self, observation: Observation, state: Any = None, *, reset: Tensor | None = None, **options: Any
    ) -> Any:
        """Logits (T, B, actions), values (T, B) and the state, of an observation (T, B, …).

        `reset` (T, B) bool clears a row before that step; with `need_trace` the layer's traces come last.
        """
        steps, worlds = observation.direction.shape
        seen = self.encoder(observation.map(lambda part: part.flatten(0, 1))).unflatten(0, (steps, worlds))
        if self.recurrent is None:
            assert self.present is not None
            hidden, rest = self.present(seen), [None]
        else:
            hidden, *rest = self.recurrent(seen, state, reset=reset, **options)
        return self.actor(hidden), self.critic(hidden).squeeze(-1), *rest

    def carried(self, state: Any) -> Any:
        """The state to go on with after a rollout: cut from the graph, and without the slots of a growing
        memory that are empty in every row. A full memory gains a slot a step; those that a reset emptied
        stand in front, and would stay for ever.
        """
        if self.recurrent is None or not isinstance(state, State):
            return None
        layers = cast(Iterable[Layer], self.recurrent.layers)
        memories = [
            memory if layer.initial_width else _trimmed(memory)
            for layer, memory in zip(layers, state.memory, strict=True)
        ]
        return state._replace(memory=tuple(memories)).detach()


def _trimmed(memory: MemoryState) -> MemoryState:
    occupied = (memory.born >= 0).any(0)
    empty = int(occupied.long().argmax()) if bool(occupied.any()) else len(occupied)
    slots, relevance, born, age = memory
    return MemoryState(slots[:, empty:], relevance[:, empty:], born[:, empty:], age)
