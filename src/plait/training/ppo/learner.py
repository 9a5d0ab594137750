"""One update of PPO: a rollout, its advantages, a few passes over it in minibatches of whole sequences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from plait.errors import DivergedError
from plait.training.optimizer_state import restore_optimizer
from plait.training.ppo.gae import advantages
from plait.training.ppo.objective import Losses, ppo_loss
from plait.training.ppo.policy import Policy
from plait.training.ppo.rollout import Episode, Rollout
from plait.training.ppo.settings import Settings
from plait.training.streams import generator_for

__all__ = ["PolicyLearner", "PolicyStep"]

_LEAST_SPREAD = 0.1  # of advantages; returns lie between 0 and 1


class PolicyStep(NamedTuple):
    """What an update showed: means over its minibatches, and the episodes that ended while playing."""

    losses: dict[str, float]
    gradient_norm: float
    episodes: list[Episode]


class PolicyLearner:
    """A policy and its optimiser."""

    def __init__(self, policy: Policy, settings: Settings, device: torch.device) -> None:
        self.policy, self.settings, self.device = policy.to(device), settings, device
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.lr, eps=1e-5, fused=True)

    def update(self, number: int, rollout: Rollout) -> PolicyStep:
        """Improve the policy by what it played. A number that is not finite ends it: `DivergedError`."""
        settings = self.settings
        advantage = advantages(
            rollout.rewards, rollout.values, rollout.last_values, rollout.terminated, rollout.ended,
            settings.discount, settings.decay,
        )  # fmt: skip
        returns = advantage + rollout.values
        advantage = normalised(advantage, rollout.counted)
        planes = self.policy.encoder.planes(rollout.observation.image.to(self.device))
        rollout = rollout._replace(observation=rollout.observation._replace(image=planes))
        shown: list[tuple[float, ...]] = []
        for worlds in self._minibatches(number):
            losses = self._losses(rollout, advantage, returns, worlds)
            self.optimizer.zero_grad(set_to_none=True)
            losses.total.backward()
            norm = clip_grad_norm_(self.parameters, settings.max_norm or math.inf)
            if not bool(torch.isfinite(losses.total) & torch.isfinite(norm)):
                raise DivergedError(f"update {number}: {self._culprit(losses)}")
            self.optimizer.step()
            shown.append((*(part.item() for part in losses), norm.item()))
        *means, gradient_norm = (sum(column) / len(shown) for column in zip(*shown, strict=True))
        return PolicyStep(dict(zip(Losses._fields, means, strict=True)), gradient_norm, rollout.episodes)

    def _minibatches(self, number: int) -> Iterator[Tensor]:
        """Places of the worlds each pass takes in; every world once an epoch, in an order drawn anew."""
        draw = generator_for(self.settings.seed, "noise", number, "cpu")
        for _ in range(self.settings.epochs):
            order = torch.randperm(self.settings.envs, generator=draw)
            yield from order.tensor_split(self.settings.minibatches)

    def _losses(self, rollout: Rollout, advantage: Tensor, returns: Tensor, worlds: Tensor) -> Losses:
        """Play whole sequences of some worlds again, from the state they began with."""

        def of(part: Tensor) -> Tensor:
            # Of planes on a CPU five times as fast as part[:, worlds]: it copies whole rows.
            return part.index_select(1, worlds.to(part.device)).to(self.device)

        state: Any = None if rollout.state is None else rollout.state.rows(worlds.to(self.device))
        logits, values, _ = self.policy(rollout.observation.map(of), state, reset=of(rollout.begins))
        return ppo_loss(
            logits.float(), values.float(), of(rollout.actions), of(rollout.old), of(advantage), of(returns),
            of(rollout.counted), self.settings,
        )  # fmt: skip

    def _culprit(self, losses: Losses) -> str:
        """The first tensor, in the order of computation, that holds a value that is not finite."""
        for name in ("value", "entropy", "policy", "total"):
            value = getattr(losses, name).item()
            if not math.isfinite(value):
                return f"the {name} loss is {value}" if name != "total" else f"the loss is {value}"
        for name, parameter in self.policy.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                return f"the gradient of {name} is not finite"
        return "the gradient's norm overflows"

    def state(self) -> dict[str, Tensor]:
        """Weights and optimiser by name, as a checkpoint holds them."""
        tensors = {f"model.{name}": value for name, value in self.policy.state_dict().items()}
        kept = self.optimizer.state_dict()["state"]
        for place, name in enumerate(_names(self.policy)):
            for key, value in kept.get(place, {}).items():
                tensors[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
        return tensors

    def restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `state` said of the optimiser."""
        restore_optimizer(self.optimizer, _names(self.policy), tensors)


def normalised(advantage: Tensor, counted: Tensor) -> Tensor:
    """Mean 0 and spread 1 over the steps that count; a spread below 0.1 is taken for 0.1.

    Where nothing was gained yet the critic's noise is all there is: blown up to spread 1 it would drown the
    entropy bonus, and the policy would stop to explore before its first reward.

    >>> normalised(torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([[True], [True], [False]]))[:2].tolist()
    [[-1.0], [1.0]]
    """
    inside = advantage[counted]
    spread = inside.std(correction=0) if inside.numel() else inside.new_ones(())
    mean = inside.mean() if inside.numel() else inside.new_zeros(())
    return (advantage - mean) / spread.clamp_min(_LEAST_SPREAD)


def _names(policy: nn.Module) -> list[str]:
    return [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
