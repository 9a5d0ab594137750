"""Source code of a class or a function, and the globals that this code reads.

Code of plait, torch, the standard library and every other installed distribution is identified by name; all
other code, that of scripts, notebooks and a user's own modules, by its text.
"""

from __future__ import annotations
import __future__

import ast
import dis
import importlib.machinery
import linecache
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

__all__ = [
    "UnclearError",
    "functions_of",
    "globals_of",
    "is_own",
    "is_own_function",
    "made_with",
    "name_of",
    "text_of",
    "unwrapped",
]

_INSTALLED = frozenset({"plait", "torch", "numpy", "builtins", *sys.stdlib_module_names})
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class UnclearError(Exception):
    """A value without a description that would be the same in another process."""


def is_own(module: str | None) -> bool:
    """Return whether a module is a user's own and not part of an installed distribution."""
    if module in ("__main__", "__mp_main__"):
        return True
    if not module or module.partition(".")[0] in _INSTALLED:
        return False
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if loaded is not None and file is None:  # notebooks, or a module compiled into Python
        return getattr(getattr(loaded, "__spec__", None), "origin", None) != "built-in"
    return not {"site-packages", "dist-packages"} & set(Path(file or "").parts)


def is_own_function(function: FunctionType) -> bool:
    """Return whether a function is a user's own, such as one without a module, made by `exec`."""
    name = function.__globals__.get("__name__")
    return name is None or is_own(name)


def name_of(thing: type | FunctionType) -> str:
    """Return the import path of a class or function; a worker's `__mp_main__` counts as `__main__`."""
    if isinstance(thing, FunctionType):
        module, name = thing.__globals__.get("__name__"), thing.__code__.co_qualname
    else:
        module, name = thing.__module__, thing.__qualname__
    return f"{'__main__' if module == '__mp_main__' else module}.{name}"


def unwrapped(thing: Any) -> Any:
    """Return the function beneath the decorators of installed libraries, such as `no_grad`, `lru_cache`."""
    while hasattr(thing, "__wrapped__"):
        if isinstance(thing, FunctionType) and is_own(thing.__globals__.get("__name__")):
            break
        thing = thing.__wrapped__
    return thing


def functions_of(value: Any) -> list[Any]:
    """Return the functions of a class attribute (a method, a property); empty for a plain value."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value,)
    if isinstance(value, cached_property):
        parts = (value.func,)
    functions = [unwrapped(part) for part in parts if part is not None]
    return functions if all(isinstance(part, FunctionType) for part in functions) else []


def made_with(function: FunctionType) -> list[Any]:
    """Return the values bound when a method was defined: its defaults and its closure."""
    free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = [(name, cell) for name, cell in free if name != "__class__"]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return [defaults, [(name, _content(cell)) for name, cell in closure]]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def text_of(function: FunctionType, owner: str | None = None) -> str:
    """Return the source of a function, or of the class `owner` that defines it.

    Raises:
        UnclearError: if there is no source, or it differs from the code that was loaded.
    """
    code, shown = function.__code__, owner or function.__code__.co_name
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise UnclearError(f"the source of {shown} cannot be read")
    text, kind = "".join(lines), ast.ClassDef if owner else ast.FunctionDef | ast.AsyncFunctionDef
    edited = UnclearError(f"the source of {shown} was edited after it was imported; restart Python")
    try:
        tree = _tree(text)
        if _is_plainly_loaded(function) and code not in _compiled(text, code.co_flags & _FUTURE):
            raise edited
    except SyntaxError:
        raise edited from None
    candidates = [node for node in ast.walk(tree) if isinstance(node, kind) and node.name == shown]
    enclosing = [node for node in candidates if _first(node) <= code.co_firstlineno <= (node.end_lineno or 0)]
    if not enclosing:
        raise edited
    node = max(enclosing, key=_first)
    return "\n".join(line.rstrip() for line in _dedented(lines[_first(node) - 1 : node.end_lineno]))


def globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function reads, by import path, and attributes of a user's own modules."""
    home, known = function.__globals__, set()
    for code in _codes(function.__code__):
        instructions = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for index, step in enumerate(instructions):
            name, value = str(step.argval), None
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in home:
                value, name = home[name], f"{home.get('__name__')}.{name}"
            elif step.opname == "IMPORT_NAME" and name in sys.modules:
                value = sys.modules[name]
            else:
                continue
            while isinstance(value, ModuleType) and is_own(value.__name__):
                index += 1
                attribute = instructions[index] if index < len(instructions) else step
                if attribute.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                    break
                name, value = f"{value.__name__}.{attribute.argval}", getattr(value, attribute.argval, None)
            if name not in known:
                known.add(name)
                yield name, value


def _is_plainly_loaded(function: FunctionType) -> bool:
    """Return whether a file was compiled unchanged; hooks of test runners and type checkers edit it."""
    loader = function.__globals__.get("__loader__")
    file = function.__globals__.get("__file__")
    return type(loader) is importlib.machinery.SourceFileLoader and function.__code__.co_filename == file


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


@lru_cache(maxsize=32)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@lru_cache(maxsize=32)
def _compiled(text: str, flags: int) -> frozenset[CodeType]:
    return frozenset(_codes(compile(text, "<own>", "exec", flags=flags, dont_inherit=True)))


def _first(node: Any) -> int:
    """Return the first line of a definition, decorators included."""
    lines: list[int] = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
    return min(lines)


def _dedented(lines: list[str]) -> list[str]:
    return textwrap.dedent("".join(lines)).splitlines()
