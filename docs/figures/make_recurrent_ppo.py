"""Our PPO with an LSTM and Stable-Baselines3's RecurrentPPO learn the same environment from the same budget.

python docs/figures/make_recurrent_ppo.py [ENV] [STEPS] [SEEDS]    # DoorKey-5x5 262144 2: 15 minutes
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
from plait.lab.training.recipe import PPOConfig
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


def config_of(steps: int, seed: int) -> PPOConfig:
    """Return the hyperparameters, written out because defaults may change."""
    return PPOConfig(
        total_timesteps=steps,
        n_envs=64,
        n_steps=64,
        n_epochs=4,
        n_minibatches=4,
        lr=1e-3,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        seed=seed,
    )


def learn_ours(env: str, ppo: PPOConfig, cut: bool) -> History:
    """`cut`: the critic reads h_t and does not train what made it, as in RecurrentPPO with one LSTM."""
    player, curve = PlaitPPO(env, "minigrid", "lstm", HIDDEN, ppo), []
    if cut:
        player.learner.policy.critic.register_forward_pre_hook(lambda _, given: (given[0].detach(),))
    for _ in range(ppo.updates):
        player.play()
        player.learn()
        ended = [episode.reward for episode in player.rollout.episodes]
        curve.append((len(ended), round(sum(ended), 4)))
    return curve


def learn_peer(env: str, ppo: PPOConfig, cut: bool) -> History:
    episodes = Episodes()
    model = recurrent_ppo.matched(env, ppo, HIDDEN, own_critic=not cut)
    model.learn(int(ppo.total_timesteps), callback=episodes)
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
    steps, curves = found["ppo"]["n_envs"] * found["ppo"]["n_steps"], []
    for run in found["runs"]:
        name, place = run["learner"], list(LEARNERS).index(run["learner"])
        style = "dashed" if LEARNERS[name][1] else "solid"
        curves.append(Curve(*smoothed(run["episodes"], steps), "" if run["seed"] else name, style, place % 2))
    figure = draw_curves(
        curves,
        x_label="steps of all environments (thousands)",
        y_label="mean return of training episodes",
        title=f"{found['env']}, same hyperparameters, a line per seed",
        y_range=(0, 1.32),
        legend="upper left",
    )
    save_figure(figure, RESULT.with_suffix(".png"))


def main(env: str = "DoorKey-5x5", steps: str = "262144", seeds: str = "2") -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = circumstances(torch.device("cpu"), 1)
    found["versions"] |= {name: version_of(name) for name in ("minigrid", "stable-baselines3", "sb3-contrib")}
    found["command"] = f"python docs/figures/make_recurrent_ppo.py {env} {steps} {seeds}"
    runs = []
    for seed in range(int(seeds)):
        for name, (learn, cut) in LEARNERS.items():
            began = time.perf_counter()
            curve = learn(env, config_of(int(steps), seed), cut)
            seconds = round(time.perf_counter() - began, 1)
            runs.append({"learner": name, "seed": seed, "seconds": seconds, "episodes": curve})
            sys.stderr.write(
                f"{name}, seed {seed}: {smoothed(curve, 1)[1][-1]:.3f} at the end, {seconds} s\n"
            )
    found |= {"env": env, "hidden": HIDDEN, "ppo": config_of(int(steps), 0).values()}
    found |= {"episodes": "after each update: how many ended, and the sum of their returns", "runs": runs}
    write_json(RESULT, found)
    draw(found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--draw"]:
        draw(read_json(RESULT))
    else:
        main(*sys.argv[1:])
