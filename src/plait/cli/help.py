"""Help for one command, and what a misspelt option was meant to be: the same whoever reads the arguments."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import shutil
from collections.abc import Callable
from typing import Any

from plait.cli.drawing import wrapped
from plait.cli.with_argparse import parser_of
from plait.errors import UnknownNameError

__all__ = ["check_spelling", "help_text"]

EVERYWHERE = ("--help", "--tyro-print-completion", "--tyro-write-completion")


def help_text(function: Callable[..., Any], name: str, args: list[str]) -> str:
    """What a command does and takes, with the defaults that hold for the rest of the line.

    A command whose defaults depend on what is asked has them from `plait.marks.usual`.
    """
    parser, groups = parser_of(function, name)
    parser.formatter_class = _Formatter
    words = [action for action in parser._actions if not action.option_strings]
    shown = (f"[{a.metavar}]" if a.nargs in ("?", "*") else str(a.metavar) for a in words)
    parser.usage = " ".join([f"plait {name}", *shown, "[OPTIONS]"])
    defaults = getattr(function, "usual", lambda args: None)(args)
    if defaults is not None:
        fields = [set(inspect.signature(kind).parameters) for kind in groups.values()]
        # A group none of which has a default there does not depend on what is asked.
        _say_defaults(parser, set().union(*(group for group in fields if group & {*defaults})), defaults)
    return parser.format_help().rstrip()


def _say_defaults(parser: argparse.ArgumentParser, grouped: set[str], defaults: dict[str, Any]) -> None:
    """Write defaults into the help; an option of a group that has none there is not taken, and not shown."""
    for action in parser._actions:
        if action.dest in defaults:
            said = str(action.help).partition(" (default: ")[0]
            value = defaults[action.dest]
            unsaid = value is None or value is False or value in ("", ())
            usual = "" if unsaid else f" (default: {_shown(value)})"
            action.help = said + usual.replace("%", "%%")
        elif action.dest in grouped:
            action.help = argparse.SUPPRESS


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def check_spelling(function: Callable[..., Any], name: str, args: list[str]) -> None:
    """Raise `UnknownNameError` for an option that a command does not have, with the nearest one it has."""
    options = {flag for action in parser_of(function, name)[0]._actions for flag in action.option_strings}
    for word in args:
        option = word.partition("=")[0]
        if not option.startswith("--") or option == "--" or option in (*options, *EVERYWHERE):
            continue
        spelled = (flag for flag in options if "_" not in flag)
        close = difflib.get_close_matches(option.replace("_", "-"), sorted(spelled), n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UnknownNameError(f"unknown option {option}: {hint}(plait {name} --help)")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs as they are wrapped here, options in a column, no word broken."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns - 1, 110))

    def _split_lines(self, text: str, width: int) -> list[str]:
        kept = re.sub(r"\(default: (?=\S{1,20}\))", "(default:\N{NO-BREAK SPACE}", " ".join(text.split()))
        return wrapped(kept, width).replace("\N{NO-BREAK SPACE}", " ").split("\n")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(part.split()) for part in text.strip().split("\n\n"))
        return "\n\n".join(wrapped(part, width) for part in paragraphs)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-o, --output PATH`, and not every spelling twice."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = sorted((flag for flag in action.option_strings if "_" not in flag), key=len)
        value = "" if action.nargs == 0 else f" {self._format_args(action, str(action.metavar))}"
        return ", ".join(flags) + value
