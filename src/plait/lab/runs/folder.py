"""A run's folder, locked by the process that works in it; all files but the journals are written atomically.

```
config.json             the description, which determines the run's id
environment.json        one entry per session: versions, device, threads
metrics.jsonl           loss and score of updates, held-out results with the run's clock
gradients.jsonl         ‖∂L/∂h_t‖ by layer and step, where recorded
checkpoint.safetensors  weights, optimiser, counters
summary.json            how the last session ended; absent during a session and after one that was killed
SHA256SUMS              digests of all these, present while there is a summary: sha256sum -c SHA256SUMS
```
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError, check_utf8
from plait.files import canonical_json, plain_bytes, write_whole, writing
from plait.lab.runs.checksums import (
    check_own_digest,
    digest_of,
    end_session,
    prefix_sum,
    start_session,
    with_own_digest,
)
from plait.lab.runs.difference import refusal
from plait.lab.runs.kinds import how_to_resume

if TYPE_CHECKING:
    from plait.lab.runs.checkpoint import Learner

__all__ = [
    "Journal",
    "Run",
    "extended",
    "is_locked",
    "json_bytes",
    "locked",
    "read_environment",
    "read_json",
    "read_plain",
    "run_id",
    "write_json",
    "write_summary",
    "write_whole",
]

MOST_NESTED, MOST_TEXT = 64, 2**30


def run_id(description: dict[str, Any]) -> str:
    """Return a run's id: task, model, and ten digits of the SHA-256 of the canonical description.

    >>> run_id({"task": {"name": "copy"}, "model": {"name": "lstm"}})
    'copy-lstm-761f80bfa7'
    """
    if "extended" in description:  # an extended run keeps the id it began with
        history = description["extended"]
        initial = {units: amounts[0] for units, amounts in history.items()}
        description = {**description, "recipe": {**description["recipe"], **initial}}
        del description["extended"]
    canonical = canonical_json(description)
    names = [
        str(part.get("name") or part.get("class", "").rpartition(".")[2]).rpartition(":")[2].lower()
        for part in (description["task"], description["model"])
    ]
    return f"{'-'.join(names)}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"


def extended(description: dict[str, Any], units: str, amount: int) -> dict[str, Any]:
    """Return the description for `amount` updates or steps in total; the earlier lengths go into `extended`.

    >>> longer = extended({"task": {}, "model": {}, "recipe": {"updates": 10}}, "updates", 20)
    >>> longer["recipe"], longer["extended"]
    ({'updates': 20}, {'updates': [10]})
    """
    before = description["recipe"][units]
    if amount < before:
        raise ConfigError(f"{units}: expected more than the {before:,} this run was given, got {amount:,}")
    if amount == before:
        return description
    history = {units: [*description.get("extended", {}).get(units, []), before]}
    return {**description, "recipe": {**description["recipe"], units: amount}, "extended": history}


class Run:
    """A run folder locked by this process; created by `Run.open`."""

    def __init__(self, folder: Path, description: dict[str, Any]) -> None:
        self.folder, self.description = folder, description
        self.id = run_id(description)
        self.metrics = Journal(folder / "metrics.jsonl")
        self.gradients = Journal(folder / "gradients.jsonl")
        self.checkpoint = folder / "checkpoint.safetensors"

    @staticmethod
    @contextlib.contextmanager
    def open(folder: Path, description: dict[str, Any], resume: bool) -> Iterator[Run]:
        """Lock the folder, or refuse it; nothing in it is changed before everything is checked."""
        # Otherwise its checkpoint could be written but not read.
        check_utf8("rename it or name another folder", out=folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {folder}: {error.strerror or error}") from error
        with locked(folder):
            run = Run(folder, description)
            run._claim(resume)
            try:
                yield run
            finally:
                run.metrics.close()
                run.gradients.close()

    def _claim(self, resume: bool) -> None:
        for journal in (self.metrics, self.gradients):  # opened for writing, so no links
            if journal.path.is_symlink():
                raise CheckpointError(f"{journal.path} is a link; a run's curves lie in its own folder")
        config = self.folder / "config.json"
        if config.exists():
            present_id = run_id(read_json(config))
            if present_id != self.id:
                ids = f"the run {present_id}, not {self.id}"
                raise CheckpointError(refusal(self.folder, ids, read_json(config), self.description))
            if resume and read_json(config) != self.description:
                start_session(self.folder)  # before config.json changes: an extended run has not ended
                self._remember(self.environment.get("sessions", []))
                write_json(config, self.description)
            if not resume and self.summary.get("status") != "complete":
                how = how_to_resume(self.description, self.folder)
                raise OutputError(f"{self.folder} holds this run, unfinished; continue: {how}")
            return
        strangers = sorted(
            path.name for path in self.folder.iterdir() if path.name not in ("lock", ".config.json.part")
        )
        if strangers:
            raise OutputError(
                f"{self.folder} is not a run and not empty (it holds {strangers[0]}); choose another"
            )
        write_json(config, self.description)

    @property
    def summary(self) -> dict[str, Any]:
        """Return how the last session ended, empty if none has."""
        path = self.folder / "summary.json"
        return dict(read_json(path)) if path.exists() else {}

    @property
    def environment(self) -> dict[str, Any]:
        """Return the contents of environment.json, empty before the first session."""
        path = self.folder / "environment.json"
        return read_environment(path) if path.exists() else {}

    def curves(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the lines of `metrics.jsonl` and of `gradients.jsonl`."""
        return Journal.read(self.metrics.path), Journal.read(self.gradients.path)

    def begin(self, learner: Learner, session: dict[str, Any]) -> dict[str, Any]:
        """Restore the learner from the last checkpoint; return the counters, empty for a fresh run."""
        counters: dict[str, Any] = {}
        if self.checkpoint.exists():
            from plait.lab.runs.checkpoint import restore

            counters = restore(self.checkpoint, learner, self.id)
            # A run extended after its end continues as if it had not ended: from its regular counters.
            regular = counters.pop("regular", {})
            if counters["update"] < learner.schedule.updates:
                counters |= regular
        else:
            self._refuse_lost_checkpoint()
        if learner.group.first:
            self._begin_session(counters, session)
        return counters

    def _refuse_lost_checkpoint(self) -> None:
        """Raise if curves or environment.json show that a checkpoint was lost: the run would be repeated."""
        path = self.metrics.path
        if (path.exists() and path.stat().st_size) or self.environment.get("saved"):
            raise CheckpointError(f"{self.folder} has no checkpoint to resume from; nothing was changed")

    def _begin_session(self, counters: dict[str, Any], session: dict[str, Any]) -> None:
        """Remove the last summary, cut the journals to their saved lengths, record the new session."""
        saved = counters.get("journals", {})
        for journal in (self.metrics, self.gradients):
            journal.check(saved.get(journal.path.name, 0), saved.get("sha256", {}).get(journal.path.name))
        sessions = self.environment.get("sessions", [])
        start_session(self.folder)
        for journal in (self.metrics, self.gradients):
            journal.cut(saved.get(journal.path.name, 0))
        self._remember([*sessions, {"from_update": counters.get("update", 0), **session}])

    def _remember(self, sessions: list[dict[str, Any]]) -> None:
        """Write environment.json: sessions, digests of every config.json, whether a checkpoint was saved."""
        known = self.environment.get("configs", [])
        here = digest_of(self.description)
        environment: dict[str, Any] = {
            "run": self.id,
            "configs": [*(config for config in known if config != here), here],
        }
        environment |= {"saved": True} if self.checkpoint.exists() else {}
        write_json(self.folder / "environment.json", with_own_digest({**environment, "sessions": sessions}))

    def changes(self, here: dict[str, Any]) -> list[str]:
        """Return the differences from the first session that can change the last bits of a number."""
        first = next(iter(self.environment.get("sessions", [])), here)
        watched = ("torch", "device", "threads", "processes")
        return [f"{k} was {first[k]} and is {here[k]}" for k in watched if first.get(k, here[k]) != here[k]]

    def save(self, learner: Learner, counters: dict[str, Any]) -> None:
        """Write the checkpoint. Every process calls this; the first one writes."""
        from plait.lab.runs.checkpoint import save_checkpoint

        fresh = learner.group.first and not self.checkpoint.exists()
        journals = self.positions() if learner.group.first else {}
        save_checkpoint(self.checkpoint, learner, self.id, {**counters, "journals": journals})
        if fresh:
            self._remember(self.environment.get("sessions", []))

    def positions(self) -> dict[str, Any]:
        """Return the journals' lengths on the disk and their digests, as a checkpoint records them."""
        journals = (self.metrics, self.gradients)
        lengths = {journal.path.name: journal.position() for journal in journals}
        return {**lengths, "sha256": {journal.path.name: journal.digest() for journal in journals}}

    def end(self, summary: dict[str, Any]) -> None:
        journals = (self.metrics, self.gradients)
        write_summary(self.folder, summary, {journal.path.name: journal.digest() for journal in journals})


def write_summary(folder: Path, summary: dict[str, Any], known: Mapping[str, str] | None = None) -> None:
    """Write a session's summary and the folder's checksums; `known` are those of files written just now."""
    end_session(folder, json_bytes(summary), known or {})


def read_environment(path: Path) -> dict[str, Any]:
    """Read environment.json and check its digest."""
    environment = read_json(path)
    sessions = environment.get("sessions") if isinstance(environment, dict) else None
    if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
        raise CheckpointError(f"{path} holds no list of sessions")
    return check_own_digest(environment, str(path))


def write_json(path: Path, value: Any) -> None:
    """Write a value atomically in the format of the folder's JSON files."""
    write_whole(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Serialise a value in the format of the folder's JSON files."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read a JSON file and check it: finite numbers, text that can be printed, at most 64 levels.

    Its values are written again, into pages and JSON output, which must not fail because of them.
    """
    try:
        value = json.loads(read_plain(path))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        deep = _nesting(value) > MOST_NESTED
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except RecursionError:
        deep = True
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if deep:
        raise CheckpointError(f"{path} is nested deeper than {MOST_NESTED} levels")
    return value


def read_plain(path: Path, length: int | None = None) -> str:
    """Return the text of a regular file, or of its first `length` bytes; a pipe would block forever."""
    return plain_bytes(path, MOST_TEXT)[:length].decode()


def _nesting(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_nesting(item) for item in inner if isinstance(item, dict | list)), default=0)


class Journal:
    """Append-only file of JSON lines; a line is in the file as soon as `write` returns.

    A checkpoint records `position`; resuming from it begins with `cut`, so that no line is there twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sum, self._summed = hashlib.sha256(), 0  # digest of its first bytes, and their number
        self._file: FileIO | None = None

    def write(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with writing(self.path):
            if self._file is None:  # unbuffered: closing it writes nothing and cannot fail again
                self._file = FileIO(self.path, "ab")
            end = os.fstat(self._file.fileno()).st_size
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file.fileno(), end)  # no partial line before the next one
                raise

    def position(self) -> int:
        """Sync the file and return its length: a checkpoint must not be ahead of its journal on the disk."""
        with writing(self.path):
            if self._file is not None:
                os.fsync(self._file.fileno())
            return self.path.stat().st_size if self.path.exists() else 0

    def digest(self) -> str:
        """Return the SHA-256 of the file; earlier bytes are not read again, so damage to them shows later."""
        with writing(self.path):
            if self.path.exists():
                with self.path.open("rb") as file:
                    file.seek(self._summed)
                    while piece := file.read(1 << 20):
                        self._sum.update(piece)
                        self._summed += len(piece)
        return self._sum.hexdigest()

    def check(self, position: int, digest: str | None) -> None:
        """Refuse a file whose first `position` bytes do not have the digest of the checkpoint."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < position:
            raise CheckpointError(
                f"{self.path} is cut short: expected at least {position} bytes as the checkpoint says, "
                f"got {size}"
            )
        self._sum, self._summed = prefix_sum(self.path, position), position
        if digest is not None and self._sum.hexdigest() != digest:
            raise CheckpointError(f"{self.path} is damaged: it is not what it was at the last checkpoint")

    def cut(self, position: int) -> None:
        """Truncate the file to `position` bytes, if it is longer."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size > position:
            with writing(self.path):
                os.truncate(self.path, position)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Return every complete line; a partial last one, of a killed writer, is skipped."""
        if not path.exists():
            return []
        try:
            records = [json.loads(line) for line in read_plain(path).split("\n")[:-1]]
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} is not JSON lines: {error}") from error
        if not all(isinstance(record, dict) for record in records):
            raise CheckpointError(f"{path} holds a line that is no object")
        return records


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the lock ends with the process, however it ends."""
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error
    with file:
        for wait in (0.05, 0.1, 0.2, None):  # another process's `is_locked` holds it for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if wait is None:
                    raise BusyError(
                        f"{folder} is in use by another process; wait for it to end, or stop it first"
                    ) from None
                time.sleep(wait)
        yield


def is_locked(folder: Path) -> bool:
    """Return whether some process is working in the folder.

    Written by hand because filelock can test a lock only by taking it exclusively. A shared lock, for an
    instant, does not disturb other tests of it, and `locked` retries.
    """
    path = folder / "lock"
    if not path.is_file():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
