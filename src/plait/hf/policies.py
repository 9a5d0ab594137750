"""Eviction policies: the rank by which a state stays in a bounded cache, largest first.

A rank is either fixed at birth, from the token alone, or it moves with every step that reads the state. Fixed
ranks give every state a lifetime (`plait.ops.lifetimes`), so a whole chunk is read at once; ranks that move
are followed token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from plait.errors import ConfigError, check_choice

__all__ = ["POLICIES", "Policy", "Slots", "Token", "make_policy"]


@dataclass(frozen=True)
class Token:
    """New states of one layer.

    `key` and `value` are (B, H, n, D), the key as the model has rotated it; `number` (B, n) counts a row's
    tokens from 0, without its padding. `hidden` (B, n, width) is what the layer's attention read, of which
    queries, keys and values are functions; None where no policy needs it.
    """

    key: Tensor
    value: Tensor
    number: Tensor
    layer: int
    hidden: Tensor | None = None

    def __getitem__(self, index: tuple[slice, slice]) -> Token:
        """Return the states of some rows and steps."""
        rows, steps = index
        hidden = None if self.hidden is None else self.hidden[rows, steps]
        states = (self.key[rows, :, steps], self.value[rows, :, steps])
        return Token(*states, self.number[rows, steps], self.layer, hidden)


@dataclass(frozen=True)
class Slots:
    """All slots of one layer after a step that read them.

    `keys` is (B, H, slots, D), the rest (B, H, slots). `weights` is the attention summed over the queries
    that share a key, 0 in a row whose step is padding; `in_window` marks the latest `window` states.
    """

    keys: Tensor
    ranks: Tensor
    weights: Tensor
    occupied: Tensor
    in_window: Tensor


@dataclass(frozen=True)
class Policy:
    """Rule by which states are ranked.

    `birth` returns the ranks (B, H, n) of new states, `move` new ranks of all slots after each step; without
    `move`, ranks never change.
    """

    birth: Callable[[Token], Tensor]
    move: Callable[[Slots], Tensor] | None = None


def make_policy(name: str, learned: Callable[[Token], Tensor] | None, seed: int) -> Policy:
    """Return the policy of this name; `learned` returns the ranks of new states for "learned"."""
    check_choice(name, POLICIES, "policy")
    if (name == "learned") != (learned is not None):
        raise ConfigError(
            "scores: expected trained scores with policy='learned', and with no other policy; "
            f"got policy={name!r} {'without' if learned is None else 'with'} scores"
        )
    if learned is not None:
        return Policy(learned)
    if name == "random":
        return Policy(lambda token: _random(token, seed))
    return _FIXED[name]


def _recency(token: Token) -> Tensor:
    return token.number.unsqueeze(1).expand(token.key.shape[:3])


def _random(token: Token, seed: int) -> Tensor:
    """Return a hash of seed, layer, head and number, so that neither chunks nor other rows change it."""
    heads = torch.arange(token.key.shape[1], device=token.key.device).view(1, -1, 1)
    x = _mixed(_mixed(_mixed(heads + 1) + token.layer) + seed % 2**32)
    return _mixed(x + token.number.unsqueeze(1)) / 2**32


def _mixed(x: Tensor) -> Tensor:
    """Return a 32-bit hash of each number."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = x & 0xFFFFFFFF
        x = (x ^ (x >> shift)) * factor
    x = x & 0xFFFFFFFF
    return x ^ (x >> 16)


def _small_norm(token: Token) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(token.key.float(), dim=-1)
    return -norm


def _zero(token: Token) -> Tensor:
    return token.key.new_zeros(token.key.shape[:3], dtype=torch.float32)


def _accumulated(slots: Slots) -> Tensor:
    return slots.ranks + slots.weights


def _latest_query(slots: Slots) -> Tensor:
    return slots.weights


def _earned(slots: Slots) -> Tensor:
    return slots.ranks + torch.where(slots.in_window, slots.weights, 0)


def _unlike_the_mean(slots: Slots) -> Tensor:
    keys = normalize(slots.keys.float(), dim=-1) * slots.occupied.unsqueeze(-1)
    mean = keys.sum(dim=2, keepdim=True) / slots.occupied.sum(-1).clamp_min(1)[..., None, None]
    similarity: Tensor = cosine_similarity(keys, mean, dim=-1)
    return -similarity


_FIXED = {
    "sinks": Policy(_recency),
    "knorm": Policy(_small_norm),
    "h2o": Policy(_zero, _accumulated),
    "tova": Policy(_zero, _latest_query),
    "earned": Policy(_zero, _earned),
    "keydiff": Policy(_zero, _unlike_the_mean),
}
# Name -> the criterion for keeping a state that has left the window.
POLICIES = {
    "sinks": "the latest states, with the first few (StreamingLLM)",
    "random": "a random number, drawn once for a state",
    "knorm": "a small norm of its key",
    "keydiff": "a key unlike the mean of the keys kept (KeyDiff)",
    "h2o": "the attention it has received so far (H2O)",
    "tova": "the attention of the latest query (TOVA)",
    "earned": "the attention it received while in the window (relevancy screening)",
    "learned": "a trained score of its key and value (plait.hf.Scores)",
}
