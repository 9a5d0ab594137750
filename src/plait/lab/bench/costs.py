"""Costs of a model at one sequence length: parameters, training step, streaming; and its gradient's reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from plait.gradients.decay import Decay
from plait.lab.bench.peak import peak_megabytes
from plait.lab.bench.timing import Times, take_turns
from plait.lab.tasks import Batch, Task

__all__ = ["Cost", "Reach", "costs", "reach", "state_bytes"]


@dataclass(frozen=True)
class Reach:
    """Reach of the loss's gradient: ‖∂L/∂x_t‖ by step, taken at the inputs, which all models share.

    `positions` counts steps with at least a millionth of the norm at the last step; `farthest` is the norm at
    the first step divided by the norm at the last.
    """

    positions: int
    farthest: float
    norms: tuple[float, ...]


@dataclass(frozen=True)
class Cost:
    """Costs of one model: of a training step, and of streaming one row.

    `step_*` are the seconds and memory of a training step (forward and backward of a batch). `state_bytes` is
    the size of the state after all steps of one row, `state_growth` its growth in bytes per step, and
    `streamed_seconds` the time of one more step.
    """

    parameters: int
    step_seconds: float
    step_spread: float
    step_megabytes: float
    state_bytes: int
    state_growth: float
    streamed_seconds: float


def costs(
    networks: Mapping[str, nn.Module], task: Task, batch_size: int, device: torch.device, seconds: float = 4.0
) -> dict[str, Cost]:
    """Measure every network on one batch, in turns, so that a disturbance affects all of them equally.

    Args:
        seconds: approximate time for which each network is measured.
    """
    batch = task.batch(batch_size, torch.Generator(device).manual_seed(0), device)
    steps = {name: partial(_training_step, network, task, batch) for name, network in networks.items()}
    times = take_turns(
        {name: step() for name, step in steps.items()}, device, 10, warm_up=1, most_seconds=seconds
    )
    streams = {name: _streamed(network, batch.inputs[:, :1]) for name, network in networks.items()}
    streaming = take_turns(
        {name: stream.step for name, stream in streams.items()}, device, 20, most_seconds=seconds / 4
    )
    return {
        name: _cost(network, times[name], peak_megabytes(steps[name], device), streams[name], streaming[name])
        for name, network in networks.items()
    }


def reach(network: nn.Module, task: Task, batch: Batch) -> Reach:
    """Return the reach of the task's probe loss, which is the loss of its last steps."""
    inputs = batch.inputs.detach().clone().requires_grad_()
    loss = task.probe_loss(network(inputs)[0], batch.targets)
    (gradient,) = torch.autograd.grad(loss, inputs)
    norms = gradient.double().flatten(1).norm(dim=1).cpu().numpy()
    decay = Decay.of(norms)
    if decay is None:
        return Reach(int((norms > 0).sum()), 0.0, tuple(norms.tolist()))
    return Reach(decay.reached, decay.farthest, tuple(norms.tolist()))


def state_bytes(state: Any) -> int:
    """Return the bytes of all tensors in a state.

    >>> state_bytes((torch.zeros(2, 3), [torch.zeros(4, dtype=torch.float64), None]))
    56
    """
    leaves = [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor)]
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)


@dataclass(frozen=True)
class _Stream:
    """State size after all steps, its growth in bytes per step over the second half, and one more step."""

    bytes: int
    growth: float
    step: Callable[[], object]


def _training_step(network: nn.Module, task: Task, batch: Batch) -> Callable[[], object]:
    weights = [p for p in network.parameters() if p.requires_grad]

    def step() -> tuple[Tensor, ...]:
        loss = task.loss(network(batch.inputs)[0], batch.targets)
        return torch.autograd.grad(loss, weights, allow_unused=True)

    return step


@torch.no_grad()
def _streamed(network: nn.Module, inputs: Tensor) -> _Stream:
    """Run one row to its middle and to its end, and measure the state that a further step needs."""
    middle = len(inputs) // 2
    half = network(inputs[:middle])[1]
    end = network(inputs[middle:], half)[1]
    growth = (state_bytes(end) - state_bytes(half)) / (len(inputs) - middle)

    def step() -> object:
        with torch.no_grad():
            return network(inputs[-1:], end)

    return _Stream(state_bytes(end), growth, step)


def _cost(network: nn.Module, times: Times, megabytes: float, stream: _Stream, streaming: Times) -> Cost:
    return Cost(
        parameters=sum(p.numel() for p in network.parameters()),
        step_seconds=times.median,
        step_spread=times.spread,
        step_megabytes=megabytes,
        state_bytes=stream.bytes,
        state_growth=stream.growth,
        streamed_seconds=streaming.median,
    )
