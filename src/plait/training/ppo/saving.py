"""A moment of a run of PPO as one checkpoint: policy, optimiser, worlds, and where the policy stands.

Tensors are named `model.…`, `optimizer.<parameter>.<key>`, `worlds.…` (what their snapshot holds),
`moment.…` (the last observation), `carry.<leaf>` (the policy's state) and `so_far.…` (open episodes).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from plait.errors import CheckpointError
from plait.tasks.minigrid import Moment, Observation
from plait.training.carry import check_carried
from plait.training.checkpoint import load_weights, read_checkpoint, write_checkpoint
from plait.training.ppo.learner import PolicyLearner
from plait.training.ppo.rollout import Collector
from plait.training.run import Run

__all__ = ["restore_policy", "save_policy"]

_FLAGS = ("reward", "terminated", "truncated", "begins")


def save_policy(run: Run, learner: PolicyLearner, collector: Collector, counters: dict[str, Any]) -> None:
    """Write the checkpoint, whole or not at all."""
    moment = collector.moment
    tensors = {
        **learner.state(),
        **{f"worlds.{name}": value for name, value in collector.worlds.snapshot().items()},
        **{f"moment.{name}": getattr(moment.observation, name) for name in Observation._fields},
        **{f"moment.{name}": getattr(moment, name) for name in _FLAGS},
        **{f"carry.{place}": leaf for place, leaf in enumerate(_leaves(collector.state))},
        "so_far.gained": collector.gained,
        "so_far.lasted": collector.lasted,
    }
    # Cloned, because safetensors refuses tensors that share their memory.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_checkpoint(run.checkpoint, plain, run.id, {**counters, "journals": run.positions()})


def restore_policy(run: Run, learner: PolicyLearner, collector: Collector) -> dict[str, Any]:
    """Put everything where the checkpoint left it; return the counters, empty for a fresh run."""
    if not run.checkpoint.exists():
        run.refuse_curves_alone()
        return {}
    checkpoint = read_checkpoint(run.checkpoint, run.id)
    load_weights(learner.policy, checkpoint, run.checkpoint)
    learner.restore_optimizer(checkpoint.tensors)
    parts = {name: _under(checkpoint.tensors, name) for name in ("worlds", "moment", "carry", "so_far")}
    collector.worlds.restore(parts["worlds"])
    saved = parts["moment"]
    observation = Observation(*(saved[name] for name in Observation._fields))
    collector.moment = Moment(observation, *(saved[name] for name in _FLAGS))
    collector.gained, collector.lasted = parts["so_far"]["gained"], parts["so_far"]["lasted"]
    collector.state = _restored(learner, collector, parts["carry"], run.checkpoint)
    return checkpoint.counters


@torch.no_grad()
def _restored(learner: PolicyLearner, collector: Collector, leaves: dict[str, Tensor], path: Path) -> Any:
    """The shape of a state is the policy's own, so it is taken from one step of it."""
    if not leaves:
        return None
    observation = collector.moment.observation.map(lambda part: part.unsqueeze(0).to(learner.device))
    like = learner.policy(observation)[2]
    flat, structure = pytree.tree_flatten(like)
    wanted = sum(isinstance(leaf, Tensor) for leaf in flat)
    if leaves.keys() != {str(place) for place in range(wanted)}:
        raise CheckpointError(f"{path}: carried state: expected {wanted} tensors, got {len(leaves)}")
    places = iter(range(wanted))
    filled = [
        leaves[str(next(places))].to(learner.device) if isinstance(leaf, Tensor) else leaf for leaf in flat
    ]
    state = pytree.tree_unflatten(filled, structure)
    check_carried(learner.policy, state, like, len(collector.moment.reward), path)
    return state


def _leaves(state: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor)]


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Cloned: a tensor out of a file lies at any address, and products on a CPU round by alignment."""
    return {k.removeprefix(f"{prefix}."): v.clone() for k, v in tensors.items() if k.startswith(f"{prefix}.")}
