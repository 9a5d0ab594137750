"""Argument parsing where tyro is not installed: argparse options from a command's signature and docstring."""

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
from plait.lab.annotations import documented, repeated

__all__ = ["parser_of", "read_arguments"]


_METAVARS = {int: "N", float: "X", Path: "PATH"}  # placeholder of a value in help, by its type


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PlaitError(f"{message} ({self.prog} --help)")


def read_arguments(function: Callable[..., Any], name: str, args: list[str]) -> Callable[[], Any] | None:
    """Return the function bound to its arguments; None if help was requested, which is then printed.

    Raises:
        PlaitError: what is wrong with the arguments, in one line.
    """
    parser, groups = parser_of(function, name)
    try:
        parsed = vars(parser.parse_args(args))
    except SystemExit:
        return None
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in parsed.items()}
    for group, kind in groups.items():
        values[group] = kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
    parameters = inspect.signature(function).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    return functools.partial(function, *(values.pop(name) for name in positional), **values)


def parser_of(function: Callable[..., Any], name: str) -> tuple[argparse.ArgumentParser, dict[str, type]]:
    """Return a command's parser, and its dataclass parameters by name: their fields are options too."""
    text = inspect.getdoc(function) or ""
    parser = _Parser(prog=f"plait {name}", description=text.partition("\nArgs:")[0], allow_abbrev=False)
    descriptions, hints = _argument_descriptions(text), get_type_hints(function, include_extras=True)
    groups: dict[str, type] = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = _bare(hints[parameter.name])[0]
        if dataclasses.is_dataclass(kind):
            groups[parameter.name] = kind  # type: ignore[assignment]
            _add_fields(parser, kind)  # type: ignore[arg-type]
            continue
        dashes = "" if parameter.kind is parameter.POSITIONAL_ONLY else "--"
        _add(parser, dashes, parameter.name, hints[parameter.name], parameter.default, descriptions)
    return parser, groups


def _add_fields(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the fields of a dataclass as a group titled with the first clause of its docstring."""
    descriptions, hints = documented(kind), get_type_hints(kind, include_extras=True)
    group = parser.add_argument_group(re.split("[;.]", kind.__doc__ or "")[0])
    for field in dataclasses.fields(kind):
        _add(group, "--", field.name, hints[field.name], field.default, descriptions)


def _add(
    parser: argparse._ActionsContainer,
    dashes: str,
    name: str,
    hint: Any,
    default: Any,
    descriptions: dict[str, str],
) -> None:
    """Add one parameter as an argument; without a default it is required."""
    kind, marks = _bare(hint)
    several = get_origin(kind) is tuple
    required = default in (inspect.Parameter.empty, dataclasses.MISSING)
    description = next(
        (mark.help for mark in marks if getattr(mark, "help", None)), descriptions.get(name, "")
    )
    hint_text = next((m.help_behavior_hint for m in marks if getattr(m, "help_behavior_hint", None)), None)
    if hint_text is None and not required and kind is not bool and default not in (None, "", ()):
        hint_text = f"(default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"
    options: dict[str, Any] = {"help": f"{description} {hint_text or ''}".strip().replace("%", "%%")}
    if not required:
        options["default"] = default
    flags = [name] if not dashes else [f"--{name.replace('_', '-')}"]
    if kind is bool:
        parser.add_argument(*flags, dest=name, action="store_true", help=options["help"])
        return
    value_type = get_args(kind)[0] if several else kind
    metavar = _METAVARS.get(value_type, name.upper().replace("_", "-"))
    options["metavar"] = next((m.metavar for m in marks if getattr(m, "metavar", None)), metavar)
    options["type"], choices = _converter(value_type), get_origin(kind) is Literal
    if choices:
        options |= {"choices": get_args(kind), "metavar": "{" + ",".join(map(str, get_args(kind))) + "}"}
    if several:
        options |= {"nargs": "+" if required else "*"}
        if repeated in marks:
            options = {**options, "action": "append", "nargs": None, "default": list(default)}
    if not dashes:
        parser.add_argument(name, **{"nargs": None if required else "?", **options})
        return
    flags += [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
    if "_" in name:
        flags.append(f"--{name}")
    parser.add_argument(*flags, dest=name, required=required, **options)


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type without its annotations and without None, and the annotations."""
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        marks = tuple(metadata)
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    return hint, marks


def _converter(kind: Any) -> Callable[[str], Any]:
    """Return the conversion from a word to a value, with the name that argparse's errors show."""
    if kind not in (int, float, Path):
        return str

    def read(text: str) -> Any:
        if kind is Path and not text:  # an unset shell variable, which Path would turn into "."
            raise ValueError
        return None if text == "None" else kind(text)

    read.__name__ = {int: "whole number", float: "number", Path: "path"}[kind]
    return read


def _argument_descriptions(text: str) -> dict[str, str]:
    """Return the description of each parameter in a docstring's `Args:` section."""
    _, _, rest = text.partition("\nArgs:\n")
    descriptions: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if re.match(r"\S", line):  # the next heading
            break
        if entry := re.match(r"    (\w+): (.*)", line):
            name, descriptions[entry[1]] = entry[1], entry[2]
        elif name:
            descriptions[name] += f" {line.strip()}"
    return descriptions
