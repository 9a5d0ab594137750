"""The work of a worker, a process here or a task on a cluster: one run, begun or resumed.

A worker reports events as plain dictionaries, `{"event": "began" | "progress", …}`, and returns how the run
ended: `{"status": complete | stopped | diverged | failed | busy, "reason": …, …}`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import BusyError, DivergedError
from plait.lab.experiments.plan import Job, time_left
from plait.lab.own_code import name_of
from plait.lab.runs.folder import read_json, write_summary
from plait.lab.training.callbacks import Callback

if TYPE_CHECKING:
    from plait.lab.training.learner import Step

__all__ = ["STOP", "Tell", "execute", "record_failure", "stop_file"]

STOP = "stop"  # a file of this name in the experiment's folder makes every worker save and stop
Tell = Callable[[dict[str, Any]], None]
_SECONDS = 1.0  # between two reports
_STEPS_BETWEEN_CHECKPOINTS = 50_000


def stop_file(out: Path) -> Path:
    """Return the path of the file that makes every worker of an experiment stop."""
    return out / STOP


def execute(job: Job, tell: Tell, orphaned: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Train a run to its end, or until the stop file exists; errors of the run are returned, not raised.

    Args:
        job: the run and its folder.
        tell: callback for the events of the run.
        orphaned: returns whether the process that waits for the result has ended.
    """
    folder = Path(job.folder)
    parts = job.spec.parts()
    for part in ("task", "model"):
        name_of(parts[part]["name"])  # the process that planned the job trusted and imported it
    if stop_file(folder.parent).exists():
        return {"status": "stopped", "reason": "asked to"}
    tell({"event": "began", "id": job.id, "pid": os.getpid(), "host": socket.gethostname()})
    try:
        summary = _train(job, folder, tell, _throttled(folder.parent, orphaned))
        if summary["status"] == "complete" and job.trace:
            summary = {**summary, "reason": _traced(folder, job) or summary["reason"]}
    except BusyError as error:  # another process trains this run and records how it ends
        return {"status": "busy", "reason": str(error)}
    except DivergedError:
        summary = read_json(folder / "summary.json")  # `fit` has recorded it
    except (KeyboardInterrupt, SystemExit):
        return {"status": "stopped", "reason": "interrupted"}
    except Exception as error:  # the other runs continue, and this one records the reason
        return record_failure(folder, f"{type(error).__name__}: {error}")
    return {
        key: summary.get(key) for key in ("status", "reason", "updates", "score", "best_score", "seconds")
    }


def record_failure(folder: Path, reason: str) -> dict[str, Any]:
    """Record a failure in the run's folder; its checkpoint stays and can be resumed."""
    outcome = {"status": "failed", "reason": " ".join(reason.split())[:500]}
    if (folder / "config.json").exists():
        from plait.lab.runs.reading import read_run

        record = read_run(folder)
        known = {"run": record.id, "updates": record.updates, "best_score": record.best_score}
        write_summary(folder, {**record.summary, **known, **outcome})
    return outcome


def _train(job: Job, folder: Path, tell: Tell, stop_when: Callable[[], bool]) -> dict[str, Any]:
    """Train or resume a run; return its summary. Policies train on a CPU, with their environments."""
    from plait.lab.training.session import train_run
    from plait.ops.gpu_share import share_gpu

    share_gpu(job.together)
    of_sequences = job.kind.unit == "update"
    fitted = train_run(
        job.spec.to_json(),
        device=job.device if of_sequences else None,
        folder=folder,
        # Always, as only the holder of the folder's lock can see whether there is a run to resume: the worker
        # of a killed runner may write to the folder until then.
        resume=True,
        checkpoint_every=max(10, _STEPS_BETWEEN_CHECKPOINTS // job.length) if of_sequences else None,
        max_minutes=None if job.seconds is None else max(time_left(job), 0.1) / 60,
        stop_when=stop_when,
        callbacks=[_Reporter(job.id, tell)],
    )
    if job.seconds is not None and fitted.summary["reason"] == "max-minutes":
        return {**fitted.summary, "status": "complete"}  # its time is used up, so it is complete
    return {**fitted.summary, "updates": fitted.summary[f"{job.kind.unit}s"]}


def _traced(folder: Path, job: Job) -> str:
    """Write the attention over one sequence; return why that failed, as the run is complete anyway."""
    from plait.lab.experiments.trace import write_trace

    try:
        write_trace(folder, job.seed)
    except Exception as error:
        return f"no trace: {error}"
    return ""


def _throttled(out: Path, orphaned: Callable[[], bool]) -> Callable[[], bool]:
    """Return a `stop_when` that checks the stop file and the parent three times a second at most."""
    path = stop_file(out)
    checked = [0.0, False]  # the time of the last check, and its result

    def stop_when() -> bool:
        now = time.monotonic()
        if now - checked[0] > 0.3:
            checked[:] = now, path.exists() or orphaned()
        return bool(checked[1])

    return stop_when


class _Reporter(Callback):
    """Callback that reports a run's progress, about once a second and at every evaluation."""

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
