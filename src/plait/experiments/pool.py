"""What the runner asks of whoever does the work: processes on this machine, or a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from plait.experiments.plan import Job

__all__ = ["News", "Pool"]


@dataclass(frozen=True)
class News:
    """What happened to a job: it goes on, it ended (as `worker.execute` says), or its worker died."""

    job: str
    kind: Literal["began", "progress", "ended", "died"]
    data: dict[str, Any] = field(default_factory=dict)


class Pool(Protocol):
    """Takes jobs, gives news. A job whose worker died is not tried again by itself: that is the runner's."""

    where: str

    def room(self) -> int:
        """How many more jobs it would take now."""
        ...

    def start(self, job: Job) -> None: ...

    def news(self, seconds: float) -> list[News]:
        """What happened since it was last asked, waiting for it for `seconds` at most."""
        ...

    def close(self) -> None:
        """End every worker, at work or not."""
        ...
