"""RelLSTM in TorchRL: a pole whose speed is not seen, by the plainest policy gradient there is.

`TensorDictMemory` keeps the packed state under a key, begins anew where "is_init" says so, and reads whole
sequences at once in recurrent mode.

pip install 'plait[rl]' torchrl
python examples/torchrl_memory.py            # about two minutes on one core
python examples/torchrl_memory.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import TransformObservation
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch.distributions import OneHotCategorical
from torchrl.envs import Compose, GymWrapper, InitTracker, TransformedEnv
from torchrl.modules import set_recurrent_mode

import plait
from plait.integrations.torchrl import TensorDictMemory

STEPS, UPDATES = (16, 2) if "--smoke" in sys.argv else (512, 80)
torch.manual_seed(0)
torch.set_num_threads(1)
seen = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
pole = TransformObservation(gymnasium.make("CartPole-v1"), lambda x: x[[0, 2]], seen)
memory = TensorDictMemory(plait.RelLSTM(2, 64, window=5, capacity=5))
policy = ProbabilisticTensorDictSequential(
    memory,
    TensorDictModule(torch.nn.Linear(64, 2), ["features"], ["logits"]),
    ProbabilisticTensorDictModule(
        ["logits"], ["action"], distribution_class=OneHotCategorical, return_log_prob=True
    ),
)
env = TransformedEnv(GymWrapper(pole), Compose(InitTracker(), memory.make_tensordict_primer()))
env.set_seed(0)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for update in range(1, UPDATES + 1):
    with torch.no_grad():
        played = env.rollout(STEPS, policy, break_when_any_done=False)
    ended, gain, returns = played["next", "done"].flatten(), 0.0, []
    for last in ended.flip(0).tolist():  # every step is worth 1 until the pole falls
        gain = 1.0 if last else 1.0 + 0.98 * gain
        returns.append(gain)
    weights = torch.tensor(returns[::-1])
    weights = (weights - weights.mean()) / (weights.std() + 1e-6)
    with set_recurrent_mode(True):  # the whole rollout in one call, episodes and all
        again = policy.get_dist(played.exclude("next").unsqueeze(0))
    loss = -(again.log_prob(played["action"].unsqueeze(0)) * weights).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    if update % 20 == 0 or update == UPDATES:
        mean = STEPS / max(int(ended.sum()), 1)
        print(f"{update * STEPS:7,} steps: the pole stands for {mean:.0f} steps an episode")
