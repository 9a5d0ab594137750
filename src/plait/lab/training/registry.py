"""The functions of every kind of run: parse its description, make its learner, build its network.

The kinds of the library are registered here. One of your own is registered with
`register(Kind(…), learner)` before it is trained; folders of a kind that is not registered can still be
listed and reported on (`plait.lab.runs.kinds`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from plait.errors import ConfigError
from plait.lab.runs.kinds import CHARACTERS, POLICY, SUPERVISED, Kind, add, how_to_resume, kind_of
from plait.lab.training import character_learner, description, supervised
from plait.lab.training.characters import parse_characters
from plait.lab.training.learner import Learner
from plait.lab.training.ppo import learner as ppo
from plait.lab.training.ppo.policy import build_policy, parse_policy
from plait.lab.training.process import Group
from plait.lab.training.run_spec import PlainSpec, RunSpec, blame_description
from plait.lab.training.spec import parse_supervised

__all__ = ["build_network", "make_learner", "parse_spec", "register"]

S = TypeVar("S", bound=RunSpec)


@dataclass(frozen=True)
class _Functions:
    learner: Callable[[Any, torch.device, Group, str], Learner]
    parse: Callable[[dict[str, Any]], RunSpec] | None
    network: Callable[[Any, str], nn.Module] | None


_FUNCTIONS: dict[str, _Functions] = {}


def register(
    kind: Kind,
    learner: Callable[[S, torch.device, Group, str], Learner],
    parse: Callable[[dict[str, Any]], S] | None = None,
    network: Callable[[S, str], nn.Module] | None = None,
) -> None:
    """Register a kind of run in this process.

    Args:
        kind: its format, units and names.
        learner: function of the spec, device, group and backend that returns the learner of a session.
        parse: function of a description as plain data that returns a `RunSpec` or raises an error; without
            one, the parts of the description stay plain data.
        network: function of the spec and backend that returns the module before its first update, for `load`.
    """
    add(kind)
    _FUNCTIONS[kind.format] = _Functions(learner, parse, network)


def parse_spec(values: RunSpec | Mapping[str, Any]) -> RunSpec:
    """Validate a description and fill in its defaults; one that was parsed before is returned unchanged.

    >>> parse_spec({"format": "sines 1", "task": {}, "model": {}, "recipe": {"seed": 3}}).recipe
    {'seed': 3}
    """
    if isinstance(values, RunSpec):
        return values
    if not isinstance(values, dict):
        raise ConfigError(f"expected the description of a run, an object with a task, got {values!r:.80}")
    for part in ("task", "model", "recipe"):
        if not isinstance(values.get(part, {}), dict):
            raise ConfigError(f"{part}: expected an object, got {values[part]!r:.80}")
    kind = kind_of(values)
    plain = {key: value for key, value in values.items() if key != "extended"}
    functions = _FUNCTIONS.get(kind.format)
    if functions is not None and functions.parse is not None:
        parse = functions.parse
        spec = blame_description(kind, lambda: parse(plain))
    else:
        parts = {part: plain.get(part, {}) for part in ("task", "model", "recipe")}
        spec = PlainSpec(kind.format, **parts)
    return dataclasses.replace(spec, extended=_history(values["extended"])) if "extended" in values else spec


def make_learner(spec: RunSpec, device: torch.device, group: Group, backend: str) -> Learner:
    """Return the learner of a run for a session."""
    return _functions(spec).learner(spec, device, group, backend)


def build_network(spec: RunSpec, backend: str = "auto") -> nn.Module:
    """Return the module of a run before its first update."""
    network = _functions(spec).network
    if network is None:
        raise ConfigError(f"runs of the kind {spec.format!r} have no network to load; pass model=")
    return blame_description(spec.kind, lambda: network(spec, backend))


def _history(values: Any) -> dict[str, list[int]]:
    """Return the earlier lengths of a run, validated."""
    is_history = isinstance(values, dict) and all(
        isinstance(lengths, list) and lengths and all(type(length) is int for length in lengths)
        for lengths in values.values()
    )
    if not is_history:
        raise ConfigError(
            f"extended: expected earlier lengths as lists of numbers by unit, got {values!r:.80}"
        )
    return dict(values)


def _functions(spec: RunSpec) -> _Functions:
    if spec.format in _FUNCTIONS:
        return _FUNCTIONS[spec.format]
    if spec.kind.resumed_by != Kind.resumed_by:
        how = how_to_resume(spec.to_json(), "FOLDER")
        raise ConfigError(
            f"runs of the kind {spec.format!r} need more than their description; continue with {how}"
        )
    raise ConfigError(f"runs of the kind {spec.format!r} are not known here; register it first")


register(SUPERVISED, supervised.learner_of, parse_supervised, description.network_of)
register(POLICY, ppo.learner_of, parse_policy, build_policy)
register(CHARACTERS, character_learner.learner_of, parse_characters, character_learner.network_of)
