"""What the memory of policies trained in DoorKey-5x5 holds in DoorKey-16x16, and what decides how they fare.

python docs/figures/make_doorkey.py memory RUN [RUN …]      # of `plait reproduce table4 --rows doorkey`
python docs/figures/make_doorkey.py along MODEL SEED STEPS  # trains, and plays in the large one on the way
python docs/figures/make_doorkey.py draw                    # the figure again, from the numbers

`memory` adds a line to results/rl/doorkey.jsonl for each run, `along` one to $ALONG for each look; the figure
is docs/figures/doorkey-memory.png. Episodes are held out, actions are drawn. In `memory` each run plays as it
was trained, with probabilities flattened by a temperature of 2, and with parts of its memory emptied every
`EVERY` steps (with --quick without the last).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plait.lab.figures import save_figure
from plait.lab.figures.canvas import blank
from plait.lab.runs.reading import read_run
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.learner import learner_of
from plait.lab.training.ppo.policy import Policy, describe_policy, load_policy
from plait.lab.training.process import Group
from plait.lab.training.recipe import PPOConfig
from plait.models import State
from plait.ops.slots import clear
from plait.provenance import commit

HERE = Path(__file__).parent
RESULT = HERE.parent.parent / "results/rl/doorkey.jsonl"
ALONG = Path(os.environ.get("ALONG", "doorkey-along.jsonl"))
TRAINED, LARGE, EPISODES, EVERY = "DoorKey-5x5", "DoorKey-16x16", 64, 64
WAYS = ("nothing", "slots", "h and c", "both")
ALONG_AT = (100e3, 200e3, 300e3, 450e3, 600e3, 1e6, 1.5e6, 2e6, 3e6, 4e6, 5e6)
LOOKS = (20, 100, 250, 500, 1000, 2000)  # steps at which the memory is looked into
DOOR, KEY, GOAL = 4, 5, 8  # objects, as an image has them


def emptied(state: State, what: str) -> State:
    """Return the state of every episode with its slots, its h and c, or both cleared."""
    if what in ("slots", "both"):
        rows = torch.ones(state.hidden.shape[1], dtype=torch.bool)
        state = state.replace(memory=tuple(clear(rows, memory) for memory in state.memory))
    if what in ("h and c", "both") and state.cell_state is not None:
        state = state.replace(
            hidden=torch.zeros_like(state.hidden), cell_state=torch.zeros_like(state.cell_state)
        )
    return state


def shown(image: Tensor) -> dict[str, Tensor]:
    """(B,) bool each: what an agent has in view, and whether it carries the key (in its own cell)."""
    objects, states = image[..., 0].flatten(1), image[..., 2].flatten(1)
    door = objects == DOOR
    return {
        "key": (objects == KEY).any(1),
        "door": door.any(1),
        "open door": (door & (states == 0)).any(1),
        "goal": (objects == GOAL).any(1),
        "carries": image[:, 3, 6, 0] == KEY,
    }


def looked_into(trace: Any, views: dict[str, Tensor], playing: Tensor, window: int | None) -> dict[str, Any]:
    """Of the episodes that go on: how the attention of a step falls on what is held, and what that shows."""
    born, weights = trace.born[0][playing], trace.weights[0][playing]
    now = born.max(1, keepdim=True).values
    kept = (born >= 0) & (now - born >= (window or 10))
    seen = {
        name: [steps[row, born[place].clamp_min(0)] for place, row in enumerate(playing.nonzero()[:, 0])]
        for name, steps in views.items()
    }
    worth = {name: torch.stack(parts) & kept for name, parts in seen.items()} if len(born) else {}
    ages = (now - born)[kept].float()
    births = born[kept].float()
    some = max(int(kept.sum()), 1)
    return {
        "episodes": len(born),
        "weight on states older than the window": (weights * kept).sum(1).mean().item()
        if len(born)
        else None,
        "weight on states older than 250 steps": (
            (weights * (kept & (now - born > 250))).sum(1).mean().item() if len(born) else None
        ),
        "born, median": births.median().item() if len(births) else None,
        "age, median": ages.median().item() if len(ages) else None,
        "of those kept, from the first 20 steps": ((births < 20).sum().item()) / some,
        "of those kept, that show": {name: part.sum().item() / some for name, part in worth.items()},
    }


@torch.no_grad()
def play(
    policy: Policy, env_name: str, what: str = "nothing", temperature: float = 1.0, looking: bool = False
) -> dict[str, Any]:
    """Play the first held-out episode of every environment; `what` is cleared every `EVERY` steps."""
    env = policy.family.make_vec_env(env_name, EPISODES, 0, held_out=True)
    generator, actions = generator_for(0, "held-out", 0, "cpu"), policy.actions
    timestep, state = env.reset(), None
    playing = torch.ones(EPISODES, dtype=torch.bool)
    gained, ever = (
        torch.zeros(EPISODES),
        {name: torch.full((EPISODES,), -1) for name in ("carries", "open door")},
    )
    views: dict[str, list[Tensor]] = {}
    window = getattr(policy.recurrent, "window", None)
    looks, step, entropy, played = {}, 0, 0.0, 0
    while bool(playing.any()):
        now = shown(timestep.observation.image)
        for name, flags in now.items():
            views.setdefault(name, []).append(flags)
        for name, first in ever.items():
            first[now[name] & playing & (first < 0)] = step
        if what != "nothing" and step and step % EVERY == 0:
            state = emptied(state, what)
        look = looking and step in LOOKS
        observation = timestep.observation.map(lambda part: part.unsqueeze(0))
        logits, _, state, *rest = policy(
            observation, state, reset=timestep.episode_start.unsqueeze(0), need_trace=look
        )
        if look:
            whole = {name: torch.stack(parts, 1) for name, parts in views.items()}
            looks[step] = looked_into(rest[0][0], whole, playing, window)
        outputs = logits[0].float() / temperature
        chances = torch.distributions.Categorical(logits=outputs)
        entropy, played = entropy + (chances.entropy() * playing).sum().item(), played + int(playing.sum())
        timestep = env.step(actions.sample(outputs, actions.noise((1, EPISODES), generator)[0]))
        gained += timestep.reward * playing
        playing &= ~timestep.done
        step += 1
        if step % 64 == 0:
            state = policy.detach_state(state)
    env.close()
    return {
        "return": gained.mean().item(),
        "entropy": entropy / max(played, 1),
        "took the key": (ever["carries"] >= 0).float().mean().item(),
        "opened the door": (ever["open door"] >= 0).float().mean().item(),
        "reached the goal": (gained > 0).float().mean().item(),
        "steps to the key, median": _median(ever["carries"]),
        "steps to the open door, median": _median(ever["open door"]),
        **({"memory": looks} if looks else {}),
    }


def _median(first: Tensor) -> float | None:
    reached = first[first >= 0].float()
    return reached.median().item() if len(reached) else None


def measure(run: Path, ways: Sequence[str]) -> None:
    """Play, and add a line to what was measured before."""
    record, policy = read_run(run), load_policy(run).eval()
    model = record.description["model"]
    row: dict[str, Any] = {
        "run": record.id,
        "model": model["name"],
        "relevance": model.get("relevance", "earned"),
        "seed": record.description["recipe"]["seed"],
        "steps": record.summary["steps"],
        "episodes": EPISODES,
        "commit": commit(),
    }
    row |= {what: play(policy, LARGE, what, looking=what == "nothing") for what in ways}
    row["flattened"] = play(policy, LARGE, temperature=2.0)
    _add(RESULT, row)


def along(model: str, seed: int, steps: int, **options: Any) -> None:
    """Train, and at intervals play both environments; write a line of JSON each time."""
    ppo = PPOConfig(total_timesteps=steps, seed=seed, evaluate_on=EPISODES)
    description = describe_policy(TRAINED, model, ppo, backend="envpool", **options)
    learner = learner_of(description, torch.device("cpu"), Group())
    units = ppo.n_envs * ppo.n_steps
    for update in range(1, -(-steps // units) + 1):
        learner.advance(update, stop=False)
        if update * units in {units * round(look / units) for look in ALONG_AT}:
            line = {"model": model, **options, "seed": seed, "steps": update * units}
            line |= {name: play(learner.policy, name) for name in (TRAINED, LARGE)}
            _add(ALONG, line)


def _add(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def draw(rows: list[dict[str, Any]]) -> None:
    """How far each policy gets, and how many reach the goal when its probabilities are flattened."""
    stages = ("took the key", "opened the door", "reached the goal")
    figure, ax = blank(7.0, 3.2)
    bars = [(stage, [row["nothing"][stage] for row in rows]) for stage in stages]
    bars.append(("reached the goal, flattened", [row["flattened"]["reached the goal"] for row in rows]))
    for place, (name, shares) in enumerate(bars):
        ax.bar(
            [x + 0.2 * (place - 1.5) for x in range(len(rows))], [100 * s for s in shares], 0.18, label=name
        )
    ax.set_xticks(range(len(rows)), [_named(row) for row in rows], fontsize=7)
    ax.set(ylabel=f"% of episodes in {LARGE}", ylim=(0, 105))
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8)
    save_figure(figure, HERE / "doorkey-memory.png")


def _named(row: dict[str, Any]) -> str:
    kind = {"memlstm": "MemLSTM", "rellstm": "RelLSTM"}[row["model"]]
    relevance = f" {row['relevance']}" if row["model"] == "rellstm" else ""
    return f"{kind}{relevance}\nseed {row['seed']}, {row['steps'] / 1e6:.1f}M steps"


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    way, *rest = arguments
    if way == "along":
        model, _, relevance = rest[0].partition(" ")
        along(model, int(rest[1]), int(float(rest[2])), **({"relevance": relevance} if relevance else {}))
        return
    if way == "memory":
        for run in rest:
            if run != "--quick":
                measure(Path(run), WAYS[:1] if "--quick" in rest else WAYS)
    draw([json.loads(line) for line in RESULT.read_text().splitlines()])


if __name__ == "__main__":
    main(sys.argv[1:])
