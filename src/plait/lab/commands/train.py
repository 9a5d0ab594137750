"""The command `plait train`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import ConfigError
from plait.lab.annotations import arguments_of, defaults_from, explicit_options, option, repeated
from plait.lab.own_code import name_of
from plait.lab.result import CommandResult
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import (
    SMALL_TEXT,
    ModelOptions,
    RecipeOptions,
    RuntimeOptions,
    TaskOptions,
    published_for,
    recommended,
)
from plait.table import Table, percent, scored

if TYPE_CHECKING:
    from plait.lab.runs.kinds import Kind
    from plait.lab.tasks import Task
    from plait.lab.training.run_spec import RunSpec
    from plait.lab.training.session import Fitted
    from plait.lab.training.spec import SupervisedSpec

__all__ = ["configured", "resumed", "to_spec", "train", "trained"]

# Tasks that cannot be described by this command's options.
_FROM_ELSEWHERE = {"data": "these are passed in Python: plait.fit(model, (X, y), held_out=0.2)"}


@defaults_from(defaults_for)
def train(
    task: Annotated[str | None, option(metavar="TASK")] = None,
    /,
    *,
    of_task: TaskOptions = TaskOptions(),  # noqa: B008
    of_model: ModelOptions = ModelOptions(),  # noqa: B008
    of_recipe: RecipeOptions = RecipeOptions(),  # noqa: B008
    task_option: Annotated[tuple[str, ...], repeated, option(metavar="NAME=VALUE")] = (),
    model_option: Annotated[tuple[str, ...], repeated, option(metavar="NAME=VALUE")] = (),
    epochs: int | None = None,
    data: Path | None = None,
    backend: str = "auto",
    config: Annotated[str | None, option(metavar="RUN|FILE")] = None,
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    runtime: RuntimeOptions = RuntimeOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a model on a task, repeat a run, or continue one: plait train copy, plait train --config RUN.

    Ctrl-C and SIGTERM save and stop; --resume continues a run that was stopped or killed, and it ends with
    the same weights as an uninterrupted one. Under torchrun the batch is divided among the processes.

    For the options of a task and a model, with their defaults: plait train copy --model rellstm --help.

    Args:
        task: copy, transfer, denoise, recall, mqar, smnist, pmnist, ptb, text; `plait tasks` lists them.
            Or a task of your own, MODULE:NAME, a dataclass on plait.lab.tasks.Task. Other commands: plait
            train csv --help (your own table); plait train minigrid, gym or popgym --help (reinforcement
            learning).
        task_option: any other option of the task; repeat it for more.
        model_option: any other option of the model; repeat it for more.
        epochs: passes over the training data, instead of --updates.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then a download.
        backend: backend of the model's scan; auto chooses.
        config: train the run that this file describes, or repeat this run: a config.json, a run's folder or
            id. Task and model are those of the description; --seed and the other hyperparameters replace its
            own.
        resume: resume this run, bit-exactly, with the options it was started with; only --updates may grow.
    """
    if [task, config, resume].count(None) != 2:
        raise ConfigError(
            "expected one of: a task (plait train copy), a run to repeat (plait train --config RUN), a run "
            "to continue (plait train --resume RUN)"
        )
    from plait.lab.tasks.sources import data_in

    with data_in(data) if data else contextlib.nullcontext():
        if task is not None:
            if task in _FROM_ELSEWHERE:
                raise ConfigError(f"{task}: {_FROM_ELSEWHERE[task]}")
            values = {"name": name_of(task), **explicit_options(of_task), **_named_values(task_option)}
            of_network = {**explicit_options(of_model), **_named_values(model_option)}
            return trained(to_spec(values, of_network, of_recipe, epochs, runtime), runtime, backend)
        model = {k: v for k, v in explicit_options(of_model).items() if v != getattr(ModelOptions, k)}
        others = {"task_option": task_option, "model_option": model_option, "epochs": epochs}
        fixed = {**explicit_options(of_task), **model, **{k: v for k, v in others.items() if v}}
        recipe = explicit_options(of_recipe)
        if config is not None:
            return trained(configured(config, fixed, recipe, runtime.out), runtime, backend)
        return resumed(str(resume), {**fixed, **recipe}, runtime, backend)


def _named_values(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse options typed as NAME=VALUE; a value that is not valid JSON is taken as text.

    >>> _named_values(["size=8", "kind=best", "sizes=[1, 2]"])
    {'size': 8, 'kind': 'best', 'sizes': [1, 2]}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (equals and name.isidentifier()):
            raise ConfigError(f"expected an option as NAME=VALUE, got {pair!r:.80}")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def to_spec(
    task: Task | dict[str, Any],
    model: dict[str, Any],
    of_recipe: RecipeOptions,
    epochs: int | None,
    runtime: RuntimeOptions,
) -> SupervisedSpec:
    """Return the description of a run from explicit options, the task's settings and the defaults."""
    from plait.lab.training.process import device_named
    from plait.lab.training.spec import parse_supervised

    recipe = explicit_options(of_recipe)
    on_cpu = device_named(runtime.device or "auto").type == "cpu"
    if "name" in model:
        name_of(model["name"])  # trusted, because the user typed it
    spec = parse_supervised(
        {"task": task, "model": model, "recipe": recipe},
        lambda built, model, recipe: recommended(built, model, recipe, epochs, on_cpu),
    )
    explicit = {*model, *recipe, *(["epochs"] if epochs else [])}
    if (
        spec.task.name == "text"
        and on_cpu
        and not explicit & {"hidden_size", "batch_size", "epochs", "updates"}
    ):
        _announce_sizes(model["name"], runtime.quiet)  # only once the description is known to be valid
    return spec


def _announce_sizes(model: str, quiet: bool) -> None:
    """Announce that the sizes are smaller than the published ones, with the options for those."""
    from plait.lab.training.callbacks import announce

    row, paper = SMALL_TEXT, published_for("text", model)
    assert paper is not None
    announce(
        f"on a CPU, so hidden {row.hidden_size}, batches of {row.batch_size}, {row.epochs} epochs; published "
        f"sizes, for a GPU: --hidden {paper.hidden_size} --batch-size {paper.batch_size} "
        f"--epochs {paper.epochs} --lr {paper.lr}",
        quiet,
    )


def configured(config: str, fixed: dict[str, Any], recipe: dict[str, Any], out: Path) -> RunSpec:
    """Return the description in a file or in a run's folder.

    Args:
        config: a file, a run's folder or id, or ARCHIVE/ID for a run in ARCHIVE.tar.gz.
        fixed: explicit options of task and model, which cannot replace those of the description.
        recipe: explicit hyperparameters, which replace those of the description.
        out: the folder of runs in which an id is searched.
    """
    from plait.lab.runs.archive import SUFFIX, opened
    from plait.lab.runs.folder import read_json
    from plait.lab.runs.reading import find_run
    from plait.lab.training.registry import parse_spec

    if fixed:
        raise ConfigError(
            f"{_flags(fixed)} cannot be given with --config: task and model are those of the description; "
            "edit a copy of it"
        )
    path = Path(config)
    archive = Path(f"{path.parent}{SUFFIX}")
    if archive.is_file() and not path.exists():  # as a report names the runs of an archive
        with opened(archive) as folder:
            description = read_json(find_run(path.name, folder) / "config.json")
    else:
        path = path if path.is_file() else find_run(config, out) / "config.json"
        description = read_json(path)
    if not isinstance(description, dict):
        raise ConfigError(f"{path}: expected the description of a run, an object, got {description!r:.80}")
    task = description.get("task")
    if isinstance(task, dict) and (name := task.get("name")) in _FROM_ELSEWHERE:
        raise ConfigError(f"{path}: its task is {name}: {_FROM_ELSEWHERE[name]}")
    if recipe:  # another run, which has not been extended
        description = {key: value for key, value in description.items() if key != "extended"}
        before = description.get("recipe") or {}
        description["recipe"] = {**before, **recipe} if isinstance(before, dict) else before
    return parse_spec(description)


def resumed(
    run: str, explicit: dict[str, Any], runtime: RuntimeOptions, backend: str = "auto"
) -> CommandResult | None:
    """Resume a run, extended if `explicit` has updates or total_timesteps; other options are the run's."""
    from plait.lab.runs.kinds import kind_of
    from plait.lab.runs.reading import find_run, read_run
    from plait.lab.training.registry import parse_spec

    fixed = [name for name in explicit if name not in ("updates", "total_timesteps")]
    if fixed:
        raise ConfigError(f"{_flags(fixed)} cannot be given with --resume: the run keeps what it began with")
    record = read_run(find_run(run, runtime.out))
    kind, description = kind_of(record.description), record.description
    if explicit:
        per_update = kind.per_update(description["recipe"]) if "updates" in explicit else 1
        length = int(explicit.get("total_timesteps", explicit.get("updates", 0)))
        description = kind.longer(description, length * per_update)
    if runtime.threads is None and record.sessions:
        runtime = dataclasses.replace(runtime, threads=record.sessions[0]["threads"])
    return trained(parse_spec(description), runtime, backend, record.folder)


def _flags(options: Iterable[str]) -> str:
    """Return options as typed on the command line, from their names in Python."""
    flags = {argument.name: argument.label for argument in arguments_of(train)}
    return ", ".join(flags.get(name, f"--{name.replace('_', '-')}") for name in options)


def trained(
    spec: RunSpec, runtime: RuntimeOptions, backend: str = "auto", resumed: Path | None = None
) -> CommandResult | None:
    """Train or resume a run and return its result, with a note on options that had no effect.

    Runtime options such as the device have no effect on a run that is complete already.
    """
    folder, kind = resumed or runtime.out / spec.id, spec.kind
    if runtime.threads is not None:
        import torch

        from plait.lab.training.process import check_threads

        check_threads(runtime.threads)
        torch.set_num_threads(runtime.threads)
    callbacks = []
    if runtime.tensorboard:
        from plait.lab.training.callbacks import TensorBoard

        recipe = spec.parts()["recipe"]
        every = recipe.get("record_every", 1) * kind.per_update(recipe)
        callbacks.append(TensorBoard(folder / "tensorboard", every))

    from plait.lab.training.session import train_run

    passed: dict[str, Any] = {
        "device": runtime.device,
        "checkpoint_every": runtime.checkpoint_every,
        "max_minutes": runtime.max_minutes,
        **({} if backend == "auto" else {"backend": backend}),
    }
    fitted = train_run(
        spec,
        folder=folder,
        resume=resumed is not None,
        progress=not runtime.quiet,
        callbacks=callbacks,
        **passed,
    )
    if not fitted.first:
        return None
    options = [name for name, value in {**passed, "tensorboard": runtime.tensorboard}.items() if value]
    return _result(fitted, kind, options if fitted.already else [], anew=resumed is None)


def _result(fitted: Fitted, kind: Kind, ignored: list[str], anew: bool) -> CommandResult:
    """Return the result of training; `anew` marks a run that was trained from the beginning."""
    summary = fitted.summary
    parts: list[str | Table] = []
    results = summary["held_out"]
    names = list(dict.fromkeys(name for result in results.values() for name in result if name != "score"))
    if results:
        rows = [
            [
                held_out,
                scored(result["score"], kind.score),
                *(_metric(name, result.get(name)) for name in names),
            ]
            for held_out, result in results.items()
        ]
        headings = [kind.shown.get(name, name).replace("_", " ") for name in ("score", *names)]
        parts.append(Table(["held out", *headings], rows))
    if summary["status"] == "stopped":
        parts.append(f"continue: plait train --resume {fitted.folder}")
    if ignored:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
        parts.append(f"the run was complete already: {options} had no effect")
    elif fitted.already and anew:
        parts.append("the run was complete already; --out FOLDER trains it once more, in another folder")
    count, seconds = summary[f"{kind.unit}s"], summary["seconds"]
    speed = (
        f" ({count / max(seconds, 1e-9):,.0f} steps/s, evaluation included)" if kind.unit == "step" else ""
    )
    line = f"{summary['status']}: {count:,} {kind.unit}s, {seconds:.1f} s{speed}, {fitted.folder}"
    data = {name: value for name, value in summary.items() if name != "sample"}
    return CommandResult({**data, "folder": str(fitted.folder)}, (*parts, line))


def _metric(name: str, value: float | None) -> float | str | None:
    """Return a secondary metric for display; a policy's share of solved episodes is shown in percent."""
    return percent(value) if name == "success" else value
