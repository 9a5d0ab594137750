"""Where a watch's records go: TensorBoard, or one JSON line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plait.errors import OutputError, require
from plait.gradients.watch import Seen

__all__ = ["JsonLines", "TensorBoard"]


class TensorBoard:
    """Curves of every layer: positions felt, the farthest's relative size, the largest norm.

    Give the folder of the events, or a `SummaryWriter` that the loop has already.
    """

    def __init__(self, where: str | Path | Any) -> None:
        if isinstance(where, str | Path):
            require("tensorboard", "track")
            from torch.utils.tensorboard import SummaryWriter

            where = SummaryWriter(str(where))
        self.writer = where

    def __call__(self, seen: Seen) -> None:
        for name, value in seen.scalars().items():
            self.writer.add_scalar(name, value, seen.number)
        self.writer.flush()


class JsonLines:
    """Everything, the norm at every position included: a line a record, appended."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __call__(self, seen: Seen) -> None:
        line = json.dumps({"number": seen.number, **seen.profile.to_dict()}, allow_nan=False)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from error
