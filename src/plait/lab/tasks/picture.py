"""Drawing of a sequence of symbols as text."""

from __future__ import annotations

from collections.abc import Sequence

from plait.lab.tasks.base import IGNORE

__all__ = ["draw"]


def draw(inputs: Sequence[int], targets: Sequence[int], marker: int, width: int = 100) -> str:
    """Draw input and target, one character per step: `·` a blank, `▮` the marker, a space for no target.

    >>> print(draw([3, 5, 0, 9, 0, 0], [0, 0, 0, 0, 3, 5], marker=9))
    step    1
    input   35·▮··
    target  ····35
    """
    rows = {"input": inputs, "target": targets}
    drawn = {name: "".join(_character(token, marker) for token in row) for name, row in rows.items()}
    blocks = []
    for begin in range(0, len(inputs), width):
        end = min(begin + width, len(inputs))
        steps = "".join(str(step + 1).ljust(10) for step in range(begin, end, 10)).rstrip()
        lines = [f"{name.ljust(8)}{row[begin:end]}" for name, row in drawn.items()]
        blocks.append("\n".join([f"step    {steps}", *lines]))
    return "\n\n".join(blocks)


def _character(token: int, marker: int) -> str:
    if token == marker:
        return "▮"
    if token == IGNORE:
        return " "
    return "·" if token == 0 else str(token)
