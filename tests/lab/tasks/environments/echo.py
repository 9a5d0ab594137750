"""Environments of any spaces that are a function of the seed and the actions.

They are made by name, as in a description: `tests.lab.tasks.environments.echo:box__several`, or, with a
fault, `…:box__several__raise`.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVATIONS = {
    "discrete": lambda: spaces.Discrete(5, start=3),
    "several": lambda: spaces.MultiDiscrete([3, 4]),
    "binary": lambda: spaces.MultiBinary(3),
    "box": lambda: spaces.Box(np.array([-1, -9e9], np.float32), np.array([3, 9e9], np.float32)),
    "picture": lambda: spaces.Box(0, 255, (24, 20, 3), np.uint8),
    "small": lambda: spaces.Box(0, 9, (3, 3), np.uint8),
    "dict": lambda: spaces.Dict(
        card=spaces.Discrete(4), place=spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])))
    ),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(3), spaces.Box(-2, 2, (1,)), spaces.Discrete(2))),
    "text": lambda: spaces.Dict(card=spaces.Discrete(4), note=spaces.Text(5)),
}
ACTIONS = {
    "discrete": lambda: spaces.Discrete(4, start=1),
    "several": lambda: spaces.MultiDiscrete([3, 2]),
    "binary": lambda: spaces.MultiBinary(2),
    "box": lambda: spaces.Box(np.array([-2, 0], np.float32), np.array([2, np.inf], np.float32)),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
}


class Echo(gymnasium.Env):
    """Environment whose observations are samples of its space.

    Rewards are random plus a function of the action; an episode ends at random, or by its time limit of eight
    steps. `fault` names the failure at the fifth step of an episode.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, observation_space, action_space, fault="", render_mode=None):
        self.observation_space, self.action_space, self.fault = observation_space, action_space, fault
        self.render_mode = render_mode
        self.unseeded = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        reward = float(self.np_random.normal()) + float(np.sum(action)) / 10
        observation, fault = self._observe(), self.fault if self.steps == 5 else ""
        if fault == "raise":
            raise RuntimeError("the bridge\nfell")
        if fault == "reward":
            reward = float("nan")
        if fault == "observation":
            observation = np.full_like(observation, np.inf)
        return (
            observation,
            reward,
            bool(self.np_random.random() < 0.1),
            self.steps >= 8 and fault != "endless",
            {},
        )

    def _observe(self):
        generator = self.unseeded if self.fault == "chance" else self.np_random
        self.observation_space.seed(int(generator.integers(2**31)))
        return self.observation_space.sample()

    def render(self):
        return np.full((20, 30, 3), min(self.steps * 20, 255), np.uint8)


def __getattr__(name):
    observation, _, rest = name.partition("__")
    action, _, fault = rest.partition("__")
    if observation not in OBSERVATIONS or action not in ACTIONS:
        raise AttributeError(name)
    return lambda **options: Echo(OBSERVATIONS[observation](), ACTIONS[action](), fault, **options)
