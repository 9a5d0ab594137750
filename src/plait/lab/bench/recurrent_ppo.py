"""Stable-Baselines3's RecurrentPPO on the same environments, as a baseline.

It is an optional dependency, imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import BackendError
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.vocabulary import MISSION_LENGTH, WORDS, mission_tokens
from plait.provenance import version_of

if TYPE_CHECKING:
    from plait.lab.training.recipe import PPOConfig

__all__ = ["INSTALL", "is_installed", "make_vector_env", "matched", "play", "with_defaults"]

INSTALL = "pip install stable-baselines3 sb3-contrib"


def is_installed() -> bool:
    """Return whether sb3-contrib is installed."""
    return version_of("sb3-contrib") is not None


def matched(env_name: str, ppo: PPOConfig, hidden: int, own_critic: bool = False) -> Any:
    """Build RecurrentPPO with our hyperparameters.

    Actor and critic share one LSTM of `hidden` features and have a hidden layer each. Its value loss is the
    mean square and ours half of it, so its coefficient is half of ours. Three differences remain: minibatches
    start at any step of the rollout, advantages are normalised in each minibatch, and the gradient of the
    critic does not reach the LSTM. With `own_critic` the critic has a second LSTM, which is that library's
    default, at twice the cost.
    """
    batch_size = ppo.n_envs * ppo.n_steps // ppo.n_minibatches
    policy = {
        "features_extractor_class": _extractor(),
        "features_extractor_kwargs": {"features_dim": hidden},
        "lstm_hidden_size": hidden,
        "net_arch": {"pi": [hidden], "vf": [hidden]},
        "shared_lstm": not own_critic,
        "enable_critic_lstm": own_critic,
    }
    return _contrib().RecurrentPPO(
        "MultiInputLstmPolicy",
        make_vector_env(env_name, ppo.n_envs, ppo.seed),
        n_steps=ppo.n_steps,
        n_epochs=ppo.n_epochs,
        batch_size=batch_size,
        learning_rate=ppo.lr,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        clip_range=ppo.clip_range,
        ent_coef=ppo.ent_coef,
        vf_coef=ppo.vf_coef / 2,
        max_grad_norm=ppo.max_grad_norm,
        policy_kwargs=policy,
        seed=ppo.seed,
        device="cpu",
    )


def with_defaults(env_name: str, seed: int) -> Any:
    """Build RecurrentPPO with its defaults.

    One environment, 128 steps, batches of 128, 10 epochs, two LSTMs of 256 features, flat observations.
    """
    env = make_vector_env(env_name, 1, seed)
    return _contrib().RecurrentPPO("MultiInputLstmPolicy", env, seed=seed, device="cpu")


def make_vector_env(env_name: str, num_envs: int, seed: int) -> Any:
    """Build Farama's environments in Stable-Baselines3's vector environment, with our observations.

    These are image, direction and the mission as tokens, since Stable-Baselines3 refuses text.
    """
    import minigrid  # noqa: F401  (registers its environments with gymnasium)
    import numpy as np
    from gymnasium import ObservationWrapper, spaces
    from stable_baselines3.common.env_util import make_vec_env

    class Tokens(ObservationWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            # bounds below 255: otherwise Stable-Baselines3 treats it as an image and rescales it
            self.observation_space = spaces.Dict(
                image=spaces.Box(0, 10, (7, 7, 3), np.uint8),
                direction=spaces.Box(0, 3, (1,), np.uint8),
                mission=spaces.Box(0, len(WORDS), (MISSION_LENGTH,), np.uint8),
            )

        def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
            return {
                "image": observation["image"],
                "direction": np.array([observation["direction"]], np.uint8),
                "mission": np.array(mission_tokens(observation["mission"]), np.uint8),
            }

    return make_vec_env(full_id(env_name), num_envs, seed, wrapper_class=Tokens)


def play(model: Any, callback: Any = None) -> Any:
    """Fill the model's rollout buffer and return the `callback` for the next call.

    With `model.train()` it does the work of the library's `learn`, whose parts cannot be timed separately.
    """
    if callback is None:
        _, callback = model._setup_learn(10**12)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return callback


def _contrib() -> Any:
    if not is_installed():
        raise BackendError(f"RecurrentPPO is needed here and not installed: {INSTALL}")
    import sb3_contrib

    return sb3_contrib


def _extractor() -> Any:
    _contrib()
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    from plait.lab.tasks.minigrid import GridObservation
    from plait.lab.training.ppo.encoders import GridEncoder

    class SameEncoder(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any, features_dim: int) -> None:
            super().__init__(observation_space, features_dim)
            self.encoder = GridEncoder(features_dim)

        def forward(self, observation: dict[str, Any]) -> Any:
            # Stable-Baselines3 converts every Box to float
            image, direction, mission = (observation[key].byte() for key in ("image", "direction", "mission"))
            return self.encoder(GridObservation(image, direction.squeeze(-1), mission))

    return SameEncoder
