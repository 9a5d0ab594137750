"""The registry of run kinds: the units, names and defaults of runs by the `format` of their `config.json`.

`plait.lab.training.registry` has the functions that train and load them. Folders of a kind that is not
registered can be listed and reported on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = [
    "CHARACTERS",
    "POLICY",
    "SUPERVISED",
    "Kind",
    "add",
    "how_to_repeat",
    "how_to_resume",
    "is_identified",
    "kind_of",
    "unresumable",
]


@dataclass(frozen=True)
class Kind:
    """A kind of run: the unit of its length, the names of its results, its defaults."""

    format: str
    """Value of `format` in the descriptions of such runs."""
    score: str = "score"
    """Name of the score: accuracy, return."""
    unit: str = "update"
    """Unit of a run's length; its plural is the key of the length in the recipe."""
    per_update: Callable[[Mapping[str, Any]], int] = lambda recipe: 1
    """Function of the recipe that returns the units of an update."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Display names of results, where they differ from their keys."""
    tasks: frozenset[str] = frozenset()
    """Tasks whose descriptions are of this kind if they have no `format`."""
    device: str = "auto"
    checkpoint_every: int = 500
    resumed_by: str = "plait train --resume {folder}"
    """Command that resumes a run."""

    @property
    def length_key(self) -> str:
        """Name of the hyperparameter that is the length of a run in its unit."""
        return "total_timesteps" if self.unit == "step" else f"{self.unit}s"

    def counted(self, description: dict[str, Any]) -> int:
        """Return the length of the run in its kind's unit, updates or steps."""
        return int(description["recipe"][self.length_key])

    def updates(self, description: dict[str, Any]) -> int:
        """Return the length of the run in updates, rounded up."""
        return -(-self.counted(description) // self.per_update(description["recipe"]))

    def longer(self, description: dict[str, Any], amount: int) -> dict[str, Any]:
        """Return the description of the run extended to `amount` updates or steps."""
        from plait.lab.runs.folder import extended

        return extended(description, self.length_key, amount)


_KINDS: dict[str, Kind] = {}


def add(kind: Kind) -> Kind:
    """Add a kind to the registry of this process, and return it; `registry.register` makes it trainable."""
    _KINDS[kind.format] = kind
    return kind


SUPERVISED = add(Kind("plait run 1", score="accuracy", shown={"score": "accuracy"}))
# For tasks with numbers as targets: scored by R² instead of accuracy.
_OF_NUMBERS = replace(
    SUPERVISED, score="R²", shown={"score": "R²", "rmse": "RMSE", "loss": "MSE, standardised"}
)
POLICY = add(
    Kind(
        "plait policy 2",
        score="return",
        unit="step",
        per_update=lambda recipe: int(recipe["n_envs"] * recipe["n_steps"]),
        shown={"score": "return", "length": "steps", "mmer": "MMER"},
        tasks=frozenset({"minigrid", "gym", "popgym"}),
        device="cpu",
        checkpoint_every=10,
    )
)
CHARACTERS = add(
    Kind(
        "plait characters 1",
        score="log-likelihood (bits)",
        shown={"score": "log-likelihood (bits)", "loss": "loss (nats)"},
        tasks=frozenset({"characters"}),
    )
)
add(
    Kind(
        "plait scores 1",
        shown={"score": "explained variance (usage), agreement with the full cache (eviction)"},
        resumed_by="plait cache train MODEL --text FILE --out {folder} --resume, with the same options",
    )
)


def kind_of(description: dict[str, Any]) -> Kind:
    """Return the kind of a description; runs of an unregistered kind can be read but not trained.

    >>> kind_of({"task": {"name": "minigrid"}}).score
    'return'
    """
    task = description.get("task", {})
    if "format" in description:
        kind = _KINDS.get(description["format"], Kind(str(description["format"])))
    else:
        kind = next((kind for kind in _KINDS.values() if task.get("name") in kind.tasks), SUPERVISED)
    return _OF_NUMBERS if kind is SUPERVISED and task.get("answer") == "number" else kind


def is_identified(part: dict[str, Any]) -> bool:
    """Return whether a task or model can be distinguished from any other of its class."""
    return "unidentified" not in part


def unresumable(description: dict[str, Any]) -> str:
    """Return why a run cannot be resumed (its model or task could be another's), empty if it can."""
    for part in ("model", "task"):
        values = description.get(part, {})
        if not is_identified(values):
            return f"the {part} cannot be told from another ({values['unidentified'].get('why')})"
    return ""


def how_to_resume(description: dict[str, Any], folder: Path | str | None) -> str:
    """Return the command that resumes a run, or a call if no command can build its model or task."""
    if _needs_python(description):
        return f"plait.fit(model, task, …, folder={str(folder)!r}, resume=True)"
    return kind_of(description).resumed_by.format(folder=folder)


def how_to_repeat(description: dict[str, Any], folder: Path | str) -> str | None:
    """Return the command that repeats a run from the beginning; None if no command can.

    >>> how_to_repeat({"task": {"name": "copy"}, "model": {"name": "lstm"}}, "runs/copy-lstm-1")
    'plait train --config runs/copy-lstm-1'
    """
    if not description or _needs_python(description) or kind_of(description).resumed_by != Kind.resumed_by:
        return None
    return shlex.join(["plait", "train", "--config", str(folder)])


def _needs_python(description: dict[str, Any]) -> bool:
    """Return whether a run's model, task or data were made in Python, so that no command can build them."""
    return any("class" in description.get(part, {}) for part in ("task", "model")) or (
        description.get("task", {}).get("name") == "data"
    )
