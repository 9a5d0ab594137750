"""The protocol between the runner and its workers: processes on this machine, or a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from plait.lab.experiments.plan import Job

__all__ = ["ATTEMPTS", "Event", "Pool"]

ATTEMPTS = 4  # of a run whose worker dies: one, and three retries


@dataclass(frozen=True)
class Event:
    """An event of a job: its start, progress, end (`data` of `worker.execute`), or its worker's death."""

    job: str
    kind: Literal["began", "progress", "ended", "died"]
    data: dict[str, Any] = field(default_factory=dict)


class Pool(Protocol):
    """Pool of workers that executes jobs and reports events."""

    where: str
    retries: bool
    """True if the pool itself retries jobs of dead workers, up to `ATTEMPTS` times, as a cluster does."""

    def room(self) -> int:
        """Return how many more jobs the pool accepts now."""
        ...

    def start(self, job: Job) -> None: ...

    def events(self, seconds: float) -> list[Event]:
        """Return the events since the last call; wait for the first one for `seconds` at most."""
        ...

    def close(self) -> None:
        """End every worker, busy or idle."""
        ...
