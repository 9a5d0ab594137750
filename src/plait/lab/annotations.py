"""Marks on the parameters of a command that its help and its argument parser read beside the types."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["defaults_from", "explicit_options", "field_docs", "option", "repeated"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class option:
    """How a parameter appears on the command line: `Annotated[Path, option(aliases=("-o",))]`.

    Args:
        metavar: placeholder of the value in help; by default from the type.
        help: description, instead of the one in the docstring.
        default: description of the default in help, empty for none; by default the value itself.
        aliases: other spellings of the option.
    """

    metavar: str | None = None
    help: str | None = None
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Repeated:
    """Type of the mark `repeated`."""


repeated = _Repeated()  # of a tuple: every occurrence of the option appends one value


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
    except (OSError, TypeError):  # no source beside the program: help without descriptions
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
    """Return the options that were passed: those that are neither None nor a switch that is off."""
    return {k: v for k, v in dataclasses.asdict(options).items() if v is not None and v is not False}
