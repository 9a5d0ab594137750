"""RelLSTM where CleanRL's `ppo_atari_lstm` has its LSTM: that script's layout, one line of it changed.

There a state is a pair of tensors (layers, B, features), multiplied by 1 − done before each step of a loop
over time, kept for the start of a rollout and indexed by environment for a minibatch. `Packed` makes a
bounded memory such a pair. `ppo_single_file.py` does without the loop. A pole whose speed is not seen:

pip install 'plait[rl]'
python examples/cleanrl_layout.py            # about a minute on one core
python examples/cleanrl_layout.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import plait
from plait.models import Packed

ENVS, STEPS, UPDATES, EPOCHS = (4, 8, 2, 1) if "--smoke" in sys.argv else (16, 64, 60, 4)
MINIBATCHES, LR, GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE = 4, 2e-3, 0.98, 0.95, 0.2, 0.01, 0.5
SEEN, SCALE = [0, 2], 0.1  # position and angle, not their speeds; what a step is worth
LstmState = tuple[Tensor, Tensor]


class Agent(nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(len(SEEN), hidden), nn.Tanh())
        self.lstm = Packed(plait.RelLSTM(hidden, hidden, window=5, capacity=5))  # nn.LSTM(hidden, hidden)
        self.actor, self.critic = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def get_states(self, x: Tensor, lstm_state: LstmState, done: Tensor) -> tuple[Tensor, LstmState]:
        """Of (T · B, F) observations and (T · B,) flags; B is what the state has."""
        batch_size = lstm_state[0].shape[1]
        hidden, new_hidden = self.network(x).reshape(-1, batch_size, self.lstm.input_size), []
        for h, d in zip(hidden, done.reshape(-1, batch_size), strict=True):
            kept = (1.0 - d).view(1, -1, 1)
            h, lstm_state = self.lstm(h.unsqueeze(0), (kept * lstm_state[0], kept * lstm_state[1]))
            new_hidden.append(h)
        return torch.cat(new_hidden).flatten(0, 1), lstm_state

    def forward(self, x: Tensor, state: LstmState, done: Tensor) -> tuple[Categorical, Tensor, LstmState]:
        hidden, state = self.get_states(x, state, done)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).flatten(), state


torch.manual_seed(0)
same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # as that script has it
envs = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="sync", vector_kwargs=same_step)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)
obs, actions = torch.zeros(STEPS, ENVS, len(SEEN)), torch.zeros(STEPS, ENVS)
logprobs, rewards, dones, values = torch.zeros(4, STEPS, ENVS)
next_obs, next_done = torch.as_tensor(envs.reset(seed=0)[0][:, SEEN]), torch.zeros(ENVS)
next_state = tuple(torch.zeros(2, agent.lstm.num_layers, ENVS, agent.lstm.hidden_size))
lasted, lengths = torch.zeros(ENVS), []
for update in range(1, UPDATES + 1):
    initial_state = tuple(part.clone() for part in next_state)
    with torch.no_grad():
        for step in range(STEPS):
            obs[step], dones[step] = next_obs, next_done
            policy, values[step], next_state = agent(next_obs, next_state, next_done)
            actions[step] = policy.sample()
            logprobs[step] = policy.log_prob(actions[step])
            seen, reward, *flags, _ = envs.step(actions[step].long().numpy())
            next_obs, rewards[step] = torch.as_tensor(seen[:, SEEN]), SCALE * torch.as_tensor(reward).float()
            ended = torch.as_tensor(flags[0] | flags[1])
            next_done, lasted = ended.float(), lasted + 1
            lengths += lasted[ended].tolist()
            lasted[ended] = 0
        following, ends = agent(next_obs, next_state, next_done)[1], next_done
        advantages, running = torch.zeros_like(rewards), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            delta = rewards[t] + GAMMA * following * (1.0 - ends) - values[t]
            running = delta + GAMMA * GAE_LAMBDA * (1.0 - ends) * running
            advantages[t], following, ends = running, values[t], dones[t]
        returns = advantages + values
    flat = torch.arange(STEPS * ENVS).reshape(STEPS, ENVS)
    for _ in range(EPOCHS):
        for some in torch.randperm(ENVS).chunk(MINIBATCHES):
            at = flat[:, some].flatten()
            before = (initial_state[0][:, some], initial_state[1][:, some])
            policy, value, _ = agent(obs.flatten(0, 1)[at], before, dones.flatten()[at])
            ratio = (policy.log_prob(actions.flatten()[at]) - logprobs.flatten()[at]).exp()
            gain = advantages.flatten()[at]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            lost = torch.max(-gain * ratio, -gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            wrong = 0.5 * (value - returns.flatten()[at]).square().mean()
            optimizer.zero_grad()
            (lost - ENTROPY * policy.entropy().mean() + VALUE * wrong).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 10 == 0 or update == UPDATES:
        mean = sum(lengths) / max(len(lengths), 1)
        print(f"{update * ENVS * STEPS:7,} steps: the pole stands for {mean:.0f} steps an episode")
        lengths = []
