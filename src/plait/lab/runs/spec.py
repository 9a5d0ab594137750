"""The description of a run as a value: parsed and validated where it enters, then passed as itself."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.errors import ConfigError
from plait.lab.runs.folder import run_id
from plait.lab.runs.kinds import Kind, kind_of

__all__ = ["PlainSpec", "RunSpec", "parse_spec"]


@dataclass(frozen=True)
class RunSpec(ABC):
    """Abstract base class of the descriptions of runs: task, model and recipe, complete with their defaults.

    Its JSON is the run's `config.json`, and the run's id is a hash of it. Device, threads and folders are not
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
    if kind.parse:
        spec: RunSpec = kind.call("parse", plain)
    else:
        parts = {part: plain.get(part, {}) for part in ("task", "model", "recipe")}
        spec = PlainSpec(kind.format, **parts)
    return dataclasses.replace(spec, extended=_history(values["extended"])) if "extended" in values else spec


def _history(values: Any) -> dict[str, list[int]]:
    """Validate and return the earlier lengths of a run."""
    is_history = isinstance(values, dict) and all(
        isinstance(lengths, list) and lengths and all(type(length) is int for length in lengths)
        for lengths in values.values()
    )
    if not is_history:
        raise ConfigError(
            f"extended: expected earlier lengths as lists of numbers by unit, got {values!r:.80}"
        )
    return dict(values)
