"""The description of a supervised run as a value: task, model and recipe, complete with their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from plait.errors import ConfigError, PlaitError
from plait.lab.own_code import is_own_name
from plait.lab.runs.difference import nameless
from plait.lab.runs.kinds import kind_of
from plait.lab.strict import parse
from plait.lab.tasks import Task, task_named
from plait.lab.training.factories import FactoryModel, parse_own_task
from plait.lab.training.recipe import Recipe
from plait.lab.training.run_spec import RunSpec, blame_description
from plait.models import MODELS
from plait.models.named import NamedModel
from plait.models.options import complete_model
from plait.models.transformer import Transformer

__all__ = [
    "FORMAT",
    "ModelSpec",
    "PythonModel",
    "SupervisedSpec",
    "parse_model",
    "parse_supervised",
    "task_of",
]

T = TypeVar("T")
FORMAT = "plait run 1"
_PARTS = ("format", "task", "model", "recipe")
# Function of the task and of the explicit options of model and recipe that adds the task's own defaults.
Recommend = Callable[[Task, dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class ModelSpec:
    """A model that a description can build: its name and all its options.

    >>> ModelSpec.parse({"name": "lstm", "hidden_size": 8}).build(3).hidden_size
    8
    """

    name: str
    options: Mapping[str, Any]

    @staticmethod
    def parse(values: dict[str, Any]) -> ModelSpec:
        """Validate a model as plain data and fill in its defaults, without building it."""
        options = complete_model(values)
        return ModelSpec(options.pop("name"), options)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def build(self, input_size: int, backend: str = "auto") -> NamedModel | Transformer:
        """Build the model, with weights drawn from torch's global generator."""
        return MODELS[self.name](input_size, backend=backend, **self.options)


@dataclass(frozen=True)
class PythonModel:
    """A network made in Python, described by its class, its parts and its source: it can only be compared."""

    description: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.description)

    def build(self, input_size: int, backend: str = "auto") -> NamedModel | Transformer:
        """Raise an error that says how to resume such a run."""
        raise ConfigError(nameless("model", dict(self.description)))


@dataclass(frozen=True)
class SupervisedSpec(RunSpec):
    """The description of a supervised run.

    Args:
        task: the task, built once and used by everything that needs it.
        model: the model and its options.
        recipe: the hyperparameters, the seed among them.
        task_source: name or class, and source, of a task that is not in plait's registry.

    >>> spec = parse_supervised({"task": {"name": "copy"}, "model": {"name": "rnn", "hidden_size": 4}})
    >>> spec.task.delay, spec.model.options["initialiser"], spec.recipe.seed, spec.id
    (100, 'henaff', 0, 'copy-rnn-f489da3116')
    """

    task: Task
    model: ModelSpec | FactoryModel | PythonModel
    recipe: Recipe
    task_source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def format(self) -> str:
        return FORMAT

    def parts(self) -> dict[str, dict[str, Any]]:
        identity = self.task_source or {"name": self.task.name}
        return {
            "task": {**identity, **self.task.options()},
            "model": self.model.to_json(),
            "recipe": self.recipe.values(),
        }

    def with_seed(self, seed: int) -> SupervisedSpec:
        return replace(self, recipe=self.recipe.changed(seed=seed))


def parse_supervised(values: object, recommend: Recommend | None = None) -> SupervisedSpec:
    """Validate a description as plain data and fill in its defaults; one error lists all that is wrong.

    Args:
        values: the description; one that was parsed before is returned unchanged, and a task may be built.
        recommend: adds a task's recommended settings to the options of model and recipe, which come first.

    >>> parse_supervised(
    ...     {"task": {"name": "cpy"}, "model": {"name": "lstm", "hidden_size": 0}, "recipe": {"lr": -1}}
    ... )
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: unknown task 'cpy': did you mean 'copy'? (one of: copy, csv, data, denoise, mqar, pmnist, ptb, recall, smnist, text, transfer); hidden_size: expected at least 1, got 0; lr: expected at least 0, got -1.0
    """  # noqa: E501  (the message is one line)
    if isinstance(values, SupervisedSpec):
        return values
    if not isinstance(values, dict) or values.get("format", FORMAT) != FORMAT:
        name = values.get("format") if isinstance(values, dict) else None
        raise ConfigError(f"format: expected {FORMAT!r}, got {name!r}; it was not written by this version")
    problems: list[PlaitError] = [
        ConfigError(f"{name}: is not known here") for name in values if name not in _PARTS
    ]
    task, source = _collect(problems, lambda: _task(values.get("task"))) or (None, {})
    model: Any = values.get("model")
    recipe: Any = {} if values.get("recipe") is None else values["recipe"]
    late: list[PlaitError] = []  # a wrong option would be listed twice
    if recommend is not None:
        recommended = None if task is None else _collect(late, lambda: recommend(task, model, recipe))
        model, recipe = recommended or (_with_size(model), recipe)
    spec = _collect(problems, lambda: parse_model(model))
    hyperparams = _collect(problems, lambda: parse(Recipe, recipe, "recipe").check())
    if task is None or spec is None or hyperparams is None or problems or late:
        raise _joined(problems or late)
    return SupervisedSpec(task, spec, hyperparams, source)


def parse_model(value: object) -> ModelSpec | FactoryModel:
    """Return a model from plain data: one of plait's by its name, or a user's own as `module:factory`."""
    values = _named("model", value)
    return FactoryModel.parse(values) if is_own_name(values["name"]) else ModelSpec.parse(values)


def _with_size(model: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a model, which may rely on a size that a task recommends."""
    return model if is_own_name(model.get("name")) else {"hidden_size": 1, **model}


def _task(value: object) -> tuple[Task, Mapping[str, Any]]:
    """Return a task, with its name and source if it is not in plait's registry."""
    if isinstance(value, Task):
        return value, {}
    values = _named("task", value)
    return parse_own_task(values) if is_own_name(values["name"]) else (task_named(**values), {})


def supervised(description: RunSpec | dict[str, Any]) -> SupervisedSpec:
    """Return the description of a supervised run, parsed; raise for one of another kind."""
    if isinstance(description, SupervisedSpec):
        return description
    kind = description.kind if isinstance(description, RunSpec) else kind_of(description)
    if isinstance(description, RunSpec) or kind.format != FORMAT:
        raise ConfigError(f"expected a supervised run on a task, got one of the kind {kind.format!r}")
    plain = {key: value for key, value in description.items() if key != "extended"}
    return blame_description(kind, lambda: parse_supervised(plain))


def task_of(description: RunSpec | dict[str, Any]) -> Task:
    """Return the task of a description, without the network."""
    return supervised(description).task


def _named(part: str, value: object) -> dict[str, Any]:
    """Return a part that consists of a name and options; raise for anything else."""
    if isinstance(value, dict) and "class" in value:
        raise ConfigError(nameless(part, value))
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ConfigError(f"{part}: expected a name and options, got {value!r:.80}")
    return value


def _collect(problems: list[PlaitError], parse: Callable[[], T]) -> T | None:
    """Return the result of parsing a part; append its error to the problems instead of raising it."""
    try:
        return parse()
    except PlaitError as error:
        problems.append(error)
    return None


def _joined(problems: list[PlaitError]) -> PlaitError:
    return problems[0] if len(problems) == 1 else ConfigError("; ".join(map(str, problems)))
