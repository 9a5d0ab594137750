"""Encoders from an observation to a vector: for grid worlds, for gymnasium's spaces, or a user's module.

`UniqueObservations` holds the observations of a rollout, each distinct one once.
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
from plait.lab.tasks.environments.base import Observation
from plait.lab.tasks.environments.spaces import ObservationSpace, SpaceLeaf
from plait.lab.tasks.minigrid import WORDS, GridObservation

__all__ = ["GridEncoder", "OwnEncoder", "SpaceEncoder", "UniqueObservations", "unique_observations"]

_CELL_VALUES = (11, 6, 4)  # number of objects, colours and states of a cell
_MAX_FEATURE_MAP = 8  # largest side, in pixels, after the last convolution


class GridEncoder(nn.Module):
    """Encoder for grid worlds: e = relu(W conv(one-hot planes) + d[direction] + Σ m[word]).

    The convolutions are matrix products over unfolded windows, since for 7 × 7 images the overhead of a
    convolution dominates; the first, over one-hot planes, is a sum of the selected weights.

    >>> from plait.lab.tasks.minigrid import make_vec_env
    >>> GridEncoder(32)(make_vec_env("Empty-5x5", num_envs=3).reset().observation).shape
    torch.Size([3, 32])
    """

    window_cells: Tensor
    counts: Tensor
    weight_offsets: Tensor
    padding_row: Tensor
    cell_values: Tensor
    observation_size = 9 * 9 * sum(_CELL_VALUES)  # values of a prepared observation

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        # Stride 2 keeps the agent's own cell, in the middle of the last row, inside one window.
        self.view = nn.Sequential(
            nn.Conv2d(sum(_CELL_VALUES), 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 2 * 2, features),
        )
        self.direction = nn.Embedding(4, features)
        self.mission = nn.EmbeddingBag(len(WORDS) + 1, features, mode="sum", padding_idx=0)
        _init_orthogonal(self.view)
        for table in (self.direction, self.mission):
            nn.init.normal_(table.weight, std=0.3)
        self._register_indices()

    def _register_indices(self) -> None:
        """Register the indices of an image's values in the nine windows, and those of their weights."""
        counts = torch.tensor(_CELL_VALUES)
        cells = torch.arange(7 * 7 * 3).view(7, 7, 3).unfold(0, 3, 2).unfold(1, 3, 2).permute(0, 1, 3, 4, 2)
        offsets = sum(_CELL_VALUES) * torch.arange(9).view(9, 1) + counts.cumsum(0) - counts
        for name, buffer in (
            ("window_cells", cells.reshape(-1)),
            ("counts", counts.to(torch.uint8).repeat(9 * 9)),
            ("weight_offsets", offsets.flatten().repeat(9).int()),
            ("padding_row", torch.zeros(1, self.features)),
            ("cell_values", torch.cat([torch.arange(count, dtype=torch.uint8) for count in _CELL_VALUES])),
        ):
            self.register_buffer(name, buffer, persistent=False)

    def planes(self, image: Tensor) -> Tensor:
        """Return (N, 7, 7, 3) uint8 as (N, 7, 7, 21) float, one plane for each object, colour and state."""
        parts = zip(image.unbind(-1), self.cell_values.split(_CELL_VALUES), strict=True)
        return torch.cat([(part.unsqueeze(-1) == values).float() for part, values in parts], -1)

    def prepare(self, observation: GridObservation) -> GridObservation:
        """Return an observation as windows (N, 9, 189) of planes and word counts (N, words) of the mission.

        An update reads its rollout several times, so these are computed once.
        """
        windows = self.planes(observation.image).unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 4, 5, 3)
        words = torch.arange(len(WORDS) + 1, device=windows.device)
        word_counts = (observation.mission.unsqueeze(-1) == words).sum(1).float()
        return observation._replace(image=windows.reshape(len(windows), 9, -1), mission=word_counts)

    def forward(self, observation: GridObservation) -> Tensor:
        """Return (N, features) of an observation of N environments, raw or from `prepare`."""
        # Looking weights up is faster without gradients, and slower with them.
        if torch.is_grad_enabled() and not observation.image.is_floating_point():
            observation = self.prepare(observation)
        image, direction, mission = observation
        layers = tuple(self.view)
        conv1, conv2, linear = cast(nn.Conv2d, layers[0]), cast(nn.Conv2d, layers[2]), layers[5]
        weight = _as_matrix(conv1)
        word_embeddings = torch.cat([self.padding_row, self.mission.weight[1:]])
        if image.is_floating_point():
            windows, mission_sum = image @ weight, mission @ word_embeddings
        else:
            windows = self._lookup(image, weight)
            mission_sum = embedding_bag(mission.int(), word_embeddings, mode="sum")
        x = torch.relu(windows + cast(Tensor, conv1.bias)).view(-1, 3, 3, conv1.out_channels)
        x = x.unfold(1, 2, 1).unfold(2, 2, 1).permute(0, 1, 2, 4, 5, 3).reshape(4 * len(x), -1)
        x = torch.relu(torch.addmm(cast(Tensor, conv2.bias), x, _as_matrix(conv2)))
        # In the order of flattened convolution planes: all positions of one channel, then the next.
        x = linear(x.view(-1, 4, conv2.out_channels).transpose(1, 2).flatten(1))
        return torch.relu(x + (mission_sum + self.direction(direction.int())))

    def _lookup(self, image: Tensor, weight: Tensor) -> Tensor:
        """Return the one-hot windows times the weights, (N, 9, channels); values out of range add 0."""
        values = image.flatten(1).index_select(1, self.window_cells)
        rows = torch.where(values < self.counts, values.int() + self.weight_offsets, len(weight))
        weight = torch.cat([weight, weight.new_zeros(1, weight.shape[1])])
        return embedding_bag(rows.view(-1, 27), weight, mode="sum").view(len(image), 9, -1)


class SpaceEncoder(nn.Module):
    """Encoder for gymnasium's spaces: e = relu(Σ of the encoded leaves), by the kind of each leaf.

    - discrete: the sum of an embedding for each integer;
    - continuous: a two-layer network over the flattened values; bounded ones are scaled to −1 … 1, others are
      compressed to sign(x) log(1 + |x|), so that neither needs a running mean;
    - image: convolutions of stride 2 until no side is longer than eight, and a linear layer.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> space = Dict(card=Discrete(4), speed=Box(-1, 1, (3,)))
    >>> observation = Observation((torch.tensor([[2]]), torch.zeros(1, 3)))
    >>> SpaceEncoder(ObservationSpace(space, "cards"), 16)(observation).shape
    torch.Size([1, 16])
    """

    def __init__(self, observations: ObservationSpace, features: int) -> None:
        super().__init__()
        self.features = features
        self.parts = nn.ModuleList(_leaf_encoder(leaf, features) for leaf in observations.leaves)

    def forward(self, observation: Observation) -> Tensor:
        """Return (N, features) of an observation of N environments."""
        total = self.parts[0](observation[0])
        for encoder, values in zip(self.parts[1:], observation[1:], strict=True):
            total = total + encoder(values)
        return torch.relu(total)


def _leaf_encoder(leaf: SpaceLeaf, features: int) -> nn.Module:
    encoders = {"discrete": _DiscreteEncoder, "continuous": _ContinuousEncoder, "image": _ImageEncoder}
    return encoders[leaf.kind](leaf, features)


class _DiscreteEncoder(nn.Module):
    offsets: Tensor

    def __init__(self, leaf: SpaceLeaf, features: int) -> None:
        super().__init__()
        counts = torch.tensor(leaf.counts)
        check_weights(int(counts.sum()) * features)
        self.register_buffer("offsets", counts.cumsum(0) - counts, persistent=False)
        self.table = nn.EmbeddingBag(int(counts.sum()), features, mode="sum")
        nn.init.normal_(self.table.weight, std=len(counts) ** -0.5)

    def forward(self, values: Tensor) -> Tensor:
        encoded: Tensor = self.table(values + self.offsets)
        return encoded


class _ContinuousEncoder(nn.Module):
    centre: Tensor
    half_width: Tensor
    bounded: Tensor

    def __init__(self, leaf: SpaceLeaf, features: int) -> None:
        super().__init__()
        centre, half_width = (torch.from_numpy(side).float() for side in leaf.scale)
        check_weights(len(centre) * features)
        self.register_buffer("bounded", ~centre.isnan(), persistent=False)
        self.register_buffer("centre", centre.nan_to_num(), persistent=False)
        self.register_buffer("half_width", half_width.nan_to_num(1.0), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(len(centre), features), nn.Tanh(), nn.Linear(features, features)
        )
        _init_orthogonal(self.layers)

    def forward(self, values: Tensor) -> Tensor:
        flat = values.flatten(1).float()
        scaled = (flat - self.centre) / self.half_width
        encoded: Tensor = self.layers(torch.where(self.bounded, scaled, flat.sign() * flat.abs().log1p()))
        return encoded


class _ImageEncoder(nn.Module):
    def __init__(self, leaf: SpaceLeaf, features: int) -> None:
        super().__init__()
        shape = leaf.space.shape
        self.channels_last, self.greyscale = bool(leaf.channels_last), len(shape) == 2
        sides = list(shape if self.greyscale else shape[:-1] if self.channels_last else shape[1:])
        channels, layers = 1 if self.greyscale else shape[-1 if self.channels_last else 0], []
        width = 16
        while max(sides) > _MAX_FEATURE_MAP:
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
            channels, width = width, min(2 * width, 64)
            sides = [-(-side // 2) for side in sides]
        check_weights(channels * sides[0] * sides[1] * features)
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(channels * sides[0] * sides[1], features)
        )
        _init_orthogonal(self.layers)

    def forward(self, pixels: Tensor) -> Tensor:
        if self.greyscale:
            pixels = pixels.unsqueeze(1)
        elif self.channels_last:
            pixels = pixels.permute(0, 3, 1, 2)
        encoded: Tensor = self.layers(pixels.float() / 255)
        return encoded


class OwnEncoder(nn.Module):
    """Encoder around a user's module, which `make(space, features)` builds for an observation space.

    The module is called on an observation in the form of the space (a tensor, or tensors by key or index,
    each (N, …); a discrete leaf is a row of integers counted from 0) and has to return (N, features).
    """

    def __init__(self, name: str, observations: ObservationSpace, features: int) -> None:
        super().__init__()
        self.name, self.observations, self.features = name, observations, features
        make = by_name(name, "encoder")
        try:
            inner = make(observations.space, features)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"encoder: {name}(space, features) failed: {reason}") from error
        if not isinstance(inner, nn.Module):
            raise ConfigError(
                f"encoder: expected a torch.nn.Module from {name}(space, features), got "
                f"{type(inner).__name__}"
            )
        self.inner = inner

    def forward(self, observation: Observation) -> Tensor:
        """Return (N, features) of an observation of N environments."""
        encoded: Any = self.inner(self.observations.structured(observation))
        shape = (len(observation[0]), self.features)
        if not isinstance(encoded, Tensor) or encoded.shape != shape:
            got = tuple(encoded.shape) if isinstance(encoded, Tensor) else type(encoded).__name__
            raise ShapeError(f"encoder: expected {shape} from {self.name}, got {got}")
        return encoded


class UniqueObservations:
    """Observations of (T, B) steps, stored once each: the distinct `rows` (U, …) and an `index` into them.

    An update passes the encoder only the distinct rows of a minibatch, which is valid for an encoder that
    reads every observation by itself.

    Args:
        index: (T, B) index of each observation into the rows, or that of some steps or environments.
        rows: the distinct observations, (U, …).
    """

    def __init__(self, index: Tensor, rows: Any) -> None:
        self.index, self.rows = index, rows

    def __getitem__(self, _: int) -> Tensor:
        """Return a tensor with the leading axes of the observations."""
        return self.index

    def map(self, function: Callable[[Tensor], Tensor]) -> UniqueObservations:
        """Apply `function` to the index, which has the leading axes of the observations."""
        return UniqueObservations(function(self.index), self.rows)

    def encode(self, encoder: Callable[[Any], Tensor]) -> Tensor:
        """Return (N, features) of the N observations."""
        present, inverse = self.index.unique(return_inverse=True)
        encoded = encoder(self.rows.map(lambda part: part.index_select(0, present)))
        return encoded.index_select(0, inverse)


def unique_observations(observation: Any, device: torch.device) -> UniqueObservations:
    """Return an observation (T, B, …) as its distinct rows, compared byte by byte, on `device`.

    >>> unique = unique_observations(Observation((torch.tensor([[7, 3], [3, 7]]),)), torch.device("cpu"))
    >>> unique.rows[0][unique.index].tolist()
    [[7, 3], [3, 7]]
    """
    steps, envs = observation[0].shape[:2]
    flat = observation.map(lambda part: part.reshape(steps * envs, *part.shape[2:]))
    parts = [part.contiguous().numpy().reshape(len(part), -1).view(np.uint8) for part in flat]
    joined = np.ascontiguousarray(np.concatenate(parts, 1))
    as_bytes = joined.view(np.dtype((np.void, joined.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    selected = torch.from_numpy(first)
    rows = flat.map(lambda part: part.index_select(0, selected).to(device))
    return UniqueObservations(torch.from_numpy(inverse).view(steps, envs).to(device), rows)


def _as_matrix(layer: nn.Conv2d) -> Tensor:
    """Return the weights of a convolution as a matrix (window, channels) for products with its windows."""
    return layer.weight.permute(2, 3, 1, 0).flatten(0, 2)


def _init_orthogonal(layers: nn.Sequential) -> None:
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, 2**0.5)
            nn.init.zeros_(cast(Tensor, layer.bias))
