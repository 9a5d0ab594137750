"""The settings of the published experiments on real data: tables 8 and 9 of the supplement of Kerg et al.

What a table leaves blank takes RelRNN's row and is named in `ours`; so do models the tables do not have.
Sizes, epochs and clipping are those of the published scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PUBLISHED", "Published", "published_for"]


@dataclass(frozen=True)
class Published:
    """One row. `orthogonal_lr` is the rate of parameters that are kept orthogonal, `initialiser` that of an
    Elman cell's recurrent matrix; `ours` names the values that are not published."""

    lr: float
    optimizer: str
    nonlinearity: str | None
    window: int
    capacity: int
    hidden_size: int
    batch_size: int
    epochs: int
    clip: float
    initialiser: str
    schedule: str = "constant"
    orthogonal_lr: float | None = None
    ours: tuple[str, ...] = ()

    def model(self, names: frozenset[str]) -> dict[str, Any]:
        """The options of a model, of those it has."""
        options = ("hidden_size", "nonlinearity", "window", "capacity", "initialiser")
        # An initialiser of rotations is for Elman cells, whose other options show that they are one.
        wanted = [name for name in options if name != "initialiser" or "nonlinearity" in names]
        return {name: getattr(self, name) for name in wanted if name in names}

    def recipe(self) -> dict[str, Any]:
        """The parts of a recipe; epochs are for the task to turn into updates."""
        names = ("lr", "optimizer", "batch_size", "clip", "schedule")
        values = {name: getattr(self, name) for name in names}
        return values | ({} if self.orthogonal_lr is None else {"orthogonal_lr": self.orthogonal_lr})


_EVERY = ("lr", "optimizer", "nonlinearity", "window", "capacity")


def _mnist(lr: float = 3e-4, clip: float = 0.0, ours: tuple[str, ...] = (), **other: Any) -> Published:
    """Table 8; a row's non-linearity is modrelu wherever it is given."""
    return Published(lr, "adam", "modrelu", 10, 10, 100, 100, 200, clip, "henaff", ours=ours, **other)


def _treebank(lr: float = 3e-4, ours: tuple[str, ...] = (), **other: Any) -> Published:
    """Table 9; ρ is 5 there."""
    return Published(lr, "adam", "tanh", 10, 5, 1024, 128, 100, 0.0, "cayley", "halve", ours=ours, **other)


_NO_OPTIMIZER = ("optimizer",)
PUBLISHED: dict[str, dict[str, Published]] = {
    "mnist": {
        "orthrnn": _mnist(1e-4),
        "exprnn": _mnist(1e-4, orthogonal_lr=1e-5),
        "lstm": _mnist(2e-4, clip=1.0, ours=_NO_OPTIMIZER),
        "goru": _mnist(ours=_EVERY),
        "relrnn": _mnist(),
        "rellstm": _mnist(clip=1.0, ours=_EVERY),
    },
    "treebank": {
        "orthrnn": _treebank(1e-3),
        "exprnn": _treebank(3e-3, orthogonal_lr=3e-4),
        "lstm": _treebank(2e-4, ours=_NO_OPTIMIZER),
        "goru": _treebank(ours=_EVERY),
        "relrnn": _treebank(),
    },
}
_OTHERS = {"mnist": _mnist(ours=_EVERY), "treebank": _treebank(ours=_EVERY)}
_TABLE_OF = {"smnist": "mnist", "pmnist": "mnist", "ptb": "treebank", "text": "treebank"}


def published_for(task: str, model: str) -> Published | None:
    """The row for a task and a model by their names; None for a task these tables do not have.

    >>> row = published_for("ptb", "exprnn")
    >>> row.lr, row.orthogonal_lr, row.capacity, row.ours
    (0.003, 0.0003, 5, ())
    >>> published_for("pmnist", "goru").ours
    ('lr', 'optimizer', 'nonlinearity', 'window', 'capacity')
    >>> published_for("copy", "relrnn") is None
    True
    """
    table = _TABLE_OF.get(task)
    return None if table is None else PUBLISHED[table].get(model, _OTHERS[table])
