"""Proximal policy optimisation with any of the library's layers as the agent's memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.training.ppo.description import build_policy, describe_policy, load_policy
    from plait.training.ppo.learner import FittedPolicy, clipped_objective, fit_policy
    from plait.training.ppo.policy import Encoder, Policy
    from plait.training.ppo.rollout import advantages, evaluate_policy
    from plait.training.ppo.settings import Settings

# Resolved when first used, as in `plait.training`: the command line's help loads no torch.
_HOMES = {
    "Encoder": "policy",
    "FittedPolicy": "learner",
    "Policy": "policy",
    "Settings": "settings",
    "advantages": "rollout",
    "build_policy": "description",
    "clipped_objective": "learner",
    "describe_policy": "description",
    "evaluate_policy": "rollout",
    "fit_policy": "learner",
    "load_policy": "description",
}

__all__ = [
    "Encoder", "FittedPolicy", "Policy", "Settings", "advantages", "build_policy", "clipped_objective",
    "describe_policy", "evaluate_policy", "fit_policy", "load_policy",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plait.training.ppo' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"plait.training.ppo.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
