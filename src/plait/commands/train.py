"""`plait train` and `plait train minigrid`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import ConfigError
from plait.marks import flat, given, option, usual
from plait.result import CommandResult, Table, percent, scored
from plait.training.options import (
    SMALL_TEXT,
    ModelOptions,
    PolicyOptions,
    RecipeOptions,
    SettingsOptions,
    TaskOptions,
    defaults_for,
    described,
    published_for,
)  # fmt: skip
from plait.training.recipe import Settings

if TYPE_CHECKING:
    from plait.training.session import Fitted

__all__ = ["described_run", "train", "train_minigrid", "trained"]

# tasks that this command has no options for
_FROM_ELSEWHERE = {"data": "these are passed in Python: plait.fit(model, (X, y), held_out=0.2)"}


@usual(defaults_for)
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
    device: str | None = None,
    backend: str = "auto",
    threads: int | None = None,
    checkpoint_every: int | None = None,
    max_minutes: float | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
) -> CommandResult | None:
    """Train a model on a task, or continue a run: plait train copy --delay 100, plait train --resume RUN.

    Ctrl-C and SIGTERM save and stop; a run that was stopped or killed is continued with --resume and ends
    with the same weights as one that was not. Under torchrun the batch is shared among the processes.

    What a task and a model take, with their defaults: plait train copy --model rellstm --help.

    Args:
        task: copy, transfer, denoise, recall, mqar, smnist, pmnist, ptb, text; `plait tasks` lists them.
            Others have options of their own: plait train csv --help (a table of yours), plait train
            minigrid --help (reinforcement learning).
        epochs: how often the training data are gone through, instead of --updates.
        data: a folder with mnist/ or ptb/; by default $PLAIT_DATA, then the cache, then the net.
        out: the folder of runs; this run gets its own inside, named by what it is.
        resume: resume this run, bit-exactly; its options stay as they were, only --updates may grow.
        device: auto (cuda if there is one), cpu, cuda, cuda:N; auto if left out, cpu for a policy.
        backend: of the model's scan; auto chooses.
        threads: torch threads on the CPU; left out, torch's own choice (OMP_NUM_THREADS), or the run's.
        checkpoint_every: updates between two checkpoints; 500 if left out, 10 for a policy.
        max_minutes: save and stop after this many minutes.
        quiet: no progress.
        tensorboard: also write TensorBoard events into the run's folder.
    """
    if (task is None) == (resume is None):
        raise ConfigError(
            "expected a task (plait train copy) or a run to continue (plait train --resume RUN)"
        )
    if data is not None:
        os.environ["PLAIT_DATA"] = str(data)
    means: dict[str, Any] = {"device": device, "threads": threads, "checkpoint_every": checkpoint_every,
             "max_minutes": max_minutes, "tensorboard": tensorboard}  # fmt: skip
    if backend != "auto":
        means["backend"] = backend
    if task is not None:
        if task in _FROM_ELSEWHERE:
            raise ConfigError(f"{task}: {_FROM_ELSEWHERE[task]}")
        values = {"name": task, **given(of_task)}
        description = described_run(values, of_model.values(), of_recipe, epochs, device, quiet)
        return trained(description, out, quiet, **means)
    model = {k: v for k, v in given(of_model).items() if v != getattr(ModelOptions, k)}
    said = {**given(of_task), **model, **given(of_recipe), **({"epochs": epochs} if epochs else {})}
    return _resumed(str(resume), out, quiet, said, **means)


def train_minigrid(
    *,
    env: str | None = None,
    test_env: str | None = None,
    of_model: Annotated[PolicyOptions, flat] = PolicyOptions(),  # noqa: B008
    settings: Annotated[SettingsOptions, flat] = SettingsOptions(),  # noqa: B008
    backend: str | None = None,
    out: Path = Path("runs"),
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    device: str | None = None,
    threads: int | None = None,
    checkpoint_every: int | None = None,
    max_minutes: float | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
) -> CommandResult | None:
    """Train a policy by PPO: plait train minigrid --env DoorKey-5x5 --model rellstm --steps 1e6.

    Ctrl-C and SIGTERM save and stop; a run that was stopped or killed is continued with --resume and ends
    with the same curve as one that was not. Scores are mean returns over held-out episodes.

    Args:
        env: the world to train in, such as DoorKey-5x5 or MemoryS7.
        test_env: a world to test in, once, at the end, such as DoorKey-16x16.
        backend: minigrid (Farama's, if left out), or envpool (C++, faster; pip install 'plait[envpool]').
        out: the folder of runs; this run gets its own inside, named by what it is.
        resume: resume this run, bit-exactly; its options stay as they were, only --steps may grow.
        device: cpu if left out, auto (cuda if there is one), cuda, cuda:N.
        threads: torch threads on the CPU; left out, torch's own choice (OMP_NUM_THREADS), or the run's.
        checkpoint_every: updates between two checkpoints; 10 if left out.
        max_minutes: save and stop after this many minutes.
        quiet: no progress.
        tensorboard: also write TensorBoard events into the run's folder.
    """
    if (env is None) == (resume is None):
        raise ConfigError(
            "expected a world (plait train minigrid --env DoorKey-5x5) or a run to continue (--resume RUN)"
        )
    worlds = {"env": env, "test_env": test_env, "backend": backend}
    worlds = {name: value for name, value in worlds.items() if value is not None}
    means: dict[str, Any] = {"device": device, "threads": threads, "checkpoint_every": checkpoint_every,
             "max_minutes": max_minutes, "tensorboard": tensorboard}  # fmt: skip
    if resume is not None:
        return _resumed(resume, out, quiet, {**worlds, **given(of_model), **given(settings)}, **means)
    from plait.training.ppo.policy import describe_policy

    options = of_model.values()
    if "name" in options:
        options["model"] = options.pop("name")
    numbers = Settings(**given(settings)).check()
    return trained(describe_policy(settings=numbers, **worlds, **options), out, quiet, **means)


def described_run(
    task: dict[str, Any], model: dict[str, Any], of_recipe: Any, epochs: int | None, device: str | None,
    quiet: bool,
) -> dict[str, Any]:  # fmt: skip
    """The complete description of what was said."""
    from plait.tasks import task_named
    from plait.training.description import checked, completed
    from plait.training.process import device_named

    recipe = given(of_recipe)
    # What is wrong is said all at once, so what was given is checked as a whole before it is completed.
    checked({"task": task, "model": {"hidden_size": 1, **model}, "recipe": recipe})
    on_cpu = device_named(device or "auto").type == "cpu"
    found = completed(described(task_named(**task), model, recipe, epochs, on_cpu))
    said = {*model, *recipe, *(["epochs"] if epochs else [])}
    if task["name"] == "text" and on_cpu and not said & {"hidden_size", "batch_size", "epochs", "updates"}:
        _tell_sizes(model["name"], quiet)  # once it is sure that there is a run
    return found


def _tell_sizes(model: str, quiet: bool) -> None:
    """That the sizes are not the published ones, and how to have those."""
    from plait.training.callbacks import announce

    row, paper = SMALL_TEXT, published_for("text", model)
    assert paper is not None
    announce(
        f"on a CPU, so hidden {row.hidden_size}, batches of {row.batch_size}, {row.epochs} epochs; sizes as "
        f"published, for a GPU: --hidden {paper.hidden_size} --batch-size {paper.batch_size} "
        f"--epochs {paper.epochs} --lr {paper.lr}",
        quiet,
    )


def _resumed(run: str, out: Path, quiet: bool, said: dict[str, Any], **means: Any) -> CommandResult | None:
    """Resume a run, for longer if that was said. All else that it is follows from its id."""
    from plait.runs.kinds import kind_of
    from plait.runs.reading import find_run, read_run

    fixed = [name for name in said if name not in ("updates", "steps")]
    if fixed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        raise ConfigError(f"{names} cannot be given with --resume: the run keeps what it began with")
    record = read_run(find_run(run, out))
    kind, description = kind_of(record.description), record.description
    if said:
        per_update = kind.per_update(description["recipe"]) if "updates" in said else 1
        description = kind.longer(description, int(said.get("steps", said.get("updates", 0))) * per_update)
    if means["threads"] is None and record.sessions:
        means["threads"] = record.sessions[0]["threads"]
    return trained(description, out, quiet, record.folder, **means)


def trained(
    description: dict[str, Any], out: Path, quiet: bool, resumed: Path | None = None, **means: Any
) -> CommandResult | None:
    """Train, and say what came; what was said of a run that was complete already has no effect."""
    from plait.runs.folder import run_id
    from plait.runs.kinds import kind_of

    threads, watchers = means.pop("threads"), []
    folder, kind = resumed or out / run_id(description), kind_of(description)
    if threads is not None:
        import torch

        from plait.training.process import check_threads

        check_threads(threads)
        torch.set_num_threads(threads)
    tensorboard = means.pop("tensorboard")
    if tensorboard:
        from plait.training.callbacks import TensorBoard

        recipe = description["recipe"]
        every = recipe.get("record_every", 1) * kind.per_update(recipe)
        watchers.append(TensorBoard(folder / "tensorboard", every))

    from plait.training.session import train_run

    fitted = train_run(
        description, folder=folder, resume=resumed is not None, progress=not quiet, watchers=watchers, **means
    )
    if not fitted.first:
        return None
    said = [*(name for name, value in means.items() if value), *(["tensorboard"] if tensorboard else [])]
    return _result(fitted, kind, said if fitted.already else [])


def _result(fitted: Fitted, kind: Any, useless: list[str]) -> CommandResult:
    summary = fitted.summary
    parts: list[str | Table] = []
    results = summary["held_out"]
    names = list(dict.fromkeys(name for result in results.values() for name in result if name != "score"))
    if results:
        rows = [
            [where, scored(one["score"], kind.score), *(_figure(name, one.get(name)) for name in names)]
            for where, one in results.items()
        ]
        shown = [kind.shown.get(name, name).replace("_", " ") for name in ("score", *names)]
        parts.append(Table(["held out", *shown], rows))
    if summary["status"] == "stopped":
        parts.append(f"continue: plait train --resume {fitted.folder}")
    if useless:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in useless)
        parts.append(f"the run was complete already: {options} had no effect")
    count, seconds = summary[f"{kind.unit}s"], summary["seconds"]
    speed = (
        f" ({count / max(seconds, 1e-9):,.0f} steps/s, evaluation included)" if kind.unit == "step" else ""
    )
    line = f"{summary['status']}: {count:,} {kind.unit}s, {seconds:.1f} s{speed}, {fitted.folder}"
    return CommandResult({**summary, "folder": str(fitted.folder)}, (*parts, line))


def _figure(name: str, value: float | None) -> float | str | None:
    """A result that stands beside the score; of a policy the share of episodes it solved is one."""
    return percent(value) if name == "success" else value
