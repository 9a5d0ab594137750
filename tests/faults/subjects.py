"""The runs that faults are tried on: each kind in each state, so small that one takes a moment.

A subject is a way to train one run into a folder, and to leave off after some updates without a word, as a
process does that is killed there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.callbacks import Callback
from plait.lab.training.ppo.policy import describe_policy
from plait.lab.training.recipe import PPOConfig, Recipe
from plait.lab.training.session import train_run

SMALL = {"updates": 12, "batch_size": 4, "evaluate_every": 6, "evaluate_on": 6, "record_every": 2}
KEPT = ("status", "reason", "updates", "loss", "score", "held_out", "best_score", "best_update", "parameters")


class Death(BaseException):
    """Stands for a kill: nothing catches it."""


class Dies(Callback):
    """Dies after a number of updates of this session."""

    def __init__(self, at: int) -> None:
        self.at = at

    def updated(self, update: int, step: Any) -> None:
        self.at -= 1
        if not self.at:
            raise Death


@dataclass(frozen=True)
class Subject:
    """A run: what it is, and how often it is saved."""

    description: dict[str, Any]
    checkpoint_every: int

    def train(
        self, folder: Path, resume: bool = False, callbacks: Sequence[Callback] = (), **options: Any
    ) -> Any:
        return train_run(
            self.description,
            device="cpu",
            folder=folder,
            resume=resume,
            callbacks=callbacks,
            checkpoint_every=self.checkpoint_every,
            **options,
        )

    def killed(self, folder: Path, at: int) -> None:
        """Leave the folder as a kill after `at` updates leaves it."""
        try:
            self.train(folder, callbacks=[Dies(at)])
        except Death:
            return
        raise AssertionError("it was done before it could die")


def subjects(room: Path) -> dict[str, Subject]:
    """By what they are; `room` is for the files they read."""
    book = room / "book.txt"
    if not book.exists():
        book.write_text("to be, or not to be, that is the question:\n" * 40)
    text = {"name": "text", "text": (str(book),), "span": 10, "embedding": 6, "memory_across_spans": True}
    memory = {"hidden_size": 5, "window": 3, "capacity": 2}
    recipe = Recipe(**SMALL, gradients_every=5).values()
    ppo = PPOConfig(
        total_timesteps=120,
        n_envs=2,
        n_steps=10,
        n_minibatches=2,
        n_epochs=1,
        evaluate_every=3,
        evaluate_on=2,
    )
    return {
        "copy": Subject(
            {"task": {"name": "copy", "delay": 1}, "model": {"name": "relrnn", **memory}, "recipe": recipe}, 4
        ),
        "plain": Subject(
            {
                "task": {"name": "denoise", "delay": 1},
                "model": {"name": "lstm", "hidden_size": 4},
                "recipe": {**recipe, "optimizer": "rmsprop", "relative_clip": 3.0},
            },
            5,
        ),
        "text": Subject(
            {
                "task": text,
                "model": {"name": "rellstm", **memory},
                "recipe": {**Recipe(**SMALL).values(), "evaluate_on": None},
            },
            4,
        ),
        "policy": Subject(describe_policy("GoToDoor-5x5", "rellstm", ppo, hidden_size=8), 2),
    }


def _whole(one: Subject, folder: Path) -> None:
    one.train(folder)


def _killed(one: Subject, folder: Path) -> None:
    one.killed(folder, 5)


def _stopped(one: Subject, folder: Path) -> None:
    asked = iter([False, False, True])
    one.train(folder, stop_when=lambda: next(asked, True))


STATES: dict[str, Callable[[Subject, Path], None]] = {
    "complete": _whole,
    "killed": _killed,
    "stopped": _stopped,
}


def outcome(folder: Path) -> dict[str, Any]:
    """Everything a run must end with, whatever happened to it: bits of tensors, counters, curves, results."""
    checkpoint = read_checkpoint(folder / "checkpoint.safetensors")
    # The clock moves with the machine, and with it the bytes a line takes.
    counters = {k: v for k, v in checkpoint.counters.items() if k not in ("seconds", "journals", "regular")}
    summary = json.loads((folder / "summary.json").read_text())
    journals = {
        name: re.sub(rb'"seconds": [0-9.]+, ', b"", (folder / name).read_bytes())
        for name in ("metrics.jsonl", "gradients.jsonl")
        if (folder / name).exists()
    }
    return {
        "tensors": {name: value.numpy().tobytes() for name, value in checkpoint.tensors.items()},
        "counters": counters,
        "summary": {key: summary[key] for key in KEPT},
        "config": json.loads((folder / "config.json").read_text()),
        **journals,
    }
