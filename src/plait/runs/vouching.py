"""Whether what lies in a run folder is what the run wrote: by its sums if it has ended, by its checkpoint if
it was killed. Each function adds what is wrong to a list; what is not vouched for is not shown."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError
from plait.runs.folder import run_id
from plait.runs.seal import SUMS, digest, digest_of, folder_sums, prefix_sum, read_header

__all__ = ["JOURNALS", "checkpoint_header", "fits", "is_of", "read_sums", "vouched_lengths"]

JOURNALS = ("metrics.jsonl", "gradients.jsonl")
NEEDED = ("config.json", "environment.json", *JOURNALS)
_VOUCHES_FOR_NOTHING: dict[str, Any] = {
    "counters": {
        "journals": {
            **dict.fromkeys(JOURNALS, 0),
            "sha256": dict.fromkeys(JOURNALS, hashlib.sha256().hexdigest()),
        }
    }
}


def checkpoint_header(
    folder: Path, troubles: list[str], environment: dict[str, Any], sums: dict[str, str]
) -> dict[str, Any]:
    """What the checkpoint of a run that was killed says of itself; of one that cannot be read, that it
    vouches for nothing."""
    journals = [folder / name for name in JOURNALS]
    try:
        header = read_header(folder / "checkpoint.safetensors")
    except CheckpointError:
        troubles.append("checkpoint.safetensors is cut short or not a checkpoint")
        return _VOUCHES_FOR_NOTHING
    filled = any(map(_is_filled, journals))
    if (header or filled) and not environment and not sums and not troubles:
        troubles.append("environment.json is missing, which is written before a checkpoint and before curves")
    recorded = "configs" in environment or bool(troubles)  # what cannot be read may have said so
    if not header and not sums and ((recorded and filled) or environment.get("saved")):
        troubles.append("checkpoint.safetensors is missing, without which nothing vouches for the curves")
        return _VOUCHES_FOR_NOTHING
    return header


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def is_of(
    description: dict[str, Any], environment: dict[str, Any], header: dict[str, Any], troubles: list[str]
) -> bool:
    """Whether a description is the one that was trained; runs from before this was recorded say nothing."""
    mine, before = run_id(description), len(troubles)
    for name, owner in (
        ("environment.json", environment.get("run", mine)),
        ("checkpoint.safetensors", header.get("run", mine)),
    ):
        if owner != mine:
            troubles.append(f"{name} is of the run {owner!s:.80}, and config.json is of {mine}")
    if len(troubles) == before and digest_of(description) not in environment.get(
        "configs", [digest_of(description)]
    ):
        troubles.append("config.json is not as it was when the run was trained")
    return len(troubles) == before


def vouched_lengths(folder: Path, troubles: list[str], header: dict[str, Any]) -> dict[str, int]:
    """How much of each curve of a run that was killed the checkpoint vouches for: what it goes on from."""
    try:
        saved = header.get("counters", {}).get("journals", {})
        digests = dict(saved.get("sha256", {}))
        lengths = {name: int(saved[name]) for name in digests}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        troubles.append("checkpoint.safetensors does not say how long the curves are")
        return dict.fromkeys(JOURNALS, 0)
    for name, length in lengths.items():
        path = folder / name
        short = (path.stat().st_size if path.is_file() else 0) < length
        if short or prefix_sum(path, length).hexdigest() != digests[name]:
            troubles.append(f"{name} is not what it was at the last checkpoint")
            lengths[name] = 0
    return lengths


def read_sums(folder: Path, troubles: list[str]) -> dict[str, str]:
    """The digests of a run that has ended; a trace can be drawn again, a summary not yet be written."""
    try:
        sums = folder_sums(folder)
    except CheckpointError:
        troubles.append(f"{SUMS} is cut short or not a list of digests")
        return {}
    for name in sums:
        if name in NEEDED and not os.path.lexists(folder / name):
            troubles.append(f"{name} is missing, which {SUMS} names")
    return sums


def fits(path: Path, sums: dict[str, str]) -> bool:
    """Whether a file has the digest it is said to have, if it is said to have one."""
    return path.name not in sums or digest(path) == sums[path.name]
