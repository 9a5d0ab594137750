"""`plait train minigrid`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.answer import Answer, Table
from plait.errors import ConfigError, whole
from plait.marks import flat, option
from plait.training.ppo.settings import Settings

if TYPE_CHECKING:
    from plait.training.ppo.loop import FittedPolicy

__all__ = ["train_minigrid"]


def train_minigrid(
    *,
    env: str | None = None,
    test_env: str | None = None,
    model: str = "rellstm",
    hidden: int = 64,
    layers: int = 1,
    window: int | None = None,
    capacity: int | None = None,
    settings: Annotated[Settings, flat] = Settings(),  # noqa: B008
    backend: str = "minigrid",
    out: Path = Path("runs"),
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    device: str = "cpu",
    threads: int | None = None,
    checkpoint_every: int = 10,
    max_minutes: float | None = None,
    quiet: bool = False,
) -> Answer:
    """Train a policy by PPO: plait train minigrid --env DoorKey-5x5 --model rellstm --steps 1e6.

    Ctrl-C and SIGTERM save and stop; a run that was stopped or killed is continued with --resume and ends
    with the same curve as one that was not. Scores are mean returns over held-out episodes.

    Args:
        env: the world to train in, such as DoorKey-5x5 or MemoryS7.
        test_env: a world to test in, once, at the end, such as DoorKey-16x16.
        model: the policy's memory: none, lstm, gru, rellstm, relgru, memlstm, or any other model by name.
        hidden: features of h_t, and of an encoded observation.
        layers: layers one above the other.
        window: latest states that can be read; 5 where the model has a choice.
        capacity: relevant states kept beyond them; 5 where the model has a choice.
        backend: minigrid (Farama's), or envpool (C++, faster; pip install 'plait[envpool]').
        out: the folder of runs; this run gets its own inside, named by what it is.
        resume: go on with this run; what it is stays as it was.
        device: cpu, auto (cuda if there is one), cuda, cuda:N.
        threads: torch threads on the CPU; left out, torch's own choice (OMP_NUM_THREADS), or the run's.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after so long.
        quiet: no progress.
    """
    said: dict[str, Any] = {
        "env": env, "test_env": test_env, "window": window, "capacity": capacity,
        "model": model, "hidden": hidden, "layers": layers, "backend": backend,
    }  # fmt: skip
    if (env is None) == (resume is None):
        raise ConfigError(
            "expected a world (plait train minigrid --env DoorKey-5x5) or a run to continue (--resume RUN)"
        )
    if threads is not None:
        whole(1, threads=threads)
    if resume is not None:
        _refuse_changes(said, settings)
        folder, description, threads = _recorded(resume, out, threads)
    else:
        folder, description = None, _described(said, settings)

    import torch

    from plait.training.description import run_id
    from plait.training.ppo.loop import fit_policy

    if threads is not None:
        torch.set_num_threads(threads)
    fitted = fit_policy(
        description, device=device, folder=folder or out / run_id(description), resume=resume is not None,
        checkpoint_every=checkpoint_every, max_minutes=max_minutes, progress=not quiet,
    )  # fmt: skip
    return _answer(fitted)


def _described(said: dict[str, Any], settings: Settings) -> dict[str, Any]:
    from plait.training.ppo.description import describe_policy

    sizes: dict[str, Any] = {"hidden_size": said["hidden"]}
    if said["layers"] != 1:
        sizes["num_layers"] = said["layers"]
    return describe_policy(
        said["env"], said["model"], settings.check(), test_env=said["test_env"], backend=said["backend"],
        window=said["window"], capacity=said["capacity"], **sizes,
    )  # fmt: skip


def _recorded(run: str, out: Path, threads: int | None) -> tuple[Path, dict[str, Any], int | None]:
    """The folder, description and number of threads of a run on the disk."""
    from plait.training.catalogue import find_run
    from plait.training.files import read_json
    from plait.training.ppo.description import checked_policy

    folder = find_run(run, out)
    description = checked_policy(read_json(folder / "config.json"))
    environment = folder / "environment.json"
    if threads is None and environment.exists():
        threads = read_json(environment)["sessions"][0]["threads"]
    return folder, description, threads


def _refuse_changes(said: dict[str, Any], settings: Settings) -> None:
    """A run's id follows from what it is, so what it is cannot change under it."""
    usual = {"model": "rellstm", "hidden": 64, "layers": 1, "backend": "minigrid", **Settings().values()}
    changed = [name for name, value in {**said, **settings.values()}.items() if value != usual.get(name)]
    if changed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise ConfigError(f"{names} cannot be given with --resume: the run keeps what it began with")


def _answer(fitted: FittedPolicy) -> Answer:
    summary = fitted.summary
    rows = [
        [name, result["score"], result["success"], result["length"]]
        for name, result in summary["held_out"].items()
    ]
    parts: list[str | Table] = [Table(["held out", "return", "success", "steps"], rows)] if rows else []
    if summary["status"] == "stopped":
        parts.append(f"continue: plait train --resume {fitted.folder}")
    speed = summary["steps"] / max(summary["seconds"], 1e-9)
    line = (
        f"{summary['status']}: {summary['steps']:,} steps, {summary['seconds']:.1f} s "
        f"({speed:,.0f} steps/s, evaluation included), {fitted.folder}"
    )
    return Answer({**summary, "folder": str(fitted.folder)}, (*parts, line))
