"""The usage term of the gradient of g in one kernel; `scan/usage.py` is the definition.

In plain torch it is some forty small operations, whose launches take longer than a short walk back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.cluster_source import constants
from plait.ops.scan.contract import Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import Scan

__all__ = ["BEHIND_A_KEY", "USAGE_TEXT", "UsageShape", "teach_scores"]

BEHIND_A_KEY = 4  # numbers per step after dL/dk: dL/d(gᵀh), two of the kernel's own, one for alignment

USAGE, USAGE_TEXT = parameter_struct(
    "UsageArguments",
    {
        "output": "void*",
        "d_output": "void*",
        "slots": "void*",
        "worth": "void*",
        "usage": "float*",
        "ids": "int*",
        "weights": "float*",
        "d_energies": "float*",
        "d_scores": "float*",
        "d_initial_scores": "float*",
        "taught_initial": "float*",
        "steps": "int",
        "rows": "int",
    },
)


@dataclass(frozen=True, eq=False)
class UsageShape:
    """The constants of one kernel: one block per row, which takes `stretch` steps at a time."""

    scan: Scan
    hidden: int
    dtype: torch.dtype
    threads: int = 1024
    stretch: int = 128
    cluster: int = 1
    rows: int = 1

    @property
    def shared_bytes(self) -> int:
        """The bytes for a stretch: pull, slot contents and score of every step."""
        return 4 * (self.stretch * 65 + 32)

    def text(self, name: str) -> str:
        """Return the struct of constants in C++."""
        values = {
            "HIDDEN": self.hidden,
            "SLOTS": self.scan.width,
            "WINDOW": self.scan.window,
            "THREADS": self.threads,
            "STRETCH": self.stretch,
            "APART": self.hidden + BEHIND_A_KEY,
        }
        return constants(name, values, self.dtype)


def teach_scores(
    walked: ReverseWalk,
    arrived: Tensor | None,
    inputs: Inputs,
    scanned: Scanned,
    launch: Callable[[ctypes.Structure], None],
) -> Tensor | None:
    """Add the usage term to dL/d(gᵀh) of every state in the walk's buffer; only g uses the sum.

    Returns the usage term of the initial slots' gᵀh, None without initial slots. `arrived` is the
    gradient of the outputs, contiguous.
    """
    steps, rows, _ = scanned.output.shape
    initial = None if inputs.is_new else torch.empty_like(walked.initial_scores)
    tensors = (
        scanned.output,
        arrived,
        inputs.slots,
        inputs.worth,
        inputs.usage,
        scanned.ids,
        scanned.weights,
        walked.energies,
        walked.scores,
        walked.initial_scores,
        initial,
    )
    if rows:
        launch(USAGE(*[None if x is None else x.data_ptr() for x in tensors], steps, rows))
    return initial
