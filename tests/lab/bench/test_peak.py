"""The peak is what was held at once, not what was ever taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from plait.lab.bench.layer_config import LayerConfig
from plait.lab.bench.peak import megabytes_in_use, peak_megabytes

CPU = torch.device("cpu")
MB = 250_000  # floats


def test_what_is_freed_is_counted_once() -> None:
    def build() -> Callable[[], object]:
        torch.zeros(9 * MB)  # gone before the step
        kept = torch.zeros(MB)

        def step() -> None:
            for _ in range(3):
                torch.empty(2 * MB)
            kept.add_(1)

        return step

    assert peak_megabytes(build, CPU) == pytest.approx(3, abs=0.01)


def test_a_training_step_holds_at_least_its_weights_and_their_gradients() -> None:
    config = LayerConfig("torch.nn.LSTM", "auto", CPU, hidden=64, steps=3)
    weights = sum(weight.numel() for weight in config.module().parameters())
    assert peak_megabytes(config.training_step, CPU) > 2 * weights * 4 / 1e6


def test_memory_in_use_sees_a_large_tensor() -> None:
    before = megabytes_in_use(CPU)
    held = torch.ones(300 * MB)  # more than earlier tests may have left free in the heap
    assert megabytes_in_use(CPU) - before == pytest.approx(300, rel=0.3)
    del held
