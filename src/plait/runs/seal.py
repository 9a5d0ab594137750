"""What a run folder holds against damage: `SHA256SUMS` once it has ended, its checkpoint until then.

A folder whose last session ended has the digests of its files in `SHA256SUMS`, in the form that
`sha256sum -c` reads. It is written just before `summary.json`, which says that it belongs to it, and removed
before a session changes anything, so that no moment of a crash leaves a folder that looks damaged. Until a
session has ended, the checkpoint says how long each curve was when it was written, and its digest; what
stands after that in a folder that nobody works in is what `--resume` does again, and is not shown.
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
from plait.output import write_whole, writing

__all__ = [
    "MARK", "SUMS", "digest", "digest_of", "folder_sums", "prefix_sum", "read_header", "seal", "seal_also",
    "self_checked", "unseal", "with_own_digest",
]  # fmt: skip

SUMS = "SHA256SUMS"
MARK = {"sums": SUMS}  # in a summary: that its folder has them
SEALED = ("config.json", "environment.json", "metrics.jsonl", "gradients.jsonl", "checkpoint.safetensors")
OWN = "sha256"
MOST_HEADER = 100 * 2**20  # as safetensors has it
MOST_SUMS = 2**20


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Of plain data, however it is laid out in a file."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def prefix_sum(path: Path, length: int) -> Any:
    """The running SHA-256 of a file's first bytes."""
    found = hashlib.sha256()
    if length > 0:
        with path.open("rb") as file:
            while length > 0 and (piece := file.read(min(length, 1 << 20))):
                found.update(piece)
                length -= len(piece)
    return found


def folder_sums(folder: Path) -> dict[str, str]:
    """The digests by the name of the file; none if the folder has no sums.

    Raises:
        CheckpointError: if there are some that cannot be read.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return {}
    with contextlib.suppress(OSError, ValueError):
        plain = path.is_file() and path.stat().st_size <= MOST_SUMS
        lines = path.read_text(encoding="ascii").splitlines() if plain else []
        sums = {name: found for found, _, name in (line.partition("  ") for line in lines)}
        if sums and all(len(one) == 64 and name for name, one in sums.items()):
            return sums
    raise CheckpointError(f"{path} is cut short or not a list of digests")


def seal(folder: Path, summary: bytes, known: Mapping[str, str]) -> None:
    """Write the sums of everything in the folder, with those that are `known` already, and the summary."""
    with writing(folder):
        found = {name: digest(folder / name) for name in SEALED if (folder / name).is_file()}
    trace = folder_sums(folder).get("trace.json")
    found |= {name: one for name, one in known.items() if name in found}
    found |= {"trace.json": trace} if trace else {}
    _write(folder, {**found, "summary.json": hashlib.sha256(summary).hexdigest()})
    write_whole(folder / "summary.json", summary)


def seal_also(folder: Path, name: str, content: bytes) -> None:
    """Write one file more into a folder, and its digest into the sums if there are some."""
    sums = folder_sums(folder)
    if sums:
        _write(folder, {**sums, name: hashlib.sha256(content).hexdigest()})
    write_whole(folder / name, content)


def unseal(folder: Path) -> None:
    """A session begins: how the last one ended no longer holds."""
    with writing(folder):
        (folder / "summary.json").unlink(missing_ok=True)
        (folder / SUMS).unlink(missing_ok=True)


def _write(folder: Path, sums: Mapping[str, str]) -> None:
    write_whole(folder / SUMS, "".join(f"{one}  {name}\n" for name, one in sums.items()).encode())


def with_own_digest(value: dict[str, Any]) -> dict[str, Any]:
    """Data that can be checked by itself: its digest is the last of its entries.

    >>> self_checked(with_own_digest({"sessions": []}), "environment.json")
    {'sessions': []}
    """
    return {**value, OWN: digest_of(value)}


def self_checked(value: dict[str, Any], what: str) -> dict[str, Any]:
    """The data without the digest, which must be right; data from before there was one are taken as they are.

    Raises:
        CheckpointError: if it is not.
    """
    rest = {key: one for key, one in value.items() if key != OWN}
    if OWN in value and value[OWN] != digest_of(rest):
        raise CheckpointError(f"{what} is damaged: its contents do not match their digest")
    return rest


def read_header(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, without its tensors and without torch; nothing if there is none.

    Raises:
        CheckpointError: if it cannot be read.
    """
    if not os.path.lexists(path):
        return {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if path.is_file():
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                text = file.read(size) if size <= MOST_HEADER else b""
            found = json.loads(json.loads(text)["__metadata__"]["plait"])
            if isinstance(found, dict):
                return found
    raise CheckpointError(f"{path} is cut short or not a checkpoint")
