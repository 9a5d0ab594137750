"""Writers for the records of a watch: TensorBoard, or one JSON line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plait.errors import OutputError, require
from plait.gradients.watch import WatchRecord

__all__ = ["JsonLines", "TensorBoard"]


class TensorBoard:
    """Writer of curves for every layer: positions felt, the farthest's relative size, the largest norm.

    `where` is the folder of the event files, or an existing `SummaryWriter`.
    """

    def __init__(self, where: str | Path | Any) -> None:
        if isinstance(where, str | Path):
            require("tensorboard", "track")
            from torch.utils.tensorboard import SummaryWriter

            where = SummaryWriter(str(where))
        self.writer = where

    def __call__(self, record: WatchRecord) -> None:
        for name, value in record.scalars().items():
            self.writer.add_scalar(name, value, record.number)
        self.writer.flush()


class JsonLines:
    """Writer that appends one JSON line per record, with the norm at every position."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __call__(self, record: WatchRecord) -> None:
        line = json.dumps({"number": record.number, **record.profile.to_dict()}, allow_nan=False)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from error
