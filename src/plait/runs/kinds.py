"""Kinds of runs, in one registry: what `format` in a `config.json` means to who trains, loads or reports.

Functions are named as `module:function` and imported on use, so that reading folders loads no torch. A kind
of one's own is registered by `register(Kind(…))` before it is trained; folders of a kind that is not
registered can still be listed and reported on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, PlaitError

__all__ = ["Kind", "how_to_resume", "is_identified", "kind_of", "register", "unresumable"]


@dataclass(frozen=True)
class Kind:
    """A kind of run."""

    format: str
    """What a description says under this name."""
    learner: str = ""
    """`module:function` of (description, device, group, backend): what a session trains."""
    check: str = ""
    """`module:function` of a description: the same, complete, or an error that says what is wrong with it."""
    network: str = ""
    """`module:function` of (description, backend): the module before its first update."""
    score: str = "score"
    """What its score is: accuracy, return."""
    unit: str = "update"
    """What is counted: the recipe says how many under the plural of it."""
    per_update: Callable[[Mapping[str, Any]], int] = lambda recipe: 1
    """How many of these an update makes, by the recipe."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Names under which figures are shown, where they have others."""
    tasks: frozenset[str] = frozenset()
    """Tasks of which a description without a format is of this kind."""
    device: str = "auto"
    checkpoint_every: int = 500

    def call(self, function: str, *arguments: Any) -> Any:
        """One of its functions by the name of the field: learner, check, network."""
        module, _, name = getattr(self, function).partition(":")
        if not module:
            raise ConfigError(f"runs of the kind {self.format!r} are not known here; register it first")
        work = getattr(importlib.import_module(module), name)
        try:
            return work(*arguments)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            if function == "learner" or isinstance(error, PlaitError):
                raise
            # A description is data, out of a file as a rule: what does not fit it is not a fault of ours.
            said = f"{type(error).__name__}: {error}"
            raise ConfigError(f"this does not describe a run of the kind {self.format!r} ({said})") from error

    def checked(self, description: dict[str, Any]) -> dict[str, Any]:
        """The description, complete; that it was extended is no business of the kind."""
        plain = {key: value for key, value in description.items() if key != "extended"}
        history = {key: description[key] for key in ("extended",) if key in description}
        return {**(self.call("check", plain) if self.check else plain), **history}

    def counted(self, description: dict[str, Any]) -> int:
        """How many updates or steps it is to be trained for."""
        return int(description["recipe"][f"{self.unit}s"])

    def updates(self, description: dict[str, Any]) -> int:
        """The same in updates."""
        return -(-self.counted(description) // self.per_update(description["recipe"]))

    def longer(self, description: dict[str, Any], amount: int) -> dict[str, Any]:
        """The run extended to this many updates or steps."""
        from plait.runs.folder import extended

        return extended(description, f"{self.unit}s", amount)


_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Make a kind known to this process."""
    _KINDS[kind.format] = kind
    return kind


_SUPERVISED = register(
    Kind(
        "plait run 1", "plait.training.supervised:learner_of", "plait.training.description:completed",
        "plait.training.description:network_of", score="accuracy", shown={"score": "accuracy"},
    )
)  # fmt: skip
# the same, where a task asks for numbers
_OF_NUMBERS = replace(
    _SUPERVISED, score="R²", shown={"score": "R²", "rmse": "RMSE", "loss": "MSE, standardised"}
)
register(
    Kind(
        "plait policy 1", "plait.training.ppo.learner:learner_of", "plait.training.ppo.policy:checked_policy",
        "plait.training.ppo.policy:build_policy", score="return", unit="step",
        per_update=lambda recipe: int(recipe["envs"] * recipe["rollout"]),
        shown={"score": "return", "length": "steps", "mmer": "MMER"},
        tasks=frozenset({"minigrid", "gym", "popgym"}), device="cpu", checkpoint_every=10,
    )
)  # fmt: skip


def kind_of(description: dict[str, Any]) -> Kind:
    """The kind of a description; one that nobody registered can be read and not trained.

    >>> kind_of({"task": {"name": "minigrid"}}).score
    'return'
    """
    task = description.get("task", {})
    if "format" in description:
        kind = _KINDS.get(description["format"], Kind(str(description["format"])))
    else:
        kind = next((kind for kind in _KINDS.values() if task.get("name") in kind.tasks), _SUPERVISED)
    return _OF_NUMBERS if kind is _SUPERVISED and task.get("answer") == "number" else kind


def is_identified(part: dict[str, Any]) -> bool:
    """Return whether a task or model can be told from any other of its class.

    One that was described by class and shapes alone, before there was more, cannot.
    """
    return "unidentified" not in part and ("weights" not in part or "parts" in part)


def unresumable(description: dict[str, Any]) -> str:
    """Return why a run cannot be resumed, empty where it can: nothing tells its model or task from others."""
    for part in ("model", "task"):
        values = description.get(part, {})
        if not is_identified(values):
            why = values.get("unidentified", {}).get("why", "only the shapes of its weights were recorded")
            return f"the {part} cannot be told from another ({why})"
    return ""


def how_to_resume(description: dict[str, Any], folder: Path | str | None) -> str:
    """Return what to type to go on with a run: a command, or a call where the command cannot make it."""
    if any("class" in description.get(part, {}) for part in ("task", "model")) or (
        description.get("task", {}).get("name") == "data"
    ):
        return f"plait.fit(model, task, …, folder={str(folder)!r}, resume=True)"
    return f"plait train --resume {folder}"
