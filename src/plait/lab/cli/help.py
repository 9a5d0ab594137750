"""Help for one command, and suggestions for misspelt options: shared by the tyro and argparse parsers."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import shutil
from collections.abc import Callable
from typing import Any

from plait.errors import UnknownNameError
from plait.lab.cli.drawing import wrapped
from plait.lab.cli.with_argparse import parser_of

__all__ = ["check_spelling", "help_text"]

EVERYWHERE = ("--help", "--tyro-print-completion", "--tyro-write-completion")


def help_text(function: Callable[..., Any], name: str, args: list[str]) -> str:
    """Return a command's description and options, with the defaults that hold for the rest of the line.

    A command whose defaults depend on its other arguments declares them with `plait.lab.annotations.usual`.
    """
    parser, groups = parser_of(function, name)
    parser.formatter_class = _Formatter
    positionals = [action for action in parser._actions if not action.option_strings]
    metavars = (f"[{a.metavar}]" if a.nargs in ("?", "*") else str(a.metavar) for a in positionals)
    parser.usage = " ".join([f"plait {name}", *metavars, "[OPTIONS]"])
    defaults = getattr(function, "usual", lambda args: None)(args)
    if defaults is not None:
        fields = [set(inspect.signature(kind).parameters) for kind in groups.values()]
        # A group without a single default here does not depend on the other arguments.
        _insert_defaults(parser, set().union(*(group for group in fields if group & {*defaults})), defaults)
    return parser.format_help().rstrip()


def _insert_defaults(parser: argparse.ArgumentParser, grouped: set[str], defaults: dict[str, Any]) -> None:
    """Write defaults into the help, and hide the options of `grouped` that have none: they do not apply."""
    for action in parser._actions:
        if action.dest in defaults:
            description = str(action.help).partition(" (default: ")[0]
            value = defaults[action.dest]
            is_empty = value is None or value is False or value in ("", ())
            default = "" if is_empty else f" (default: {_value_text(value)})"
            action.help = description + default.replace("%", "%%")
        elif action.dest in grouped:
            action.help = argparse.SUPPRESS


def _value_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def check_spelling(function: Callable[..., Any], name: str, args: list[str]) -> None:
    """Raise `UnknownNameError` for an option that the command does not have, naming the closest match."""
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
    """Help formatter that wraps paragraphs, keeps options in one column and breaks no word."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns - 1, 110))

    def _split_lines(self, text: str, width: int) -> list[str]:
        joined = re.sub(r"\(default: (?=\S{1,20}\))", "(default:\N{NO-BREAK SPACE}", " ".join(text.split()))
        return wrapped(joined, width).replace("\N{NO-BREAK SPACE}", " ").split("\n")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(part.split()) for part in text.strip().split("\n\n"))
        return "\n\n".join(wrapped(part, width) for part in paragraphs)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `-o, --output PATH`; spellings with an underscore are left out."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = sorted((flag for flag in action.option_strings if "_" not in flag), key=len)
        value = "" if action.nargs == 0 else f" {self._format_args(action, str(action.metavar))}"
        return ", ".join(flags) + value
