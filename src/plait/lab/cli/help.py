"""Help for one command, and suggestions for misspelt options."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from plait.errors import UnknownNameError
from plait.lab.annotations import Argument, arguments_of, value_text
from plait.lab.cli.drawing import wrapped

__all__ = ["check_spelling", "help_text"]

WIDEST = 110  # columns of help on a wide terminal
INDENT = 26  # column at which descriptions begin
_HELP = Argument("help", bool, False, ("-h", "--help"), description="show this help message and exit")


def help_text(function: Callable[..., Any], name: str, words: list[str]) -> str:
    """Return a command's description and options, with the defaults that hold for the rest of the line.

    A command whose defaults depend on its other arguments has the decorator
    `plait.lab.annotations.defaults_from`.
    """
    width = min(shutil.get_terminal_size().columns - 1, WIDEST)
    arguments = arguments_of(function)
    defaults = getattr(function, "defaults_from", lambda words: None)(words)
    if defaults is not None:
        arguments = _with_defaults(arguments, defaults)
    positionals = [argument for argument in arguments if not argument.flags]
    usage = ["usage: plait", name, *map(_placeholder, positionals), "[OPTIONS]"]
    text = (inspect.getdoc(function) or "").partition("\nArgs:")[0]
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    sections = {
        "positional arguments": positionals,
        "options": [_HELP, *(a for a in arguments if a.flags and not a.parameter)],
    }
    for argument in arguments:
        if argument.options is not None:
            sections.setdefault(_title(argument.options), []).append(argument)
    parts = [" ".join(usage), *(wrapped(paragraph, width) for paragraph in paragraphs)]
    for title, members in sections.items():
        if members:
            parts.append("\n".join([f"{title}:", *(line for a in members for line in _entry(a, width))]))
    return "\n\n".join(parts)


def _with_defaults(arguments: list[Argument], defaults: dict[str, Any]) -> list[Argument]:
    """Return the arguments with these defaults; options that do not apply are left out.

    A group of options without a single default here does not depend on the other arguments.
    """
    dependent = {a.parameter for a in arguments if a.parameter and a.name in defaults}
    shown = []
    for argument in arguments:
        if argument.name in defaults:
            shown.append(dataclasses.replace(argument, shown_default=value_text(defaults[argument.name])))
        elif argument.parameter not in dependent:
            shown.append(argument)
    return shown


def _title(options: type) -> str:
    """Return the first clause of a dataclass's docstring."""
    return re.split("[;.]", options.__doc__ or "")[0]


def _placeholder(argument: Argument) -> str:
    several = f"{argument.metavar} ..." if argument.several else argument.metavar
    return several if argument.required else f"[{several}]"


def _entry(argument: Argument, width: int) -> Iterator[str]:
    """Yield the lines of one argument: its spellings, then its description in a column of its own."""
    value = "" if argument.kind is bool else argument.metavar
    value = f"[{value} ...]" if argument.several and not argument.repeated else value
    flags = ", ".join(sorted(argument.flags, key=len))
    head = "  " + (f"{flags} {value}".rstrip() if argument.flags else argument.metavar)
    # A short default stays on one line with the word before it.
    shown = argument.shown_default
    space = "\N{NO-BREAK SPACE}" if re.fullmatch(r"\S{1,20}", shown) else " "
    text = argument.description + (f" (default:{space}{shown})" if shown else "")
    lines = wrapped(text, width - INDENT).replace("\N{NO-BREAK SPACE}", " ").split("\n") if text else []
    if lines and len(head) + 2 <= INDENT:
        yield head.ljust(INDENT) + lines.pop(0)
    else:
        yield head
    yield from (" " * INDENT + line for line in lines)


# Names that other libraries and commands give to options, and plait's; the first that a command has is meant.
_ELSEWHERE = {
    "--steps": ("--total-timesteps", "--updates"),
    "--timesteps": ("--total-timesteps", "--updates"),
    "--max-steps": ("--total-timesteps", "--updates"),
    "--learning-rate": ("--lr",),
    "--num-epochs": ("--epochs",),
    "--hidden-size": ("--hidden",),
    "--num-layers": ("--layers",),
    "--output": ("--out",),
}


def check_spelling(arguments: list[Argument], name: str, words: list[str]) -> None:
    """Raise `UnknownNameError` for an option that the command does not have, naming the closest match."""
    options = {flag for argument in [_HELP, *arguments] for flag in argument.flags}
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if not flag.startswith("--") or flag == "--" or flag in options:
            continue
        close = [other for other in _ELSEWHERE.get(flag, ()) if other in options]
        close += difflib.get_close_matches(flag, sorted(options), n=1, cutoff=0.6)
        hint = f": did you mean {close[0]}?" if close else ""
        raise UnknownNameError(f"unknown option {word.partition('=')[0]}{hint} (plait {name} --help)")
