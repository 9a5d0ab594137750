"""PPO with RelLSTM as the agent's memory, in one file, as CleanRL writes it: a pole whose speed is not seen.

Three things differ from a script with nn.LSTM: a `reset` mask clears the rows whose episode begins, so no
loop over time is needed; `state.rows(…)` takes some rows of the state; and the state holds a memory.

pip install 'plait[rl]'
python examples/ppo_single_file.py            # about twenty seconds on one core
python examples/ppo_single_file.py --smoke    # seconds; its numbers mean nothing
"""

import sys
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import plait

ENVS, STEPS, UPDATES, EPOCHS = (4, 8, 2, 1) if "--smoke" in sys.argv else (16, 64, 60, 4)
MINIBATCHES, LR, DISCOUNT, DECAY, CLIP, ENTROPY, VALUE = 4, 2e-3, 0.98, 0.95, 0.2, 0.01, 0.5
SEEN, SCALE = [0, 2], 0.1  # position and angle, not their speeds; what a step is worth


class Agent(nn.Module):
    """h_t = RelLSTM(encoded x_t), a policy and a value from it."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(len(SEEN), hidden), nn.Tanh())
        self.memory = plait.RelLSTM(hidden, hidden, window=5, capacity=5)
        self.actor, self.critic = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, x: Tensor, begins: Tensor, state: Any = None) -> tuple[Categorical, Tensor, Any]:
        """Of (T, B, F) observations and (T, B) flags; T = 1 while playing."""
        hidden, state = self.memory(self.encoder(x), state, reset=begins)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1), state


torch.manual_seed(0)
envs = gymnasium.make_vec("CartPole-v1", ENVS)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)
x = torch.as_tensor(envs.reset(seed=0)[0][:, SEEN])
begins, ended, state = torch.ones(ENVS, dtype=torch.bool), torch.zeros(ENVS, dtype=torch.bool), None
lasted, lengths = torch.zeros(ENVS), []
for update in range(1, UPDATES + 1):
    first, played = state, []  # the state a rollout begins with is kept: learning starts from it again
    with torch.no_grad():
        for _ in range(STEPS):
            policy, value, state = agent(x[None], begins[None], state)
            action = policy.sample()
            step = (x, begins, ~ended, action[0], policy.log_prob(action)[0], value[0])
            seen, reward, *flags, _ = envs.step(action[0].numpy())
            terminated, truncated = map(torch.as_tensor, flags)
            # After an episode ends, the next step starts a new one and ignores its action: not counted.
            begins, ended = ended, terminated | truncated
            x, lasted = torch.as_tensor(seen[:, SEEN]), lasted + ~begins
            played.append((*step, SCALE * torch.as_tensor(reward).float(), terminated, ended))
            lengths += lasted[ended].tolist()
            lasted[ended] = 0
        last_value = agent(x[None], begins[None], state)[1]
        columns = map(torch.stack, zip(*played, strict=True))
        xs, starts, counted, actions, old, values, rewards, dead, over = columns
        # Generalised advantages; where the time limit ended an episode, the last value stands for the rest.
        delta = rewards + DISCOUNT * torch.cat([values[1:], last_value]).masked_fill(dead, 0) - values
        advantage, running = torch.empty_like(delta), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            running = delta[t] + DISCOUNT * DECAY * running * ~over[t]
            advantage[t] = running
        returns = advantage + values
        advantage = (advantage - advantage[counted].mean()) / (advantage[counted].std() + 1e-8)
    for _ in range(EPOCHS):
        for some in torch.randperm(ENVS).chunk(MINIBATCHES):  # whole sequences of some environments
            before = None if first is None else first.rows(some)
            policy, value, _ = agent(xs[:, some], starts[:, some], before)
            ratio = (policy.log_prob(actions[:, some]) - old[:, some]).exp()
            gain = torch.minimum(
                ratio * advantage[:, some], ratio.clamp(1 - CLIP, 1 + CLIP) * advantage[:, some]
            )
            error = (value - returns[:, some]).square() / 2
            loss = (VALUE * error - gain - ENTROPY * policy.entropy())[counted[:, some]].mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 10 == 0 or update == UPDATES:
        mean = sum(lengths) / max(len(lengths), 1)
        print(f"{update * ENVS * STEPS:7,} steps: the pole stands for {mean:.0f} steps an episode")
        lengths = []
