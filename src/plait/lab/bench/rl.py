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
from plait.lab.tasks.minigrid.names import BACKENDS, canonical_name
from plait.lab.training.recipe import PPOConfig
from plait.models import MODELS
from plait.provenance import version_of
from plait.table import Table

__all__ = ["bench_rl"]

_MATCHED, _DEFAULTS = "RecurrentPPO, same settings", "RecurrentPPO, its defaults"
_SHARED = "RecurrentPPO, same, one LSTM"
_PACKAGES = ("gymnasium", "minigrid", "envpool", "stable-baselines3", "sb3-contrib")
_DEFAULT_PPO = PPOConfig()
_LONGEST = 256  # warm-up steps per environment, about the longest episode of DoorKey-5x5


def bench_rl(
    env: str = "DoorKey-5x5",
    policies: str = "lstm,rellstm,memlstm",
    backends: str | None = None,
    n_envs: int = _DEFAULT_PPO.n_envs,
    n_steps: int = _DEFAULT_PPO.n_steps,
    n_epochs: int = _DEFAULT_PPO.n_epochs,
    n_minibatches: int = _DEFAULT_PPO.n_minibatches,
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
        n_envs: number of parallel environments.
        n_steps: steps of each environment per rollout.
        n_epochs: epochs over a rollout per update.
        n_minibatches: minibatches per epoch.
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
    sizes = {"n_envs": n_envs, "n_steps": n_steps, "n_epochs": n_epochs, "n_minibatches": n_minibatches}
    ppo = PPOConfig().changed(**sizes).check()
    if n_envs % n_minibatches:
        raise ConfigError(f"n_minibatches: expected a divisor of n_envs = {n_envs}, got {n_minibatches}")
    env_name, names = canonical_name(env), parse_names(policies, tuple(MODELS), "policy")
    notes: list[str] = []
    backend_names = _backends(backends, notes)
    with limit_threads(threads) as used:
        data: dict[str, Any] = circumstances(torch.device("cpu"), used, commit or None)
        data["versions"] |= {package: version_of(package) for package in _PACKAGES}
        learners: dict[tuple[str, str], TimedLearner] = {
            (name, backend): PlaitPPO(env_name, backend, name, hidden, ppo)
            for backend in backend_names
            for name in names
        }
        if not no_peer:
            learners |= _peers(env_name, ppo, hidden, notes)
        records = take_turns_playing(learners, rounds, warm_up=-(-_LONGEST // n_steps))
    rows = _rows(records, learners)
    data |= {
        "unit": "steps a second",
        "env": env_name,
        **sizes,
        "hidden": hidden,
        "rounds": rounds,
        "rows": rows,
        "notes": notes,
    }
    if out:
        write_json(out, data)
    return CommandResult(data, (_table(data),))


def _backends(requested: str | None, notes: list[str]) -> list[str]:
    """Return the backends requested, which must be installed; by default all that are installed."""
    require("minigrid", "rl")
    if requested is not None:
        names = parse_names(requested, BACKENDS, "backend")
        if "envpool" in names:
            require("envpool", "envpool")
        return names
    if version_of("envpool") is None:
        notes.append("no rows of envpool, which is not installed: pip install 'plait[envpool]'")
        return ["minigrid"]
    return list(BACKENDS)


def _peers(
    env_name: str, ppo: PPOConfig, hidden: int, notes: list[str]
) -> dict[tuple[str, str], TimedLearner]:
    if not recurrent_ppo.is_installed():
        notes.append(f"no rows of RecurrentPPO, which is not installed: {recurrent_ppo.INSTALL}")
        return {}
    return {
        (_MATCHED, "minigrid"): StableBaselinesPPO(
            recurrent_ppo.matched(env_name, ppo, hidden, own_critic=True)
        ),
        (_SHARED, "minigrid"): StableBaselinesPPO(recurrent_ppo.matched(env_name, ppo, hidden)),
        (_DEFAULTS, "minigrid"): StableBaselinesPPO(recurrent_ppo.with_defaults(env_name, ppo.seed)),
    }


def _rows(
    records: dict[tuple[str, str], Record], learners: dict[tuple[str, str], TimedLearner]
) -> list[dict[str, Any]]:
    """Return a row for each learner: medians over the rounds of rates, and of ratios (above 1 is faster)."""
    peer = records.get((_MATCHED, "minigrid"))
    rows = []
    for (name, backend), record in records.items():
        lstm = records.get(("lstm", backend)) if name in MODELS else None
        play, train = record.collection, record.collection_and_update
        rows.append(
            {
                "learner": name,
                "backend": backend,
                "steps a turn": learners[name, backend].steps,
                "collection": 1 / play.median,
                "to lstm": lstm.collection.ratio_to(play) if lstm else None,
                "training": 1 / train.median,
                "to RecurrentPPO": peer.collection_and_update.ratio_to(train) if peer else None,
                "spread": train.spread / train.median,
            }
        )
    return rows


def _table(data: dict[str, Any]) -> Table:
    rows = data["rows"]
    cells = [[f"{v:,.0f}" if k in ("collection", "training") else v for k, v in row.items()] for row in rows]
    title = (
        f"{data['env']}, steps a second: {data['n_envs']} environments, rollouts of {data['n_steps']} "
        f"steps, {data['n_epochs']} epochs of {data['n_minibatches']} minibatches, hidden {data['hidden']}"
    )
    notes = [
        "to lstm: speed of collection over that of the lstm policy with the same backend; to RecurrentPPO: "
        "speed of training over RecurrentPPO's with the same settings; medians over the rounds",
        "spread: interquartile range of the rounds of training, over their median",
        *data["notes"],
        describe(data),
    ]
    return Table(list(rows[0]), cells, title, notes)
