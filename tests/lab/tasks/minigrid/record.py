"""Write recorded.json: episodes played in EnvPool, each with the seed that gives the same one in minigrid.

    python tests/lab/tasks/minigrid/record.py

A seed gives different episodes in the two backends, so for every EnvPool episode the minigrid seeds are tried
until one starts with the same observation and answers every action alike.
"""

import hashlib
import json
from pathlib import Path

import torch

from plait.lab.tasks.minigrid import make_vec_env

OUTPUT = Path(__file__).parent / "recorded.json"
NAMES = ("DoorKey-5x5", "MemoryS7", "MemoryS13", "RedBlueDoors-6x6", "Empty-5x5")
STEPS, EPISODES, SEEDS = 150, 3, 4000


def play(env, actions):
    """Return a digest of all observations, the sum of rewards, the steps and whether the episode ended."""
    digest, rewards, ends = hashlib.sha256(), [], 0
    timestep = env.reset()
    for action in [*actions, None]:
        for part in (*timestep.observation, timestep.reward, timestep.terminated, timestep.truncated):
            digest.update(part.numpy().tobytes())
        rewards.append(round(timestep.reward.item(), 6))
        if bool(timestep.done) or action is None:
            ends += bool(timestep.done)
            break
        timestep = env.step(torch.tensor([action]))
    return {"digest": digest.hexdigest(), "reward": sum(rewards), "steps": len(rewards) - 1, "ended": ends}


def main():
    generator = torch.Generator().manual_seed(0)
    recorded = []
    for name in NAMES:
        farama = make_vec_env(name, 1)
        episodes = []
        for pool_seed in range(400):
            actions = torch.tensor([0, 1, 2, 2, 2, 3, 5])[
                torch.randint(7, (STEPS,), generator=generator)
            ].tolist()
            pool = make_vec_env(name, 1, pool_seed, backend="envpool")
            outcome = play(pool, actions)
            if (
                outcome["reward"] == 0
                and len(episodes) == EPISODES - 1
                and not any(f["reward"] for f in episodes)
            ):
                continue  # one of them must be rewarded
            first = pool.reset().observation
            for farama.seed in range(SEEDS):
                same = all(torch.equal(a, b) for a, b in zip(farama.reset().observation, first, strict=True))
                if same and play(farama, actions) == outcome:
                    actions = actions[: outcome["steps"]]
                    row = {"env": name, "envpool": pool_seed, "minigrid": farama.seed, "actions": actions}
                    episodes.append({**row, **outcome})
                    break
            if len(episodes) == EPISODES:
                break
        print(name, len(episodes), [(f["steps"], f["reward"]) for f in episodes])
        recorded += episodes
    OUTPUT.write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
