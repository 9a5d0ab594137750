"""The command `plait train`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import ConfigError
from plait.lab.annotations import defaults_from, explicit_options, option
from plait.lab.result import CommandResult
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import (
    SMALL_TEXT,
    MeansOptions,
    ModelOptions,
    RecipeOptions,
    TaskOptions,
    described,
    published_for,
)  # fmt: skip
from plait.table import Table, percent, scored

if TYPE_CHECKING:
    from plait.lab.training.session import Fitted

__all__ = ["described_run", "resumed", "train", "trained"]

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
    epochs: int | None = None,
    data: Path | None = None,
    plain: bool = False,
    backend: str = "auto",
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    means: MeansOptions = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a model on a task, or continue a run: plait train copy --delay 100, plait train --resume RUN.

    Ctrl-C and SIGTERM save and stop; --resume continues a run that was stopped or killed, and it ends with
    the same weights as an uninterrupted one. Under torchrun the batch is divided among the processes.

    For the options of a task and a model, with their defaults: plait train copy --model rellstm --help.

    Args:
        task: copy, transfer, denoise, recall, mqar, smnist, pmnist, ptb, text; `plait tasks` lists them.
            Other commands: plait train csv --help (your own table); plait train minigrid, gym or popgym
            --help (reinforcement learning).
        epochs: passes over the training data, instead of --updates.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then a download.
        plain: use the general defaults of model and recipe, not those recommended for this task; for
            commands that must stay the same when the recommendations change.
        backend: backend of the model's scan; auto chooses.
        resume: resume this run, bit-exactly, with the options it was started with; only --updates may grow.
    """
    if (task is None) == (resume is None):
        raise ConfigError(
            "expected a task (plait train copy) or a run to continue (plait train --resume RUN)"
        )
    if data is not None:
        os.environ["PLAIT_DATA"] = str(data)
    if task is not None:
        if task in _FROM_ELSEWHERE:
            raise ConfigError(f"{task}: {_FROM_ELSEWHERE[task]}")
        values = {"name": task, **explicit_options(of_task)}
        description = described_run(values, of_model.values(), of_recipe, epochs, means, plain)
        return trained(description, means, backend)
    model = {k: v for k, v in explicit_options(of_model).items() if v != getattr(ModelOptions, k)}
    explicit = {
        **explicit_options(of_task),
        **model,
        **explicit_options(of_recipe),
        **({"epochs": epochs} if epochs else {}),
    }
    explicit |= {"plain": True} if plain else {}
    return resumed(str(resume), explicit, means, backend)


def described_run(
    task: dict[str, Any], model: dict[str, Any], of_recipe: Any, epochs: int | None, means: MeansOptions,
    plain: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return a run's complete description: the explicit values, with defaults for the others."""
    from plait.lab.tasks import task_named
    from plait.lab.training.description import checked, completed
    from plait.lab.training.process import device_named

    recipe = explicit_options(of_recipe)
    # All problems are reported at once, so the explicit values are checked together before completion.
    checked({"task": task, "model": {"hidden_size": 1, **model}, "recipe": recipe})
    on_cpu = device_named(means.device or "auto").type == "cpu"
    description = completed(described(task_named(**task), model, recipe, epochs, on_cpu, plain))
    explicit = {*model, *recipe, *(["epochs"] if epochs else [])}
    small = task["name"] == "text" and on_cpu and not plain
    if small and not explicit & {"hidden_size", "batch_size", "epochs", "updates"}:
        _announce_sizes(model["name"], means.quiet)  # only once the description is known to be valid
    return description


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


def resumed(
    run: str, explicit: dict[str, Any], means: MeansOptions, backend: str = "auto"
) -> CommandResult | None:
    """Resume a run, extended if `explicit` has updates or steps; all other options are those of the run."""
    from plait.lab.runs.kinds import kind_of
    from plait.lab.runs.reading import find_run, read_run

    fixed = [name for name in explicit if name not in ("updates", "steps")]
    if fixed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        raise ConfigError(f"{names} cannot be given with --resume: the run keeps what it began with")
    record = read_run(find_run(run, means.out))
    kind, description = kind_of(record.description), record.description
    if explicit:
        per_update = kind.per_update(description["recipe"]) if "updates" in explicit else 1
        length = int(explicit.get("steps", explicit.get("updates", 0)))
        description = kind.longer(description, length * per_update)
    if means.threads is None and record.sessions:
        means = dataclasses.replace(means, threads=record.sessions[0]["threads"])
    return trained(description, means, backend, record.folder)


def trained(
    description: dict[str, Any], means: MeansOptions, backend: str = "auto", resumed: Path | None = None
) -> CommandResult | None:
    """Train or resume a run and return its result, with a note on options that had no effect.

    Runtime options such as the device have no effect on a run that is complete already.
    """
    from plait.lab.runs.folder import run_id
    from plait.lab.runs.kinds import kind_of

    folder, kind = resumed or means.out / run_id(description), kind_of(description)
    if means.threads is not None:
        import torch

        from plait.lab.training.process import check_threads

        check_threads(means.threads)
        torch.set_num_threads(means.threads)
    callbacks = []
    if means.tensorboard:
        from plait.lab.training.callbacks import TensorBoard

        recipe = description["recipe"]
        every = recipe.get("record_every", 1) * kind.per_update(recipe)
        callbacks.append(TensorBoard(folder / "tensorboard", every))

    from plait.lab.training.session import train_run

    passed: dict[str, Any] = {
        "device": means.device, "checkpoint_every": means.checkpoint_every, "max_minutes": means.max_minutes,
        **({} if backend == "auto" else {"backend": backend}),
    }  # fmt: skip
    fitted = train_run(
        description, folder=folder, resume=resumed is not None, progress=not means.quiet, watchers=callbacks,
        **passed,
    )  # fmt: skip
    if not fitted.first:
        return None
    options = [name for name, value in {**passed, "tensorboard": means.tensorboard}.items() if value]
    return _result(fitted, kind, options if fitted.already else [])


def _result(fitted: Fitted, kind: Any, ignored: list[str]) -> CommandResult:
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
    count, seconds = summary[f"{kind.unit}s"], summary["seconds"]
    speed = (
        f" ({count / max(seconds, 1e-9):,.0f} steps/s, evaluation included)" if kind.unit == "step" else ""
    )
    line = f"{summary['status']}: {count:,} {kind.unit}s, {seconds:.1f} s{speed}, {fitted.folder}"
    return CommandResult({**summary, "folder": str(fitted.folder)}, (*parts, line))


def _metric(name: str, value: float | None) -> float | str | None:
    """Return a secondary metric for display; a policy's share of solved episodes is shown in percent."""
    return percent(value) if name == "success" else value
