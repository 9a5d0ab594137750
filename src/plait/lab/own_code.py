"""A user's own code, named `module:name` on the command line, in a description or from Python.

Such a name is code that is imported and called. One from the command line or from Python is trusted; a run
folder may come from a stranger, and the code it names is not run unless the user named it too: in this
process, or before; then the name and its module's file are in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

from plait.errors import ConfigError, MissingExtraError, OutputError
from plait.files import cache_folder, plain_bytes, write_whole

__all__ = [
    "by_name",
    "check_trusted",
    "import_module",
    "is_own_name",
    "is_passed",
    "name_of",
    "name_of_factory",
]

ALLOWED = "PLAIT_ALLOW"  # modules whose code run folders may name, separated by commas
_MOST_READ = 2**20  # bytes of the record of names
_PASSED: dict[str, Any] = {}  # objects passed in Python, by their name in a description
_TRUSTED: set[str] = set()  # names of code from the command line or from Python


def is_own_name(name: Any) -> bool:
    """Return whether a name in a description stands for a user's own code.

    >>> is_own_name("mine:first"), is_own_name("relrnn")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


def name_of(thing: Any) -> str:
    """Return the name by which `by_name` resolves a function or class, wherever it can be imported.

    A string is returned unchanged; its code is trusted from then on, since the caller named it.

    >>> name_of(name_of)
    'plait.lab.own_code:name_of'
    """
    if isinstance(thing, str):
        _TRUSTED.add(thing)
        return thing
    own = getattr(thing, "__qualname__", None)
    if own is None or "<lambda>" in own:
        raise ConfigError(
            f"expected a function or class with a name (def …) for a run's description, got {thing!r}"
        )
    name = f"{thing.__module__}:{own}"
    _PASSED[name] = thing
    return name


def name_of_factory(make: Any) -> str:
    """Return the name of a factory function; that of a lambda has a digest of its code.

    So two lambdas have two names, and a run made with one is resumed by passing it again.

    >>> name = name_of_factory(lambda: 1)
    >>> name.startswith("plait.lab.own_code:<lambda ") and name == name_of_factory(lambda: 1)
    True
    >>> name_of_factory(lambda: 2) == name
    False
    """
    if getattr(make, "__name__", "") != "<lambda>":
        return name_of(make)
    values = [cell.cell_contents for cell in make.__closure__ or ()]
    code = repr((_code_of(make.__code__), make.__defaults__, make.__kwdefaults__, values))
    name = f"{make.__module__}:<lambda {hashlib.sha256(code.encode()).hexdigest()[:12]}>"
    _PASSED[name] = make
    return name


def _code_of(code: CodeType) -> tuple[Any, ...]:
    constants = [_code_of(value) if isinstance(value, CodeType) else value for value in code.co_consts]
    return code.co_code, constants, code.co_names


def is_passed(name: str) -> bool:
    """Return whether the object of this name was passed to `name_of` in this process."""
    return name in _PASSED


def by_name(name: str, what: str) -> Any:
    """Resolve a name: the object passed to `name_of` in this process, or the attribute of its module.

    >>> by_name(name_of("math:sqrt"), "function")(4.0)
    2.0
    >>> by_name(name_of("math:sqroot"), "function")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: function: math has no 'sqroot'; expected PACKAGE.MODULE:NAME
    """
    if name in _PASSED:
        return _PASSED[name]
    module, _, path = name.partition(":")
    check_trusted(name)
    value = import_module(module, what)
    if name in _TRUSTED:
        _remember(name)
    for part in path.split("."):
        if not hasattr(value, part):
            here = " (it was made in Python: pass it again there)" if "<" in path else ""
            raise ConfigError(f"{what}: {module} has no {path!r}{here}; expected PACKAGE.MODULE:NAME")
        value = getattr(value, part)
    return value


def check_trusted(name: str) -> None:
    """Refuse code that only a run folder has named."""
    module = name.partition(":")[0]
    named_here = name in _TRUSTED or name in _PASSED or module in os.environ.get(ALLOWED, "").split(",")
    if not named_here and not _was_named_before(name):
        raise ConfigError(
            f"{name} is code that a run folder names, and is not run unasked; if you know what it is: "
            f"{ALLOWED}={module} plait …"
        )


def _remember(name: str) -> None:
    """Note that the user named this code, and the file of its module; nothing is noted where that fails."""
    file = _file_of(name)
    if file is None:
        return
    records = _records()
    if file not in records.get(name, []):
        with contextlib.suppress(OSError, OutputError):
            _record_file().parent.mkdir(parents=True, exist_ok=True)
            records[name] = [*records.get(name, []), file]
            write_whole(_record_file(), json.dumps(records, indent=1).encode())


def _was_named_before(name: str) -> bool:
    """Return whether the user has named this code before and its module is still the same file."""
    file = _file_of(name)
    return file is not None and file in _records().get(name, [])


def _record_file() -> Path:
    return cache_folder() / "named-code.json"


def _records() -> dict[str, list[str]]:
    try:
        records = json.loads(plain_bytes(_record_file(), _MOST_READ))
        return {str(name): [str(file) for file in files] for name, files in records.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _file_of(name: str) -> str | None:
    """Return the file of the code's top-level module without importing it; None if it has none."""
    _add_working_directory()
    try:
        spec = importlib.util.find_spec(name.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return None
    return (
        None
        if spec is None or not spec.has_location or spec.origin is None
        else os.path.realpath(spec.origin)
    )


def _add_working_directory() -> None:
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that no file here replaces an installed module


def import_module(module: str, what: str) -> Any:
    """Import a module, from the working directory too; errors name `what` needs it."""
    _add_working_directory()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name != module and not module.startswith(f"{error.name}."):
            raise MissingExtraError(f"{what}: {module} needs {error.name}, which is not installed") from error
        raise ConfigError(
            f"{what}: there is no module {module!r} here; expected PACKAGE.MODULE:NAME"
        ) from error
    except Exception as error:
        raise ConfigError(f"{what}: {module} cannot be imported: {type(error).__name__}: {error}") from error
