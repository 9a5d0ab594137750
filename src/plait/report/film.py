"""An episode as a film: the world, and beside it the past views its memory holds, lit by their weights."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, require
from plait.result import percent
from plait.runs.folder import write_whole
from plait.training.ppo.episode import Scene, Slot

__all__ = ["check_ending", "film", "lines"]

# What a film of each ending is made with: a module, and the extra that brings it.
_NEEDED = {".gif": [("PIL", "report")], ".mp4": [("PIL", "report"), ("imageio_ffmpeg", "film")]}
_STAYS = 2  # seconds the last scene is shown

_WORLD, _THUMB, _MARGIN, _SHOWN = 320, 70, 10, 10
_ROWS, _CELL = 4, (_THUMB + 16, _THUMB + 24)  # a slot's column and row, with its label
_TOP = 52
_INK, _PALE, _PAPER, _LIT = (30, 30, 30), (150, 150, 150), (255, 255, 255), (214, 93, 14)


def film(scenes: Sequence[Scene], path: Path, per_second: float = 4) -> Path:
    """Write scenes as a film, by the ending of `path` a GIF that plays in a loop or an MP4; the last scene
    stays for two seconds."""
    write = _gif if check_ending(path) == ".gif" else _mp4
    write_whole(path, write([_picture(scene, scenes) for scene in scenes], per_second))
    return path


def check_ending(path: Path) -> str:
    """The ending of a film that can be written here, or an error that says what is missing.

    >>> check_ending(Path("episode.GIF"))
    '.gif'
    >>> check_ending(Path("episode.avi"))
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: output: expected a file that ends in .gif or .mp4, got episode.avi
    """
    ending = path.suffix.lower()
    if ending not in _NEEDED:
        raise ConfigError(f"output: expected a file that ends in {' or '.join(_NEEDED)}, got {path}")
    for module, extra in _NEEDED[ending]:
        require(module, extra)
    return ending


def _gif(pictures: Sequence[Any], per_second: float) -> bytes:
    content = io.BytesIO()
    step = round(1000 / per_second)
    pictures[0].save(
        content, "GIF", save_all=True, append_images=pictures[1:], loop=0,
        duration=[step] * (len(pictures) - 1) + [1000 * _STAYS],
    )  # fmt: skip
    return content.getvalue()


def _mp4(pictures: Sequence[Any], per_second: float) -> bytes:
    """H.264 with half the colour resolution, which every player and browser shows."""
    from imageio_ffmpeg import write_frames

    # A film has one rate; halves of colour want even sides, so what is odd loses its last row or column.
    shown = [*pictures, *[pictures[-1]] * (round(_STAYS * per_second) - 1)]
    width, height = (side // 2 * 2 for side in pictures[0].size)
    with tempfile.TemporaryDirectory() as folder:  # ffmpeg writes files alone
        place = Path(folder, "film.mp4")
        writer = write_frames(str(place), (width, height), fps=per_second, macro_block_size=2, quality=8)
        writer.send(None)
        for picture in shown:
            writer.send(picture.crop((0, 0, width, height)).tobytes())
        writer.close()
        return place.read_bytes()


def lines(scenes: Sequence[Scene]) -> Iterator[str]:
    """The same for a terminal, scene by scene."""
    for scene in scenes:
        held = "  ".join(f"{slot.step}:{slot.weight:.2f}" for slot in _strongest(scene.slots))
        memory = f"\nmemory (step:weight)  {held}" if held else ""
        head = f"step {scene.step}: {_did(scene)}, return {scene.gained:.2f}; {scene.mission}"
        yield f"{head}\n{scene.text}{memory}\n\n"


def _did(scene: Scene) -> str:
    """The action, and how likely it was, where it was one of several."""
    if not scene.action:
        return "the end"
    return scene.action if scene.probability is None else f"{scene.action} ({percent(scene.probability)})"


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
    assert scene.frame is not None  # who asks for a film asks for pictures
    frame = Image.fromarray(scene.frame)
    larger = _WORLD / max(frame.size)
    page.paste(frame.resize([round(side * larger) for side in frame.size]), (_MARGIN, _TOP))
    draw.text((_MARGIN, 8), scene.mission, _INK, big)
    draw.text(
        (_MARGIN, height - 26), f"step {scene.step}   {_did(scene)}   return {scene.gained:.2f}", _INK, big
    )
    if has_slots:
        left = _WORLD + 2 * _MARGIN
        draw.text((left, _TOP - 18), "held in memory: step, weight", _INK, small)
        most = max(slot.weight for slot in scene.slots)
        for place, slot in enumerate(_strongest(scene.slots)):
            corner = (left + place // _ROWS * _CELL[0], _TOP + place % _ROWS * _CELL[1])
            view = scenes[slot.step].view
            assert view is not None
            _draw_slot(draw, page, slot, slot.weight / most, Image.fromarray(view), corner, small)
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
