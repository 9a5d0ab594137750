"""What the parameters of a command say beyond their types, for both doors of the command line.

The marks are tyro's own where it is installed; where it is not, plain ones of the same fields, which the door
made of argparse reads.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["documented", "flat", "given", "option", "repeated", "usual"]

if TYPE_CHECKING:
    option: Any
    repeated: Any
else:
    try:
        from tyro.conf import UseAppendAction as repeated, arg as option
    except ImportError:
        repeated = "repeated"

        @dataclass(frozen=True)
        class option:
            """How an option is shown: `aliases` are other spellings, `metavar` stands for its value."""

            name: str | None = None
            metavar: str | None = None
            help: str | None = None
            help_behavior_hint: str | None = None
            aliases: tuple[str, ...] | list[str] | None = None


F = TypeVar("F", bound=Callable[..., Any])


def usual(defaults: Callable[[list[str]], dict[str, Any] | None]) -> Callable[[F], F]:
    """Of a command: its defaults depend on what the line says. `defaults` gives them by the names of options;
    it leaves out those that are not taken then, and gives None where the line does not say enough."""

    def mark(function: F) -> F:
        vars(function)["usual"] = defaults
        return function

    return mark


flat = option(name="")  # of a dataclass: its fields are options of the command itself


def documented(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):  # no source beside the program: help without words
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


def given(options: Any) -> dict[str, Any]:
    """What was said, by name: neither None nor a switch that was left alone."""
    return {k: v for k, v in dataclasses.asdict(options).items() if v is not None and v is not False}
