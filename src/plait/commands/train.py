"""`plait train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.answer import Answer, Table
from plait.errors import ConfigError, whole
from plait.marks import flat, option
from plait.training.options import ModelOptions, RecipeOptions, TaskOptions, described, given
from plait.training.recipe import Recipe

if TYPE_CHECKING:
    from plait.training.loop import Fitted

__all__ = ["train"]


def train(
    task: Annotated[str | None, option(metavar="TASK")] = None,
    /,
    *,
    of_task: Annotated[TaskOptions, flat] = TaskOptions(),  # noqa: B008
    of_model: Annotated[ModelOptions, flat] = ModelOptions(),  # noqa: B008
    of_recipe: Annotated[RecipeOptions, flat] = RecipeOptions(),  # noqa: B008
    epochs: int | None = None,
    data: Path | None = None,
    out: Path = Path("runs"),
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    device: str = "auto",
    backend: str = "auto",
    threads: int | None = None,
    checkpoint_every: int = 500,
    max_minutes: float | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
) -> Answer | None:
    """Train a model on a task, or continue a run: plait train copy --delay 100, plait train --resume RUN.

    Ctrl-C and SIGTERM save and stop; a run that was stopped or killed is continued with --resume and ends
    with the same weights as one that was not. Under torchrun the batch is shared among the processes.

    Args:
        task: copy, transfer, denoise, recall, mqar, smnist, pmnist, ptb, text; `plait tasks` lists them.
            Reinforcement learning has options of its own: plait train minigrid --help.
        epochs: how often the training data are gone through, instead of --updates.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then the net.
        out: the folder of runs; this run gets its own inside, named by what it is.
        resume: go on with this run; what it is stays as it was.
        device: auto (cuda if there is one), cpu, cuda, cuda:N.
        backend: of the model's scan; auto chooses.
        threads: torch threads on the CPU; left out, torch's own choice (OMP_NUM_THREADS), or the run's.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after so long.
        quiet: no progress.
        tensorboard: also write TensorBoard events into the run's folder.
    """
    if (task is None) == (resume is None):
        raise ConfigError(
            "expected a task (plait train copy) or a run to continue (plait train --resume RUN)"
        )
    if threads is not None:
        whole(1, threads=threads)
    if data is not None:
        os.environ["PLAIT_DATA"] = str(data)
    folder, description = _fresh(task, of_task, of_model, of_recipe, epochs) if task else (None, {})
    if resume is not None:
        _refuse_changes(of_task, of_model, of_recipe, epochs)
        if _is_policy(resume, out):
            from plait.commands.train_minigrid import train_minigrid

            return train_minigrid(
                resume=resume, out=out, device="cpu" if device == "auto" else device, threads=threads,
                max_minutes=max_minutes, quiet=quiet,
            )  # fmt: skip
        folder, description, threads = _recorded(resume, out, threads)

    import torch

    from plait.training.description import build, describe, run_id
    from plait.training.loop import fit

    if threads is not None:
        torch.set_num_threads(threads)
    network, built_task = build(description, backend)
    recipe = Recipe(**description["recipe"])
    folder = folder or out / run_id(describe(network, built_task, recipe))
    fitted = fit(
        network, built_task, recipe, device=device, folder=folder, resume=resume is not None,
        checkpoint_every=checkpoint_every, max_minutes=max_minutes, progress=not quiet,
        watchers=_trackers(folder, recipe) if tensorboard else (),
    )  # fmt: skip
    return _answer(fitted) if fitted.first else None


def _fresh(
    task: str, of_task: TaskOptions, of_model: ModelOptions, of_recipe: Any, epochs: int | None
) -> tuple[None, dict[str, Any]]:
    from plait.training.config import checked

    task_values = {"name": task, **given(of_task)}
    # What is wrong is said all at once, so what was given is checked as a whole before it is completed.
    recipe = Recipe().changed(**given(of_recipe))
    checked({"task": task_values, "model": {"hidden_size": 1, **of_model.values()}, "recipe": recipe})

    from plait.tasks import task_named

    values = described(task_named(**task_values), of_model.values(), given(of_recipe), epochs)
    return None, checked(values)


def _is_policy(run: str, out: Path) -> bool:
    """Whether a run was made by `plait train minigrid`, whose options are others."""
    from plait.training.catalogue import find_run
    from plait.training.files import read_json

    description = read_json(find_run(run, out) / "config.json")
    return isinstance(description, dict) and description.get("task", {}).get("name") == "minigrid"


def _recorded(run: str, out: Path, threads: int | None) -> tuple[Path, dict[str, Any], int | None]:
    """The folder, description and number of threads of a run on the disk."""
    from plait.training.catalogue import find_run
    from plait.training.config import checked
    from plait.training.files import read_json

    folder = find_run(run, out)
    description = checked(read_json(folder / "config.json"))
    environment = folder / "environment.json"
    if threads is None and environment.exists():
        threads = read_json(environment)["sessions"][0]["threads"]
    return folder, description, threads


def _refuse_changes(of_task: Any, of_model: Any, of_recipe: Any, epochs: int | None) -> None:
    """A run's id follows from what it is, so what it is cannot change under it."""
    model = {k: v for k, v in given(of_model).items() if v != getattr(ModelOptions, k)}
    names = [*given(of_task), *model, *given(of_recipe), *(["epochs"] if epochs else [])]
    if names:
        changed = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(f"{changed} cannot be given with --resume: the run keeps what it began with")


def _trackers(folder: Path, recipe: Recipe) -> list[Any]:
    from plait.training.tracking import TensorBoard

    return [TensorBoard(folder / "tensorboard", recipe.record_every)]


def _answer(fitted: Fitted) -> Answer:
    summary = fitted.summary
    more = list(
        dict.fromkeys(k for r in summary["held_out"].values() for k in r if k not in ("score", "loss"))
    )
    rows = [
        [name, result["score"], result.get("loss"), *(result.get(key) for key in more)]
        for name, result in summary["held_out"].items()
    ]
    line = f"{summary['status']}: {summary['updates']} updates, {summary['seconds']:.1f} s, {fitted.folder}"
    parts: list[str | Table] = (
        [Table(["held out", "accuracy", "loss", *(key.replace("_", " ") for key in more)], rows)]
        if rows
        else []
    )
    if summary["status"] == "stopped":
        parts.append(f"continue: plait train --resume {fitted.folder}")
    return Answer({**summary, "folder": str(fitted.folder)}, (*parts, line))
