"""Which world a name means: an id of gymnasium's registry, or a function of a module, as `package:name`.

A name with a colon is code that is imported and called. Who says it, on the command line or in Python, means
it; a run folder may come from a stranger, and what it names is not run before it was said.
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

# Ids that a package of ours registers when it is imported.
_REGISTERS = {"popgym-": "popgym", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
_GIVEN: dict[str, Any] = {}  # what was passed in Python, by the name it has in a description
_SAID: set[str] = set()  # names of code that who uses this process said
ALLOWED = "PLAIT_ALLOW"  # modules whose code run folders may name, with commas


def name_of(thing: Any) -> str:
    """What was made in Python under the name it can be found by, here or by who imports its module; a name
    that is given is said by who calls, and may be run.

    >>> name_of(name_of)
    'plait.tasks.worlds.names:name_of'
    """
    if isinstance(thing, str):
        _SAID.add(thing)
        return thing
    own = getattr(thing, "__qualname__", None)
    if own is None or "<lambda>" in own:
        raise ConfigError(
            f"expected a function or class with a name (def …) for a run's description, got {thing!r}"
        )
    name = f"{thing.__module__}:{own}"
    _GIVEN[name] = thing
    return name


def by_name(name: str, what: str) -> Any:
    """What `name_of` named: what was passed to it in this process, or what its module has under that name.

    >>> by_name(name_of("math:sqrt"), "function")(4.0)
    2.0
    >>> by_name(name_of("math:sqroot"), "function")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: function: math has no 'sqroot'; expected PACKAGE.MODULE:NAME
    """
    if name in _GIVEN:
        return _GIVEN[name]
    module, _, path = name.partition(":")
    _check_said(name)
    found = _imported(module, what)
    for part in path.split("."):
        if not hasattr(found, part):
            here = " (it was made in Python: pass it again there)" if "<" in path else ""
            raise ConfigError(f"{what}: {module} has no {path!r}{here}; expected PACKAGE.MODULE:NAME")
        found = getattr(found, part)
    return found


def world_id(name: str) -> str:
    """The full id of a world: `CartPole` is `CartPole-v1`. One that nobody registered is an error."""
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        _check_said(name)
        if name in _GIVEN or rest not in _registered(gymnasium, module):
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
    """What makes a world of this name.

    Args:
        time_limit: steps after which an episode is cut off, instead of the world's own limit.
        options: of gymnasium's `make`, such as `render_mode`.
    """
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        _check_said(name)
    if colon and (name in _GIVEN or rest not in _registered(gymnasium, module)):
        function = by_name(name, "world")
        if time_limit is None:
            return lambda: function(**options)
        return lambda: gymnasium.wrappers.TimeLimit(function(**options), time_limit)
    if time_limit is not None:
        options["max_episode_steps"] = time_limit
    # Without gymnasium's checker, which costs more than most worlds do.
    return lambda: gymnasium.make(name, disable_env_checker=True, **options)


def _check_said(name: str) -> None:
    module = name.partition(":")[0]
    if name not in _SAID and name not in _GIVEN and module not in os.environ.get(ALLOWED, "").split(","):
        raise ConfigError(
            f"{name} is code that a run folder names, and is not run unasked; if you know what it is: "
            f"{ALLOWED}={module} plait …"
        )


def _registered(gymnasium: Any, module: str) -> Any:
    """What gymnasium knows once a module is imported."""
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
    """Near names, and where a world of that name would be."""
    from plait.tasks.minigrid.names import WORLDS
    from plait.tasks.worlds.popgym import WORLDS as POPGYM

    for command, names in (("minigrid", WORLDS), ("popgym", POPGYM)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.9)
        if near:
            return f"unknown world {name!r}: did you mean plait train {command} --env {near[0]}?"
    folded = {one.lower(): one for one in known}
    close = [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return (
        f"unknown world {name!r}: {hint}({len(known)} are registered here; one of a package of yours: "
        "--env PACKAGE:ID)"
    )
