"""Models and tasks of a user's own, named `module:name` in a description, with a digest of their source."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from plait.errors import ConfigError, check_choice
from plait.lab.own_code import by_name
from plait.lab.tasks import Task
from plait.lab.training.identity import described_code
from plait.models import Recurrent

__all__ = ["FactoryModel", "parse_own_task"]

_SOURCE = ("sources", "unidentified")  # in a description, the keys that identify code
# Arguments of a factory that are not options of the model: the task and the machine determine them.
_LEFT_OUT = ("input_size", "batch_first", "device", "dtype", "backend")


@dataclass(frozen=True)
class FactoryModel:
    """A model that a function or class of the user's builds: its name, its options and its source.

    The factory takes `input_size` first and its options as keywords, and returns a `plait.Recurrent` or a
    `torch.nn.RNN`, `LSTM` or `GRU`. Two models whose code differs have different descriptions.

    >>> FactoryModel.parse({"name": "torch.nn:LSTM", "hidden_size": 8}).build(3)
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: torch.nn:LSTM is code that a run folder names, and is not run unasked; ...
    """

    name: str
    options: Mapping[str, Any]
    source: Mapping[str, Any]

    @staticmethod
    def parse(values: Mapping[str, Any]) -> FactoryModel:
        """Import the factory, validate the options and fill in their defaults, without building the model."""
        name = values["name"]
        factory = _factory(name)
        parameters = _parameters(factory)
        explicit = {key: value for key, value in values.items() if key not in ("name", *_SOURCE)}
        _check_plain(name, explicit)
        if not _takes_any(factory):
            for option in explicit:
                check_choice(option, parameters, f"option of {name}")
        missing = [p.name for p in parameters.values() if p.default is p.empty and p.name not in explicit]
        if missing:
            raise ConfigError(f"{', '.join(missing)}: {name} needs a value for it, and has no default")
        defaults = {p.name: p.default for p in parameters.values() if _is_plain(p.default)}
        return FactoryModel(name, {**defaults, **explicit}, _source(name, factory, values))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.options, **self.source}

    def build(self, input_size: int, backend: str = "auto") -> Any:
        """Build the model, with weights drawn from torch's global generator."""
        factory = _factory(self.name)
        options = dict(self.options)
        if "backend" in inspect.signature(factory).parameters:
            options["backend"] = backend
        elif backend != "auto":
            raise ConfigError(f"backend: expected auto, got {backend!r}; {self.name} takes no backend")
        model = factory(input_size, **options)
        if not isinstance(model, Recurrent | nn.RNNBase):
            raise ConfigError(
                f"{self.name}: expected a function that returns a plait.Recurrent or a torch.nn.RNN, LSTM or "
                f"GRU, got {type(model).__name__}"
            )
        if model.input_size != input_size:
            raise ConfigError(
                f"{self.name}: expected a model of input_size {input_size}, got {model.input_size}"
            )
        return model


def option_names(name: str) -> tuple[str, ...]:
    """Return the names of the options of a factory."""
    return tuple(_parameters(_factory(name)))


def parse_own_task(values: Mapping[str, Any]) -> tuple[Task, dict[str, Any]]:
    """Build a task of the user's own; return it with its name and source, as a description has them."""
    name = values["name"]
    kind = by_name(name, "task")
    if not (isinstance(kind, type) and issubclass(kind, Task) and dataclasses.is_dataclass(kind)):
        raise ConfigError(f"{name}: expected a frozen dataclass on plait.lab.tasks.Task, got {kind!r:.80}")
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError(f"{name}: expected a class attribute `name`, got none")
    fields = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("hidden")]
    explicit = {k: v for k, v in values.items() if k not in ("name", *_SOURCE) and v is not None}
    _check_plain(name, explicit)
    for option in explicit:
        check_choice(option, fields, f"option of {name}")
    try:
        task = kind(**explicit)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error
    return task, {"name": name, **_source(name, kind, values)}


def _factory(name: str) -> Callable[..., Any]:
    factory = by_name(name, "model")
    if not callable(factory):
        raise ConfigError(f"{name}: expected a function that returns a model, got {type(factory).__name__}")
    first = next(iter(inspect.signature(factory).parameters.values()), None)
    if first is None or first.kind is first.KEYWORD_ONLY:
        raise ConfigError(f"{name}: expected a function whose first argument is input_size, got one without")
    return factory  # type: ignore[no-any-return]


def _parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that are options of the model, by name."""
    _, *rest = inspect.signature(factory).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: p for p in rest if p.kind not in variable and p.name not in _LEFT_OUT}


def _takes_any(factory: Callable[..., Any]) -> bool:
    """Return whether a factory takes keywords that its signature does not name."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())


def _source(name: str, thing: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of code; raise if a description records another one."""
    source = described_code(thing)
    before, now = values.get("sources", source.get("sources", {})), source.get("sources", {})
    if before != now and "unidentified" not in source:
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        raise ConfigError(
            f"{name}: its source is not that of this run: {', '.join(changed)} changed; restore it, or train "
            "the changed code as a run of its own"
        )
    return source


def _is_plain(value: Any) -> bool:
    """Return whether a value survives a round trip through JSON; False for a parameter without a default."""
    try:
        return value is not inspect.Parameter.empty and bool(
            json.loads(json.dumps(value, allow_nan=False)) == value
        )
    except (TypeError, ValueError):
        return False


def _check_plain(name: str, options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if option in _LEFT_OUT:
            raise ConfigError(f"{option}: no option of {name}; the task or the machine decides it")
        if not _is_plain(list(value) if isinstance(value, tuple) else value):
            raise ConfigError(f"{option}: expected plain data for {name}, got {value!r:.80}")
