"""Exceptions and warnings of plait, and checks of arguments.

A message says what was expected, what was received, and what to do. The command line prints it as one line
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
    "EnvError",
    "MissingExtraError",
    "OutputError",
    "PlaitError",
    "ShapeError",
    "UnknownNameError",
    "UnloadedWarning",
    "check_choice",
    "check_float32",
    "check_int",
    "check_min",
    "check_seed",
    "check_utf8",
    "match_choice",
    "require",
]

LARGEST = 2**31 - 1  # largest size or count: kernels and libraries have 32-bit integers
SHOWN = 100  # most names that an error message lists
LARGEST_SEED = 2**63 - 1
LARGEST_NUMBER = 1e37  # ten times it still fits float32: Adam's first step divides by 1 − 0.9


class PlaitError(Exception):
    """Base class of all errors that a user can cause and correct."""


class ShapeError(PlaitError, ValueError, RuntimeError):
    """A tensor of the wrong shape or dtype; also a `ValueError` and a `RuntimeError`, as in `torch.nn`."""


class ConfigError(PlaitError, ValueError):
    """An invalid argument, option or run description."""


class UnknownNameError(ConfigError):
    """An unknown name; the message suggests the closest ones."""


class BackendError(PlaitError, RuntimeError):
    """A backend was requested by name and cannot run here."""


class MissingExtraError(PlaitError, ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""


class CheckpointError(PlaitError, RuntimeError):
    """A run folder or checkpoint that is truncated, damaged, or not one of plait's."""


class BusyError(PlaitError, RuntimeError):
    """Another process holds the lock of the folder."""


class OutputError(PlaitError, OSError):
    """A folder or file that cannot be written."""


class DataError(PlaitError, ValueError):
    """Data that are missing, truncated or of another format."""


class DivergedError(PlaitError, ArithmeticError):
    """Training produced a non-finite value; the message names the step and the tensor."""


class EnvError(PlaitError, RuntimeError):
    """An environment that cannot be created, raised an error, or returned a non-finite value."""


class EmptyMemoryWarning(UserWarning):
    """A model with a memory was called with h_0 or (h_0, c_0) alone and starts with an empty memory."""


class UnloadedWarning(UserWarning):
    """A state dict of a `torch.nn` layer was loaded with `strict=False`, and no weight was used."""


def check_choice(name: str, options: Iterable[str], what: str) -> str:
    """Return `name` if it is one of `options`, else raise an error with the closest matches.

    >>> check_choice("relrn", ["relrnn", "lstm"], "model")
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


def match_choice(name: str, options: Iterable[str], what: str, typed: str) -> str:
    """Return the option that equals `name` up to case, else raise the error of `check_choice` about `typed`.

    >>> match_choice("doorkey-5x5", ["DoorKey-5x5"], "world", "MiniGrid-doorkey-5x5-v0")
    'DoorKey-5x5'
    """
    options = list(options)
    match = next((option for option in options if option.lower() == name.lower()), None)
    return match or check_choice(typed, options, what)


def check_min(minimum: float, **values: Any) -> None:
    """Check that every named value is a finite number of at least `minimum`.

    >>> check_min(1, window=0)
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


def check_float32(minimum: float, **values: Any) -> None:
    """Check that every named value is at least `minimum` and small enough to compute with in float32.

    >>> check_float32(0, lr=1e38)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: lr: expected at most 1e+37, got 1e+38
    """
    check_min(minimum, **values)
    for name, value in values.items():
        if value > LARGEST_NUMBER:
            raise ConfigError(f"{name}: expected at most {LARGEST_NUMBER:g}, got {value:g}")


def check_int(minimum: int, most: int = LARGEST, /, **values: Any) -> None:
    """Check that every named value is an integer from `minimum` to `most`.

    >>> check_int(1, delay=2.5)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: delay: expected a whole number, got 2.5
    >>> check_int(1, 1000, repeats=2**63)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: repeats: expected at most 1,000, got 9223372036854775808
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name}: expected a whole number, got {value!r}")
        check_min(minimum, **{name: value})
        if value > most:
            shown = (
                value
                if value < 10**20
                else f"a number of {int(value.bit_length() * math.log10(2)) + 1} digits"
            )
            raise ConfigError(f"{name}: expected at most {most:,}, got {shown}")


def check_seed(**values: Any) -> None:
    """Check that every named value is a valid seed of a random generator."""
    check_int(0, LARGEST_SEED, **values)


def check_utf8(advice: str, /, **values: str | os.PathLike[str]) -> None:
    r"""Check that every named text or path can be encoded in UTF-8.

    Python decodes the other bytes of a file name to lone surrogates, which cannot be written to a file.

    >>> check_utf8("rename the file", file="r\udcff.csv")
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
    """Import an optional module; if it is missing, raise an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtraError(
            f"{name} is needed here and not installed: pip install 'plait[{extra}]'"
        ) from error
