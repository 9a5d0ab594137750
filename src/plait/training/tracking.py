"""TensorBoard, if it is installed: the curves of a run as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import require
from plait.training.watch import Watcher

if TYPE_CHECKING:
    from plait.training.learner import Step

__all__ = ["TensorBoard"]


class TensorBoard(Watcher):
    """Writes event files into `folder`; after a resume what lies past the checkpoint is purged."""

    def __init__(self, folder: Path, every: int = 10) -> None:
        require("tensorboard", "track")
        self.folder, self.every = folder, every
        self.writer: Any = None

    def began(self, run: str, update: int, updates: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=update + 1 if update else None)

    def updated(self, update: int, step: Step) -> None:
        if update % self.every == 0:
            self.writer.add_scalar("train/loss", step.loss, update)
            self.writer.add_scalar("train/score", step.score, update)
            self.writer.add_scalar("train/gradient_norm", step.gradient_norm, update)

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        for name, result in results.items():
            for figure, value in result.items():
                self.writer.add_scalar(f"held_out/{name}/{figure}", value, update)

    def ended(self, summary: dict[str, Any]) -> None:
        self.writer.close()
