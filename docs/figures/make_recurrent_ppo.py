"""Our PPO with an LSTM and Stable-Baselines3's RecurrentPPO learn the same world from the same budget.

python docs/figures/make_recurrent_ppo.py [WORLD] [STEPS] [SEEDS]    # DoorKey-5x5 262144 2: 15 minutes
python docs/figures/make_recurrent_ppo.py --draw                     # the figure again, from the numbers

Writes results/rl/recurrent-ppo.json and .png. A check of the learner, made while developing it: it needs
stable-baselines3 and sb3-contrib, which the package does not.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback

from plait.lab.bench import recurrent_ppo
from plait.lab.bench.ppo_learners import PlaitPPO
from plait.lab.figures import Curve, draw_curves, save_figure
from plait.lab.machine import circumstances
from plait.lab.runs.folder import read_json, write_json
from plait.lab.training.recipe import Settings
from plait.provenance import version_of

RESULT = Path(__file__).parent.parent.parent / "results/rl/recurrent-ppo.json"
HIDDEN, SMOOTH = 64, 4  # features; updates a point of the figure is the mean of
History = list[tuple[int, float]]  # after each update: how many episodes ended, and the sum of their returns


class Episodes(BaseCallback):
    """What ended in each rollout of RecurrentPPO."""

    def __init__(self) -> None:
        super().__init__()
        self.curve: History = []
        self.ended: list[float] = []

    def _on_step(self) -> bool:
        self.ended += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self) -> None:
        self.curve.append((len(self.ended), round(sum(self.ended), 4)))
        self.ended = []


def settings_of(steps: int, seed: int) -> Settings:
    """Written out: what the defaults are may change."""
    return Settings(
        steps=steps, envs=64, rollout=64, epochs=4, minibatches=4, lr=1e-3, discount=0.99, decay=0.95,
        clip=0.2, entropy=0.01, value=0.5, max_norm=0.5, seed=seed,
    )  # fmt: skip


def learn_ours(world: str, settings: Settings, cut: bool) -> History:
    """`cut`: the critic reads h_t and does not train what made it, as in RecurrentPPO with one LSTM."""
    player, curve = PlaitPPO(world, "minigrid", "lstm", HIDDEN, settings), []
    if cut:
        player.learner.policy.critic.register_forward_pre_hook(lambda _, given: (given[0].detach(),))
    for _ in range(settings.updates):
        player.play()
        player.learn()
        ended = [episode.reward for episode in player.rollout.episodes]
        curve.append((len(ended), round(sum(ended), 4)))
    return curve


def learn_peer(world: str, settings: Settings, cut: bool) -> History:
    episodes = Episodes()
    model = recurrent_ppo.matched(world, settings, HIDDEN, own_critic=not cut)
    model.learn(int(settings.steps), callback=episodes)
    return episodes.curve


LEARNERS = {
    "plait": (learn_ours, False),
    "RecurrentPPO, the critic has its own LSTM": (learn_peer, False),
    "plait, the critic trains no LSTM": (learn_ours, True),
    "RecurrentPPO, the critic trains no LSTM": (learn_peer, True),
}


def smoothed(curve: History, steps: int) -> tuple[list[float], list[float]]:
    """Thousands of steps, and the mean return of all episodes that ended in so many updates."""
    x, y = [], []
    for first in range(0, len(curve), SMOOTH):
        episodes, gained = map(sum, zip(*curve[first : first + SMOOTH], strict=True))
        if episodes:
            x.append((first + SMOOTH) * steps / 1000)
            y.append(gained / episodes)
    return x, y


def draw(found: dict[str, Any]) -> None:
    steps, curves = found["settings"]["envs"] * found["settings"]["rollout"], []
    for run in found["runs"]:
        name, place = run["learner"], list(LEARNERS).index(run["learner"])
        style = "dashed" if LEARNERS[name][1] else "solid"
        curves.append(Curve(*smoothed(run["episodes"], steps), "" if run["seed"] else name, style, place % 2))
    figure = draw_curves(
        curves, x_label="steps of all worlds (thousands)", y_label="mean return of training episodes",
        title=f"{found['env']}, the same settings, one line a seed", y_range=(0, 1.32), legend="upper left",
    )  # fmt: skip
    save_figure(figure, RESULT.with_suffix(".png"))


def main(world: str = "DoorKey-5x5", steps: str = "262144", seeds: str = "2") -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = circumstances(torch.device("cpu"), 1)
    found["versions"] |= {name: version_of(name) for name in ("minigrid", "stable-baselines3", "sb3-contrib")}
    found["command"] = f"python docs/figures/make_recurrent_ppo.py {world} {steps} {seeds}"
    runs = []
    for seed in range(int(seeds)):
        for name, (learn, cut) in LEARNERS.items():
            began = time.perf_counter()
            curve = learn(world, settings_of(int(steps), seed), cut)
            seconds = round(time.perf_counter() - began, 1)
            runs.append({"learner": name, "seed": seed, "seconds": seconds, "episodes": curve})
            sys.stderr.write(
                f"{name}, seed {seed}: {smoothed(curve, 1)[1][-1]:.3f} at the end, {seconds} s\n"
            )
    found |= {"env": world, "hidden": HIDDEN, "settings": settings_of(int(steps), 0).values()}
    found |= {"episodes": "after each update: how many ended, and the sum of their returns", "runs": runs}
    write_json(RESULT, found)
    draw(found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--draw"]:
        draw(read_json(RESULT))
    else:
        main(*sys.argv[1:])
