"""What `usage` adds to the gradient of g, in one kernel; `scan/usage.py` is the definition.

In plain torch it is some forty small operations, which take longer to launch than a short walk back takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.ops.attentive_scan.cluster_shape import LAYERS
from plait.ops.cuda_program import parameter_struct
from plait.ops.scan.contract import Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import Scan

__all__ = ["BEHIND_A_KEY", "USAGE_TEXT", "UsageShape", "teach_scores"]

BEHIND_A_KEY = (
    4  # numbers of a step behind dL/dk: dL/d(gᵀh), two that the kernel leaves there, one for alignment
)

USAGE, USAGE_TEXT = parameter_struct(
    "UsageArguments",
    {
        "output": "void*", "d_output": "void*", "slots": "void*", "worth": "void*", "usage": "float*",
        "ids": "int*",
        "weights": "float*", "d_energies": "float*", "d_scores": "float*", "d_initial_scores": "float*",
        "taught_initial": "float*", "steps": "int", "rows": "int",
    },
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class UsageShape:
    """The constants of one kernel: a block a row, which takes `stretch` steps at a time."""

    scan: Scan
    hidden: int
    dtype: torch.dtype
    threads: int = 1024
    stretch: int = 128
    cluster: int = 1
    rows: int = 1

    @property
    def shared_bytes(self) -> int:
        """For every step of a stretch what it pulls by and what each slot holds, and its score."""
        return 4 * (self.stretch * 65 + 32)

    def text(self, name: str) -> str:
        """The struct of constants in C++."""
        scan = self.scan
        return (
            f"struct {name} {{\n  static constexpr int HIDDEN = {self.hidden}, SLOTS = {scan.width}, "
            f"WINDOW = {scan.window}, THREADS = {self.threads}, STRETCH = {self.stretch}, "
            f"APART = {self.hidden + BEHIND_A_KEY};\n"
            f"  using Layer = {LAYERS[self.dtype]};\n}};\n"
        )


def teach_scores(
    walked: ReverseWalk,
    arrived: Tensor | None,
    inputs: Inputs,
    made: Scanned,
    launch: Callable[[ctypes.Structure], None],
) -> Tensor | None:
    """To dL/d(gᵀh) of every state, where the walk left it, is added what `usage` adds, which g alone is to
    see; given back is that of the initial slots, if there are. `arrived`: at the outputs, contiguous."""
    steps, rows, _ = made.output.shape
    initial = None if inputs.is_new else torch.empty_like(walked.initial_scores)
    tensors = (
        made.output, arrived, inputs.slots, inputs.worth, inputs.usage, made.ids, made.weights,
        walked.energies, walked.scores, walked.initial_scores, initial,
    )  # fmt: skip
    if rows:
        launch(USAGE(*[None if x is None else x.data_ptr() for x in tensors], steps, rows))
    return initial
