"""The description of a run as a value.

A description is parsed and validated where it enters (`plait.lab.training.registry.parse_spec`), then passed
as itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from plait.errors import ConfigError, PlaitError
from plait.lab.runs.folder import run_id
from plait.lab.runs.kinds import Kind, kind_of

__all__ = ["PlainSpec", "RunSpec", "blame_description"]

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

    @abstractmethod
    def with_seed(self, seed: int) -> RunSpec:
        """Return the description of a run that differs in its seed alone."""

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

    def with_seed(self, seed: int) -> PlainSpec:
        return replace(self, recipe={**self.recipe, "seed": seed})


def blame_description(kind: Kind, work: Callable[[], T]) -> T:
    """Return the result of `work`; an error that a description causes becomes a ConfigError."""
    try:
        return work()
    except PlaitError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ConfigError(f"this does not describe a run of the kind {kind.format!r} ({text})") from error
