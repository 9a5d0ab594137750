"""RelLSTM as a features extractor of Stable-Baselines3: a pole whose speed is not seen.

An extractor is called on observations alone: no state goes in, none comes out. So every observation is a
stack of the last K, RelLSTM reads it from an empty memory, and its last output is the feature. It remembers
K steps and no more, and reads each of them K times; ppo_single_file.py carries the memory instead.

pip install 'plait[rl]' stable-baselines3
python examples/sb3_extractor.py            # about half a minute on one core
python examples/sb3_extractor.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize

import plait

SMOKE = "--smoke" in sys.argv
K, ENVS, STEPS, TOTAL = (3, 2, 8, 32) if SMOKE else (8, 16, 64, 60_000)


def hidden_speeds(env: gymnasium.Env) -> gymnasium.Env:
    """Position and angle alone, the last K of them: (K, 2); before the first there are K copies of it."""
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return FrameStackObservation(TransformObservation(env, lambda x: x[[0, 2]], seen), K)


class Attentive(BaseFeaturesExtractor):
    """(B, K, F) observations to the (B, H) output of RelLSTM at the last of them."""

    def __init__(self, observation_space: gymnasium.spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        inputs = observation_space.shape[-1]
        self.memory = plait.RelLSTM(inputs, features_dim, window=K, capacity=0, batch_first=True)

    def forward(self, stack: torch.Tensor) -> torch.Tensor:
        output, _ = self.memory(stack)
        return output[:, -1]


torch.set_num_threads(1)
env = make_vec_env("CartPole-v1", ENVS, seed=0, wrapper_class=hidden_speeds)
model = PPO(
    "MlpPolicy",
    VecNormalize(env, norm_obs=False, gamma=0.98),
    gamma=0.98,
    n_steps=STEPS,
    n_epochs=4,
    batch_size=ENVS * STEPS // 4,
    learning_rate=1e-3,
    ent_coef=0.01,
    seed=0,
    device="cpu",
    policy_kwargs={"features_extractor_class": Attentive, "net_arch": [64]},
)
for _ in range(3):
    model.learn(TOTAL // 3, reset_num_timesteps=False)
    lengths = [episode["l"] for episode in model.ep_info_buffer]
    print(
        f"{model.num_timesteps:7,} steps: the pole stands for {np.mean(lengths or [0]):.0f} steps an episode"
    )
