"""Models with known gradients, and the comparison of a sentence with autograd by the input."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plait.gradients import probe

DOUBLE = torch.float64
T = 60


@dataclass
class Case:
    """A model, its input x (a leaf), the loss, and facts known beforehand.

    `axis` is that of time in x, `read` the positions (from 1) that the loss reads: distances of others are
    those from the nearest, or from the nearest later one in a causal model; `is_two_way` marks one that is
    not causal though the last position is read. `word` opens the sentence about the input, and `phrases` are
    parts of it.
    """

    model: nn.Module
    x: Tensor
    loss: Callable[[Any], Tensor]
    word: str
    phrases: tuple[str, ...] = ()
    axis: int = 0
    read: tuple[int, ...] = (T,)
    options: dict[str, Any] | None = None
    stack: int = 0
    more: tuple[Any, ...] = ()
    is_two_way: bool = False


def draw(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=dtype)


def last(output: Any) -> Tensor:
    return (output[0] if isinstance(output, tuple) else output)[-1].square().sum()


def last_of_rows(output: Any) -> Tensor:
    return (output[0] if isinstance(output, tuple) else output)[:, -1].square().sum()


def last_sum(output: Any) -> Tensor:
    return (output[0] if isinstance(output, tuple) else output)[-1].sum()


class Own(nn.Module):
    """A module from a function of itself and its arguments; the parts are submodules."""

    def __init__(self, run: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part.to(DOUBLE))

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def blocks(*parts: nn.Module) -> nn.Module:
    def run(self: Any, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    return Own(run, blocks=nn.ModuleList(parts))


def oracle(case_: Case, x: Tensor) -> np.ndarray:
    """Return ‖dL/dx_t‖ by autograd."""
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(case_.loss(case_.model(leaf, *case_.more)), leaf)
    return gradient.movedim(case_.axis, 0).flatten(1).norm(dim=1).double().numpy()


def nearest_read(norms: np.ndarray, read: list[int], is_two_way: bool) -> np.ndarray:
    """Return for each position (from 0) the nearest one read, none before it if the model is causal."""
    causal = not is_two_way and not norms[max(read) + 1 :].any()
    allowed = [[r for r in read if r >= t or not causal] or [max(read)] for t in range(norms.size)]
    return np.array([min(a, key=lambda r, t=t: (abs(r - t), -r)) for t, a in enumerate(allowed)])


def check_sentence(
    sentence: str, norms: np.ndarray, read: list[int], precision: float = 1e-3, is_two_way: bool = False
) -> None:
    """Compare every number of a sentence with the norms it is about; `read` counts from 0."""
    nearest = nearest_read(norms, read, is_two_way)
    distance = np.abs(np.arange(norms.size) - nearest)
    is_of_largest = "of the largest" in sentence or not norms[read].all()
    relative = norms / (norms.max() if is_of_largest else norms[nearest])
    felt = relative >= 1e-6
    if match := re.search(r"felt at (\d+) of (\d+) positions", sentence):
        assert (int(match[1]), int(match[2])) == (felt.sum(), norms.size)
    if match := re.search(r"below a millionth from (\d+) step", sentence):
        assert not felt[distance >= int(match[1])].any()
        assert felt[distance == int(match[1]) - 1].any()
    if match := re.search(r"exactly zero from (\d+) step", sentence):
        assert not norms[distance >= int(match[1])].any()
        assert norms[distance == int(match[1]) - 1].any()
    if match := re.search(r"nothing arrives from (\d+) step", sentence):
        assert not norms[distance >= int(match[1])].any()
    if match := re.search(r"not at (\d+)(?: to (\d+))?", sentence):
        first, end = int(match[1]), int(match[2] or match[1])
        assert not felt[first - 1 : end].any()
        assert felt[distance > distance[first - 1 : end].min()].any()
    if match := re.search(r"1000 times larger (\d+) step", sentence):
        assert relative[distance == int(match[1])].max() > 1000
        assert relative[distance < int(match[1])].max() <= 1000
    if match := re.search(r"the nearest (\d+) step", sentence):
        assert int(match[1]) == distance[felt].min() > 0
    if match := re.search(r"(\d+) come after what the loss reads", sentence):
        assert int(match[1]) == norms.size - 1 - max(read)
        assert not norms[max(read) + 1 :].any()
    if match := re.search(r"(\d+) come too long after what the loss reads", sentence):
        assert int(match[1]) < norms.size - 1 - max(read)
        assert not norms[norms.size - int(match[1]) :].any()
        assert norms[norms.size - int(match[1]) - 1]
    if match := re.search(r"([\d.e+]+) times as much at position (\d+)", sentence):
        assert int(match[2]) - 1 == norms.argmax()
        assert float(match[1]) == pytest.approx(relative.max(), rel=0.06)
    if match := re.search(r"the farthest at ([\d.e+-]+) of its size where", sentence):
        farthest = relative[distance == distance[norms > 0].max()]  # before and after what is read
        assert np.isclose(farthest, float(match[1]), rtol=6e-3).any()
    if match := re.search(r"(\d+) can never be felt", sentence):
        assert int(match[1]) <= (norms == 0).sum()
    if match := re.search(r"a factor of ([\d.e+-]+) per step \(R² ([\d.]+)\)", sentence):
        alive = norms > 0
        slope = np.polyfit(distance[alive], np.log(norms[alive]), 1)[0]
        assert float(match[1]) == pytest.approx(np.exp(slope), rel=precision)
    if sentence.startswith("reaches"):
        paths = (np.arange(norms.size) <= max(read)) | (norms > 0)
        assert felt[paths].all()


def check_case(known: Case) -> None:
    """Compare every number of every sentence about a model with autograd."""
    profile = probe(known.model, (known.x, *known.more), known.loss, **(known.options or {}))
    expected = oracle(known, known.x)
    of_input = profile.inputs[0]
    precision = 1e-7 if known.x.dtype == DOUBLE else 1e-2
    above = max(1e-300, expected.max() * (0 if known.x.dtype == DOUBLE else 1e-12))
    assert of_input.norms.shape == expected.shape
    large = expected > above
    assert of_input.norms[large] == pytest.approx(expected[large], rel=precision)
    assert ((of_input.norms == 0) == (expected == 0))[large | (known.x.dtype == DOUBLE)].all()
    sentence = of_input.verdict()
    assert sentence.startswith(known.word), sentence
    for phrase in known.phrases:
        assert phrase in sentence, sentence
    if known.word != "is read" and expected.any():
        assert of_input.acting == known.read
        fit = 1e-3 if known.x.dtype == DOUBLE else 0.05  # subnormal numbers round
        read = [position - 1 for position in known.read]
        check_sentence(sentence, expected, read, fit, known.is_two_way)
    for layer in (*profile.inputs, *profile.layers):
        if layer.norms.any() and not layer.everywhere and not known.is_two_way:
            check_sentence(layer.verdict(), layer.norms, [position - 1 for position in layer.acting])
        elif layer.reach is not None:
            position = layer.reach.positions[-1] - 1
            check_sentence(layer.verdict().partition("; ")[2], layer.reach.norms[-1], [position])
