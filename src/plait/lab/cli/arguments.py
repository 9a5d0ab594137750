"""Argument parsing by tyro.

tyro gets a function with one parameter for each argument and a conversion that names the argument in its
error; dataclasses of options are put together afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from plait.errors import PlaitError
from plait.lab.annotations import Argument, arguments_of
from plait.lab.cli.help import check_spelling

__all__ = ["read_arguments"]

_EXPECTED = {int: "a whole number", float: "a number", Path: "a path"}


class _ArgumentError(PlaitError):
    """An invalid argument; not a ValueError, which tyro would catch and draw in a box."""


def read_arguments(function: Callable[..., Any], name: str, words: list[str]) -> Callable[[], Any]:
    """Return the command bound to its arguments.

    Raises:
        PlaitError: what is wrong with the arguments, in one line.
    """
    arguments = arguments_of(function)
    try:
        values = _parse(arguments, name, words)
    except _ArgumentError as error:
        check_spelling(arguments, name, words)
        raise PlaitError(f"{error} (plait {name} --help)") from None
    return _bind(function, arguments, values)


def _parse(arguments: list[Argument], name: str, words: list[str]) -> dict[str, Any]:
    """Return the value of every argument by its name."""

    def collect(*positional: Any, **options: Any) -> dict[str, Any]:
        names = [argument.name for argument in arguments if not argument.flags]
        return {**dict(zip(names, positional, strict=True)), **options}

    parameters = [_parameter(argument) for argument in arguments]
    vars(collect)["__signature__"] = inspect.Signature(sorted(parameters, key=lambda p: p.kind))
    collect.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            values, unknown = tyro.cli(
                collect,
                args=words,
                prog=f"plait {name}",
                config=(tyro.conf.FlagCreatePairsOff,),
                return_unknown_args=True,
            )
    except SystemExit:
        raise _ArgumentError(_message(output.getvalue(), arguments)) from None
    if unknown:
        raise _ArgumentError(f"unexpected argument: {' '.join(unknown)}")
    return values


def _parameter(argument: Argument) -> inspect.Parameter:
    """Return an argument as tyro reads it."""
    kind = inspect.Parameter.KEYWORD_ONLY if argument.flags else inspect.Parameter.POSITIONAL_ONLY
    name = argument.flags[0].removeprefix("--") if argument.flags else None
    shown = tyro.conf.arg(name=name, metavar=argument.metavar, aliases=argument.flags[1:] or None)
    hint: Any
    if argument.kind is bool:
        hint = Annotated[bool, shown]
    elif argument.repeated:
        value = Annotated[Any, _conversion(argument, "one")]
        hint = Annotated[tuple[value, ...], shown, tyro.conf.UseAppendAction]
    else:
        hint = Annotated[Any, _conversion(argument, "several" if argument.several else "one"), shown]
    return inspect.Parameter(argument.name, kind, default=argument.default, annotation=hint)


def _conversion(argument: Argument, count: str) -> PrimitiveConstructorSpec[Any]:
    """Return the conversion of the words after an option to its value."""

    def convert(words: list[str]) -> Any:
        if argument.optional and words == ["None"]:
            return None
        values = tuple(_value(argument, word) for word in words)
        return values if count == "several" else values[0]

    return PrimitiveConstructorSpec(
        nargs="*" if count == "several" else 1,
        metavar=argument.metavar,
        instance_from_str=convert,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def _value(argument: Argument, word: str) -> Any:
    """Convert one word.

    Raises:
        _ArgumentError: if it is not of the argument's type.
    """
    expected = f"one of {', '.join(argument.choices)}" if argument.choices else _EXPECTED.get(argument.kind)
    wrong = _ArgumentError(f"{argument.label}: expected {expected}, got {word!r:.80}")
    if argument.choices and word not in argument.choices:
        raise wrong
    if argument.kind not in _EXPECTED:
        return word
    if not word:  # often an unset shell variable, which Path would turn into "."
        raise wrong
    try:
        return argument.kind(word)
    except ValueError:
        size = _size(word) if argument.kind is int else None
        if size is None:
            raise wrong from None
        return size


def _size(word: str) -> int | None:
    """Return a whole number with a suffix, 128,000 for `128k`; None of anything else."""
    from plait.depthwidth.planner.guideline import SUFFIXES

    number = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,15}))?(.)", word, re.ASCII)
    scale = SUFFIXES.get(number[3].upper()) if number else None
    if number is None or scale is None:
        return None
    decimals = number[2] or ""
    value, rest = divmod(int(number[1] + decimals) * int(scale), 10 ** len(decimals))
    return None if rest else value


def _message(text: str, arguments: list[Argument]) -> str:
    """Return one line for an error that tyro has drawn in a box."""
    if match := re.search(r"Missing value for argument '(?:-\w/)?([^']+)'", text):
        return f"{match[1]}: expected a value, got none"
    shown = {line.strip(" │").partition(" ")[0] for line in text.splitlines()}
    missing = [a for a in arguments if a.required and shown & {a.metavar, *a.flags}]
    if missing:
        return f"expected {' and '.join(a.label for a in missing)}, got none"
    lines = (re.sub(r"[│╭╮╰╯─]+", " ", line) for line in text.splitlines()[1:])
    return " ".join(" ".join(lines).partition("For full helptext")[0].split())


def _bind(
    function: Callable[..., Any], arguments: list[Argument], values: dict[str, Any]
) -> Callable[[], Any]:
    """Return the command bound to these values."""
    positional = [values[argument.name] for argument in arguments if not argument.flags]
    options: dict[str, Any] = {a.name: values[a.name] for a in arguments if a.flags and not a.parameter}
    groups = {a.parameter: a.options for a in arguments if a.options is not None}
    for parameter, kind in groups.items():
        fields = {a.name: values[a.name] for a in arguments if a.parameter == parameter}
        options[parameter] = kind(**fields)
    return functools.partial(function, *positional, **options)
