"""`plait bench rl`: steps per second of collection and training in MiniGrid, against RecurrentPPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, check_int, require
from plait.lab.bench import recurrent_ppo
from plait.lab.bench.ppo_learners import (
    PlaitPPO,
    Record,
    StableBaselinesPPO,
    TimedLearner,
    take_turns_playing,
)
from plait.lab.bench.sizes import MOST_ROUNDS, parse_names
from plait.lab.bench.timing import limit_threads
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.tasks.minigrid.names import BACKENDS, world_named
from plait.lab.training.recipe import Settings
from plait.models import MODELS
from plait.provenance import version_of
from plait.table import Table

__all__ = ["bench_rl"]

_MATCHED, _DEFAULTS = "RecurrentPPO, same settings", "RecurrentPPO, its defaults"
_SHARED = "RecurrentPPO, same, one LSTM"
_PACKAGES = ("gymnasium", "minigrid", "envpool", "stable-baselines3", "sb3-contrib")
_USUAL = Settings()
_LONGEST = 256  # warm-up steps per environment, about the longest episode of DoorKey-5x5


def bench_rl(
    env: str = "DoorKey-5x5",
    policies: str = "lstm,rellstm,memlstm",
    backends: str | None = None,
    envs: int = _USUAL.envs,
    rollout: int = _USUAL.rollout,
    epochs: int = _USUAL.epochs,
    minibatches: int = _USUAL.minibatches,
    hidden: int = 64,
    rounds: int = 5,
    threads: int = 1,
    no_peer: bool = False,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Measure steps per second over all environments: of collection, and of training (collection and update).

    After a warm-up the learners take turns of one rollout and one update. RecurrentPPO of Stable-Baselines3
    is measured where it is installed, three times: with our settings, environments and encoder, and an LSTM
    for its critic, which is its default; with one LSTM, which its critic reads and does not train; and with
    its own defaults, on one environment.

    Args:
        env: environment, such as DoorKey-5x5 or MemoryS7.
        policies: models of the policy, comma-separated.
        backends: minigrid, envpool, or both, comma-separated; by default those that are installed.
        envs: number of parallel environments.
        rollout: steps of each environment between two updates.
        epochs: passes of an update over its rollout.
        minibatches: minibatches per epoch.
        hidden: features of the memory and of an encoded observation.
        rounds: rounds of measurement.
        threads: threads of the CPU.
        no_peer: leave RecurrentPPO out.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(1, hidden=hidden)
    check_int(1, MOST_ROUNDS, rounds=rounds)
    settings = Settings(envs=envs, rollout=rollout, epochs=epochs, minibatches=minibatches).check()
    if envs % minibatches:
        raise ConfigError(f"minibatches: expected a divisor of envs = {envs}, got {minibatches}")
    world, names = world_named(env), parse_names(policies, tuple(MODELS), "policy")
    notes: list[str] = []
    homes = _backends(backends, notes)
    with limit_threads(threads) as used:
        data: dict[str, Any] = circumstances(torch.device("cpu"), used, commit or None)
        data["versions"] |= {package: version_of(package) for package in _PACKAGES}
        learners: dict[tuple[str, str], TimedLearner] = {
            (name, home): PlaitPPO(world, home, name, hidden, settings) for home in homes for name in names
        }
        if not no_peer:
            learners |= _peers(world, settings, hidden, notes)
        records = take_turns_playing(learners, rounds, warm_up=-(-_LONGEST // rollout))
    rows = _rows(records, learners)
    sizes = {"envs": envs, "rollout": rollout, "epochs": epochs, "minibatches": minibatches, "hidden": hidden}
    data |= {"unit": "steps a second", "env": world, **sizes, "rounds": rounds, "rows": rows, "notes": notes}
    if out:
        write_json(out, data)
    return CommandResult(data, (_table(data),))


def _backends(wanted: str | None, notes: list[str]) -> list[str]:
    """Return the backends requested, which must be installed; by default all that are installed."""
    require("minigrid", "rl")
    if wanted is not None:
        names = parse_names(wanted, BACKENDS, "backend")
        if "envpool" in names:
            require("envpool", "envpool")
        return names
    if version_of("envpool") is None:
        notes.append("no rows of envpool, which is not installed: pip install 'plait[envpool]'")
        return ["minigrid"]
    return list(BACKENDS)


def _peers(
    world: str, settings: Settings, hidden: int, notes: list[str]
) -> dict[tuple[str, str], TimedLearner]:
    if not recurrent_ppo.is_installed():
        notes.append(f"no rows of RecurrentPPO, which is not installed: {recurrent_ppo.INSTALL}")
        return {}
    return {
        (_MATCHED, "minigrid"): StableBaselinesPPO(
            recurrent_ppo.matched(world, settings, hidden, own_critic=True)
        ),
        (_SHARED, "minigrid"): StableBaselinesPPO(recurrent_ppo.matched(world, settings, hidden)),
        (_DEFAULTS, "minigrid"): StableBaselinesPPO(recurrent_ppo.by_default(world, settings.seed)),
    }


def _rows(
    records: dict[tuple[str, str], Record], learners: dict[tuple[str, str], TimedLearner]
) -> list[dict[str, Any]]:
    """Return a row for each learner: medians over the rounds of rates, and of ratios (above 1 is faster)."""
    peer = records.get((_MATCHED, "minigrid"))
    rows = []
    for (name, backend), record in records.items():
        lstm = records.get(("lstm", backend)) if name in MODELS else None
        play, train = record.collection, record.whole
        rows.append(
            {
                "learner": name,
                "worlds": backend,
                "steps a turn": learners[name, backend].steps,
                "collection": 1 / play.median,
                "to lstm": lstm.collection.ratio_to(play) if lstm else None,
                "training": 1 / train.median,
                "to RecurrentPPO": peer.whole.ratio_to(train) if peer else None,
                "spread": train.spread / train.median,
            }
        )
    return rows


def _table(data: dict[str, Any]) -> Table:
    rows = data["rows"]
    cells = [[f"{v:,.0f}" if k in ("collection", "training") else v for k, v in row.items()] for row in rows]
    title = (
        f"{data['env']}, steps a second: {data['envs']} worlds, rollout {data['rollout']}, "
        f"{data['epochs']} epochs of {data['minibatches']} minibatches, hidden {data['hidden']}"
    )
    notes = [
        "to lstm: speed of collection over that of the lstm policy in the same worlds; to RecurrentPPO: "
        "speed of training over RecurrentPPO's with the same settings; medians over the rounds",
        "spread: interquartile range of the rounds of training, over their median",
        *data["notes"],
        describe(data),
    ]
    return Table(list(rows[0]), cells, title, notes)
