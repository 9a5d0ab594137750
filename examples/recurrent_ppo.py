"""RelLSTM in RecurrentPPO of sb3-contrib: a pole whose speed is not seen.

RecurrentPPO keeps (h, c) of every step in its buffers and multiplies them by 0 where an episode begins.
`Packed` puts a whole state, slots and all, into these two tensors, and zeros are the empty memory.

pip install 'plait[rl]' stable-baselines3 sb3-contrib
python examples/recurrent_ppo.py            # about four minutes on one core
python examples/recurrent_ppo.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import TransformObservation
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import plait
from plait.models import Packed

ENVS, STEPS, TOTAL = (2, 8, 32) if "--smoke" in sys.argv else (16, 64, 60_000)


def hidden_speeds(env: gymnasium.Env) -> gymnasium.Env:
    """Position and angle alone."""
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return TransformObservation(env, lambda x: x[[0, 2]], seen)


class MemoryPolicy(RecurrentActorCriticPolicy):
    """Its two LSTMs, the actor's and the critic's, are RelLSTMs."""

    def __init__(self, space, actions, schedule, lstm_hidden_size: int = 64, **options) -> None:
        super().__init__(space, actions, schedule, lstm_hidden_size=lstm_hidden_size, **options)
        sizes = (self.features_dim, lstm_hidden_size)
        self.lstm_actor = Packed(plait.RelLSTM(*sizes, window=5, capacity=5))
        self.lstm_critic = Packed(plait.RelLSTM(*sizes, window=5, capacity=5))
        self.lstm_hidden_state_shape = (1, 1, self.lstm_actor.hidden_size)
        self.optimizer = self.optimizer_class(self.parameters(), lr=schedule(1), **self.optimizer_kwargs)


torch.set_num_threads(1)
env = make_vec_env("CartPole-v1", ENVS, seed=0, wrapper_class=hidden_speeds)
model = RecurrentPPO(
    MemoryPolicy,
    VecNormalize(env, norm_obs=False, gamma=0.98),
    gamma=0.98,
    n_steps=STEPS,
    n_epochs=4,
    batch_size=ENVS * STEPS // 4,
    learning_rate=1e-3,
    ent_coef=0.01,
    seed=0,
    device="cpu",
    policy_kwargs={"net_arch": [64]},
)
for _ in range(3):
    model.learn(TOTAL // 3, reset_num_timesteps=False)
    lengths = [episode["l"] for episode in model.ep_info_buffer]
    mean = np.mean(lengths or [0])
    print(f"{model.num_timesteps:7,} steps: the pole stands for {mean:.0f} steps an episode")
