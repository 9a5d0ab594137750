"""Randomness as a function of seed, purpose and index."""

from __future__ import annotations

import torch

from plait.lab.tasks import CopyTask
from plait.lab.training.learner import PURPOSES, generator_for, seed_for


def test_no_two_batches_of_a_run_share_a_seed():
    """Training, held-out and dropout seeds are all different, over more indices than the birthday
    paradox would let a plain 32-bit hash get away with."""
    seen = {seed_for(5, purpose, index) for purpose in PURPOSES for index in range(100_000)}
    assert len(seen) == 3 * 100_000
    assert all(0 <= seed < 2**32 for seed in seen)


def test_seeds_differ_between_runs():
    first = [seed_for(0, "train", index) for index in range(1000)]
    second = [seed_for(1, "train", index) for index in range(1000)]
    assert not set(first) & set(second)


def test_a_batch_depends_on_its_index_alone():
    task = CopyTask(3)
    again = [task.batch(2, generator_for(0, "train", index, "cpu")).targets for index in (2, 1, 2)]
    assert torch.equal(again[0], again[2])
    assert not torch.equal(again[0], again[1])
