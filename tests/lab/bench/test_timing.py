"""Steps take turns; ratios are formed within the rounds."""

from __future__ import annotations

import gc

import pytest
import torch

from plait.errors import ConfigError
from plait.lab.bench.timing import Times, limit_threads, seconds_per_call, take_turns

CPU = torch.device("cpu")


def test_steps_take_turns() -> None:
    called: list[str] = []
    steps = {name: lambda name=name: called.append(name) for name in "ab"}  # type: ignore[misc]
    take_turns(steps, CPU, rounds=3, warm_up=1, turn_seconds=0)
    # one warm-up and one probe of each, then in every round one call that is not timed and one that is
    assert "".join(called) == "aabb" + "aabb" * 3


def test_a_disturbed_round_does_not_move_the_ratio() -> None:
    ours, peer = Times((2.0, 2.2, 40.0)), Times((1.0, 1.1, 20.0))
    assert ours.ratio_to(peer) == pytest.approx(2.0)


def test_ratio_of_sleeps(clock):
    steps = {"one": clock.nap(0.004), "three": clock.nap(0.012)}
    times = take_turns(steps, CPU, rounds=5, warm_up=1, turn_seconds=0)
    assert times["three"].ratio_to(times["one"]) == pytest.approx(3)


def test_a_slow_step_leaves_early(clock):
    steps = {"fast": clock.nap(0.001), "slow": clock.nap(0.01)}
    times = take_turns(steps, CPU, rounds=12, warm_up=1, turn_seconds=0, most_seconds=0.11)
    assert len(times["fast"].rounds) == 12
    assert len(times["slow"].rounds) == 5
    assert times["slow"].ratio_to(times["fast"]) == pytest.approx(10)


def test_spread_of_one_round_is_nothing() -> None:
    assert Times((1.0,)).spread == 0


def test_the_garbage_collector_comes_back() -> None:
    take_turns({"nothing": lambda: None}, CPU, rounds=1)
    assert gc.isenabled()


def test_threads_are_restored() -> None:
    with limit_threads(2) as used:
        assert used == torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1
    with pytest.raises(ConfigError, match="threads: expected at least 1"), limit_threads(0):
        pass


def test_seconds_per_call_is_a_mean(clock):
    assert seconds_per_call(clock.nap(0.003), CPU, 3) == pytest.approx(0.003)
