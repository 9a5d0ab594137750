"""Checksums of run folders: in `SHA256SUMS` once a session has ended, in the checkpoint until then.

A folder whose last session ended has the digests of its files in `SHA256SUMS`, in the format of
`sha256sum -c`. It is written just before `summary.json` and removed before a session changes anything, so
that a crash at any moment leaves no folder that looks damaged. Until a session has ended, the checkpoint
records the length and digest of each journal at the time of its writing; lines after that, in a folder that
no process works in, are repeated by `--resume` and not shown. `environment.json` holds its own digest, the
run's id and the digest of every `config.json` the run has had.

Functions that read a folder append what is wrong to a list, and return nothing that fails its check.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError
from plait.files import write_whole, writing

__all__ = [
    "JOURNALS",
    "SUMS",
    "add_file",
    "belongs_to",
    "check_own_digest",
    "checkpoint_header",
    "digest",
    "digest_of",
    "end_session",
    "folder_sums",
    "journal_lengths",
    "matches_checksum",
    "prefix_sum",
    "read_header",
    "read_sums",
    "start_session",
    "with_own_digest",
]

SUMS = "SHA256SUMS"
JOURNALS = ("metrics.jsonl", "gradients.jsonl")
NEEDED = ("config.json", "environment.json", *JOURNALS)
OWN = "sha256"  # key of the digest that JSON data stores of itself
MOST_HEADER = 100 * 2**20  # the limit of safetensors
MOST_SUMS = 2**20


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Return the SHA-256 of JSON data, whatever its order of keys and its formatting in a file."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def prefix_sum(path: Path, length: int) -> Any:
    """Return the SHA-256 object of a file's first `length` bytes, to be updated with more."""
    running = hashlib.sha256()
    if length > 0:
        with path.open("rb") as file:
            while length > 0 and (piece := file.read(min(length, 1 << 20))):
                running.update(piece)
                length -= len(piece)
    return running


def with_own_digest(value: dict[str, Any]) -> dict[str, Any]:
    """Return the data with its own digest as the last entry, for `check_own_digest`.

    >>> check_own_digest(with_own_digest({"sessions": []}), "environment.json")
    {'sessions': []}
    """
    return {**value, OWN: digest_of(value)}


def check_own_digest(value: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the data without its own digest; raise a `CheckpointError` if that does not match."""
    rest = {key: item for key, item in value.items() if key != OWN}
    if value.get(OWN) != digest_of(rest):
        raise CheckpointError(f"{what} is damaged: its contents do not match their digest")
    return rest


def end_session(folder: Path, summary: bytes, known: Mapping[str, str]) -> None:
    """Write the checksums of all files, then the summary.

    `known` are digests of what was written, used in place of the file's own so that later damage shows.
    """
    names = (*NEEDED, "checkpoint.safetensors")
    with writing(folder):
        sums = {name: digest(folder / name) for name in names if (folder / name).is_file()}
    trace = folder_sums(folder).get("trace.json")
    sums |= {name: checksum for name, checksum in known.items() if name in sums}
    sums |= {"trace.json": trace} if trace else {}
    _write(folder, {**sums, "summary.json": hashlib.sha256(summary).hexdigest()})
    write_whole(folder / "summary.json", summary)


def start_session(folder: Path) -> None:
    """Remove the summary and checksums of the last session, before a new one changes the folder."""
    with writing(folder):
        (folder / "summary.json").unlink(missing_ok=True)
        (folder / SUMS).unlink(missing_ok=True)


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Write a further file into a folder, and its digest into `SHA256SUMS` if the folder has that."""
    sums = folder_sums(folder)
    if sums:
        _write(folder, {**sums, name: hashlib.sha256(content).hexdigest()})
    write_whole(folder / name, content)


def _write(folder: Path, sums: Mapping[str, str]) -> None:
    write_whole(folder / SUMS, "".join(f"{checksum}  {name}\n" for name, checksum in sums.items()).encode())


def folder_sums(folder: Path) -> dict[str, str]:
    """Return the checksums in `SHA256SUMS` by file name, empty if the folder has none.

    Raises:
        CheckpointError: if the file exists and cannot be read.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return {}
    with contextlib.suppress(OSError, ValueError):
        plain = path.is_file() and path.stat().st_size <= MOST_SUMS
        lines = path.read_text(encoding="ascii").splitlines() if plain else []
        sums = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
        if sums and all(len(checksum) == 64 and name for name, checksum in sums.items()):
            return sums
    raise CheckpointError(f"{path} is cut short or not a list of digests")


def read_sums(folder: Path, problems: list[str]) -> dict[str, str]:
    """Return the checksums of a run that has ended, empty if it has none.

    A trace may be absent, as it can be redrawn, and a summary, as it is written after the checksums.
    """
    try:
        sums = folder_sums(folder)
    except CheckpointError:
        problems.append(f"{SUMS} is cut short or not a list of digests")
        return {}
    for name in sums:
        if name in NEEDED and not os.path.lexists(folder / name):
            problems.append(f"{name} is missing, which {SUMS} names")
    return sums


def matches_checksum(path: Path, sums: dict[str, str]) -> bool:
    """Return whether a file matches its checksum; a file without one passes."""
    return path.name not in sums or digest(path) == sums[path.name]


def read_header(path: Path) -> dict[str, Any]:
    """Return a checkpoint's metadata, read without its tensors and without torch; empty if there is no file.

    Raises:
        CheckpointError: if the file cannot be read.
    """
    if not os.path.lexists(path):
        return {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if path.is_file():
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                text = file.read(size) if size <= MOST_HEADER else b""
            header = json.loads(json.loads(text)["__metadata__"]["plait"])
            if isinstance(header, dict):
                return header
    raise CheckpointError(f"{path} is cut short or not a checkpoint")


def checkpoint_header(
    folder: Path, environment: dict[str, Any], sums: dict[str, str], problems: list[str]
) -> dict[str, Any] | None:
    """Return the header of a killed run's checkpoint, empty if it had none yet; None if it is damaged."""
    try:
        header = read_header(folder / "checkpoint.safetensors")
    except CheckpointError:
        problems.append("checkpoint.safetensors is cut short or not a checkpoint")
        return None
    journals = [folder / name for name in JOURNALS]
    filled = any(path.is_file() and path.stat().st_size > 0 for path in journals)
    if (header or filled) and not environment and not sums and not problems:
        problems.append("environment.json is missing, which is written before a checkpoint and before curves")
    if not header and not sums and (filled or environment.get("saved")):
        problems.append("checkpoint.safetensors is missing, without which nothing vouches for the curves")
        return None
    return header


def journal_lengths(folder: Path, header: dict[str, Any] | None, problems: list[str]) -> dict[str, int]:
    """Return how many bytes of each journal a checkpoint covers; resuming starts there.

    A journal that its header does not name has no limit; without a valid header all of them are empty.
    """
    if header is None:
        return dict.fromkeys(JOURNALS, 0)
    try:
        saved = header.get("counters", {}).get("journals", {})
        digests = dict(saved.get("sha256", {}))
        lengths = {name: int(saved[name]) for name in digests}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        problems.append("checkpoint.safetensors does not say how long the curves are")
        return dict.fromkeys(JOURNALS, 0)
    for name, length in lengths.items():
        path = folder / name
        short = (path.stat().st_size if path.is_file() else 0) < length
        if short or prefix_sum(path, length).hexdigest() != digests[name]:
            problems.append(f"{name} is not what it was at the last checkpoint")
            lengths[name] = 0
    return lengths


def belongs_to(
    run: str, config: str, environment: dict[str, Any], header: dict[str, Any] | None, problems: list[str]
) -> bool:
    """Return whether a description, by its run's id and its digest, is the one that was trained."""
    before = len(problems)
    for name, values in (("environment.json", environment), ("checkpoint.safetensors", header)):
        if values and values.get("run") != run:
            problems.append(f"{name} is of the run {values.get('run')!s:.80}, and config.json is of {run}")
    if len(problems) == before and environment and config not in environment.get("configs", []):
        problems.append("config.json is not as it was when the run was trained")
    return len(problems) == before
