"""Names of environments: an id of gymnasium's registry, or a function of a module, as `package:name`.

A name with a colon is code that is imported and called. A name from the command line or from Python is
trusted; a run folder may come from a stranger, and the code it names is not run unless the user named it too.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable
from typing import Any

from plait.errors import ConfigError, MissingExtraError, UnknownNameError, require

__all__ = ["by_name", "maker_of", "name_of", "world_id"]

# Prefixes of ids, and the package that registers them when it is imported.
_REGISTERS = {"popgym-": "popgym", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
_PASSED: dict[str, Any] = {}  # objects passed in Python, by their name in a description
_TRUSTED: set[str] = set()  # names of code from the command line or from Python
ALLOWED = "PLAIT_ALLOW"  # modules whose code run folders may name, separated by commas


def name_of(thing: Any) -> str:
    """Return the name by which `by_name` resolves a function or class, wherever it can be imported.

    A string is returned unchanged; its code is trusted from then on, since the caller named it.

    >>> name_of(name_of)
    'plait.lab.tasks.worlds.names:name_of'
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
    _check_trusted(name)
    value = _imported(module, what)
    for part in path.split("."):
        if not hasattr(value, part):
            here = " (it was made in Python: pass it again there)" if "<" in path else ""
            raise ConfigError(f"{what}: {module} has no {path!r}{here}; expected PACKAGE.MODULE:NAME")
        value = getattr(value, part)
    return value


def world_id(name: str) -> str:
    """Return the full id of an environment: `CartPole` is `CartPole-v1`; refuse an unregistered one."""
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        _check_trusted(name)
        if name in _PASSED or rest not in _registered(gymnasium, module):
            by_name(name, "world")
        return name
    for prefix, package in _REGISTERS.items():
        if name.startswith(prefix):
            require(package, "rl")
    if name in gymnasium.registry:
        return name
    versions: list[str] = [
        known for known in gymnasium.registry if re.fullmatch(re.escape(name) + r"-v\d+", known)
    ]
    if versions:
        return max(versions, key=lambda known: int(known.rpartition("-v")[2]))
    raise UnknownNameError(_unknown(name, list(gymnasium.registry)))


def maker_of(name: str, time_limit: int | None = None, **options: Any) -> Callable[[], Any]:
    """Return a function that makes an environment of this name.

    Args:
        time_limit: steps after which an episode is truncated, instead of the environment's own limit.
        options: options of gymnasium's `make`, such as `render_mode`.
    """
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        _check_trusted(name)
    if colon and (name in _PASSED or rest not in _registered(gymnasium, module)):
        function = by_name(name, "world")
        if time_limit is None:
            return lambda: function(**options)
        return lambda: gymnasium.wrappers.TimeLimit(function(**options), time_limit)
    if time_limit is not None:
        options["max_episode_steps"] = time_limit
    # Without gymnasium's checker, which costs more than a step of most environments.
    return lambda: gymnasium.make(name, disable_env_checker=True, **options)


def _check_trusted(name: str) -> None:
    module = name.partition(":")[0]
    if name not in _TRUSTED and name not in _PASSED and module not in os.environ.get(ALLOWED, "").split(","):
        raise ConfigError(
            f"{name} is code that a run folder names, and is not run unasked; if you know what it is: "
            f"{ALLOWED}={module} plait …"
        )


def _registered(gymnasium: Any, module: str) -> Any:
    """Return gymnasium's registry after importing a module."""
    if module != "__main__":
        _imported(module, "world")
    return gymnasium.registry


def _imported(module: str, what: str) -> Any:
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


def _unknown(name: str, known: list[str]) -> str:
    """Return the error text of an unknown name, with similar names."""
    from plait.lab.tasks.minigrid.names import WORLDS
    from plait.lab.tasks.worlds.popgym import WORLDS as POPGYM

    for command, names in (("minigrid", WORLDS), ("popgym", POPGYM)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.9)
        if near:
            return f"unknown world {name!r}: did you mean plait train {command} --env {near[0]}?"
    folded = {known_name.lower(): known_name for known_name in known}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return (
        f"unknown world {name!r}: {hint}({len(known)} are registered here; one of a package of yours: "
        "--env PACKAGE:ID)"
    )
