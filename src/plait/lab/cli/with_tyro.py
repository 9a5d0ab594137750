"""Argument parsing by tyro, from a command's signature and docstring."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable
from typing import Any

import tyro

from plait.errors import PlaitError
from plait.lab.cli import with_argparse

__all__ = ["read_arguments"]


def read_arguments(function: Callable[..., Any], name: str, args: list[str]) -> Callable[[], Any] | None:
    """Return the function bound to its arguments; None if help was requested, which is then printed.

    Raises:
        PlaitError: what is wrong with the arguments, in one line.
    """
    if any(not word or word.endswith("=") for word in args):
        with_argparse.read_arguments(function, name, args)  # argparse rejects an empty path
    # tyro draws its errors as boxes; ours are one line, so its output is captured and unboxed.
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(
                _deferred(function), args=args, prog=f"plait {name}", config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            return None
        with_argparse.read_arguments(function, name, args)  # raises first, so both parsers have one wording
        raise PlaitError(f"{_unbox(captured.getvalue())} (plait {name} --help)") from None


def _deferred(function: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """Return a function of the same signature that only binds its arguments.

    The command runs after parsing, so that its own errors are not mistaken for parsing errors.
    """

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    bind.__annotations__ = {**function.__annotations__, "return": Callable[[], Any]}
    return bind


def _unbox(text: str) -> str:
    lines = [re.sub(r"[│╭╮╰╯─]+", " ", line).strip() for line in text.splitlines()[1:]]
    message: list[str] = []
    for line in lines:
        if line.startswith(("For full helptext", "Argument helptext")):
            break
        if line:
            message.append(line)
    return " ".join(message)
