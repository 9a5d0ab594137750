"""A user's own code, named `module:name` on the command line, in a description or from Python.

Such a name is code that is imported and called. One from the command line or from Python is trusted; a run
folder may come from a stranger, and the code it names is not run unless the user named it too.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from plait.errors import ConfigError, MissingExtraError

__all__ = ["by_name", "check_trusted", "import_module", "is_own_name", "is_passed", "name_of"]

ALLOWED = "PLAIT_ALLOW"  # modules whose code run folders may name, separated by commas
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
    for part in path.split("."):
        if not hasattr(value, part):
            here = " (it was made in Python: pass it again there)" if "<" in path else ""
            raise ConfigError(f"{what}: {module} has no {path!r}{here}; expected PACKAGE.MODULE:NAME")
        value = getattr(value, part)
    return value


def check_trusted(name: str) -> None:
    """Refuse code that only a run folder has named."""
    module = name.partition(":")[0]
    if name not in _TRUSTED and name not in _PASSED and module not in os.environ.get(ALLOWED, "").split(","):
        raise ConfigError(
            f"{name} is code that a run folder names, and is not run unasked; if you know what it is: "
            f"{ALLOWED}={module} plait …"
        )


def import_module(module: str, what: str) -> Any:
    """Import a module, from the working directory too; errors name `what` needs it."""
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that no file here replaces an installed module
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
