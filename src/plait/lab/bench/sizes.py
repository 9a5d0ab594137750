"""Parsers of comma-separated lists on the command line: layers, shapes, lengths."""

from __future__ import annotations

from plait.errors import ConfigError, check_choice, check_int

__all__ = ["MOST_ROUNDS", "MOST_STEPS", "default_shapes", "parse_names", "parse_numbers", "parse_shapes"]

MOST_ROUNDS = 1_000
MOST_STEPS = 100_000_000  # largest length of a stream: an hour at 36 µs a step

Shape = tuple[int, int]


def parse_names(text: str, options: tuple[str, ...], what: str) -> list[str]:
    """Return comma-separated names, each of which must be in `options`.

    >>> parse_names("relrnn, memrnn", ("relrnn", "memrnn"), "layer")
    ['relrnn', 'memrnn']
    """
    return [check_choice(name.strip(), options, what) for name in text.split(",")]


def parse_numbers(text: str, what: str) -> list[int]:
    """Return comma-separated whole numbers of at least 1.

    >>> parse_numbers("100,1000", "lengths")
    [100, 1000]
    """
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(numbers) < 1:
        raise ConfigError(f"{what}: expected numbers of at least 1 between commas, got {text!r}")
    check_int(1, **{what: max(numbers)})
    return numbers


def parse_shapes(text: str) -> list[Shape]:
    """Return comma-separated shapes, (steps, rows).

    >>> parse_shapes("120x10,120x100")
    [(120, 10), (120, 100)]
    """
    shapes = []
    for part in text.split(","):
        steps, _, rows = part.strip().partition("x")
        if not (steps.isdecimal() and rows.isdecimal() and int(steps) and int(rows)):
            raise ConfigError(f"shapes: expected steps x rows as in 120x10,120x100, got {text!r}")
        check_int(1, steps=int(steps), rows=int(rows))
        shapes.append((int(steps), int(rows)))
    return shapes


def default_shapes(hidden: int, large: bool, quick: bool) -> list[Shape]:
    """Return the default shapes (steps, rows) for a hidden size; from 512 on that of a language model.

    >>> default_shapes(128, True, False)
    [(120, 10), (120, 100), (1020, 10), (1020, 100), (1020, 128)]
    """
    if quick:
        return [(120, 10)]
    if hidden >= 512:
        return [(150, 128)]
    short, long = [(120, 10), (120, 100)], [(1020, 10), (1020, 100)]
    if hidden > 128:
        return long if large else short
    return [*short, *long, (1020, 128)] if large else short
