"""Integrity of a run folder: checked by its checksums if the run ended, by its checkpoint if it was killed.

Each function appends the problems to a list; data that fails its check is not shown.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError
from plait.lab.runs.folder import run_id
from plait.lab.runs.seal import SUMS, digest, digest_of, folder_sums, prefix_sum, read_header

__all__ = ["JOURNALS", "belongs_to", "checkpoint_header", "matches_checksum", "read_sums", "vouched_lengths"]

JOURNALS = ("metrics.jsonl", "gradients.jsonl")
NEEDED = ("config.json", "environment.json", *JOURNALS)
_EMPTY_JOURNALS: dict[str, Any] = {  # the header of a checkpoint that covers no line
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
    """Return the header of a killed run's checkpoint, empty if there was none.

    If it is damaged or missing, the header returned covers no line of the journals.
    """
    journals = [folder / name for name in JOURNALS]
    try:
        header = read_header(folder / "checkpoint.safetensors")
    except CheckpointError:
        troubles.append("checkpoint.safetensors is cut short or not a checkpoint")
        return _EMPTY_JOURNALS
    filled = any(map(_is_filled, journals))
    if (header or filled) and not environment and not sums and not troubles:
        troubles.append("environment.json is missing, which is written before a checkpoint and before curves")
    recorded = "configs" in environment or bool(troubles)  # a damaged environment.json may have had `configs`
    if not header and not sums and ((recorded and filled) or environment.get("saved")):
        troubles.append("checkpoint.safetensors is missing, without which nothing vouches for the curves")
        return _EMPTY_JOURNALS
    return header


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def belongs_to(
    description: dict[str, Any], environment: dict[str, Any], header: dict[str, Any], troubles: list[str]
) -> bool:
    """Return whether a description is the one that was trained; older runs did not record it and pass."""
    own_id, before = run_id(description), len(troubles)
    for name, owner in (
        ("environment.json", environment.get("run", own_id)),
        ("checkpoint.safetensors", header.get("run", own_id)),
    ):
        if owner != own_id:
            troubles.append(f"{name} is of the run {owner!s:.80}, and config.json is of {own_id}")
    if len(troubles) == before and digest_of(description) not in environment.get(
        "configs", [digest_of(description)]
    ):
        troubles.append("config.json is not as it was when the run was trained")
    return len(troubles) == before


def vouched_lengths(folder: Path, troubles: list[str], header: dict[str, Any]) -> dict[str, int]:
    """Return how many bytes of each journal a killed run's checkpoint covers; resuming starts there."""
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
    """Return the checksums of a run that has ended, empty if it has none.

    A trace may be absent, as it can be redrawn, and a summary, as it is written after the checksums.
    """
    try:
        sums = folder_sums(folder)
    except CheckpointError:
        troubles.append(f"{SUMS} is cut short or not a list of digests")
        return {}
    for name in sums:
        if name in NEEDED and not os.path.lexists(folder / name):
            troubles.append(f"{name} is missing, which {SUMS} names")
    return sums


def matches_checksum(path: Path, sums: dict[str, str]) -> bool:
    """Return whether a file matches its checksum; a file without one passes."""
    return path.name not in sums or digest(path) == sums[path.name]
