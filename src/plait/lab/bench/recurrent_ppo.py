"""Stable-Baselines3's RecurrentPPO on the same environments, as a baseline.

It is an optional dependency, imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import BackendError
from plait.lab.tasks.minigrid.names import full_id
from plait.lab.tasks.minigrid.words import MISSION_LENGTH, WORDS, mission_tokens
from plait.provenance import version_of

if TYPE_CHECKING:
    from plait.lab.training.recipe import Settings

__all__ = ["INSTALL", "by_default", "is_installed", "matched", "play", "vector_env"]

INSTALL = "pip install stable-baselines3 sb3-contrib"


def is_installed() -> bool:
    """Return whether sb3-contrib is installed."""
    return version_of("sb3-contrib") is not None


def matched(world: str, settings: Settings, hidden: int, own_critic: bool = False) -> Any:
    """Build RecurrentPPO with our settings.

    Environments, rollout, epochs, batch, learning rate, coefficients and encoder are ours, with one LSTM of
    `hidden` features for actor and critic and a layer of its own for each. Its value loss is the mean square
    and ours half of it, so its coefficient is half of ours. Three differences remain: minibatches begin at
    any step of the rollout, advantages are normalised in each minibatch, and the critic reads the LSTM
    without training it. `own_critic` gives the critic an LSTM of its own, that library's default, at twice
    the work.
    """
    batch = settings.envs * settings.rollout // settings.minibatches
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
        vector_env(world, settings.envs, settings.seed),
        n_steps=settings.rollout,
        n_epochs=settings.epochs,
        batch_size=batch,
        learning_rate=settings.lr,
        gamma=settings.discount,
        gae_lambda=settings.decay,
        clip_range=settings.clip,
        ent_coef=settings.entropy,
        vf_coef=settings.value / 2,
        max_grad_norm=settings.max_norm,
        policy_kwargs=policy,
        seed=settings.seed,
        device="cpu",
    )


def by_default(world: str, seed: int) -> Any:
    """Build RecurrentPPO with its defaults.

    One environment, 128 steps, batches of 128, 10 epochs, two LSTMs of 256 features, flat observations.
    """
    env = vector_env(world, 1, seed)
    return _contrib().RecurrentPPO("MultiInputLstmPolicy", env, seed=seed, device="cpu")


def vector_env(world: str, envs: int, seed: int) -> Any:
    """Build Farama's environments in that library's vector environment, with our observations.

    These are image, direction and the mission as tokens; that library refuses text.
    """
    import minigrid  # noqa: F401  (registers its environments with gymnasium)
    import numpy as np
    from gymnasium import ObservationWrapper, spaces
    from stable_baselines3.common.env_util import make_vec_env

    class Tokens(ObservationWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            # bounds below 255: otherwise that library takes it for a photograph and rescales it
            self.observation_space = spaces.Dict(
                image=spaces.Box(0, 10, (7, 7, 3), np.uint8),
                direction=spaces.Box(0, 3, (1,), np.uint8),
                mission=spaces.Box(0, len(WORDS), (MISSION_LENGTH,), np.uint8),
            )

        def observation(self, seen: dict[str, Any]) -> dict[str, Any]:
            return {
                "image": seen["image"],
                "direction": np.array([seen["direction"]], np.uint8),
                "mission": np.array(mission_tokens(seen["mission"]), np.uint8),
            }

    return make_vec_env(full_id(world), envs, seed, wrapper_class=Tokens)


def play(model: Any, callback: Any = None) -> Any:
    """Fill the model's rollout buffer and return the `callback` for the next call.

    With `model.train()` it makes up that library's `learn`, whose parts cannot be timed separately.
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

    from plait.lab.tasks.minigrid import Observation
    from plait.lab.training.ppo.encoders import Encoder

    class SameEncoder(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any, features_dim: int) -> None:
            super().__init__(observation_space, features_dim)
            self.encoder = Encoder(features_dim)

        def forward(self, seen: dict[str, Any]) -> Any:
            # that library converts every Box to float
            image, direction, mission = (seen[key].byte() for key in ("image", "direction", "mission"))
            return self.encoder(Observation(image, direction.squeeze(-1), mission))

    return SameEncoder
