"""The description of a run that trains a small causal network on characters, to compare depth with width.

The experiments `depthwidth-figure1` and `depthwidth-tuned` consist of such runs. For language modelling use
`plait train ptb` and `plait train text`, whose models read features and carry a state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from plait.errors import ConfigError, check_int, check_min, check_seed
from plait.lab.strict import parse
from plait.lab.tasks.text import CharacterText, find_treebank, read_once
from plait.lab.training.run_spec import RunSpec

__all__ = [
    "FORMAT",
    "CharacterModel",
    "CharacterRecipe",
    "CharacterSpec",
    "CharacterTask",
    "parse_characters",
]

FORMAT = "plait characters 1"
_TREEBANK: dict[str, Any] = {
    "symbols": 50,
    "train": 5_017_482,
    "valid": 393_042,
    "test": 442_423,
    "sha256": "78b9ef32b1d965e4",
}


@dataclass(frozen=True)
class CharacterTask:
    """The next character of a text, with the text's identity: its sizes and a digest of its symbols.

    Args:
        text: one file, split 90 : 5 : 5, or three, to train, validate and test; none for Penn Treebank.
        symbols: number of different characters.
        train, valid, test: number of characters of each part.
        sha256: digest of the text; empty to compute it when the description is parsed.
    """

    name: str = "characters"
    text: tuple[str, ...] = ()
    symbols: int = 0
    train: int = 0
    valid: int = 0
    test: int = 0
    sha256: str = ""

    def identified(self) -> CharacterTask:
        """Return the task with the identity of its text, which is read for it unless it is Penn Treebank."""
        if self.sha256:
            return self
        return dataclasses.replace(self, **(read_once(self.text).fingerprint if self.text else _TREEBANK))

    def read(self) -> CharacterText:
        """Read the text; raise if it is another than the run was described with."""
        text = read_once(self.text or tuple(map(str, find_treebank())))
        expected = {name: getattr(self, name) for name in _TREEBANK}
        if text.fingerprint != expected:
            raise ConfigError(
                f"{', '.join(self.text) or 'Penn Treebank'}: expected the text that hashes to {self.sha256}, "
                f"got {text.fingerprint['sha256']}; it was changed since"
            )
        return text


@dataclass(frozen=True)
class CharacterModel:
    """A network by its shape; `heads` divide `width`.

    >>> CharacterModel("softmax", depth=1, width=48, heads=3).parameters
    27792
    """

    name: Literal["softmax", "linear"]
    depth: int
    width: int
    heads: int
    PER_LAYER: ClassVar[Mapping[str, int]] = {"softmax": 12, "linear": 4}
    """c in the c·L·d² weights of the layers."""

    def __post_init__(self) -> None:
        check_int(1, depth=self.depth, width=self.width, heads=self.heads)
        if self.width % self.heads:
            raise ConfigError(f"heads: expected a divisor of width {self.width}, got {self.heads}")

    @property
    def parameters(self) -> int:
        """Return the number of parameters besides embeddings and readout: c·L·d², and norm gains."""
        gains = (2 * self.depth + 1) * self.width if self.name == "softmax" else 0
        return self.PER_LAYER[self.name] * self.depth * self.width**2 + gains


@dataclass(frozen=True)
class CharacterRecipe:
    """Training recipe for all shapes of a network.

    AdamW with betas (0.9, 0.95); the learning rate rises linearly over `warmup` updates to peak/√width and
    decays by a cosine to a tenth of it. Every update sees `batch` windows of `context` characters, the same
    ones for every network of a seed. There are `looks` evaluations on the validation text, and one on the
    test text at the end, each on at most the first `held_out` characters.
    """

    updates: int = 1500
    warmup: int = 100
    batch: int = 64
    context: int = 256
    peak: float = 0.032
    weight_decay: float = 0.1
    clip: float = 1.0
    looks: int = 6
    held_out: int = 500_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_int(1, updates=self.updates, batch=self.batch, context=self.context, looks=self.looks)
        check_int(self.context + 1, held_out=self.held_out)
        check_int(0, warmup=self.warmup)
        check_min(0, weight_decay=self.weight_decay)
        check_seed(seed=self.seed)
        for name in ("peak", "clip"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected a number above 0, got {getattr(self, name)}")

    def rate(self, update: int, width: int) -> float:
        """Return the learning rate of an update, counted from 0.

        >>> [round(CharacterRecipe(updates=100, warmup=10).rate(u, 64), 6) for u in (0, 9, 55, 99)]
        [0.0004, 0.004, 0.0022, 0.000401]
        """
        top = self.peak / math.sqrt(width)
        if update < self.warmup:
            return top * (update + 1) / self.warmup
        share = (update - self.warmup) / max(1, self.updates - self.warmup)
        return top * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


@dataclass(frozen=True)
class CharacterSpec(RunSpec):
    """The description of a run on characters."""

    task: CharacterTask
    model: CharacterModel
    recipe: CharacterRecipe

    def __post_init__(self) -> None:
        if self.extended:
            raise ConfigError(
                "updates: a run whose learning rate ends with its last update cannot be extended; train "
                "another one"
            )

    @property
    def format(self) -> str:
        return FORMAT

    def parts(self) -> dict[str, dict[str, Any]]:
        return {
            "task": {**dataclasses.asdict(self.task), "text": list(self.task.text)},
            "model": dataclasses.asdict(self.model),
            "recipe": dataclasses.asdict(self.recipe),
        }

    def with_seed(self, seed: int) -> CharacterSpec:
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, seed=seed))


def parse_characters(values: dict[str, Any]) -> CharacterSpec:
    """Validate a description as plain data and fill in its defaults and the identity of the text.

    >>> model = {"name": "linear", "depth": 2, "width": 16, "heads": 1}
    >>> spec = parse_characters({"task": {"name": "characters"}, "model": model, "recipe": {"updates": 9}})
    >>> spec.task.train, spec.recipe.warmup
    (5017482, 100)
    """
    parts = {"recipe": {}, **{key: value for key, value in values.items() if key != "format"}}
    spec = parse(CharacterSpec, parts)
    return dataclasses.replace(spec, task=spec.task.identified())
