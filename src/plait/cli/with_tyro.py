"""A command's arguments, read by tyro from its signature and docstring."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable
from typing import Any

import tyro

from plait.cli import with_argparse
from plait.errors import PlaitError

__all__ = ["read_arguments"]


def read_arguments(function: Callable[..., Any], name: str, args: list[str]) -> Callable[[], Any] | None:
    """The call that was asked for; None where help was, which is then printed.

    Raises:
        PlaitError: what is wrong with the arguments, in one line.
    """
    if any(not word or word.endswith("=") for word in args):
        with_argparse.read_arguments(function, name, args)  # which knows no path without a name
    # tyro draws its errors as boxes; ours are one line, so its words are caught and unboxed.
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            return tyro.cli(
                _deferred(function), args=args, prog=f"plait {name}", config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            return None
        with_argparse.read_arguments(function, name, args)  # what is wrong is said by both in the same words
        raise PlaitError(f"{_unbox(caught.getvalue())} (plait {name} --help)") from None


def _deferred(function: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """The same signature, but calling it only remembers the arguments: errors of the command itself
    must not be mistaken for errors of parsing."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    bind.__annotations__ = {**function.__annotations__, "return": Callable[[], Any]}
    return bind


def _unbox(text: str) -> str:
    lines = [re.sub(r"[│╭╮╰╯─]+", " ", line).strip() for line in text.splitlines()[1:]]
    kept: list[str] = []
    for line in lines:
        if line.startswith(("For full helptext", "Argument helptext")):
            break
        if line:
            kept.append(line)
    return " ".join(kept)
