"""The command `plait watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from plait.errors import ConfigError, check_seed
from plait.lab.annotations import option
from plait.lab.result import CommandResult

__all__ = ["watch"]


def watch(
    run: Annotated[str, option(metavar="RUN")],
    /,
    env: str | None = None,
    output: Annotated[Path | None, option(aliases=("-o",))] = None,
    seed: int = 0,
    greedy: bool = False,
    layer: int = 1,
    per_second: float = 4,
    out: Path = Path("runs"),
) -> CommandResult:
    """Play a trained policy and show the contents of its memory: plait watch RUN -o episode.gif.

    Without --output the episode is written as text, step by step.

    Args:
        run: a run's folder, its id, or the beginning of its id.
        env: the environment to play in, of the family of the training; if left out, that of the training.
        output: the film, a .gif or a .mp4.
        seed: seed of the episode.
        greedy: take the mode action instead of sampling one.
        layer: the layer whose memory is shown, counted from 1.
        per_second: steps shown per second.
        out: the folder of runs in which an id is searched.
    """
    if not 0.1 <= per_second <= 100:
        raise ConfigError(f"per_second: expected 0.1 to 100, got {per_second}")
    check_seed(seed=seed)
    from plait.lab.own_code import name_of
    from plait.lab.report.film import check_ending, film, lines
    from plait.lab.runs.reading import find_run, read_run
    from plait.lab.training.ppo.episode import play_episode
    from plait.lab.training.ppo.policy import load_policy

    if output is not None:
        check_ending(output)
    folder = find_run(run, out)
    policy = load_policy(folder)
    trained = read_run(folder).description["task"]["env"]
    family = policy.family
    env_name = trained if env is None else family.canonical_name(name_of(env))
    family.check_transfer(trained, env_name)
    steps = play_episode(policy, env_name, seed, greedy, layer, pictures=output is not None)
    data = {"env": env_name, "seed": seed, "steps": len(steps) - 1, "return": steps[-1].total_reward}
    line = f"{env_name}: return {data['return']:.3f} in {data['steps']} steps"
    if output is None:
        actions = [step.action for step in steps[:-1]]
        return CommandResult({**data, "actions": actions}, stream=(*lines(steps), line))
    film(steps, output, per_second)
    return CommandResult({**data, "film": str(output)}, (f"{output}: {line}",))
