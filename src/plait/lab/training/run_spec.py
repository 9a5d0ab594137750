"""The description of a run as a value, and the functions of its kind that parse, train and load it.

A description is parsed and validated where it enters, then passed as itself. A kind of one's own is
registered with `register(Kind(…), learner)` before it is trained; folders of a kind that is not registered
can still be listed and reported on (`plait.lab.runs.kinds`). Modules that need torch are imported when a run
of their kind is trained.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from plait.errors import ConfigError, PlaitError
from plait.lab.runs.folder import run_id
from plait.lab.runs.kinds import POLICY, SUPERVISED, Kind, add, how_to_resume, kind_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from plait.lab.training.learner import Learner
    from plait.lab.training.ppo.policy import PolicySpec
    from plait.lab.training.process import Group
    from plait.lab.training.spec import SupervisedSpec

__all__ = ["PlainSpec", "RunSpec", "build_network", "make_learner", "parse_spec", "register"]

T = TypeVar("T")


@dataclass(frozen=True)
class RunSpec(ABC):
    """Abstract base class of the descriptions of runs: task, model and recipe, complete with their defaults.

    Its JSON is the run's `config.json`, and the run's id is a hash of it. Device, threads and folders are no
    part of it: they do not change what the run is.

    Args:
        extended: the earlier lengths of a run that was extended, by unit.
    """

    extended: Mapping[str, list[int]] = field(default_factory=dict, kw_only=True)

    @property
    @abstractmethod
    def format(self) -> str:
        """The format and its version, by which the kind of the run is looked up."""

    @abstractmethod
    def parts(self) -> dict[str, dict[str, Any]]:
        """Return task, model and recipe as plain data."""

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain data, from which `parse_spec` makes an equal one."""
        history = {"extended": dict(self.extended)} if self.extended else {}
        return {"format": self.format, **self.parts(), **history}

    @property
    def id(self) -> str:
        """The run's id."""
        return run_id(self.to_json())

    @property
    def kind(self) -> Kind:
        """The kind of the run: how it is trained, loaded and reported."""
        return kind_of(self.to_json())


@dataclass(frozen=True)
class PlainSpec(RunSpec):
    """The description of a run whose kind has no type of its own: plain data that nothing has validated."""

    name: str
    task: Mapping[str, Any]
    model: Mapping[str, Any]
    recipe: Mapping[str, Any]

    @property
    def format(self) -> str:
        return self.name

    def parts(self) -> dict[str, dict[str, Any]]:
        return {"task": dict(self.task), "model": dict(self.model), "recipe": dict(self.recipe)}


MakeLearner = Callable[[Any, "torch.device", "Group", str], "Learner"]


@dataclass(frozen=True)
class _Functions:
    learner: MakeLearner
    parse: Callable[[dict[str, Any]], RunSpec] | None
    network: Callable[[Any, str], nn.Module] | None


_FUNCTIONS: dict[str, _Functions] = {}


def register(
    kind: Kind,
    learner: MakeLearner,
    parse: Callable[[dict[str, Any]], RunSpec] | None = None,
    network: Callable[[Any, str], nn.Module] | None = None,
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
        spec = _blamed(kind, lambda: parse(plain))
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
    return _blamed(spec.kind, lambda: network(spec, backend))


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


def _blamed(kind: Kind, work: Callable[[], T]) -> T:
    """Return the result; an error that a description causes, usually from a file, is the user's to mend."""
    try:
        return work()
    except PlaitError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ConfigError(f"this does not describe a run of the kind {kind.format!r} ({text})") from error


def _supervised_learner(spec: SupervisedSpec, device: torch.device, group: Group, backend: str) -> Learner:
    from plait.lab.training.supervised import learner_of

    return learner_of(spec, device, group, backend)


def _parse_supervised(values: dict[str, Any]) -> RunSpec:
    from plait.lab.training.spec import parse_supervised

    return parse_supervised(values)


def _supervised_network(spec: SupervisedSpec, backend: str) -> nn.Module:
    from plait.lab.training.description import network_of

    return network_of(spec, backend)


def _policy_learner(spec: PolicySpec, device: torch.device, group: Group, backend: str) -> Learner:
    from plait.lab.training.ppo.learner import learner_of

    return learner_of(spec, device, group, backend)


def _parse_policy(values: dict[str, Any]) -> RunSpec:
    from plait.lab.training.ppo.policy import parse_policy

    return parse_policy(values)


def _policy_network(spec: PolicySpec, backend: str) -> nn.Module:
    from plait.lab.training.ppo.policy import build_policy

    return build_policy(spec, backend)


register(SUPERVISED, _supervised_learner, _parse_supervised, _supervised_network)
register(POLICY, _policy_learner, _parse_policy, _policy_network)
