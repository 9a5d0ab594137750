"""Our PPO with an LSTM and Stable-Baselines3's RecurrentPPO learn the same world from the same budget.

python docs/figures/make_recurrent_ppo.py [WORLD] [STEPS] [SEEDS]    # DoorKey-5x5 262144 3: ten minutes

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

from plait.bench import recurrent_ppo
from plait.bench.machine import circumstances
from plait.figures import Curve, draw_curves, save
from plait.provenance import version_of
from plait.training.files import write_json
from plait.training.ppo import Settings, describe_policy, fit_policy

ROOT = Path(__file__).parent.parent.parent
HIDDEN, SMOOTH = 64, 4  # features; updates a point of the figure is the mean of
OURS, PEER = "plait, LSTM policy", "RecurrentPPO"


class Episodes(BaseCallback):
    """Mean return of the episodes that ended in each rollout, as our own metrics have it."""

    def __init__(self) -> None:
        super().__init__()
        self.curve: list[float | None] = []
        self.ended: list[float] = []

    def _on_step(self) -> bool:
        self.ended += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self) -> None:
        self.curve.append(sum(self.ended) / len(self.ended) if self.ended else None)
        self.ended = []


def settings_of(steps: int, seed: int) -> Settings:
    """Written out: what the defaults are may change."""
    return Settings(
        steps=steps, envs=64, rollout=64, epochs=4, minibatches=4, lr=1e-3, discount=0.99, decay=0.95,
        clip=0.2, entropy=0.01, value=0.5, max_norm=0.5, seed=seed, evaluate_every=10**6, evaluate_on=1,
    )  # fmt: skip


def learn_ours(world: str, settings: Settings) -> list[float | None]:
    fitted = fit_policy(describe_policy(world, "lstm", settings, hidden_size=HIDDEN))
    return [line["return"] for line in fitted.metrics if "return" in line]


def learn_peer(world: str, settings: Settings) -> list[float | None]:
    episodes = Episodes()
    recurrent_ppo.matched(world, settings, HIDDEN).learn(int(settings.steps), callback=episodes)
    return episodes.curve


def smoothed(curve: list[float | None], steps: int) -> tuple[list[float], list[float]]:
    """Steps, and the mean of so many updates; those in which no episode ended say nothing."""
    x, y = [], []
    for first in range(0, len(curve), SMOOTH):
        values = [value for value in curve[first : first + SMOOTH] if value is not None]
        if values:
            x.append((first + SMOOTH) * steps / 1000)
            y.append(sum(values) / len(values))
    return x, y


def main(world: str = "DoorKey-5x5", steps: str = "262144", seeds: str = "3") -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = circumstances(torch.device("cpu"), 1)
    found["versions"] |= {name: version_of(name) for name in ("minigrid", "stable-baselines3", "sb3-contrib")}
    found["command"] = f"python docs/figures/make_recurrent_ppo.py {world} {steps} {seeds}"
    settings, runs, curves = settings_of(int(steps), 0), [], []
    for seed in range(int(seeds)):
        for place, (name, learn) in enumerate(((OURS, learn_ours), (PEER, learn_peer))):
            began = time.perf_counter()
            curve = learn(world, settings_of(int(steps), seed))
            seconds = time.perf_counter() - began
            runs.append({"learner": name, "seed": seed, "seconds": round(seconds, 1), "return": curve})
            label = "" if seed else name
            curves.append(Curve(*smoothed(curve, settings.envs * settings.rollout), label, "solid", place))
            sys.stderr.write(f"{name}, seed {seed}: {curve[-1]} at the end, {seconds:.0f} s\n")
    found |= {"env": world, "hidden": HIDDEN, "settings": settings.values(), "runs": runs}
    write_json(ROOT / "results/rl/recurrent-ppo.json", found)
    figure = draw_curves(
        curves, x_label="steps of all worlds (thousands)", y_label="mean return of training episodes",
        title=f"{world}, the same settings, one line a seed", y_range=(0, 1), legend="lower right",
    )  # fmt: skip
    save(figure, ROOT / "results/rl/recurrent-ppo.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
