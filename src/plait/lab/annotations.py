"""The arguments of a command, read from its signature, its docstring and the marks on its parameters.

Both the help text and the parser are built from them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "Argument",
    "arguments_of",
    "defaults_from",
    "explicit_options",
    "field_docs",
    "option",
    "repeated",
    "value_text",
]

F = TypeVar("F", bound=Callable[..., Any])
_METAVARS = {int: "N", float: "X", Path: "PATH"}  # placeholders of values in help


@dataclass(frozen=True)
class option:
    """A mark on a parameter that changes its option: `Annotated[Path, option(aliases=("-o",))]`.

    Args:
        metavar: placeholder of the value in help; by default from the type.
        help: description, instead of the one in the docstring.
        default: description of the default in help, empty for none; by default the value itself.
        aliases: other spellings of the option.
        flag: the option's name on the command line, `hidden` for `--hidden`; by default the parameter's.
    """

    metavar: str | None = None
    help: str | None = None
    default: str | None = None
    aliases: tuple[str, ...] = ()
    flag: str = ""


@dataclass(frozen=True)
class _Repeated:
    """Type of the mark `repeated`."""


repeated = _Repeated()  # for a tuple: every occurrence of the option appends one value


def defaults_from(defaults: Callable[[list[str]], dict[str, Any] | None]) -> Callable[[F], F]:
    """Return a decorator of a command whose defaults depend on its other arguments.

    Args:
        defaults: returns the defaults by option for the arguments typed so far, without the options that do
            not apply then; None if the arguments do not determine them.
    """

    def decorate(function: F) -> F:
        vars(function)["defaults_from"] = defaults
        return function

    return decorate


def field_docs(kind: type) -> dict[str, str]:
    """Return the string below each field of a dataclass."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):  # no source code: help without descriptions
        return {}
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        ast.unparse(field.target): str(text.value.value)
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def explicit_options(options: Any) -> dict[str, Any]:
    """Return the options that were passed: all but None and False."""
    return {k: v for k, v in dataclasses.asdict(options).items() if v is not None and v is not False}


@dataclass(frozen=True)
class Argument:
    """One argument of a command: a parameter of the function, or a field of one that is a dataclass."""

    name: str
    """Name of the parameter or field."""
    kind: Any
    """Type of a value: int, float, str, bool (a switch), Path or a Literal."""
    default: Any = inspect.Parameter.empty
    """Default; empty if the argument is required."""
    flags: tuple[str, ...] = ()
    """Spellings of the option; none for a positional argument."""
    metavar: str = ""
    """Placeholder of the value in help."""
    description: str = ""
    """Description in help, without the default."""
    shown_default: str = ""
    """Description of the default in help; empty for none."""
    several: bool = False
    """Takes any number of values, as a tuple."""
    repeated: bool = False
    """Every occurrence appends one value to a tuple."""
    optional: bool = False
    """Takes None, too."""
    parameter: str = ""
    """Name of the parameter with the dataclass that this is a field of; empty for none."""
    options: type | None = None
    """That dataclass."""

    @property
    def required(self) -> bool:
        """Return whether the argument has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def choices(self) -> tuple[Any, ...]:
        """Return the values of a Literal; empty for other types."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def label(self) -> str:
        """Return the argument's name in messages: the long spelling of an option, or the metavar."""
        return max(self.flags, key=len) if self.flags else self.metavar


def arguments_of(function: Callable[..., Any]) -> list[Argument]:
    """Return the arguments of a command in the order of its signature."""
    descriptions = _descriptions(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    arguments: list[Argument] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            arguments += _fields(parameter.name, hint, parameter.default)
        else:
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            arguments.append(_argument(parameter.name, hint, parameter.default, descriptions, positional))
    return arguments


def _fields(parameter: str, kind: type, instance: Any) -> Iterator[Argument]:
    """Yield the fields of a dataclass as options; `instance` is the parameter's default, if it has one."""
    descriptions, hints = field_docs(kind), get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        default = getattr(instance, field.name) if isinstance(instance, kind) else default
        argument = _argument(field.name, hints[field.name], default, descriptions, False)
        yield dataclasses.replace(argument, parameter=parameter, options=kind)


def _argument(name: str, hint: Any, default: Any, descriptions: dict[str, str], positional: bool) -> Argument:
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        marks = tuple(metadata)
    optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    mark = next((mark for mark in marks if isinstance(mark, option)), option())
    several = get_origin(hint) is tuple
    kind = get_args(hint)[0] if several else hint
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    flag = (mark.flag or name).replace("_", "-")
    usual_metavar = _METAVARS.get(kind, flag.upper())
    description = descriptions.get(name, "") if mark.help is None else mark.help
    return Argument(
        name,
        kind,
        default,
        flags=() if positional else (f"--{flag}", *mark.aliases),
        metavar=mark.metavar or ("{" + ",".join(map(str, choices)) + "}" if choices else usual_metavar),
        description=" ".join(description.split()),
        shown_default=value_text(default) if mark.default is None else mark.default,
        several=several,
        repeated=repeated in marks,
        optional=optional,
    )


def value_text(value: Any) -> str:
    """Return a default as text; empty if there is none that helps a reader."""
    if value is inspect.Parameter.empty or value is None or value is False or value in ("", ()):
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _descriptions(text: str) -> dict[str, str]:
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
