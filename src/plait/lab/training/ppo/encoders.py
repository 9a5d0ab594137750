"""Encoders from an observation to a vector: of grid worlds, of gymnasium's spaces, or a user's module.

`Distinct` holds the observations of a rollout without repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plait.errors import ConfigError, ShapeError
from plait.estimates import check_weights
from plait.lab.own_code import by_name
from plait.lab.tasks.minigrid import WORDS, Observation
from plait.lab.tasks.worlds.base import Seen
from plait.lab.tasks.worlds.spaces import Leaf, Observed

__all__ = ["Distinct", "Encoder", "OwnEncoder", "SpaceEncoder", "distinct"]

_KINDS = (11, 6, 4)  # number of objects, colours and states of a cell
_LARGEST_MAP = 8  # pixels of a side after the last convolution


class Encoder(nn.Module):
    """Encoder of grid worlds: e = relu(W conv(one-hot planes) + d[direction] + Σ m[word]).

    The convolutions are matrix products over unfolded windows, since for 7 × 7 images the overhead of a
    convolution dominates; the first, over one-hot planes, is a sum of the selected weights.

    >>> from plait.lab.tasks.minigrid import open_worlds
    >>> Encoder(32)(open_worlds("Empty-5x5", envs=3).reset().observation).shape
    torch.Size([3, 32])
    """

    cells: Tensor
    counts: Tensor
    first: Tensor
    no_word: Tensor
    values: Tensor
    numbers = 9 * 9 * sum(_KINDS)  # values of a prepared observation

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        # Stride 2 keeps the agent's own cell, in the middle of the last row, inside one window.
        self.view = nn.Sequential(
            nn.Conv2d(sum(_KINDS), 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 2 * 2, features),
        )  # fmt: skip
        self.direction = nn.Embedding(4, features)
        self.mission = nn.EmbeddingBag(len(WORDS) + 1, features, mode="sum", padding_idx=0)
        _orthogonal(self.view)
        for table in (self.direction, self.mission):
            nn.init.normal_(table.weight, std=0.3)
        self._lay_out()

    def _lay_out(self) -> None:
        """Register the indices of an image's values in the nine windows, and those of their weights."""
        counts = torch.tensor(_KINDS)
        cells = torch.arange(7 * 7 * 3).view(7, 7, 3).unfold(0, 3, 2).unfold(1, 3, 2).permute(0, 1, 3, 4, 2)
        within = sum(_KINDS) * torch.arange(9).view(9, 1) + counts.cumsum(0) - counts
        for name, buffer in (
            ("cells", cells.reshape(-1)),
            ("counts", counts.to(torch.uint8).repeat(9 * 9)),
            ("first", within.flatten().repeat(9).int()),
            ("no_word", torch.zeros(1, self.features)),
            ("values", torch.cat([torch.arange(kinds, dtype=torch.uint8) for kinds in _KINDS])),
        ):
            self.register_buffer(name, buffer, persistent=False)

    def planes(self, image: Tensor) -> Tensor:
        """Return (N, 7, 7, 3) uint8 as (N, 7, 7, 21) float, one plane for each object, colour and state."""
        parts = zip(image.unbind(-1), self.values.split(_KINDS), strict=True)
        return torch.cat([(part.unsqueeze(-1) == values).float() for part, values in parts], -1)

    def prepared(self, observation: Observation) -> Observation:
        """Return an observation as windows (N, 9, 189) of planes and word counts (N, words) of the mission.

        An update reads its rollout several times, so these are computed once.
        """
        windows = self.planes(observation.image).unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 4, 5, 3)
        words = torch.arange(len(WORDS) + 1, device=windows.device)
        often = (observation.mission.unsqueeze(-1) == words).sum(1).float()
        return observation._replace(image=windows.reshape(len(windows), 9, -1), mission=often)

    def forward(self, observation: Observation) -> Tensor:
        """Return (N, features) of an observation of N environments, raw or `prepared`."""
        # Looking weights up is faster without gradients, and slower with them.
        if torch.is_grad_enabled() and not observation.image.is_floating_point():
            observation = self.prepared(observation)
        image, direction, mission = observation
        layers = tuple(self.view)
        near, far, last = cast(nn.Conv2d, layers[0]), cast(nn.Conv2d, layers[2]), layers[5]
        weight, words = _over_windows(near), torch.cat([self.no_word, self.mission.weight[1:]])
        if image.is_floating_point():
            windows, mission_sum = image @ weight, mission @ words
        else:
            windows = self._looked_up(image, weight)
            mission_sum = embedding_bag(mission.int(), words, mode="sum")
        seen = torch.relu(windows + cast(Tensor, near.bias)).view(-1, 3, 3, near.out_channels)
        seen = seen.unfold(1, 2, 1).unfold(2, 2, 1).permute(0, 1, 2, 4, 5, 3).reshape(4 * len(seen), -1)
        seen = torch.relu(torch.addmm(cast(Tensor, far.bias), seen, _over_windows(far)))
        # In the order of flattened convolution planes: all positions of one channel, then the next.
        seen = last(seen.view(-1, 4, far.out_channels).transpose(1, 2).flatten(1))
        return torch.relu(seen + (mission_sum + self.direction(direction.int())))

    def _looked_up(self, image: Tensor, weight: Tensor) -> Tensor:
        """Return windows times weights, (N, 9, channels); a value out of range has weight 0."""
        numbers = image.flatten(1).index_select(1, self.cells)
        places = torch.where(numbers < self.counts, numbers.int() + self.first, len(weight))
        weight = torch.cat([weight, weight.new_zeros(1, weight.shape[1])])
        return embedding_bag(places.view(-1, 27), weight, mode="sum").view(len(image), 9, -1)


class SpaceEncoder(nn.Module):
    """Encoder of gymnasium's spaces: e = relu(Σ of the encoded parts), by the kind of each part.

    - choices: the sum of an embedding for each number;
    - numbers: a two-layer network over them, flattened; bounded ones are scaled to −1 … 1, of others it reads
      sign(x) log(1 + |x|), so that neither needs a running mean;
    - a picture: convolutions of stride 2 until no side is longer than eight, and a linear layer.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> space = Dict(card=Discrete(4), speed=Box(-1, 1, (3,)))
    >>> seen = Seen((torch.tensor([[2]]), torch.zeros(1, 3)))
    >>> SpaceEncoder(Observed(space, "cards"), 16)(seen).shape
    torch.Size([1, 16])
    """

    def __init__(self, observed: Observed, features: int) -> None:
        super().__init__()
        self.features = features
        self.parts = nn.ModuleList(_part(leaf, features) for leaf in observed.leaves)

    def forward(self, observation: Seen) -> Tensor:
        """Return (N, features) of an observation of N environments."""
        total = self.parts[0](observation[0])
        for part, seen in zip(self.parts[1:], observation[1:], strict=True):
            total = total + part(seen)
        return torch.relu(total)


def _part(leaf: Leaf, features: int) -> nn.Module:
    kinds = {"choices": _Choices, "numbers": _Numbers, "picture": _Picture}
    return kinds[leaf.kind](leaf, features)


class _Choices(nn.Module):
    offsets: Tensor

    def __init__(self, leaf: Leaf, features: int) -> None:
        super().__init__()
        counts = torch.tensor(leaf.counts)
        check_weights(int(counts.sum()) * features)
        self.register_buffer("offsets", counts.cumsum(0) - counts, persistent=False)
        self.table = nn.EmbeddingBag(int(counts.sum()), features, mode="sum")
        nn.init.normal_(self.table.weight, std=len(counts) ** -0.5)

    def forward(self, seen: Tensor) -> Tensor:
        encoded: Tensor = self.table(seen + self.offsets)
        return encoded


class _Numbers(nn.Module):
    middle: Tensor
    reach: Tensor
    bounded: Tensor

    def __init__(self, leaf: Leaf, features: int) -> None:
        super().__init__()
        middle, half = (torch.from_numpy(side).float() for side in leaf.scale)
        check_weights(len(middle) * features)
        self.register_buffer("bounded", ~middle.isnan(), persistent=False)
        self.register_buffer("middle", middle.nan_to_num(), persistent=False)
        self.register_buffer("reach", half.nan_to_num(1.0), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(len(middle), features), nn.Tanh(), nn.Linear(features, features)
        )
        _orthogonal(self.layers)

    def forward(self, seen: Tensor) -> Tensor:
        flat = seen.flatten(1).float()
        scaled = (flat - self.middle) / self.reach
        encoded: Tensor = self.layers(torch.where(self.bounded, scaled, flat.sign() * flat.abs().log1p()))
        return encoded


class _Picture(nn.Module):
    def __init__(self, leaf: Leaf, features: int) -> None:
        super().__init__()
        shape = leaf.space.shape
        self.last, self.flat = bool(leaf.channels_last), len(shape) == 2
        sides = list(shape if self.flat else shape[:-1] if self.last else shape[1:])
        channels, layers = 1 if self.flat else shape[-1 if self.last else 0], []
        width = 16
        while max(sides) > _LARGEST_MAP:
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
            channels, width = width, min(2 * width, 64)
            sides = [-(-side // 2) for side in sides]
        check_weights(channels * sides[0] * sides[1] * features)
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(channels * sides[0] * sides[1], features)
        )
        _orthogonal(self.layers)

    def forward(self, seen: Tensor) -> Tensor:
        seen = seen.unsqueeze(1) if self.flat else seen.permute(0, 3, 1, 2) if self.last else seen
        encoded: Tensor = self.layers(seen.float() / 255)
        return encoded


class OwnEncoder(nn.Module):
    """Encoder around a user's module, which `make(space, features)` builds for an observation space.

    The module is called on an observation in the form of the space (a tensor, or tensors by key or index,
    each (N, …); choices are counted from 0 and stand in a row) and has to return (N, features).
    """

    def __init__(self, name: str, observed: Observed, features: int) -> None:
        super().__init__()
        self.name, self.observed, self.features = name, observed, features
        make = by_name(name, "encoder")
        try:
            inner = make(observed.space, features)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"encoder: {name}(space, features) failed: {reason}") from error
        if not isinstance(inner, nn.Module):
            raise ConfigError(
                f"encoder: expected a torch.nn.Module from {name}(space, features), got "
                f"{type(inner).__name__}"
            )
        self.inner = inner

    def forward(self, observation: Seen) -> Tensor:
        encoded: Any = self.inner(self.observed.structured(observation))
        shape = (len(observation[0]), self.features)
        if not isinstance(encoded, Tensor) or encoded.shape != shape:
            got = tuple(encoded.shape) if isinstance(encoded, Tensor) else type(encoded).__name__
            raise ShapeError(f"encoder: expected {shape} from {self.name}, got {got}")
        return encoded


class Distinct:
    """Observations of (T, B) steps without repetition: index `place` (…) into the distinct `rows` (U, …).

    An encoder that reads every observation by itself need not read one twice, so an update passes it only
    the distinct rows of a minibatch.
    """

    def __init__(self, place: Tensor, rows: Any) -> None:
        self.place, self.rows = place, rows

    def __getitem__(self, _: int) -> Tensor:
        return self.place

    def map(self, function: Callable[[Tensor], Tensor]) -> Distinct:
        """Apply `function` to the indices, which have the leading axes of the observations."""
        return Distinct(function(self.place), self.rows)

    def encoded(self, encoder: Callable[[Any], Tensor]) -> Tensor:
        """Return (N, features) of the N observations."""
        present, where = self.place.unique(return_inverse=True)
        return encoder(self.rows.map(lambda part: part.index_select(0, present))).index_select(0, where)


def distinct(observation: Any, device: torch.device) -> Distinct:
    """Return an observation (T, B, …) as its distinct rows, compared byte by byte, on `device`.

    >>> from plait.lab.tasks.worlds.base import Seen
    >>> unique = distinct(Seen((torch.tensor([[7, 3], [3, 7]]),)), torch.device("cpu"))
    >>> unique.rows[0][unique.place].tolist()
    [[7, 3], [3, 7]]
    """
    steps, worlds = observation[0].shape[:2]
    flat = observation.map(lambda part: part.reshape(steps * worlds, *part.shape[2:]))
    parts = [part.contiguous().numpy().reshape(len(part), -1).view(np.uint8) for part in flat]
    joined = np.ascontiguousarray(np.concatenate(parts, 1))
    whole = joined.view(np.dtype((np.void, joined.shape[1]))).ravel()
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    kept = torch.from_numpy(first)
    rows = flat.map(lambda part: part.index_select(0, kept).to(device))
    return Distinct(torch.from_numpy(place).view(steps, worlds).to(device), rows)


def _over_windows(layer: nn.Conv2d) -> Tensor:
    """Return the weights of a convolution for a product with its windows, (window, channels)."""
    return layer.weight.permute(2, 3, 1, 0).flatten(0, 2)


def _orthogonal(layers: nn.Sequential) -> None:
    for part in layers:
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(part.weight, 2**0.5)
            nn.init.zeros_(cast(Tensor, part.bias))
