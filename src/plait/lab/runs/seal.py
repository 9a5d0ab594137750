"""Checksums of run folders: in `SHA256SUMS` once a session has ended, in the checkpoint until then.

A folder whose last session ended has the digests of its files in `SHA256SUMS`, in the format of
`sha256sum -c`. It is written just before `summary.json`, which records that it exists, and removed before a
session changes anything, so that a crash at any moment leaves no folder that looks damaged. Until a session
has ended, the checkpoint records the length and digest of each journal at the time of its writing; lines
after that, in a folder that no process works in, are repeated by `--resume` and not shown.
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
    "MARK",
    "SUMS",
    "digest",
    "digest_of",
    "folder_sums",
    "prefix_sum",
    "read_header",
    "seal",
    "seal_also",
    "self_checked",
    "unseal",
    "with_own_digest",
]

SUMS = "SHA256SUMS"
MARK = {"sums": SUMS}  # entry of a summary whose folder has SHA256SUMS
SEALED = ("config.json", "environment.json", "metrics.jsonl", "gradients.jsonl", "checkpoint.safetensors")
OWN = "sha256"  # key of the digest that JSON data stores of itself
MOST_HEADER = 100 * 2**20  # the limit of safetensors
MOST_SUMS = 2**20


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Return the SHA-256 of JSON data, independent of key order and formatting."""
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


def seal(folder: Path, summary: bytes, known: Mapping[str, str]) -> None:
    """Write the checksums of all files, then the summary.

    `known` are digests of what was written, used in place of the file's own so that later damage shows.
    """
    with writing(folder):
        sums = {name: digest(folder / name) for name in SEALED if (folder / name).is_file()}
    trace = folder_sums(folder).get("trace.json")
    sums |= {name: checksum for name, checksum in known.items() if name in sums}
    sums |= {"trace.json": trace} if trace else {}
    _write(folder, {**sums, "summary.json": hashlib.sha256(summary).hexdigest()})
    write_whole(folder / "summary.json", summary)


def seal_also(folder: Path, name: str, content: bytes) -> None:
    """Write one more file into a folder, and its digest into `SHA256SUMS` if the folder has it."""
    sums = folder_sums(folder)
    if sums:
        _write(folder, {**sums, name: hashlib.sha256(content).hexdigest()})
    write_whole(folder / name, content)


def unseal(folder: Path) -> None:
    """Remove the summary and checksums of the last session, before a new one changes the folder."""
    with writing(folder):
        (folder / "summary.json").unlink(missing_ok=True)
        (folder / SUMS).unlink(missing_ok=True)


def _write(folder: Path, sums: Mapping[str, str]) -> None:
    write_whole(folder / SUMS, "".join(f"{checksum}  {name}\n" for name, checksum in sums.items()).encode())


def with_own_digest(value: dict[str, Any]) -> dict[str, Any]:
    """Return the data with its own digest as the last entry, for `self_checked`.

    >>> self_checked(with_own_digest({"sessions": []}), "environment.json")
    {'sessions': []}
    """
    return {**value, OWN: digest_of(value)}


def self_checked(value: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the data without its own digest, once checked; older data has none and is returned as it is.

    Raises:
        CheckpointError: if the digest does not match.
    """
    rest = {key: item for key, item in value.items() if key != OWN}
    if OWN in value and value[OWN] != digest_of(rest):
        raise CheckpointError(f"{what} is damaged: its contents do not match their digest")
    return rest


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
