"""Every error plait raises on purpose, and the small checks that raise them.

A message says what was expected, what came, and what to do. The command line prints it as one line
and exits with code 2; `--debug` shows the traceback.
"""

from __future__ import annotations

import difflib
import importlib
import math
import os
from collections.abc import Iterable
from types import ModuleType
from typing import Any

__all__ = [
    "BackendError",
    "BusyError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EmptyMemoryWarning",
    "MissingExtraError",
    "OutputError",
    "PlaitError",
    "ShapeError",
    "UnknownNameError",
    "UnloadedWarning",
    "WorldError",
    "at_least",
    "in_float32",
    "in_utf8",
    "known",
    "known_in_any_case",
    "require",
    "seeded",
    "whole",
]

LARGEST = 2**31 - 1  # what a size or a count may be: kernels and libraries keep them in 32 bits
SHOWN = 100  # names that an error lists
LARGEST_SEED = 2**63 - 1
LARGEST_NUMBER = 1e37  # of a float32 with room for ten times it: an optimiser's first step divides by 1 − 0.9


class PlaitError(Exception):
    """Base of all errors a user can cause and mend."""


class ShapeError(PlaitError, ValueError, RuntimeError):
    """A tensor of the wrong shape or kind; `torch.nn` raises either of the two builtin parents here."""


class ConfigError(PlaitError, ValueError):
    """An argument or description out of its range."""


class UnknownNameError(ConfigError):
    """A name that stands for nothing here; the message offers the nearest ones."""


class BackendError(PlaitError, RuntimeError):
    """A backend was asked for by name and cannot run here."""


class MissingExtraError(PlaitError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class CheckpointError(PlaitError, RuntimeError):
    """A run folder or checkpoint that is cut short, foreign, or made by something else."""


class BusyError(PlaitError, RuntimeError):
    """Another process is at work in the same folder."""


class OutputError(PlaitError, OSError):
    """A folder or file that cannot be written."""


class DataError(PlaitError, ValueError):
    """Data that is missing, truncated or not what it says it is."""


class DivergedError(PlaitError, ArithmeticError):
    """Training met a value that is not finite; the message names the step and the tensor."""


class WorldError(PlaitError, RuntimeError):
    """An agent's world that cannot be made, that raised, or that gave what is no number."""


class EmptyMemoryWarning(UserWarning):
    """A model with a memory was given h_0 or (h_0, c_0) alone, and begins with nothing remembered."""


class UnloadedWarning(UserWarning):
    """Weights of a `torch.nn` layer were given to one of ours by their names, and none was taken."""


def known(name: str, options: Iterable[str], what: str) -> str:
    """Return `name` if it is one of `options`, else raise with the nearest matches.

    >>> known("relrn", ["relrnn", "lstm"], "model")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown model 'relrn': did you mean 'relrnn'? (one of: lstm, relrnn)
    """
    options = sorted(options)
    if name in options:
        return name
    close = difflib.get_close_matches(str(name).lower(), options, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    more = f" and {len(options) - SHOWN:,} more" if len(options) > SHOWN else ""
    raise UnknownNameError(f"unknown {what} {name!r}: {hint}(one of: {', '.join(options[:SHOWN])}{more})")


def known_in_any_case(name: str, options: Iterable[str], what: str, said: str) -> str:
    """The one of `options` that is `name` but for its case, else `known` of what was `said`.

    >>> known_in_any_case("doorkey-5x5", ["DoorKey-5x5"], "world", "MiniGrid-doorkey-5x5-v0")
    'DoorKey-5x5'
    """
    options = list(options)
    found = next((option for option in options if option.lower() == name.lower()), None)
    return found or known(said, options, what)


def at_least(minimum: float, **values: Any) -> None:
    """Check that every named value is a finite number of at least `minimum`.

    >>> at_least(1, window=0)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: window: expected at least 1, got 0
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name}: expected a number, got {value!r}")
        if not value >= minimum:
            raise ConfigError(f"{name}: expected at least {minimum}, got {value}")
        if value == math.inf:
            raise ConfigError(f"{name}: expected a finite number, got {value}")


def in_float32(minimum: float, **values: Any) -> None:
    """Check that every named value is a number of at least `minimum` that a float32 can be multiplied by.

    >>> in_float32(0, lr=1e38)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: lr: expected at most 1e+37, got 1e+38
    """
    at_least(minimum, **values)
    for name, value in values.items():
        if value > LARGEST_NUMBER:
            raise ConfigError(f"{name}: expected at most {LARGEST_NUMBER:g}, got {value:g}")


def whole(minimum: int, most: int = LARGEST, /, **values: Any) -> None:
    """Check that every named value is a whole number of at least `minimum` and at most `most`.

    >>> whole(1, delay=2.5)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: delay: expected a whole number, got 2.5
    >>> whole(1, 1000, repeats=2**63)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: repeats: expected at most 1,000, got 9223372036854775808
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name}: expected a whole number, got {value!r}")
        at_least(minimum, **{name: value})
        if value > most:
            shown = (
                value
                if value < 10**20
                else f"a number of {int(value.bit_length() * math.log10(2)) + 1} digits"
            )
            raise ConfigError(f"{name}: expected at most {most:,}, got {shown}")


def seeded(**values: Any) -> None:
    """Check that every named value can be a seed: a whole number from 0 that a random generator takes."""
    whole(0, LARGEST_SEED, **values)


def in_utf8(advice: str, /, **values: str | os.PathLike[str]) -> None:
    r"""Check that every named text or path can be written as UTF-8, as files, pages and archives hold it.

    The name of a file is bytes; those that are no UTF-8 come as lone surrogates.

    >>> in_utf8("rename the file", file="r\udcff.csv")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: file: expected a name in UTF-8, got 'r\udcff.csv'; rename the file
    """
    for name, value in values.items():
        try:
            os.fspath(value).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{name}: expected a name in UTF-8, got {os.fspath(value)!r}; {advice}"
            ) from error


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtraError(
            f"{name} is needed here and not installed: pip install 'plait[{extra}]'"
        ) from error
