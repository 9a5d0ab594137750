"""A policy: what is seen, a memory through time, what to do and what it is worth; and the run it is of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from plait.errors import CheckpointError, ConfigError, known, whole
from plait.estimates import check_weights
from plait.models import MODELS, Layer, Recurrent, State
from plait.models.options import check_model
from plait.ops.slots import MemoryState
from plait.runs.kinds import kind_of
from plait.runs.reading import find_run, read_run
from plait.tasks.minigrid import ACTIONS, BACKENDS, WORDS, Observation, check_transfer, world_named
from plait.training.recipe import Settings

__all__ = [
    "FORMAT", "POLICIES", "Encoder", "Policy", "build_policy", "checked_policy", "describe_policy",
    "load_policy",
]  # fmt: skip

FORMAT = "plait policy 1"
POLICIES = ("none", *MODELS)
# As published: RelLSTM attends over its last five states and five relevant ones.
_SCREENED = {"window": 5, "capacity": 5}
_KINDS = (11, 6, 4)  # objects, colours and states a cell can hold


class Encoder(nn.Module):
    """One observation as a vector: e = relu(W conv(one-hot planes) + d[direction] + Σ m[word]).

    >>> from plait.tasks.minigrid import open_worlds
    >>> Encoder(32)(open_worlds("Empty-5x5", envs=3).reset().observation).shape
    torch.Size([3, 32])
    """

    counts: Tensor
    values: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("counts", torch.tensor(_KINDS), persistent=False)
        values = torch.cat([torch.arange(kinds, dtype=torch.uint8) for kinds in _KINDS])
        self.register_buffer("values", values, persistent=False)
        # Stride 2 keeps the agent's own cell, in the middle of the last row, inside one window.
        self.view = nn.Sequential(
            nn.Conv2d(sum(_KINDS), 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 2 * 2, features),
        )  # fmt: skip
        self.direction = nn.Embedding(4, features)
        self.mission = nn.EmbeddingBag(len(WORDS) + 1, features, mode="sum", padding_idx=0)
        for part in self.view:
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(part.weight, 2**0.5)
                nn.init.zeros_(cast(Tensor, part.bias))
        for table in (self.direction, self.mission):
            nn.init.normal_(table.weight, std=0.3)

    def planes(self, image: Tensor) -> Tensor:
        """(…, 7, 7, 3) uint8 as (…, 7, 7, 21) float: one plane for each object, colour and state.

        An update reads its rollout several times; planes made once beforehand are taken as they are.
        """
        return (image.repeat_interleave(self.counts, -1) == self.values).float()

    def forward(self, observation: Observation) -> Tensor:
        """(N, features) of an observation of N worlds, its image raw or as planes."""
        image = observation.image
        planes = image if image.is_floating_point() else self.planes(image)
        told = self.direction(observation.direction.int()) + self.mission(observation.mission.int())
        return torch.relu(self.view(planes.permute(0, 3, 1, 2)) + told)


class Policy(nn.Module):
    """logits_t = W_a tanh(U_a h_t), V_t = w_v tanh(U_v h_t), h_t from `recurrent` over encoded observations.

    The heads have a layer of their own because what to do can be an exclusive or of what is remembered and
    what is seen (MemoryS7), which no linear readout can tell.

    Args:
        recurrent: any of the library's layers over `encoder.features` inputs; None for a policy that sees
            the present alone, whose h_t is one more layer.
        features: of the encoder, where there is no layer to say it.
    """

    def __init__(self, recurrent: Recurrent | None, features: int = 64) -> None:
        super().__init__()
        features = features if recurrent is None else recurrent.input_size
        hidden = features if recurrent is None else recurrent.hidden_size
        check_weights(2 * hidden**2 + (128 + 64) * features)
        self.encoder = Encoder(features)
        self.recurrent = recurrent
        self.present = nn.Sequential(nn.Linear(features, hidden), nn.Tanh()) if recurrent is None else None
        self.actor = _head(hidden, len(ACTIONS), 0.01)
        self.critic = _head(hidden, 1, 1.0)

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
        """The state to continue with after a rollout: cut from the graph, and without the slots of a growing
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
        return state.replace(memory=tuple(memories)).detach()


def _head(features: int, outputs: int, gain: float) -> nn.Sequential:
    head = nn.Sequential(nn.Linear(features, features), nn.Tanh(), nn.Linear(features, outputs))
    for place, scale in ((0, 2**0.5), (2, gain)):
        nn.init.orthogonal_(cast(Tensor, head[place].weight), scale)
        nn.init.zeros_(cast(Tensor, head[place].bias))
    return head


def _trimmed(memory: MemoryState) -> MemoryState:
    occupied = (memory.born >= 0).any(0)
    empty = int(occupied.long().argmax()) if bool(occupied.any()) else len(occupied)
    slots, relevance, born, age = memory
    return MemoryState(slots[:, empty:], relevance[:, empty:], born[:, empty:], age)


def describe_policy(
    env: str,
    model: str = "rellstm",
    settings: Settings | None = None,
    *,
    test_env: str | None = None,
    backend: str = "minigrid",
    hidden_size: int = 64,
    **options: Any,
) -> dict[str, Any]:
    """A run's description, ready for JSON; the options are those of the model's builder.

    >>> describe_policy("DoorKey-5x5", "relgru")["model"]
    {'name': 'relgru', 'hidden_size': 64, 'window': 5, 'capacity': 5}
    """
    known(model, POLICIES, "model")
    usual = _SCREENED if model.startswith("rel") else {}
    given = {name: value for name, value in options.items() if value is not None}
    task = {"name": "minigrid", "env": env, "test_env": test_env, "backend": backend}
    parts = {"name": model, "hidden_size": hidden_size, **usual, **given}
    return checked_policy({"task": task, "model": parts, "recipe": (settings or Settings()).values()})


def checked_policy(values: dict[str, Any]) -> dict[str, Any]:
    """The same description with worlds by their short names, or an error that says what is wrong."""
    found = values.get("format", FORMAT)
    if found != FORMAT:
        raise ConfigError(f"format: expected {FORMAT!r}, got {found!r}; it was not written by this version")
    task, model = dict(values["task"]), dict(values["model"])
    known(task["backend"], BACKENDS, "backend")
    task["env"] = world_named(task["env"])
    if task["test_env"] is not None:
        task["test_env"] = world_named(task["test_env"])
        check_transfer(task["env"], task["test_env"])
    if known(model["name"], POLICIES, "model") == "none":
        for option in model:
            known(option, ("name", "hidden_size"), "option of none")
        whole(1, hidden_size=model["hidden_size"])
    else:
        check_model(model)
        if model.get("bidirectional"):
            raise ConfigError("bidirectional: expected False for a policy, which acts step by step, got True")
    recipe = Settings().changed(**values["recipe"]).check()
    return {"format": FORMAT, "task": task, "model": model, "recipe": recipe.values()}


def build_policy(description: dict[str, Any], layer_backend: str = "auto") -> Policy:
    """The policy before its first update; weights are drawn from the seed of the settings.

    >>> policy = build_policy(describe_policy("DoorKey-5x5", "none", hidden_size=16))
    >>> policy.actor[-1].weight.shape
    torch.Size([7, 16])
    """
    options = dict(description["model"])
    name, hidden = options.pop("name"), options["hidden_size"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(description["recipe"]["seed"])
        if name == "none":
            return Policy(None, hidden)
        return Policy(MODELS[name](hidden, backend=layer_backend, **options))


def load_policy(run: str | Path, *, device: str = "cpu", out: Path | str = "runs") -> Policy:
    """The policy a run trained, ready for use (`eval` mode)."""
    from plait.training.session import load

    folder = find_run(run, out)
    if kind_of(read_run(folder).description).format != FORMAT:
        raise CheckpointError(f"{folder} holds no policy; expected a run of plait train minigrid")
    return cast(Policy, load(folder, device=device))
