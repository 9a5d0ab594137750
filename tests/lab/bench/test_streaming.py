"""Streaming: the same time and memory at every step, and the state really is carried."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import plait
from plait.errors import ConfigError
from plait.lab.bench import streaming
from plait.lab.bench.layer_config import LayerConfig
from plait.lab.bench.streaming import bench_streaming, checkpoints


def test_checkpoints() -> None:
    assert checkpoints(10) == [10]
    assert checkpoints(100) == [10, 100]
    assert checkpoints(1_000_000) == [10, 100, 1000, 10_000, 100_000, 1_000_000]


def test_rows_and_constant_memory() -> None:
    result = bench_streaming(steps=600, hidden=8, device="cpu", threads=1)
    rows = result.data["rows"]
    assert [(row["layer"], row["step"]) for row in rows] == [
        (layer, step) for layer in ("RelRNN", "RelLSTM") for step in (10, 100, 600)
    ]
    assert [row["ratio"] for row in rows if row["step"] == 10] == [1, 1]
    assert all(row["µs per step"] > 0 for row in rows)
    assert rows[-1]["MB"] - rows[0]["MB"] < 20
    assert result.data["machine"]["cpu"]


def test_a_transformer_streams_with_a_memory_of_fixed_size() -> None:
    rows = bench_streaming(steps=200, layers="transformer", hidden=8, device="cpu", threads=1).data["rows"]
    assert [(row["layer"], row["step"]) for row in rows] == [("Transformer", n) for n in (10, 100, 200)]
    module = LayerConfig("transformer", "auto", torch.device("cpu"), hidden=8).module()
    assert isinstance(module, plait.Transformer)
    assert module.slots == 20


def test_the_number_of_steps_is_exact_and_the_state_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    ages: list[int] = []

    class Counting(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor, state: object) -> object:
            output, after = self.module(x, state)
            ages.append(int(after.memory[0].age[0]))
            return output, after

    sound = LayerConfig.module
    monkeypatch.setattr(LayerConfig, "module", lambda self, seed=0: Counting(sound(self, seed)))
    monkeypatch.setattr(LayerConfig, "backend_that_ran", lambda self: "torch")
    monkeypatch.setattr(streaming, "_compared", lambda module, x, states: [1.0] * len(states))
    bench_streaming(steps=137, layers="relrnn", hidden=4, device="cpu")
    assert ages[-137:] == list(range(1, 138))


def test_too_few_steps() -> None:
    with pytest.raises(ConfigError, match="steps: expected at least 10"):
        bench_streaming(steps=9)
