"""`plait train`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from plait.answer import Answer, Table
from plait.errors import ConfigError, whole
from plait.training.recipe import Recipe

if TYPE_CHECKING:
    from plait.training.loop import Fitted

__all__ = ["ModelOptions", "train"]


@dataclass(frozen=True)
class ModelOptions:
    """What the model is made of; an option left out keeps the model's default."""

    model: str = "relrnn"
    """rnn, lstm, gru, orthrnn, exprnn, goru, memrnn, memlstm, relrnn, rellstm, relgru, unirnn, unilstm, sab,
    transformer."""
    hidden: int = 128
    """Features of h_t."""
    layers: int = 1
    """Layers one above the other."""
    dropout: float = 0.0
    """Between layers."""
    window: int | None = None
    """Latest states that can be read."""
    capacity: int | None = None
    """Relevant (or, of uniform writing, latest written) states kept beyond them."""
    every: int | None = None
    """unirnn, unilstm, sab: keep every so-manyth state."""
    top_k: int | None = None
    """sab: states that are read."""
    heads: int | None = None
    """transformer: attention heads, a divisor of --hidden."""
    nonlinearity: str | None = None
    """Of an Elman cell: tanh, modrelu, relu, identity."""
    initialiser: str | None = None
    """Of the recurrent matrix: henaff, cayley, random, xavier, kaiming, identity."""
    mix: float | None = None
    """s_t = mix · (h_t + c_t)."""

    def values(self) -> dict[str, Any]:
        given = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        names = {"model": "name", "hidden": "hidden_size", "layers": "num_layers"}
        return {names.get(key, key): value for key, value in given.items()}


@dataclass(frozen=True)
class TaskOptions:
    """What the task is; an option left out keeps the task's default."""

    delay: int | None = None
    """T, the steps to remember over."""
    test_delays: tuple[int, ...] | None = None
    """transfer: the delays it is tested at."""


def train(
    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = None,
    /,
    *,
    of_task: Annotated[TaskOptions, tyro.conf.arg(name="")] = TaskOptions(),  # noqa: B008
    of_model: Annotated[ModelOptions, tyro.conf.arg(name="")] = ModelOptions(),  # noqa: B008
    recipe: Annotated[Recipe, tyro.conf.arg(name="")] = Recipe(),  # noqa: B008
    out: Path = Path("runs"),
    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None,
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
        task: copy, transfer, denoise; `plait tasks` lists them.
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
    folder, description = _fresh(task, of_task, of_model, recipe) if task else (None, {})
    if resume is not None:
        _refuse_changes(of_task, of_model, recipe)
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
    task: str, of_task: TaskOptions, of_model: ModelOptions, recipe: Recipe
) -> tuple[None, dict[str, Any]]:
    from plait.training.config import checked

    given = {key: value for key, value in dataclasses.asdict(of_task).items() if value is not None}
    values = {"task": {"name": task, **given}, "model": of_model.values(), "recipe": recipe}
    return None, checked(values).description()


def _recorded(run: str, out: Path, threads: int | None) -> tuple[Path, dict[str, Any], int | None]:
    """The folder, description and number of threads of a run on the disk."""
    from plait.training.catalogue import find_run
    from plait.training.config import checked
    from plait.training.files import read_json

    folder = find_run(run, out)
    description = checked(read_json(folder / "config.json")).description()
    environment = folder / "environment.json"
    if threads is None and environment.exists():
        threads = read_json(environment)["sessions"][0]["threads"]
    return folder, description, threads


def _refuse_changes(*options: TaskOptions | ModelOptions | Recipe) -> None:
    """A run's id follows from what it is, so what it is cannot change under it."""
    changed = [
        f"--{field.name.replace('_', '-')}"
        for part in options
        for field in dataclasses.fields(part)
        if getattr(part, field.name) != field.default
    ]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)} cannot be given with --resume: the run keeps what it began with"
        )


def _trackers(folder: Path, recipe: Recipe) -> list[Any]:
    from plait.training.tracking import TensorBoard

    return [TensorBoard(folder / "tensorboard", recipe.record_every)]


def _answer(fitted: Fitted) -> Answer:
    summary = fitted.summary
    rows = [[name, result["score"], result["loss"]] for name, result in summary["held_out"].items()]
    line = f"{summary['status']}: {summary['updates']} updates, {summary['seconds']:.1f} s, {fitted.folder}"
    parts: list[str | Table] = [Table(["held out", "accuracy", "loss"], rows)] if rows else []
    if summary["status"] == "stopped":
        parts.append(f"continue: plait train --resume {fitted.folder}")
    return Answer({**summary, "folder": str(fitted.folder)}, (*parts, line))
