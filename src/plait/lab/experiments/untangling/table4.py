"""Table 4: average reward in partially observed grid worlds, trained small and tested large."""

from __future__ import annotations

from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.contestants import SOURCE
from plait.lab.experiments.untangling.size import Size
from plait.lab.training.recipe import PPOConfig

__all__ = ["table4"]

# training environment, scores of (MemLSTM, RelLSTM), test environment, scores of (MemLSTM, RelLSTM)
_PUBLISHED = (
    ("RedBlueDoors-6x6", (0.97, 0.97), "RedBlueDoors-8x8", (0.95, 0.95)),
    ("GoToObject-6x6", (0.85, 0.84), "GoToObject-8x8", (0.66, 0.74)),
    ("MemoryS7", (0.40, 0.94), "MemoryS13", (0.24, 0.30)),
    ("GoToDoor-5x5", (0.17, 0.25), "GoToDoor-8x8", (0.11, 0.15)),
    ("Fetch-5x5", (0.42, 0.50), "Fetch-8x8", (0.44, 0.45)),
    ("DoorKey-5x5", (0.94, 0.93), "DoorKey-16x16", (0.31, 0.44)),
)
# The table does not give the number of objects.
_FULL_NAMES = {
    "GoToObject-6x6": "GoToObject-6x6-N2",
    "GoToObject-8x8": "GoToObject-8x8-N2",
    "Fetch-5x5": "Fetch-5x5-N2",
    "Fetch-8x8": "Fetch-8x8-N3",
}
_MODELS: dict[str, dict[str, Any]] = {
    "MemLSTM": {"name": "memlstm"},
    "RelLSTM": {"name": "rellstm", "window": 5, "capacity": 5},
}
# A learned relevance, for environments in which the choice of states matters; the paper has none.
_LEARNED = {"RelLSTM learned": {**_MODELS["RelLSTM"], "relevance": "learned", "noise": 0.0}}
_LEARNED_IN = ("MemoryS7", "DoorKey-5x5")
# 5,000,000 steps as published; an evaluation every 250,000 or so.
_FULL = PPOConfig(total_timesteps=5_000_000, evaluate_every=61, evaluate_on=128)
_SMALL = PPOConfig(total_timesteps=256, n_envs=8, n_steps=16, n_epochs=1, evaluate_on=2)


def table4(size: Size) -> Experiment:
    """Return the experiment: six pairs of environments; a run is scored in both of its pair."""
    recipe = (_FULL if size.published else _SMALL).values()
    del recipe["seed"]
    hidden = 64 if size.published else size.hidden
    runs = []
    for trained, small, tested, large in _PUBLISHED[: size.rows]:
        environments = {"env": _FULL_NAMES.get(trained, trained), "test_env": _FULL_NAMES.get(tested, tested)}
        models = _MODELS | (_LEARNED if trained in _LEARNED_IN else {})
        for scored, row, published in (
            (environments["env"], f"{trained}, trained", small),
            (environments["test_env"], f"{tested}, tested", large),
        ):
            known = dict(zip(_MODELS, published, strict=True))
            runs += [
                PlannedRun(
                    row=row,
                    column=column,
                    task={"name": "minigrid", **environments, "backend": "minigrid"},
                    model={**model, "hidden_size": hidden},
                    recipe=recipe,
                    published=known.get(column) if size.published else None,
                    scored_on=scored,
                )
                for column, model in models.items()
            ]
    return Experiment(
        name="table4",
        title="MiniGrid: average reward, trained in a small environment and tested in a larger one",
        source=f"{SOURCE}, table 4",
        claim="RelLSTM transfers to larger environments at least as well as MemLSTM.",
        kind="table",
        metric="average reward",
        updates_to=0.9,
        needs="minigrid",
        seeds=size.seeds,
        runs=tuple(runs),
        notes=(
            "5,000,000 steps of PPO an environment; its hyperparameters are unpublished, these are ours.",
            "Scores are mean returns over 128 held-out episodes, with actions sampled from the policy.",
        ),
    )
