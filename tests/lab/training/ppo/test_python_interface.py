"""`plait.fit_policy`, `plait.evaluate_policy` and `policy.predict`, as a person calls them."""

import gymnasium
import numpy as np
import pytest
import torch

import plait
from plait.errors import CheckpointError, ConfigError, UnknownNameError
from plait.lab.training.ppo.policy import build_policy, policy_spec
from tests.lab.training.ppo.conftest import SMALL

pytest.importorskip("popgym")


@pytest.mark.parametrize("env", ["GoToDoor-5x5", "RepeatFirstEasy", "CartPole-v1", "Pendulum-v1"])
def test_predict_takes_the_actions_that_training_and_evaluation_take(env, monkeypatch):
    """The raw observations of one environment give the actions that its tensors give, step after step."""
    policy = build_policy(policy_spec(env, hidden_size=8, window=2, capacity=1)).eval()
    vec_env = policy.family.make_vec_env(policy.family.task["env"], 1)
    raw, store = [], vec_env._store
    monkeypatch.setattr(vec_env, "_store", lambda index, value: (raw.append(value), store(index, value)))
    timestep, state, own_state = vec_env.reset(), None, None
    for _ in range(8):
        with torch.no_grad():
            logits, _, state = policy(timestep.observation.map(lambda part: part.unsqueeze(0)), state)
        action = policy.actions.mode(logits[0])
        own, own_state = policy.predict(raw[-1], own_state, greedy=True)
        assert np.array_equal(own, policy.actions.to_env(action[0].tolist()))
        timestep = vec_env.step(action)
    vec_env.close()


def test_a_policy_samples_unless_it_is_greedy():
    policy = build_policy(policy_spec("CartPole-v1", hidden_size=8))
    assert {policy.predict([0.0] * 4)[0] for _ in range(50)} == {0, 1}
    assert len({policy.predict([0.0] * 4, greedy=True)[0] for _ in range(5)}) == 1
    with pytest.raises(ConfigError, match=r"observation: expected one of Box\(.*, got another"):
        policy.predict([0.0] * 3)


def test_a_policy_trains_and_is_evaluated_in_the_environments_of_lambdas(tmp_path):
    def fit(length, **options):
        return plait.fit_policy(
            lambda: gymnasium.make("CartPole-v1", max_episode_steps=length), hidden_size=8, **SMALL, **options
        )

    fitted = fit(12, gamma=0.9, folder=tmp_path / "run")
    assert fitted.summary["steps"] == 240
    assert plait.evaluate_policy(fitted.policy, episodes=4)["length"] <= 12
    shorter = plait.evaluate_policy(fitted.policy, lambda: gymnasium.make("CartPole-v1", max_episode_steps=5))
    assert shorter["length"] == 5
    assert fit(12, gamma=0.9, folder=tmp_path / "run", resume=True).already
    with pytest.raises(
        CheckpointError, match="env: this run's is"
    ):  # the lambda holds another length: another run
        fit(13, gamma=0.9, folder=tmp_path / "run", resume=True)


def test_mistakes_of_fit_policy_are_one_line():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ConfigError, match=r"expected a function that makes an environment, .* got TimeLimit"):
        plait.fit_policy(env)
    with pytest.raises(UnknownNameError, match="'learning_rate': did you mean 'lr'"):
        plait.fit_policy("CartPole-v1", learning_rate=1e-3)
    with pytest.raises(UnknownNameError, match="'CartPol-v1': did you mean 'CartPole-v1'"):
        plait.fit_policy("CartPol-v1")
    with pytest.raises(ConfigError, match="gamma: expected a number from 0 to 1, got 2"):
        plait.fit_policy("CartPole-v1", gamma=2)
    with pytest.raises(ConfigError, match="expected a description alone, got options beside it: gamma"):
        plait.fit_policy(policy_spec("CartPole-v1"), gamma=0.9)
