"""`plait watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from plait.errors import ConfigError, seeded
from plait.marks import option
from plait.result import CommandResult

__all__ = ["watch"]


def watch(
    run: Annotated[str, option(metavar="RUN")],
    /,
    env: str | None = None,
    output: Annotated[Path | None, option(aliases=["-o"])] = None,
    seed: int = 0,
    greedy: bool = False,
    layer: int = 1,
    per_second: float = 4,
    out: Path = Path("runs"),
) -> CommandResult:
    """Watch a trained policy play, and what its memory holds: plait watch RUN -o episode.gif.

    Without --output the episode is written as text, step by step.

    Args:
        run: its folder, its id, or the beginning of its id.
        env: the world to play in, of the family it was trained in; left out, the very one.
        output: the film, a .gif or a .mp4.
        seed: which episode.
        greedy: take the likeliest action instead of drawing.
        layer: whose memory is shown.
        per_second: steps the film shows a second.
        out: the folder of runs, where an id is looked for.
    """
    if not 0.1 <= per_second <= 100:
        raise ConfigError(f"per_second: expected 0.1 to 100, got {per_second}")
    seeded(seed=seed)
    from plait.report.film import check_ending, film, lines
    from plait.runs.reading import find_run, read_run
    from plait.tasks.worlds.names import name_of
    from plait.training.ppo.episode import play_episode
    from plait.training.ppo.policy import load_policy

    if output is not None:
        check_ending(output)
    folder = find_run(run, out)
    policy = load_policy(folder)
    trained = read_run(folder).description["task"]["env"]
    family = policy.family
    world = trained if env is None else family.named(name_of(env))
    family.check_transfer(trained, world)
    scenes = play_episode(policy, world, seed, greedy, layer, drawn=output is not None)
    told = {"env": world, "seed": seed, "steps": len(scenes) - 1, "return": scenes[-1].gained}
    line = f"{world}: return {told['return']:.3f} in {told['steps']} steps"
    if output is None:
        actions = [scene.action for scene in scenes[:-1]]
        return CommandResult({**told, "actions": actions}, stream=(*lines(scenes), line))
    film(scenes, output, per_second)
    return CommandResult({**told, "film": str(output)}, (f"{output}: {line}",))
