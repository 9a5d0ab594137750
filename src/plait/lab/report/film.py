"""Films of episodes: the environment, and the past observations in memory, shaded by attention weight."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, require
from plait.lab.runs.folder import write_whole
from plait.lab.training.ppo.episode import EpisodeStep, Slot
from plait.table import percent

__all__ = ["check_ending", "film", "lines"]

# File extension -> the modules required to write it, each with the extra that installs it.
_NEEDED = {".gif": [("PIL", "report")], ".mp4": [("PIL", "report"), ("imageio_ffmpeg", "film")]}
_LAST_STEP = 2  # seconds for which the last step is shown

_FRAME, _THUMB, _MARGIN, _SHOWN = 320, 70, 10, 10
_ROWS, _CELL = 4, (_THUMB + 16, _THUMB + 24)  # width and height of a slot with its label
_TOP = 52
_INK, _PALE, _PAPER, _LIT = (30, 30, 30), (150, 150, 150), (255, 255, 255), (214, 93, 14)


def film(steps: Sequence[EpisodeStep], path: Path, per_second: float = 4) -> Path:
    """Write an episode as a looping GIF or an MP4, by the extension of `path`; the last step lasts 2 s."""
    write = _gif if check_ending(path) == ".gif" else _mp4
    write_whole(path, write([_picture(step, steps) for step in steps], per_second))
    return path


def check_ending(path: Path) -> str:
    """Return the extension of a film's path; raise if it is unknown or a module to write it is missing.

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
        content,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        loop=0,
        duration=[step] * (len(pictures) - 1) + [1000 * _LAST_STEP],
    )
    return content.getvalue()


def _mp4(pictures: Sequence[Any], per_second: float) -> bytes:
    """Encode H.264 with 4:2:0 chroma subsampling, which every player and browser supports."""
    from imageio_ffmpeg import write_frames

    # An MP4 has one frame rate, so the last frame is repeated. Chroma subsampling needs even sides, so an odd
    # last row or column is cropped.
    frames = [*pictures, *[pictures[-1]] * (round(_LAST_STEP * per_second) - 1)]
    width, height = (side // 2 * 2 for side in pictures[0].size)
    with tempfile.TemporaryDirectory() as folder:  # ffmpeg writes to files only
        path = Path(folder, "film.mp4")
        writer = write_frames(str(path), (width, height), fps=per_second, macro_block_size=2, quality=8)
        writer.send(None)
        for frame in frames:
            writer.send(frame.crop((0, 0, width, height)).tobytes())
        writer.close()
        return path.read_bytes()


def lines(steps: Sequence[EpisodeStep]) -> Iterator[str]:
    """Yield an episode as text for a terminal, step by step."""
    for step in steps:
        slots = "  ".join(f"{slot.step}:{slot.weight:.2f}" for slot in _strongest(step.slots))
        memory = f"\nmemory (step:weight)  {slots}" if slots else ""
        head = f"step {step.step}: {_action_text(step)}, return {step.total_reward:.2f}; {step.mission}"
        yield f"{head}\n{step.text}{memory}\n\n"


def _action_text(step: EpisodeStep) -> str:
    """Return the action, with its probability if there was a choice."""
    if not step.action:
        return "the end"
    return step.action if step.probability is None else f"{step.action} ({percent(step.probability)})"


def _strongest(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots with the largest weights in order of time; a full memory may hold hundreds."""
    return sorted(sorted(slots, key=lambda slot: -slot.weight)[:_SHOWN])


def _picture(step: EpisodeStep, steps: Sequence[EpisodeStep]) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    big, small = ImageFont.load_default(14), ImageFont.load_default(11)
    columns = -(-_SHOWN // _ROWS)
    has_slots = any(other.slots for other in steps)
    width = _FRAME + 2 * _MARGIN + (columns * _CELL[0] + _MARGIN if has_slots else 0)
    height = _TOP + max(_FRAME, _ROWS * _CELL[1]) + 34
    page = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(page)
    assert step.frame is not None  # episodes for a film are played with frames
    frame = Image.fromarray(step.frame)
    scale = _FRAME / max(frame.size)
    page.paste(frame.resize([round(side * scale) for side in frame.size]), (_MARGIN, _TOP))
    draw.text((_MARGIN, 8), step.mission, _INK, big)
    status = f"step {step.step}   {_action_text(step)}   return {step.total_reward:.2f}"
    draw.text((_MARGIN, height - 26), status, _INK, big)
    if has_slots:
        left = _FRAME + 2 * _MARGIN
        draw.text((left, _TOP - 18), "in memory: step, weight", _INK, small)
        most = max(slot.weight for slot in step.slots)
        for index, slot in enumerate(_strongest(step.slots)):
            corner = (left + index // _ROWS * _CELL[0], _TOP + index % _ROWS * _CELL[1])
            view = steps[slot.step].view
            assert view is not None
            _draw_slot(draw, page, slot, slot.weight / most, Image.fromarray(view), corner, small)
    return page


def _draw_slot(
    draw: Any, page: Any, slot: Slot, share: float, view: Any, corner: tuple[int, int], font: Any
) -> None:
    """Draw the view at a slot's step under a bar of its weight; the smaller its share, the paler."""
    from PIL import Image

    x, y = corner
    blank = Image.new("RGB", view.size, _PAPER)
    thumbnail = Image.blend(blank, view, 0.25 + 0.75 * share)
    draw.rectangle((x, y, x + _THUMB, y + 4), outline=_PALE)
    draw.rectangle((x, y, x + round(_THUMB * min(slot.weight, 1.0)), y + 4), fill=_LIT)
    page.paste(thumbnail.resize((_THUMB, _THUMB)), (x, y + 6))
    draw.text((x, y + 6 + _THUMB), f"{slot.step}   {slot.weight:.2f}", _INK, font)
