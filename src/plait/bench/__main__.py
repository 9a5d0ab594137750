"""`python -m plait.bench layers …`: the same commands where only torch and numpy are installed."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from plait.answer import Answer, Table
from plait.errors import PlaitError

__all__ = ["main"]

_NAMES = ("layers", "streaming", "memory", "tasks", "rl")
_COMMANDS = {name: f"plait.bench.{name}:bench_{name}" for name in _NAMES}


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark; 0 done, 2 the user can mend it."""
    parser = argparse.ArgumentParser(prog="python -m plait.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    functions = {}
    for name, where in _COMMANDS.items():
        module, _, attribute = where.partition(":")
        function = functions[name] = getattr(importlib.import_module(module), attribute)
        help_line = (inspect.getdoc(function) or name).splitlines()[0]
        _add_options(commands.add_parser(name, help=help_line, description=help_line), function)
    options = vars(parser.parse_args(argv))
    function, as_json = functions[options.pop("command")], options.pop("json")
    try:
        answer: Answer = function(**options)
    except PlaitError as error:
        return _failed(str(error))
    sys.stdout.write(_written(answer, as_json))
    return _failed(answer.error) if answer.error else 0


def _failed(message: str) -> int:
    sys.stderr.write(f"plait: error: {message}\n")
    return 2


def _add_options(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """An option for every parameter, as the command line makes them."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    hints = get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        flag, default, hint = f"--{name.replace('_', '-')}", parameter.default, hints[name]
        if hint is bool:
            parser.add_argument(flag, action="store_true")
            continue
        choices = get_args(hint) if get_origin(hint) is Literal else None
        parser.add_argument(flag, type=_converter(hint), choices=choices, default=default)


def _converter(hint: Any) -> Callable[[str], Any]:
    """str, int or Path, also where it may be None."""
    found = [kind for kind in get_args(hint) or (hint,) if kind in (str, int, Path) and kind is not NoneType]
    return found[0] if found else str


def _written(answer: Answer, as_json: bool) -> str:
    if as_json:
        return json.dumps(answer.data, indent=2, allow_nan=False) + "\n"
    texts = (part.text() if isinstance(part, Table) else part for part in answer.parts)
    return "".join(f"{text}\n" for text in texts)


if __name__ == "__main__":
    sys.exit(main())
