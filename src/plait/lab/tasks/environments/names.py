"""Names of environments: an id of gymnasium's registry, or a function of a module, as `package:name`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

from plait.errors import UnknownNameError, require
from plait.lab.own_code import by_name, check_trusted, import_module, is_passed

__all__ = ["env_constructor", "env_id"]

# Prefixes of ids, and the package that registers them when it is imported.
_REGISTERS = {"popgym-": "popgym", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}


def env_id(name: str) -> str:
    """Return the full id of an environment: `CartPole` is `CartPole-v1`; refuse an unregistered one."""
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        check_trusted(name)
        if is_passed(name) or rest not in _registered(gymnasium, module):
            by_name(name, "environment")
        return name
    for prefix, package in _REGISTERS.items():
        if name.startswith(prefix):
            require(package, "rl")
    if name in gymnasium.registry:
        return name
    versioned = re.compile(re.escape(name) + r"-v\d+")
    versions: list[str] = [other for other in gymnasium.registry if versioned.fullmatch(other)]
    if versions:
        return max(versions, key=lambda other: int(other.rpartition("-v")[2]))
    raise UnknownNameError(_unknown(name, list(gymnasium.registry)))


def env_constructor(name: str, time_limit: int | None = None, **options: Any) -> Callable[[], Any]:
    """Return a function that makes one environment of this name.

    Args:
        time_limit: steps after which an episode is truncated, instead of the environment's own limit.
        options: options of gymnasium's `make`, such as `render_mode`.
    """
    gymnasium = require("gymnasium", "rl")
    module, colon, rest = name.rpartition(":")
    if colon:
        check_trusted(name)
    if colon and (is_passed(name) or rest not in _registered(gymnasium, module)):
        function = by_name(name, "environment")
        if time_limit is None:
            return lambda: function(**options)
        return lambda: gymnasium.wrappers.TimeLimit(function(**options), time_limit)
    if time_limit is not None:
        options["max_episode_steps"] = time_limit
    # Without gymnasium's checker, which costs more than a step of most environments.
    return lambda: gymnasium.make(name, disable_env_checker=True, **options)


def _registered(gymnasium: Any, module: str) -> Any:
    """Return gymnasium's registry after importing a module."""
    if module != "__main__":
        import_module(module, "environment")
    return gymnasium.registry


def _unknown(name: str, registered: list[str]) -> str:
    """Return the error text of an unknown name, with similar names."""
    from plait.lab.tasks.environments.popgym import ENVIRONMENTS as POPGYM
    from plait.lab.tasks.minigrid.names import ENVIRONMENTS as MINIGRID

    for command, names in (("minigrid", MINIGRID), ("popgym", POPGYM)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.9)
        if near:
            return f"unknown environment {name!r}: did you mean plait train {command} --env {near[0]}?"
    folded = {registered_name.lower(): registered_name for registered_name in registered}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return (
        f"unknown environment {name!r}: {hint}({len(registered)} are registered here; for one of your own "
        "package: --env PACKAGE:ID)"
    )
