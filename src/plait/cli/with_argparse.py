"""The same where tyro is not installed: arguments read by argparse from the same signature and docstring."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from plait.errors import PlaitError
from plait.marks import documented, repeated

__all__ = ["parser_of", "read_arguments"]


_CALLED = {int: "N", float: "X", Path: "PATH"}  # what stands for a value in help, by its type


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PlaitError(f"{message} ({self.prog} --help)")


def read_arguments(function: Callable[..., Any], name: str, args: list[str]) -> Callable[[], Any] | None:
    """The call that was asked for; None where help was, which is then printed.

    Raises:
        PlaitError: what is wrong with the arguments, in one line.
    """
    parser, groups = parser_of(function, name)
    try:
        read = vars(parser.parse_args(args))
    except SystemExit:
        return None
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in read.items()}
    for group, kind in groups.items():
        values[group] = kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
    parameters = inspect.signature(function).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    return functools.partial(function, *(values.pop(name) for name in positional), **values)


def parser_of(function: Callable[..., Any], name: str) -> tuple[argparse.ArgumentParser, dict[str, type]]:
    """The options of a command, and its parameters that are dataclasses, whose fields are options too."""
    text = inspect.getdoc(function) or ""
    parser = _Parser(prog=f"plait {name}", description=text.partition("\nArgs:")[0], allow_abbrev=False)
    words, hints = _described(text), get_type_hints(function, include_extras=True)
    groups: dict[str, type] = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = _bare(hints[parameter.name])[0]
        if dataclasses.is_dataclass(kind):
            groups[parameter.name] = kind  # type: ignore[assignment]
            _add_fields(parser, kind)  # type: ignore[arg-type]
            continue
        place = "" if parameter.kind is parameter.POSITIONAL_ONLY else "--"
        _add(parser, place, parameter.name, hints[parameter.name], parameter.default, words)
    return parser, groups


def _add_fields(parser: argparse.ArgumentParser, kind: type) -> None:
    """The fields of a dataclass, under what its docstring says first."""
    words, hints = documented(kind), get_type_hints(kind, include_extras=True)
    group = parser.add_argument_group(re.split("[;.]", kind.__doc__ or "")[0])
    for field in dataclasses.fields(kind):
        _add(group, "--", field.name, hints[field.name], field.default, words)


def _add(
    parser: argparse._ActionsContainer, dashes: str, name: str, hint: Any, default: Any, words: dict[str, str]
) -> None:
    """One parameter as an argument; without a default it must be given."""
    kind, marks = _bare(hint)
    several = get_origin(kind) is tuple
    required = default in (inspect.Parameter.empty, dataclasses.MISSING)
    shown = next((mark.help for mark in marks if getattr(mark, "help", None)), words.get(name, ""))
    usual = next((m.help_behavior_hint for m in marks if getattr(m, "help_behavior_hint", None)), None)
    if usual is None and not required and kind is not bool and default not in (None, "", ()):
        usual = f"(default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"
    given: dict[str, Any] = {"help": f"{shown} {usual or ''}".strip().replace("%", "%%")}
    if not required:
        given["default"] = default
    flags = [name] if not dashes else [f"--{name.replace('_', '-')}"]
    if kind is bool:
        parser.add_argument(*flags, dest=name, action="store_true", help=given["help"])
        return
    one = get_args(kind)[0] if several else kind
    called = _CALLED.get(one, name.upper().replace("_", "-"))
    given["metavar"] = next((m.metavar for m in marks if getattr(m, "metavar", None)), called)
    given["type"], choices = _reader(one), get_origin(kind) is Literal
    if choices:
        given |= {"choices": get_args(kind), "metavar": "{" + ",".join(map(str, get_args(kind))) + "}"}
    if several:
        given |= {"nargs": "+" if required else "*"}
        if repeated in marks:
            given = {**given, "action": "append", "nargs": None, "default": list(default)}
    if not dashes:
        parser.add_argument(name, **{"nargs": None if required else "?", **given})
        return
    flags += [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
    if "_" in name:
        flags.append(f"--{name}")
    parser.add_argument(*flags, dest=name, required=required, **given)


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type without its marks and without None, and the marks."""
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *found = get_args(hint)
        marks = tuple(found)
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    return hint, marks


def _reader(kind: Any) -> Callable[[str], Any]:
    """From a word to a value, named for argparse's own errors."""
    if kind not in (int, float, Path):
        return str

    def read(text: str) -> Any:
        if kind is Path and not text:  # a shell's variable that is not set; Python would take it for "."
            raise ValueError
        return None if text == "None" else kind(text)

    read.__name__ = {int: "whole number", float: "number", Path: "path"}[kind]
    return read


def _described(text: str) -> dict[str, str]:
    """What a docstring says of each parameter under `Args:`."""
    _, _, rest = text.partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if re.match(r"\S", line):  # the next heading
            break
        if said := re.match(r"    (\w+): (.*)", line):
            name, found[said[1]] = said[1], said[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found
