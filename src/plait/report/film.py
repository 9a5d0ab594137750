"""An episode as a film: the world, and beside it the past views its memory holds, lit by their weights."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import require
from plait.training.files import write_whole
from plait.training.ppo.episode import Scene, Slot

__all__ = ["film", "lines"]

_WORLD, _THUMB, _MARGIN, _SHOWN = 320, 70, 10, 10
_ROWS, _CELL = 4, (_THUMB + 16, _THUMB + 24)  # a slot's column and row, with its label
_TOP = 52
_INK, _PALE, _PAPER, _LIT = (30, 30, 30), (150, 150, 150), (255, 255, 255), (214, 93, 14)


def film(scenes: Sequence[Scene], path: Path, per_second: float = 4) -> Path:
    """Write scenes as a GIF that plays in a loop; the last one stays for two seconds."""
    require("PIL", "report")
    pictures = [_picture(scene, scenes) for scene in scenes]
    last = [scene.action == "" for scene in scenes]
    content = io.BytesIO()
    pictures[0].save(
        content, "GIF", save_all=True, append_images=pictures[1:], loop=0,
        duration=[2000 if end else round(1000 / per_second) for end in last],
    )  # fmt: skip
    write_whole(path, content.getvalue())
    return path


def lines(scenes: Sequence[Scene]) -> Iterator[str]:
    """The same for a terminal, scene by scene."""
    for scene in scenes:
        held = "  ".join(f"{slot.step}:{slot.weight:.2f}" for slot in _strongest(scene.slots))
        did = f"{scene.action} ({scene.probability:.0%})" if scene.action else "the end"
        memory = f"\nmemory (step:weight)  {held}" if held else ""
        head = f"step {scene.step}: {did}, return {scene.gained:.2f}; {scene.mission}"
        yield f"{head}\n{scene.text}{memory}\n\n"


def _strongest(slots: Sequence[Slot]) -> list[Slot]:
    """A full memory holds hundreds: the ones read most, in the order they were lived."""
    return sorted(sorted(slots, key=lambda slot: -slot.weight)[:_SHOWN])


def _picture(scene: Scene, scenes: Sequence[Scene]) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    big, small = ImageFont.load_default(14), ImageFont.load_default(11)
    columns = -(-_SHOWN // _ROWS)
    has_slots = any(one.slots for one in scenes)
    width = _WORLD + 2 * _MARGIN + (columns * _CELL[0] + _MARGIN if has_slots else 0)
    height = _TOP + max(_WORLD, _ROWS * _CELL[1]) + 34
    page = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(page)
    frame = Image.fromarray(scene.frame)
    larger = _WORLD / max(frame.size)
    page.paste(frame.resize([round(side * larger) for side in frame.size]), (_MARGIN, _TOP))
    draw.text((_MARGIN, 8), scene.mission, _INK, big)
    did = f"{scene.action} ({scene.probability:.0%})" if scene.action else "the end"
    draw.text((_MARGIN, height - 26), f"step {scene.step}   {did}   return {scene.gained:.2f}", _INK, big)
    if has_slots:
        left = _WORLD + 2 * _MARGIN
        draw.text((left, _TOP - 18), "held in memory: step, weight", _INK, small)
        most = max(slot.weight for slot in scene.slots)
        for place, slot in enumerate(_strongest(scene.slots)):
            corner = (left + place // _ROWS * _CELL[0], _TOP + place % _ROWS * _CELL[1])
            view = Image.fromarray(scenes[slot.step].view)
            _draw_slot(draw, page, slot, slot.weight / most, view, corner, small)
    return page


def _draw_slot(
    draw: Any, page: Any, slot: Slot, share: float, view: Any, corner: tuple[int, int], font: Any
) -> None:
    """The view at that step under a bar as long as its weight; pale where others are read more."""
    from PIL import Image

    x, y = corner
    pale = Image.new("RGB", view.size, _PAPER)
    shown = Image.blend(pale, view, 0.25 + 0.75 * share)
    draw.rectangle((x, y, x + _THUMB, y + 4), outline=_PALE)
    draw.rectangle((x, y, x + round(_THUMB * min(slot.weight, 1.0)), y + 4), fill=_LIT)
    page.paste(shown.resize((_THUMB, _THUMB)), (x, y + 6))
    draw.text((x, y + 6 + _THUMB), f"{slot.step}   {slot.weight:.2f}", _INK, font)
