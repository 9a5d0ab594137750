"""Learner for PPO: a rollout, its advantages, a few epochs over minibatches of whole sequences.

Besides weights and optimiser, a checkpoint holds `worlds.…` (the environments' snapshot), `moment.…` (the
last observation), `carry.<number>` (the policy's state) and `so_far.…` (unfinished episodes).
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
from plait.lab.tasks.worlds.actions import Actions
from plait.lab.tasks.worlds.base import Moment
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.carried_state import check_carried
from plait.lab.training.learner import Learner, Step, clip_gradients, generator_for
from plait.lab.training.memory_needed import slot_numbers
from plait.lab.training.ppo.policy import Policy, PolicySpec, build_policy
from plait.lab.training.ppo.returns import BestMean, ReturnScale
from plait.lab.training.ppo.rollout import Collector, Episode, Rollout, advantages, evaluate_policy
from plait.lab.training.ppo.words import PolicyProgressFormat
from plait.lab.training.process import Group
from plait.lab.training.recipe import Settings
from plait.lab.training.session import Fitted, train_run
from plait.lab.training.stop import Stop

__all__ = [
    "FittedPolicy",
    "PolicyLearner",
    "PolicyStep",
    "clipped_objective",
    "fit_policy",
    "learner_of",
    "ppo_loss",
]

FittedPolicy = Fitted
_LEAST_SPREAD = 0.1  # of advantages; returns lie between 0 and 1
_FLAGS = ("reward", "terminated", "truncated", "begins")


class Losses(NamedTuple):
    """Losses of a minibatch, as scalars.

    The total and its three parts, the share of clipped steps (`clipped`), and an estimate of the
    Kullback–Leibler divergence from the old policy in nats (`moved`).
    """

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    clipped: Tensor
    moved: Tensor


def clipped_objective(new: Tensor, old: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Return min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A), ρ = exp(new − old), elementwise.

    `new` and `old` are log-probabilities of the action that was taken; ε is `clip`.

    >>> new = torch.tensor([2.0, 0.5, 2.0]).log()
    >>> clipped_objective(new, torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), clip=0.2).tolist()
    [1.2000000476837158, 0.5, -2.0]
    """
    ratio = (new - old).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def ppo_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old: Tensor,
    advantage: Tensor,
    returns: Tensor,
    counted: Tensor,
    settings: Settings,
    do: Actions,
) -> Losses:
    """Return −mean(clipped objective) + value · mean((V − R)²) / 2 − entropy · mean(H), with its parts.

    The means are over the counted steps: `counted` is False on the steps whose action was ignored. All
    tensors but `logits` (T, B, outputs) and `actions` (T, B, …) are (T, B); `do` interprets the outputs.
    """
    weight = counted.to(values.dtype) / counted.sum().clamp_min(1)
    new, entropy = do.chosen(logits, actions)
    ratio = (new - old).exp()
    policy = -(clipped_objective(new, old, advantage, settings.clip) * weight).sum()
    value = ((values - returns).square() * weight).sum() / 2
    mean_entropy = (entropy * weight).sum()
    with torch.no_grad():
        clipped = (((ratio - 1).abs() > settings.clip) * weight).sum()
        moved = ((ratio - 1 - (new - old)) * weight).sum()
    total = policy + settings.value * value - settings.entropy * mean_entropy
    return Losses(total, policy, value, mean_entropy, clipped, moved)


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
        self, policy: Policy, settings: Settings, device: torch.device, task: dict[str, Any] | None = None
    ) -> None:
        seen, slots = policy.seen * settings.envs * settings.rollout, slot_numbers(policy)
        check_fits(
            FLOAT * (seen + max(settings.envs, settings.evaluate_on) * slots),
            "take fewer worlds (--envs), a shorter rollout or a smaller memory",
        )
        self.network = self.policy = policy.to(device)
        self.settings, self.device, self.schedule = settings, device, settings.plan()
        self.steps_per_update = settings.envs * settings.rollout
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.lr, eps=1e-5, fused=True)
        if task is not None:
            self.task = task
            worlds = policy.family.open(task["env"], settings.envs, settings.seed)
            self.collector = Collector(worlds, device)
            self.scale = ReturnScale(settings.envs, settings.discount) if settings.scale_returns else None
            self.best = BestMean() if policy.family.best_mean else None

    def advance(self, number: int, stop: Stop) -> Step:
        draw = generator_for(self.settings.seed, "train", number, "cpu")
        try:
            rollout = self.collector.collect(self.policy, self.settings.rollout, draw, stop)
        except DivergedError as error:
            raise DivergedError(f"update {number}: {error}") from None
        if self.best is not None:
            self.best.add(rollout.episodes, self.steps_per_update)
        if self.scale is not None:
            rollout = rollout._replace(rewards=self.scale(rollout))
        return Step(_figures(self.update(number, rollout), self.policy.family.succeeds))

    def evaluate(self, final: bool) -> Results:
        world, settings = self.task["test_env" if final else "env"], self.settings
        if world is None:
            return {}
        scores = evaluate_policy(self.policy, world, settings.evaluate_on, settings.seed)
        best = None if self.best is None or final else self.best.value
        return {world: scores if best is None else {**scores, "mmer": best}}

    def tensors(self) -> dict[str, Tensor]:
        position, fields = self.collector.checkpoint_state(), self.collector.worlds.fields
        return {
            **super().tensors(),
            **{f"worlds.{name}": value for name, value in position.worlds.items()},
            **dict(zip((f"moment.{name}" for name in fields), position.moment.observation, strict=True)),
            **{f"moment.{name}": getattr(position.moment, name) for name in _FLAGS},
            **{f"carry.{number}": leaf for number, leaf in enumerate(leaves(position.state).values())},
            "so_far.gained": position.gained,
            "so_far.lasted": position.lasted,
            **({} if self.scale is None else {f"scale.{k}": v for k, v in self.scale.tensors().items()}),
            **({} if self.best is None else {"best.mean": self.best.state}),
        }

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        collector = self.collector
        self._check_saved(checkpoint)
        worlds = collector.worlds
        worlds.restore(checkpoint.under("worlds."))
        saved, so_far = checkpoint.under("moment."), checkpoint.under("so_far.")
        observation = worlds.observed(saved[name] for name in worlds.fields)
        self._check_replayed(observation, checkpoint)
        collector.moment = Moment(observation, *(saved[name] for name in _FLAGS))
        collector.gained, collector.lasted = so_far["gained"], so_far["lasted"]
        if self.scale is not None:
            self.scale.load(checkpoint.under("scale."))
        if self.best is not None:
            self.best.state = checkpoint.under("best.")["mean"]
        carried = checkpoint.under("carry.")
        remembers = self.policy.recurrent is not None and checkpoint.counters["update"]
        if carried or remembers:  # one step shows the shapes of the policy's state
            like = self.policy(observation.map(lambda part: part.unsqueeze(0).to(self.device)))[2]
            count = len(leaves(like))
            if len(carried) != count:
                raise CheckpointError(
                    f"{checkpoint.path}: carried state: expected {count} tensors, got {len(carried)}"
                )
            collector.state = with_leaves(like, carried, self.device)
            check_carried(self.policy, collector.state, like, len(collector.moment.reward), checkpoint.path)

    def _check_saved(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint with values that are out of range for these environments."""
        path, like, worlds = checkpoint.path, self.tensors(), self.collector.worlds
        for part in ("worlds.", "moment.", "so_far.", "scale.", "best."):
            names = {k.removeprefix(part): v for k, v in like.items() if k.startswith(part)}
            check_alike(checkpoint.under(part), names, path)
        saved = {**checkpoint.under("moment."), **checkpoint.under("so_far.")}
        fits = (
            worlds.could_show(worlds.observed(saved[name] for name in worlds.fields))
            and bool(torch.isfinite(saved["reward"]).all() & torch.isfinite(saved["gained"]).all())
            and bool((saved["lasted"] >= 0).all())
            and worlds.can_restore(checkpoint.under("worlds."))
        )
        if not fits:
            raise CheckpointError(f"{path}: expected a moment of {worlds.name}, got numbers out of range")

    def _check_replayed(self, observation: Any, checkpoint: Checkpoint) -> None:
        """Refuse environments that did not return to their saved state.

        They are then no function of seeds and actions, and the resumed run would be a different one.
        """
        worlds = self.collector.worlds
        if checkpoint.counters["update"] and not all(map(torch.equal, worlds.present(), observation)):
            raise CheckpointError(
                f"{checkpoint.path}: {worlds.name} did not come back to where it was when its actions were "
                "played again: not its seed alone decides what happens there, so this run cannot be resumed"
            )

    def update(self, number: int, rollout: Rollout) -> PolicyStep:
        """Update the policy on a rollout. A non-finite value raises `DivergedError`."""
        settings = self.settings
        advantage = advantages(
            rollout.rewards, rollout.values, rollout.last_values, rollout.terminated, rollout.ended,
            settings.discount, settings.decay,
        )  # fmt: skip
        returns = advantage + rollout.values
        advantage = normalised(advantage, rollout.counted)
        seen = self.policy.prepared(rollout.observation, self.device)
        rollout = rollout._replace(observation=seen)
        shown: list[tuple[float, ...]] = []
        for worlds in self._minibatches(number):
            losses = self._losses(rollout, advantage, returns, worlds)
            self.optimizer.zero_grad(set_to_none=True)
            losses.total.backward()
            norm = clip_gradients(self.parameters, settings.max_norm)
            if not bool(torch.isfinite(losses.total) & torch.isfinite(norm)):
                raise DivergedError(f"update {number}: {self._culprit(losses)}")
            self.optimizer.step()
            shown.append((*(part.item() for part in losses), norm.item()))
        *means, gradient_norm = (sum(column) / len(shown) for column in zip(*shown, strict=True))
        return PolicyStep(dict(zip(Losses._fields, means, strict=True)), gradient_norm, rollout.episodes)

    def _minibatches(self, number: int) -> Iterator[Tensor]:
        """Yield the environments of each minibatch; every one once per epoch, in a new random order."""
        draw = generator_for(self.settings.seed, "noise", number, "cpu")
        for _ in range(self.settings.epochs):
            order = torch.randperm(self.settings.envs, generator=draw)
            yield from order.tensor_split(self.settings.minibatches)

    def _losses(self, rollout: Rollout, advantage: Tensor, returns: Tensor, worlds: Tensor) -> Losses:
        """Return the losses on whole sequences of some environments, replayed from their initial state."""

        def of(part: Tensor) -> Tensor:
            # For planes on a CPU five times as fast as part[:, worlds], since it copies whole rows.
            return part.index_select(1, worlds.to(part.device)).to(self.device)

        state: Any = None if rollout.state is None else rollout.state.rows(worlds.to(self.device))
        logits, values, _ = self.policy(rollout.observation.map(of), state, reset=of(rollout.begins))
        return ppo_loss(
            logits.float(), values.float(), of(rollout.actions), of(rollout.old), of(advantage), of(returns),
            of(rollout.counted), self.settings, self.policy.actions,
        )  # fmt: skip

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


def normalised(advantage: Tensor, counted: Tensor) -> Tensor:
    """Normalise advantages to mean 0 and standard deviation 1 over the counted steps.

    A standard deviation below 0.1 is replaced by 0.1: before the first reward the advantages are the critic's
    noise, which scaled up would outweigh the entropy bonus and end the exploration.

    >>> normalised(torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([[True], [True], [False]]))[:2].tolist()
    [[-1.0], [1.0]]
    """
    values = advantage[counted]
    spread = values.std(correction=0) if values.numel() else values.new_ones(())
    mean = values.mean() if values.numel() else values.new_zeros(())
    return (advantage - mean) / spread.clamp_min(_LEAST_SPREAD)


def fit_policy(
    description: PolicySpec | dict[str, Any],
    *,
    device: str = "cpu",
    checkpoint_every: int = 10,
    **means: Any,
) -> Fitted:
    """Train the policy of a description (`policy_spec`) in its environment.

    On a CPU the run is a function of the description alone; a run that was stopped or killed and is resumed
    ends with the same weights and the same curve as one that was not.

    Args:
        device: auto, cpu, cuda or cuda:N; small policies are fastest on the CPU, where the environments run.
        checkpoint_every: updates between two checkpoints.
        means: options of `plait.lab.training.session.train`: folder, resume, max_minutes, stop_when,
            progress, watchers.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.

    >>> from plait.lab.training.recipe import Settings
    >>> from plait.lab.training.ppo.policy import policy_spec
    >>> settings = Settings(steps=32, envs=4, rollout=8, minibatches=2, evaluate_on=2)
    >>> fit_policy(policy_spec("Empty-5x5", "rellstm", settings, hidden_size=8)).summary["steps"]
    32
    """
    return train_run(description, device=device, checkpoint_every=checkpoint_every, **means)


def learner_of(spec: PolicySpec, device: torch.device, group: Group, backend: str = "auto") -> PolicyLearner:
    """Return the learner of a description."""
    if group.size > 1:
        raise ConfigError(f"a policy is trained in one process, got {group.size}; start it without torchrun")
    return PolicyLearner(build_policy(spec, backend), spec.settings, device, spec.family.task)


def _figures(step: PolicyStep, succeeds: bool) -> dict[str, float | None]:
    """Return the figures to record of an update; episode figures are None if no episode ended."""
    episodes, count = step.episodes, max(len(step.episodes), 1)
    means = (
        sum(episode.reward for episode in episodes) / count,
        sum(episode.reward > 0 for episode in episodes) / count,
        sum(episode.length for episode in episodes) / count,
    )
    named = dict(zip(("return", "success", "length"), means if episodes else (None,) * 3, strict=True))
    if not succeeds:
        del named["success"]
    losses = {"loss" if k == "total" else k: round(v, 6) for k, v in step.losses.items()}
    return {"episodes": len(episodes), **named, **losses, "gradient_norm": round(step.gradient_norm, 6)}
