"""Randomness as a function of (seed, purpose, index): nothing to save, nothing to disturb.

Batch n of a run is drawn from a generator made for it alone. So a resumed run draws what an uninterrupted
one would have drawn, and looking at held-out data moves nothing.
"""

from __future__ import annotations

import hashlib

import torch

__all__ = ["PURPOSES", "generator_for", "seed_for"]

PURPOSES = ("train", "held-out", "noise")


def seed_for(seed: int, purpose: str, index: int) -> int:
    """A 32-bit seed. torch's CPU generator reads no more than that.

    For one `seed`, different (purpose, index < 2³⁰) never give the same value: the two are laid side by side
    in one word, and what follows (an exclusive or, then murmur3's final mix) is a bijection.

    >>> len({seed_for(0, purpose, index) for purpose in PURPOSES for index in range(1000)})
    3000
    """
    digest = hashlib.sha256(str(seed).encode()).digest()
    word = (PURPOSES.index(purpose) << 30 | index % 2**30) ^ int.from_bytes(digest[:4], "big")
    word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
    word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def generator_for(seed: int, purpose: str, index: int, device: torch.device | str) -> torch.Generator:
    """A generator on `device` for one batch."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, index))
