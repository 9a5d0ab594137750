"""POPGym: fourteen families of partially observed environments at three levels, by best mean return (MMER).

The protocol is that of the paper's own script: batches of 65,536 transitions of 64 environments in
minibatches of 8,192, gradients over 1,024 steps, γ = 0.99, a memory of 256 features, 15,000,000 steps. The
hyperparameters that the script leaves to its library (learning rate, epochs, clipping, entropy, λ) are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.size import Size
from plait.lab.training.recipe import PPOConfig

__all__ = ["popgym", "popgym_easy"]

SOURCE = "Morad et al., POPGym, ICLR 2023, arXiv:2303.01859"
FAMILIES = (
    "RepeatFirst",
    "RepeatPrevious",
    "Autoencode",
    "CountRecall",
    "Concentration",
    "Battleship",
    "HigherLower",
    "MineSweeper",
    "MultiarmedBandit",
    "PositionOnlyCartPole",
    "PositionOnlyPendulum",
    "NoisyPositionOnlyCartPole",
    "NoisyPositionOnlyPendulum",
    "VelocityOnlyCartpole",
)
EASY = FAMILIES[:5]  # two cores learn these in minutes
_SLOTS = {"window": 5, "capacity": 5}
_LEARNED = {**_SLOTS, "relevance": "learned", "noise": 0.0}
CONTESTANTS: dict[str, dict[str, Any]] = {
    "GRU": {"name": "gru"},
    "RelLSTM learned": {"name": "rellstm", **_LEARNED},
    "RelGRU learned": {"name": "relgru", **_LEARNED},
    "RelLSTM earned": {"name": "rellstm", **_SLOTS},
    "RelGRU earned": {"name": "relgru", **_SLOTS},
    "LSTM": {"name": "lstm"},
    "MemLSTM": {"name": "memlstm"},
    "Transformer": {"name": "transformer"},
}
# Other settings of the learned relevance, in the two environments where it is compared with a GRU.
_MORE = {"window": 16, "capacity": 16}
SETTINGS: dict[str, dict[str, Any]] = {
    "RelGRU learned, 16 + 16": {**CONTESTANTS["RelGRU learned"], **_MORE},
    "RelLSTM learned, 16 + 16": {**CONTESTANTS["RelLSTM learned"], **_MORE},
    "RelLSTM learned, forget bias 1": {**CONTESTANTS["RelLSTM learned"], "forget_bias": 1.0},
}
COMPARED = ("RepeatPreviousEasy", "ConcentrationEasy")
_PUBLISHED = PPOConfig(
    total_timesteps=15_000_000,
    n_envs=64,
    n_steps=1024,
    n_minibatches=8,
    n_epochs=10,
    lr=3e-4,
    gamma=0.99,
    vf_coef=2.0,
    evaluate_every=10,
    evaluate_on=128,
)
_FEW = PPOConfig(total_timesteps=1_000_000, evaluate_every=49)
_SMALL = PPOConfig(total_timesteps=1024, n_envs=8, n_steps=64, n_epochs=1, evaluate_on=2)
_UNREAD = (
    "No published value stands beside ours: the paper's table of results could not be read where this was "
    "written, and none was found in those files of its repository that could.",
    "MMER: the largest mean return of the episodes that ended within 65,536 steps of training, as published.",
)


def popgym(size: Size) -> Experiment:
    """Return the experiment of every family at every level, as published."""
    levels = ("Easy", "Medium", "Hard") if size.published else ("Easy",)
    families = FAMILIES if size.published else FAMILIES[: size.rows]
    environments = [family + level for level in levels for family in families]
    hidden = 256 if size.published else size.hidden
    return _experiment(
        "popgym",
        "POPGym: every family at every level",
        environments,
        _PUBLISHED if size.published else _SMALL,
        hidden,
        size.seeds,
        (
            "Batches of 65,536 transitions of 64 environments in minibatches of 8,192, gradients over 1,024 "
            "steps, γ = 0.99, 256 features, 15,000,000 steps as published; learning rate, epochs, clipping, "
            "entropy and λ are ours, and so are heads and encoder.",
            "Of the paper's fifteen families two, the labyrinths, need mazelib and are left out; "
            "VelocityOnlyCartpole is newer than the paper, which calls PositionOnlyCartPole and "
            "PositionOnlyPendulum StatelessCartPole and StatelessPendulum.",
        ),
    )


def popgym_easy(size: Size) -> Experiment:
    """Return the experiment of five families at the first level: a minute or two per run on one core."""
    environments = [family + "Easy" for family in (EASY if size.published else EASY[: size.rows])]
    settings = {env: SETTINGS for env in COMPARED if size.published}
    return _experiment(
        "popgym-easy",
        "POPGym: five families at Easy, as far as a core gets in minutes",
        environments,
        _FEW if size.published else _SMALL,
        64 if size.published else size.hidden,
        size.seeds,
        (
            "1,000,000 steps instead of 15,000,000, 64 features instead of 256, rollouts of 64 steps of 64 "
            "environments: our own settings, those of `plait train popgym`.",
        ),
        settings,
    )


def _experiment(
    name: str,
    title: str,
    environments: list[str],
    ppo: PPOConfig,
    hidden: int,
    seeds: tuple[int, ...],
    notes: tuple[str, ...],
    more: Mapping[str, dict[str, dict[str, Any]]] | None = None,
) -> Experiment:
    recipe = ppo.values()
    del recipe["seed"]
    cells = [(env, *named) for env in environments for named in CONTESTANTS.items()]
    cells += [(env, *named) for env in environments for named in (more or {}).get(env, {}).items()]
    runs = [
        PlannedRun(
            row=env,
            column=column,
            task={"name": "popgym", "env": env, "test_env": None},
            model={**model, "hidden_size": hidden},
            recipe=recipe,
            scored_by="mmer",
        )
        for env, column, model in cells
    ]
    return Experiment(
        name=name,
        title=title,
        source=SOURCE,
        claim="GRU is the best memory on average; ours remember by keeping states.",
        kind="table",
        metric="best mean reward of training (MMER)",
        updates_to=0.9,
        needs="popgym",
        seeds=seeds,
        runs=tuple(runs),
        notes=(*notes, *_UNREAD),
    )
