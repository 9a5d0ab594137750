"""Proximal policy optimisation with any of the library's layers as the agent's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lazy import lazily

if TYPE_CHECKING:
    from plait.lab.training.ppo.encoders import Encoder
    from plait.lab.training.ppo.learner import FittedPolicy, clipped_objective, fit_policy
    from plait.lab.training.ppo.policy import Policy, build_policy, describe_policy, load_policy
    from plait.lab.training.ppo.rollout import advantages, evaluate_policy
    from plait.lab.training.recipe import Settings

# Resolved when first used, as in `plait.lab.training`: the command line's help loads no torch.
_HOMES = {
    "Encoder": "encoders",
    "FittedPolicy": "learner",
    "Policy": "policy",
    "Settings": "plait.lab.training.recipe",
    "advantages": "rollout",
    "build_policy": "policy",
    "clipped_objective": "learner",
    "describe_policy": "policy",
    "evaluate_policy": "rollout",
    "fit_policy": "learner",
    "load_policy": "policy",
}

__all__ = [
    "Encoder", "FittedPolicy", "Policy", "Settings", "advantages", "build_policy", "clipped_objective",
    "describe_policy", "evaluate_policy", "fit_policy", "load_policy",
]  # fmt: skip


__getattr__, __dir__ = lazily(__name__, _HOMES)
