"""A run's folder, held by the process that works in it. Its files are whole or not there: a reader never sees
half of one, whatever moment the writer dies at.

```
config.json             what it is; its id follows from it
environment.json        one entry a session: versions, device, threads
metrics.jsonl           loss and score of updates, held-out results with the run's clock
gradients.jsonl         ‖∂L/∂h_t‖ by layer and step, where recorded
checkpoint.safetensors  weights, optimiser, counters
summary.json            how the last session ended; not there while one is at work or after it was killed
SHA256SUMS              digests of all these, for as long as there is a summary: sha256sum -c SHA256SUMS
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

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError, in_utf8
from plait.input import plain_bytes
from plait.jsonable import canonical_json
from plait.output import write_whole, writing
from plait.runs.difference import refusal
from plait.runs.kinds import how_to_resume
from plait.runs.seal import MARK, digest_of, prefix_sum, seal, self_checked, unseal, with_own_digest

if TYPE_CHECKING:
    from plait.runs.checkpoint import Learner

__all__ = [
    "Journal", "Run", "extended", "is_locked", "json_bytes", "locked", "read_environment",
    "read_json", "read_plain", "run_id", "write_json", "write_summary", "write_whole",
]  # fmt: skip

MOST_NESTED, MOST_TEXT = 64, 2**30


def run_id(description: dict[str, Any]) -> str:
    """Task, model, and ten digits of the SHA-256 of the canonical description.

    >>> run_id({"task": {"name": "copy"}, "model": {"name": "lstm"}})
    'copy-lstm-761f80bfa7'
    """
    if "extended" in description:  # the id is that of the run as it began
        history = description["extended"]
        began = {units: amounts[0] for units, amounts in history.items()}
        description = {**description, "recipe": {**description["recipe"], **began}}
        del description["extended"]
    canonical = canonical_json(description)
    names = [
        str(part.get("name") or part.get("class", "").rpartition(".")[2]).lower()
        for part in (description["task"], description["model"])
    ]
    return f"{'-'.join(names)}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"


def extended(description: dict[str, Any], units: str, amount: int) -> dict[str, Any]:
    """The same run, to be trained for `amount` updates or steps in all; what it was given before is kept.

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
    """A folder held by this process; made by `Run.open`."""

    def __init__(self, folder: Path, description: dict[str, Any]) -> None:
        self.folder, self.description = folder, description
        self.id = run_id(description)
        self.metrics = Journal(folder / "metrics.jsonl")
        self.gradients = Journal(folder / "gradients.jsonl")
        self.checkpoint = folder / "checkpoint.safetensors"

    @staticmethod
    @contextlib.contextmanager
    def open(folder: Path, description: dict[str, Any], resume: bool) -> Iterator[Run]:
        """Take the folder, or refuse; nothing in it is changed before all is checked."""
        # Else its checkpoint could be written, and not be read.
        in_utf8("rename it or name another folder", out=folder)
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
        for journal in (self.metrics, self.gradients):  # it is cut and written to: not what it leads to
            if journal.path.is_symlink():
                raise CheckpointError(f"{journal.path} is a link; a run's curves lie in its own folder")
        config = self.folder / "config.json"
        if config.exists():
            found = run_id(read_json(config))
            if found != self.id:
                ids = f"the run {found}, not {self.id}"
                raise CheckpointError(refusal(self.folder, ids, read_json(config), self.description))
            if resume and read_json(config) != self.description:
                unseal(self.folder)  # first: an extended run has not ended
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
        """How the last session ended, or nothing."""
        path = self.folder / "summary.json"
        return dict(read_json(path)) if path.exists() else {}

    @property
    def environment(self) -> dict[str, Any]:
        """The sessions so far, or nothing."""
        path = self.folder / "environment.json"
        return read_environment(path) if path.exists() else {}

    def curves(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The lines of `metrics.jsonl` and of `gradients.jsonl`."""
        return Journal.read(self.metrics.path), Journal.read(self.gradients.path)

    def begin(self, learner: Learner, session: dict[str, Any]) -> dict[str, Any]:
        """Put the learner where the last checkpoint left it; return the counters, empty for a fresh run."""
        counters: dict[str, Any] = {}
        if self.checkpoint.exists():
            from plait.runs.checkpoint import restore

            counters = restore(self.checkpoint, learner, self.id)
            # A run that was ended and is extended goes on as if that end had never been.
            regular = counters.pop("regular", {})
            if counters["update"] < learner.schedule.updates:
                counters |= regular
        else:
            self._refuse_what_was_saved()
        if learner.group.first:
            self._enter(counters, session)
        return counters

    def _refuse_what_was_saved(self) -> None:
        """It does not begin anew: curves, or its environment, show that there was a checkpoint."""
        path = self.metrics.path
        if (path.exists() and path.stat().st_size) or self.environment.get("saved"):
            raise CheckpointError(f"{self.folder} has no checkpoint to resume from; nothing was changed")

    def _enter(self, counters: dict[str, Any], session: dict[str, Any]) -> None:
        """A session begins where these counters were saved: the last end is forgotten, later lines cut."""
        saved = counters.get("journals", {})
        for journal in (self.metrics, self.gradients):
            journal.check(saved.get(journal.path.name, 0), saved.get("sha256", {}).get(journal.path.name))
        sessions = self.environment.get("sessions", [])
        unseal(self.folder)
        for journal in (self.metrics, self.gradients):
            journal.cut(saved.get(journal.path.name, 0))
        self._remember([*sessions, {"from_update": counters.get("update", 0), **session}])

    def _remember(self, sessions: list[dict[str, Any]]) -> None:
        """Write down the sessions, what may stand in config.json, and whether there was a checkpoint."""
        known = self.environment.get("configs", [])
        here = digest_of(self.description)
        environment: dict[str, Any] = {
            "run": self.id,
            "configs": [*(one for one in known if one != here), here],
        }
        environment |= {"saved": True} if self.checkpoint.exists() else {}
        write_json(self.folder / "environment.json", with_own_digest({**environment, "sessions": sessions}))

    def changes(self, here: dict[str, Any]) -> list[str]:
        """What is not as it was when the run began, of what can move the last bits of a number."""
        first = next(iter(self.environment.get("sessions", [])), here)
        watched = ("torch", "device", "threads", "processes")
        return [f"{k} was {first[k]} and is {here[k]}" for k in watched if first.get(k, here[k]) != here[k]]

    def save(self, learner: Learner, counters: dict[str, Any]) -> None:
        """Write the checkpoint. Every process calls this; the first one writes."""
        from plait.runs.checkpoint import save_checkpoint

        fresh = learner.group.first and not self.checkpoint.exists()
        journals = self.positions() if learner.group.first else {}
        save_checkpoint(self.checkpoint, learner, self.id, {**counters, "journals": journals})
        if fresh:
            self._remember(self.environment.get("sessions", []))

    def positions(self) -> dict[str, Any]:
        """How long the curves are on the disk, and their digests; a checkpoint remembers it."""
        journals = (self.metrics, self.gradients)
        lengths = {journal.path.name: journal.position() for journal in journals}
        return {**lengths, "sha256": {journal.path.name: journal.digest() for journal in journals}}

    def end(self, summary: dict[str, Any]) -> None:
        journals = (self.metrics, self.gradients)
        write_summary(self.folder, summary, {journal.path.name: journal.digest() for journal in journals})


def write_summary(folder: Path, summary: dict[str, Any], known: Mapping[str, str] | None = None) -> None:
    """How a session ended, with the sums of the folder; `known` are those of what was written just now."""
    seal(folder, json_bytes({**summary, **MARK}), known or {})


def read_environment(path: Path) -> dict[str, Any]:
    """The sessions of a run; the digest in the file is checked."""
    found = read_json(path)
    sessions = found.get("sessions") if isinstance(found, dict) else None
    if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
        raise CheckpointError(f"{path} holds no list of sessions")
    return self_checked(found, str(path))


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """As our JSON files have it."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    """JSON as it may stand in a file of ours: finite numbers, text that can be printed, not deeply nested.

    What is read here is written again, into pages and answers, which must not fail over it.
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
    """The text of a plain file, or of its first bytes; reading from a pipe would wait for ever."""
    return plain_bytes(path, MOST_TEXT)[:length].decode()


def _nesting(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_nesting(one) for one in inner if isinstance(one, dict | list)), default=0)


class Journal:
    """JSON lines that are only ever appended. A line is in the file as soon as it was written.

    A checkpoint remembers `position`; going on from it begins with `cut`, so no line is there twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sum, self._summed = hashlib.sha256(), 0  # of its first bytes, and how many
        self._file: FileIO | None = None

    def write(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with writing(self.path):
            if self._file is None:  # without a buffer: nothing is left to fail once more when it is closed
                self._file = FileIO(self.path, "ab")
            end = os.fstat(self._file.fileno()).st_size
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file.fileno(), end)  # no half a line before the next one
                raise

    def position(self) -> int:
        """Bytes so far, all of them on the disk: a checkpoint must not be ahead of its journal."""
        with writing(self.path):
            if self._file is not None:
                os.fsync(self._file.fileno())
            return self.path.stat().st_size if self.path.exists() else 0

    def digest(self) -> str:
        """SHA-256 of all of it; what was summed before is not read again, so damage to that shows later."""
        with writing(self.path):
            if self.path.exists():
                with self.path.open("rb") as file:
                    file.seek(self._summed)
                    while piece := file.read(1 << 20):
                        self._sum.update(piece)
                        self._summed += len(piece)
        return self._sum.hexdigest()

    def check(self, position: int, digest: str | None) -> None:
        """Refuse a file that is not, up to `position`, what the checkpoint says it was."""
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
        """Forget what was written after `position`."""
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
        """Every whole line; a last one that a dying writer left unfinished is passed over."""
        if not path.exists():
            return []
        try:
            found = [json.loads(line) for line in read_plain(path).split("\n")[:-1]]
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} is not JSON lines: {error}") from error
        if not all(isinstance(line, dict) for line in found):
            raise CheckpointError(f"{path} holds a line that is no object")
        return found


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the lock ends with the process, however it ends."""
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error
    with file:
        for wait in (0.05, 0.1, 0.2, None):  # one who only looks whether it is locked holds it for an instant
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
    """Whether some process is at work in the folder.

    By hand and not by filelock, which can look at another's lock only by taking it: a shared one, held for an
    instant, keeps nobody else from looking, and who starts tries again.
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
