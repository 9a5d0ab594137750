"""What every worker does, whether a process here or a task on a cluster: one run, from where it stands.

A worker tells what happens as plain dictionaries: `{"event": "began" | "progress", …}`; what it returns is
how the run ended: `{"status": complete | stopped | diverged | failed | busy, "reason": …, …}`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import BusyError, DivergedError
from plait.experiments.plan import Job, time_left
from plait.runs.folder import read_json, write_summary
from plait.training.callbacks import Watcher

if TYPE_CHECKING:
    from plait.training.learner import Step

__all__ = ["STOP", "Tell", "execute", "record_failure", "stop_file"]

STOP = "stop"  # a file of this name in the experiment's folder asks every worker to save and stop
Tell = Callable[[dict[str, Any]], None]
_SECONDS = 1.0  # between two reports
_STEPS_BETWEEN_CHECKPOINTS = 50_000


def stop_file(out: Path) -> Path:
    return out / STOP


def execute(job: Job, tell: Tell, orphaned: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Train a run to its end, or until it is asked to stop; never raises what belongs to the run.

    Args:
        job: what to run and where.
        tell: is told how it goes.
        orphaned: whether nobody waits for the result any more.
    """
    folder = Path(job.folder)
    if stop_file(folder.parent).exists():
        return {"status": "stopped", "reason": "asked to"}
    tell({"event": "began", "id": job.id, "pid": os.getpid(), "host": socket.gethostname()})
    try:
        summary = _train(job, folder, tell, _throttled(folder.parent, orphaned))
        if summary["status"] == "complete" and job.trace:
            summary = {**summary, "reason": _traced(folder, job) or summary["reason"]}
    except BusyError as error:  # of someone else's, who will be done: nothing of it is ours to record
        return {"status": "busy", "reason": str(error)}
    except DivergedError:
        summary = read_json(folder / "summary.json")  # `fit` has recorded it
    except (KeyboardInterrupt, SystemExit):
        return {"status": "stopped", "reason": "interrupted"}
    except Exception as error:  # whatever it is, the other runs go on and this one keeps its reason
        return record_failure(folder, f"{type(error).__name__}: {error}")
    return {
        key: summary.get(key) for key in ("status", "reason", "updates", "score", "best_score", "seconds")
    }


def record_failure(folder: Path, reason: str) -> dict[str, Any]:
    """Put a failure into the run's folder; what it had reached stays and can be resumed."""
    outcome = {"status": "failed", "reason": " ".join(reason.split())[:500]}
    if (folder / "config.json").exists():
        from plait.runs.reading import read_run

        record = read_run(folder)
        known = {"run": record.id, "updates": record.updates, "best_score": record.best_score}
        write_summary(folder, {**record.summary, **known, **outcome})
    return outcome


def _train(job: Job, folder: Path, tell: Tell, stop_when: Callable[[], bool]) -> dict[str, Any]:
    """A policy plays beside its worlds, on a CPU, wherever others train."""
    from plait.ops.gpu_share import SHARED_BY
    from plait.training.session import train_run

    if job.together > 1:
        os.environ.setdefault(SHARED_BY, str(job.together))
    of_sequences = job.kind.unit == "update"
    fitted = train_run(
        job.description,
        device=job.device if of_sequences else None,
        folder=folder,
        # Whether there is something to resume is seen once the folder is held: a worker that a killed runner
        # left behind may write to it until then.
        resume=True,
        checkpoint_every=max(10, _STEPS_BETWEEN_CHECKPOINTS // job.length) if of_sequences else None,
        max_minutes=None if job.seconds is None else max(time_left(job), 0.1) / 60,
        stop_when=stop_when,
        watchers=[_Reporter(job.id, tell)],
    )
    if job.seconds is not None and fitted.summary["reason"] == "max-minutes":
        return {**fitted.summary, "status": "complete"}  # all the time it has
    return {**fitted.summary, "updates": fitted.summary[f"{job.kind.unit}s"]}


def _traced(folder: Path, job: Job) -> str:
    """Keep the attention of one sequence; a run without it is complete all the same, and says why."""
    from plait.experiments.trace import write_trace

    try:
        write_trace(folder, job.description["recipe"]["seed"])
    except Exception as error:
        return f"no trace: {error}"
    return ""


def _throttled(out: Path, orphaned: Callable[[], bool]) -> Callable[[], bool]:
    """Whether to stop, asked after every update and looked up a few times a second."""
    path = stop_file(out)
    looked = [0.0, False]

    def asked() -> bool:
        now = time.monotonic()
        if now - looked[0] > 0.3:
            looked[:] = now, path.exists() or orphaned()
        return bool(looked[1])

    return asked


class _Reporter(Watcher):
    """Tells how far a run is, about once a second and when it was scored."""

    def __init__(self, run: str, tell: Tell) -> None:
        self.run, self.tell = run, tell
        self.last, self.first, self.began_at = 0.0, 0, time.monotonic()
        self.score: float | None = None

    def began(self, run: str, update: int, updates: int) -> None:
        self.first, self.began_at = update, time.monotonic()
        self._report(update)

    def updated(self, update: int, step: Step) -> None:
        if time.monotonic() - self.last > _SECONDS:
            self._report(update)

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        self.score = next(iter(results.values()))["score"]
        self._report(update)

    def _report(self, update: int) -> None:
        self.last = time.monotonic()
        speed = (update - self.first) / max(self.last - self.began_at, 1e-9)
        self.tell(
            {"event": "progress", "id": self.run, "update": update, "speed": speed, "score": self.score}
        )
