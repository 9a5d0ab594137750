"""Learner for PPO: an update is a rollout, its advantages, and epochs over minibatches of whole sequences.

Besides weights and optimiser, a checkpoint contains `env.…` (the environments' snapshot), `timestep.…` (the
last time step), `carry.<number>` (the policy's state) and `episode.…` (return and length of open episodes).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from plait.errors import CheckpointError, ConfigError, DivergedError
from plait.estimates import FLOAT, check_fits
from plait.lab.runs.checkpoint import Checkpoint, check_alike, leaves, with_leaves
from plait.lab.tasks.environments.actions import Actions
from plait.lab.tasks.environments.base import TimeStep
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.carried_state import check_carried
from plait.lab.training.learner import Learner, Step, clip_gradients, generator_for
from plait.lab.training.memory_needed import slot_numbers
from plait.lab.training.ppo.policy import Policy, PolicySpec, build_policy
from plait.lab.training.ppo.progress import PolicyProgressFormat
from plait.lab.training.ppo.returns import BestMean, RewardScaling
from plait.lab.training.ppo.rollout import Collector, Episode, Rollout, compute_advantages, evaluate_policy
from plait.lab.training.process import Group
from plait.lab.training.recipe import PPOConfig
from plait.lab.training.stop import Stop

__all__ = [
    "PolicyLearner",
    "PolicyStep",
    "clipped_objective",
    "learner_of",
    "ppo_loss",
]

_MIN_STD = 0.1  # smallest scale of advantages; returns in grid worlds are between 0 and 1
# Losses -> their names in the learning curve.
_METRICS = {
    "total": "loss",
    "policy": "policy_loss",
    "value": "value_loss",
    "entropy": "entropy",
    "clip_fraction": "clip_fraction",
    "approx_kl": "approx_kl",
}
_SCALARS = ("reward", "terminated", "truncated", "episode_start")  # scalar fields of a time step


class Losses(NamedTuple):
    """Losses of a minibatch, as scalars: the total, its three parts, and two diagnostics.

    `clip_fraction` is the share of steps whose ratio is outside the clipping range, `approx_kl` an estimate
    of the Kullback–Leibler divergence from the old policy in nats.
    """

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    clip_fraction: Tensor
    approx_kl: Tensor


def clipped_objective(new: Tensor, old: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Return min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A), ρ = exp(new − old), elementwise.

    `new` and `old` are log-probabilities of the action that was taken; ε is `clip_range`.

    >>> new = torch.tensor([2.0, 0.5, 2.0]).log()
    >>> clipped_objective(new, torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), clip_range=0.2).tolist()
    [1.2000000476837158, 0.5, -2.0]
    """
    ratio = (new - old).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def ppo_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantage: Tensor,
    returns: Tensor,
    valid: Tensor,
    config: PPOConfig,
    action_space: Actions,
) -> Losses:
    """Return −mean(clipped objective) + vf_coef · mean((V − R)²) / 2 − ent_coef · mean(H), with its parts.

    The means are over the `valid` steps, which exclude those whose action was ignored. All tensors but
    `logits` (T, B, outputs) and `actions` (T, B, …) are (T, B); `action_space` interprets the logits.
    """
    weight = valid.to(values.dtype) / valid.sum().clamp_min(1)
    new, entropy = action_space.evaluate(logits, actions)
    ratio = (new - old_log_probs).exp()
    policy = -(clipped_objective(new, old_log_probs, advantage, config.clip_range) * weight).sum()
    value = ((values - returns).square() * weight).sum() / 2
    mean_entropy = (entropy * weight).sum()
    with torch.no_grad():
        clip_fraction = (((ratio - 1).abs() > config.clip_range) * weight).sum()
        approx_kl = ((ratio - 1 - (new - old_log_probs)) * weight).sum()
    total = policy + config.vf_coef * value - config.ent_coef * mean_entropy
    return Losses(total, policy, value, mean_entropy, clip_fraction, approx_kl)


class PolicyStep(NamedTuple):
    """Figures of an update: means over its minibatches, and the episodes that ended in its rollout."""

    losses: dict[str, float]
    gradient_norm: float
    episodes: list[Episode]


class PolicyLearner(Learner):
    """Learner of a policy by PPO.

    Args:
        task: the task of the description: `env`, `test_env` and the family's options; None for a learner
            without environments, which can update on rollouts but not train in a session.
    """

    formatter: ProgressFormat = PolicyProgressFormat()
    score: str = "return"
    final_key: ClassVar[str] = "held_out"  # the test environment is one more held-out set

    def __init__(
        self, policy: Policy, config: PPOConfig, device: torch.device, task: dict[str, Any] | None = None
    ) -> None:
        values, slots = policy.values_per_step * config.n_envs * config.n_steps, slot_numbers(policy)
        check_fits(
            FLOAT * (values + max(config.n_envs, config.evaluate_on) * slots),
            "take fewer environments (--n-envs), a shorter rollout (--n-steps) or a smaller memory",
        )
        self.network = self.policy = policy.to(device)
        self.config, self.device, self.schedule = config, device, config.plan()
        self.steps_per_update = config.n_envs * config.n_steps
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, eps=1e-5, fused=True)
        if task is not None:
            self.task = task
            env = policy.family.make_vec_env(task["env"], config.n_envs, config.seed)
            self.collector = Collector(env, device)
            self.scaling = RewardScaling(config.n_envs, config.gamma) if config.scale_rewards else None
            self.best = BestMean() if policy.family.reports_mmer else None

    def advance(self, number: int, stop: Stop) -> Step:
        generator = generator_for(self.config.seed, "train", number, "cpu")
        try:
            rollout = self.collector.collect(self.policy, self.config.n_steps, generator, stop)
        except DivergedError as error:
            raise DivergedError(f"update {number}: {error}") from None
        if self.best is not None:
            self.best.add(rollout.episodes, self.steps_per_update)
        if self.scaling is not None:
            rollout = rollout._replace(rewards=self.scaling(rollout))
        return Step(_figures(self.update(number, rollout), self.policy.family.has_success))

    def evaluate(self, final: bool) -> Results:
        env, config = self.task["test_env" if final else "env"], self.config
        if env is None:
            return {}
        scores = evaluate_policy(self.policy, env, config.evaluate_on, config.seed)
        best = None if self.best is None or final else self.best.value
        return {env: scores if best is None else {**scores, "mmer": best}}

    def tensors(self) -> dict[str, Tensor]:
        position, fields = self.collector.checkpoint_state(), self.collector.env.fields
        return {
            **super().tensors(),
            **{f"env.{name}": value for name, value in position.env.items()},
            **dict(zip((f"timestep.{name}" for name in fields), position.timestep.observation, strict=True)),
            **{f"timestep.{name}": getattr(position.timestep, name) for name in _SCALARS},
            **{f"carry.{number}": leaf for number, leaf in enumerate(leaves(position.state).values())},
            "episode.return": position.returns,
            "episode.length": position.lengths,
            **({} if self.scaling is None else {f"scale.{k}": v for k, v in self.scaling.tensors().items()}),
            **({} if self.best is None else {"best.mean": self.best.state}),
        }

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        collector = self.collector
        self._check_saved(checkpoint)
        env = collector.env
        env.restore(checkpoint.under("env."))
        saved, episode = checkpoint.under("timestep."), checkpoint.under("episode.")
        observation = env.observation_from(saved[name] for name in env.fields)
        self._check_replayed(observation, checkpoint)
        collector.timestep = TimeStep(observation, *(saved[name] for name in _SCALARS))
        collector.returns, collector.lengths = episode["return"], episode["length"]
        if self.scaling is not None:
            self.scaling.load(checkpoint.under("scale."))
        if self.best is not None:
            self.best.state = checkpoint.under("best.")["mean"]
        carried = checkpoint.under("carry.")
        has_state = self.policy.recurrent is not None and checkpoint.counters["update"]
        if carried or has_state:  # one step gives a state of the right shapes
            like = self.policy(observation.map(lambda part: part.unsqueeze(0).to(self.device)))[2]
            count = len(leaves(like))
            if len(carried) != count:
                raise CheckpointError(
                    f"{checkpoint.path}: carried state: expected {count} tensors, got {len(carried)}"
                )
            collector.state = with_leaves(like, carried, self.device)
            check_carried(self.policy, collector.state, like, len(collector.timestep.reward), checkpoint.path)

    def _check_saved(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint with values that are out of range for these environments."""
        path, like, env = checkpoint.path, self.tensors(), self.collector.env
        for part in ("env.", "timestep.", "episode.", "scale.", "best."):
            names = {k.removeprefix(part): v for k, v in like.items() if k.startswith(part)}
            check_alike(checkpoint.under(part), names, path)
        saved, episode = checkpoint.under("timestep."), checkpoint.under("episode.")
        in_range = (
            env.contains(env.observation_from(saved[name] for name in env.fields))
            and bool(torch.isfinite(saved["reward"]).all() & torch.isfinite(episode["return"]).all())
            and bool((episode["length"] >= 0).all())
            and env.can_restore(checkpoint.under("env."))
        )
        if not in_range:
            raise CheckpointError(f"{path}: expected a time step of {env.name}, got values out of range")

    def _check_replayed(self, observation: Any, checkpoint: Checkpoint) -> None:
        """Refuse environments that did not return to their saved state.

        They are then no function of seeds and actions, and the resumed run would be a different one.
        """
        env = self.collector.env
        current = env.current_observation()
        if checkpoint.counters["update"] and not all(map(torch.equal, current, observation)):
            raise CheckpointError(
                f"{checkpoint.path}: {env.name} did not return to its saved state when its actions were "
                "replayed: it depends on more than its seed and the actions, so this run cannot be resumed"
            )

    def update(self, number: int, rollout: Rollout) -> PolicyStep:
        """Update the policy on a rollout. A non-finite value raises `DivergedError`."""
        config = self.config
        advantage = compute_advantages(
            rollout.rewards,
            rollout.values,
            rollout.last_values,
            rollout.terminated,
            rollout.done,
            config.gamma,
            config.gae_lambda,
        )
        returns = advantage + rollout.values
        advantage = normalise(advantage, rollout.valid)
        prepared = self.policy.prepare(rollout.observation, self.device)
        rollout = rollout._replace(observation=prepared)
        rows: list[tuple[float, ...]] = []
        for envs in self._minibatches(number):
            losses = self._losses(rollout, advantage, returns, envs)
            self.optimizer.zero_grad(set_to_none=True)
            losses.total.backward()
            norm = clip_gradients(self.parameters, config.max_grad_norm)
            if not bool(torch.isfinite(losses.total) & torch.isfinite(norm)):
                raise DivergedError(f"update {number}: {self._culprit(losses)}")
            self.optimizer.step()
            rows.append((*(part.item() for part in losses), norm.item()))
        *means, gradient_norm = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        return PolicyStep(dict(zip(Losses._fields, means, strict=True)), gradient_norm, rollout.episodes)

    def _minibatches(self, number: int) -> Iterator[Tensor]:
        """Yield the environments of each minibatch; every one once per epoch, in a new random order."""
        generator = generator_for(self.config.seed, "noise", number, "cpu")
        for _ in range(self.config.n_epochs):
            order = torch.randperm(self.config.n_envs, generator=generator)
            yield from order.tensor_split(self.config.n_minibatches)

    def _losses(self, rollout: Rollout, advantage: Tensor, returns: Tensor, envs: Tensor) -> Losses:
        """Return the losses on whole sequences of some environments, replayed from their initial state."""

        def select(part: Tensor) -> Tensor:
            # For planes on a CPU five times as fast as part[:, envs], since it copies whole rows.
            return part.index_select(1, envs.to(part.device)).to(self.device)

        state: Any = None if rollout.state is None else rollout.state.rows(envs.to(self.device))
        reset = select(rollout.episode_starts)
        logits, values, _ = self.policy(rollout.observation.map(select), state, reset=reset)
        return ppo_loss(
            logits.float(),
            values.float(),
            select(rollout.actions),
            select(rollout.log_probs),
            select(advantage),
            select(returns),
            select(rollout.valid),
            self.config,
            self.policy.actions,
        )

    def _culprit(self, losses: Losses) -> str:
        """Return the name of the first tensor, in order of computation, with a non-finite value."""
        for name in ("value", "entropy", "policy", "total"):
            value = getattr(losses, name).item()
            if not math.isfinite(value):
                return f"the {name} loss is {value}" if name != "total" else f"the loss is {value}"
        for name, parameter in self.policy.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                return f"the gradient of {name} is not finite"
        return "the gradient's norm overflows"


def normalise(advantage: Tensor, valid: Tensor) -> Tensor:
    """Normalise advantages to mean 0 and standard deviation 1 over the valid steps.

    A standard deviation below 0.1 is replaced by 0.1: before the first reward the advantages are the critic's
    noise, which scaled up would outweigh the entropy bonus and end the exploration.

    >>> normalise(torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([[True], [True], [False]]))[:2].tolist()
    [[-1.0], [1.0]]
    """
    values = advantage[valid]
    std = values.std(correction=0) if values.numel() else values.new_ones(())
    mean = values.mean() if values.numel() else values.new_zeros(())
    return (advantage - mean) / std.clamp_min(_MIN_STD)


def learner_of(spec: PolicySpec, device: torch.device, group: Group, backend: str = "auto") -> PolicyLearner:
    """Return the learner of a description."""
    if group.size > 1:
        raise ConfigError(f"a policy is trained in one process, got {group.size}; start it without torchrun")
    return PolicyLearner(build_policy(spec, backend), spec.ppo, device, spec.family.task)


def _figures(step: PolicyStep, has_success: bool) -> dict[str, float | None]:
    """Return the figures to record of an update; episode figures are None if no episode ended."""
    episodes, count = step.episodes, max(len(step.episodes), 1)
    means = (
        sum(episode.reward for episode in episodes) / count,
        sum(episode.reward > 0 for episode in episodes) / count,
        sum(episode.length for episode in episodes) / count,
    )
    figures = dict(zip(("return", "success", "length"), means if episodes else (None,) * 3, strict=True))
    if not has_success:
        del figures["success"]
    losses = {_METRICS[name]: round(value, 6) for name, value in step.losses.items()}
    return {"episodes": len(episodes), **figures, **losses, "gradient_norm": round(step.gradient_norm, 6)}
