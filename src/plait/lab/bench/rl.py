"""`plait bench rl`: steps a second of playing and of training in a grid world, against RecurrentPPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, require, whole
from plait.lab.bench import recurrent_ppo
from plait.lab.bench.machine import check_folder, circumstances, describe
from plait.lab.bench.ppo_contenders import Ours, Peer, PPOContender, Record, take_turns_playing
from plait.lab.bench.sizes import MOST_ROUNDS, parse_names
from plait.lab.bench.timing import limit_threads
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
_LONGEST = 256  # steps of warm-up in each world: about the longest episode of DoorKey-5x5


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
    """Steps of all worlds together, a second: of collection alone, and of training (collection and update).

    Everyone takes turns of one rollout and one update, after a warm-up. RecurrentPPO of Stable-Baselines3
    takes part where it is installed: with the same worlds, rollout, epochs, batch, LSTM and encoder, on
    Farama's worlds in its own vector environment, the critic with an LSTM of its own as is its habit; the
    same with one LSTM, which its critic reads and does not train; and as it comes, on one world.

    Args:
        env: the world, such as DoorKey-5x5 or MemoryS7.
        policies: which memories, between commas.
        backends: minigrid, envpool, or both between commas; by default those that are installed.
        envs: worlds stepped together.
        rollout: steps of each between two updates.
        epochs: how often an update goes through its rollout.
        minibatches: parts an epoch is made of.
        hidden: features of the memory and of an encoded observation.
        rounds: turns of each.
        threads: of the CPU.
        no_peer: leave RecurrentPPO out.
        commit: what to record where the source is no git checkout.
        out: write the JSON here.
    """
    check_folder(out)
    whole(1, hidden=hidden)
    whole(1, MOST_ROUNDS, rounds=rounds)
    settings = Settings(envs=envs, rollout=rollout, epochs=epochs, minibatches=minibatches).check()
    if envs % minibatches:
        raise ConfigError(f"minibatches: expected a divisor of envs = {envs}, got {minibatches}")
    world, names = world_named(env), parse_names(policies, tuple(MODELS), "policy")
    notes: list[str] = []
    homes = _backends(backends, notes)
    with limit_threads(threads) as used:
        found: dict[str, Any] = circumstances(torch.device("cpu"), used, commit or None)
        found["versions"] |= {package: version_of(package) for package in _PACKAGES}
        contenders: dict[tuple[str, str], PPOContender] = {
            (name, home): Ours(world, home, name, hidden, settings) for home in homes for name in names
        }
        if not no_peer:
            contenders |= _peers(world, settings, hidden, notes)
        records = take_turns_playing(contenders, rounds, warm_up=-(-_LONGEST // rollout))
    rows = _rows(records, contenders)
    sizes = {"envs": envs, "rollout": rollout, "epochs": epochs, "minibatches": minibatches, "hidden": hidden}
    found |= {"unit": "steps a second", "env": world, **sizes, "rounds": rounds, "rows": rows, "notes": notes}
    if out:
        write_json(out, found)
    return CommandResult(found, (_table(found),))


def _backends(wanted: str | None, notes: list[str]) -> list[str]:
    """Those that were asked for, which must be there; or all that are."""
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
) -> dict[tuple[str, str], PPOContender]:
    if not recurrent_ppo.is_installed():
        notes.append(f"no rows of RecurrentPPO, which is not installed: {recurrent_ppo.INSTALL}")
        return {}
    return {
        (_MATCHED, "minigrid"): Peer(recurrent_ppo.matched(world, settings, hidden, own_critic=True)),
        (_SHARED, "minigrid"): Peer(recurrent_ppo.matched(world, settings, hidden)),
        (_DEFAULTS, "minigrid"): Peer(recurrent_ppo.by_default(world, settings.seed)),
    }


def _rows(
    records: dict[tuple[str, str], Record], contenders: dict[tuple[str, str], PPOContender]
) -> list[dict[str, Any]]:
    """Medians over the rounds; a ratio is formed within each round first, and above 1 is faster."""
    peer = records.get((_MATCHED, "minigrid"))
    rows = []
    for (name, backend), record in records.items():
        lstm = records.get(("lstm", backend)) if name in MODELS else None
        play, train = record.collection, record.whole
        rows.append(
            {
                "learner": name,
                "worlds": backend,
                "steps a turn": contenders[name, backend].steps,
                "collection": 1 / play.median,
                "to lstm": lstm.collection.ratio_to(play) if lstm else None,
                "training": 1 / train.median,
                "to RecurrentPPO": peer.whole.ratio_to(train) if peer else None,
                "spread": train.spread / train.median,
            }
        )
    return rows


def _table(found: dict[str, Any]) -> Table:
    rows = found["rows"]
    cells = [[f"{v:,.0f}" if k in ("collection", "training") else v for k, v in row.items()] for row in rows]
    title = (
        f"{found['env']}, steps a second: {found['envs']} worlds, rollout {found['rollout']}, "
        f"{found['epochs']} epochs of {found['minibatches']} minibatches, hidden {found['hidden']}"
    )
    notes = [
        "to lstm: speed of collection over that of the lstm policy in the same worlds; to RecurrentPPO: "
        "speed of training over RecurrentPPO's with the same settings; medians over the rounds",
        "spread: interquartile range of the rounds of training, over their median",
        *found["notes"],
        describe(found),
    ]
    return Table(list(rows[0]), cells, title, notes)
