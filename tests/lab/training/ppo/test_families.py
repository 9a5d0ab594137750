"""Families of environments with one learner: recorded runs of grid worlds are repeated, others resume."""

import json
from pathlib import Path

import pytest
import torch

from plait.errors import CheckpointError, ConfigError, EnvError, UnknownNameError
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import run_id
from plait.lab.tasks.environments.spaces import ObservationSpace
from plait.lab.training.ppo.encoders import SpaceEncoder
from plait.lab.training.ppo.fit import fit_policy
from plait.lab.training.ppo.learner import PolicyLearner
from plait.lab.training.ppo.policy import build_policy, describe_policy, load_policy
from plait.lab.training.ppo.rollout import Collector, evaluate_policy
from plait.lab.training.recipe import PPOConfig
from tests.lab.tasks.environments import echo
from tests.lab.training.ppo.conftest import SMALL

ECHO = "tests.lab.tasks.environments.echo:"
PAIRS = [(observed, "discrete") for observed in echo.OBSERVATIONS if observed != "text"]
PAIRS += [("dict", "several"), ("discrete", "binary"), ("tuple", "box")]


def described(observed, acted, model="rellstm", fault="", **changes):
    """Return the description of a small run in an environment of these spaces."""
    name = f"{ECHO}{observed}__{acted}" + (f"__{fault}" if fault else "")
    ppo = PPOConfig(**{**SMALL, **changes})
    return describe_policy(name, model, ppo, family="gym", hidden_size=8)


GRID_RUNS = json.loads((Path(__file__).parent / "grid_runs.json").read_text())


@pytest.mark.parametrize("stored", GRID_RUNS, ids=lambda stored: stored["id"])
def test_recorded_runs_of_grid_worlds_are_repeated(stored, tmp_path):
    """Ids, descriptions, tensors of a checkpoint and returns equal recorded ones."""
    description = stored["description"]
    again = describe_policy(
        "GoToDoor-5x5",
        description["model"]["name"],
        PPOConfig(**description["recipe"]),
        hidden_size=8,
        test_env="GoToDoor-6x6",
    )
    assert json.dumps(again) == json.dumps(description)
    assert run_id(again) == stored["id"]
    fitted = fit_policy(again, folder=tmp_path / "run")
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors")
    layouts = {
        name: [str(value.dtype).removeprefix("torch."), list(value.shape)]
        for name, value in sorted(checkpoint.tensors.items())
    }
    layouts["env.actions"][1][1] = 0  # as many as the longest open episode has
    assert layouts == stored["tensors"]
    returns = [line["return"] for line in fitted.metrics if "return" in line]
    assert returns == pytest.approx(stored["returns"], abs=1e-6)


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_a_killed_run_resumes_to_the_same_curve(observed, acted, tmp_path, dying, outcome_of):
    """In every space: killed twice, between checkpoints."""
    description = described(observed, acted, scale_rewards=observed == "box")
    fit_policy(description, folder=tmp_path / "whole", checkpoint_every=2)
    for updates in (3, 2):
        options = {"resume": updates == 2, "callbacks": [dying(updates)]}
        with pytest.raises(dying.error):
            fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, **options)
    fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, resume=True)
    assert outcome_of(tmp_path / "killed") == outcome_of(tmp_path / "whole")
    policy, name = load_policy(tmp_path / "killed"), description["task"]["env"]
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert evaluate_policy(policy, name, 3) == summary["held_out"][name]


def test_a_run_of_popgym_resumes_with_its_best_mean(tmp_path, dying, outcome_of):
    pytest.importorskip("popgym")
    ppo = PPOConfig(**{**SMALL, "total_timesteps": 960, "n_steps": 40})
    description = describe_policy("RepeatFirstEasy", "relgru", ppo, family="popgym", hidden_size=8)
    fit_policy(description, folder=tmp_path / "whole", checkpoint_every=2)
    with pytest.raises(dying.error):
        fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, callbacks=[dying(3)])
    fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, resume=True)
    assert outcome_of(tmp_path / "killed") == outcome_of(tmp_path / "whole")
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert summary["held_out"]["RepeatFirstEasy"]["mmer"] < 0


EDITS = {
    "an invalid action": (lambda n, v: v * 0 + 200 if n == "env.actions" else v, "out of range"),
    "an invalid card": (lambda n, v: v + 9 if n == "timestep.observation.card" else v, "out of range"),
    "a non-finite value": (
        lambda n, v: v * float("nan") if n == "timestep.observation.place.0" else v,
        "out of range",
    ),
    "the scale of fewer environments": (
        lambda n, v: v[1:] if n == "scale.returns" else v,
        "returns: expected",
    ),
    "another observation": (
        lambda n, v: (v + 1) % 4 if n == "timestep.observation.card" else v,
        "did not return to its saved state",
    ),
}


def test_an_edited_checkpoint_is_refused(tmp_path, dying, edited, refused):
    description = described("dict", "several", scale_rewards=True)
    for number, (change, message) in enumerate(EDITS.values()):
        folder = tmp_path / str(number)
        with pytest.raises(dying.error):
            fit_policy(description, folder=folder, checkpoint_every=2, callbacks=[dying(3)])
        edited(folder, change)
        assert message in refused(folder)


def test_an_environment_that_the_seed_does_not_decide_is_not_resumed(tmp_path, dying):
    description = described("box", "discrete", fault="chance")
    with pytest.raises(dying.error):
        fit_policy(description, folder=tmp_path / "run", checkpoint_every=2, callbacks=[dying(3)])
    with pytest.raises(
        CheckpointError, match="did not return to its saved state when its actions were replayed"
    ):
        fit_policy(description, folder=tmp_path / "run", resume=True)


@pytest.mark.parametrize("fault", ["raise", "reward"])
def test_an_environment_that_fails_is_named_and_the_run_kept(fault, tmp_path):
    description = described("box", "discrete", fault=fault)
    message = f"box__discrete__{fault} .*; the run is kept, continue: plait train --resume {tmp_path / 'run'}"
    with pytest.raises(EnvError, match=message):
        fit_policy(description, folder=tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / "checkpoint.safetensors").counters["update"] == 0
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_replaying_a_rollout_gives_the_same_outputs(observed, acted):
    policy = build_policy(described(observed, acted))
    env = policy.family.make_vec_env(f"{ECHO}{observed}__{acted}", 4)
    collector, generator = Collector(env, torch.device("cpu")), torch.Generator().manual_seed(0)
    for _ in range(2):
        rollout = collector.collect(policy, 12, generator)
        outputs, values, _ = policy(rollout.observation, rollout.state, reset=rollout.episode_starts)
        torch.testing.assert_close(outputs, rollout.logits, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(values, rollout.values, atol=1e-6, rtol=1e-4)
        log_probs = policy.actions.evaluate(outputs, rollout.actions)[0]
        torch.testing.assert_close(log_probs, rollout.log_probs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("relevance", ["earned", "learned"])
def test_a_learned_relevance_keeps_the_same_states_in_a_replay(relevance):
    name = f"{ECHO}discrete__discrete"
    ppo = PPOConfig(**SMALL)
    options = {"hidden_size": 8, "window": 2, "capacity": 2, "relevance": relevance}
    policy = build_policy(describe_policy(name, "rellstm", ppo, family="gym", **options))
    collector = Collector(policy.family.make_vec_env(name, 4), torch.device("cpu"))
    rollout = collector.collect(policy, 12, torch.Generator().manual_seed(0))
    outputs = policy(rollout.observation, rollout.state, reset=rollout.episode_starts)[0]
    torch.testing.assert_close(outputs, rollout.logits, atol=1e-6, rtol=1e-4)
    with pytest.raises(
        ConfigError, match=r"noise: expected 0 for a policy, whose actions are sampled, got 0\.3"
    ):
        describe_policy(name, "rellstm", family="gym", relevance="learned", noise=0.3)


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_an_update_makes_rewarded_actions_likelier(observed, acted):
    policy = build_policy(described(observed, acted, model="none"))
    ppo = PPOConfig(n_envs=4, n_steps=12, n_minibatches=1, lr=1e-2, gamma=0.0, ent_coef=0.0)
    learner = PolicyLearner(policy, ppo, torch.device("cpu"))
    collector = Collector(policy.family.make_vec_env(f"{ECHO}{observed}__{acted}", 4), torch.device("cpu"))
    rollout = collector.collect(policy, 12, torch.Generator().manual_seed(0))
    good = (
        rollout.actions.flatten(2).double().sum(-1) if rollout.actions.dim() > 2 else rollout.actions.double()
    )
    good = good > good.median()
    learner.update(1, rollout._replace(rewards=good.float()))
    outputs = policy(rollout.observation, rollout.state, reset=rollout.episode_starts)[0]
    change = policy.actions.evaluate(outputs, rollout.actions)[0] - rollout.log_probs
    assert change[good & rollout.valid].mean() > 0 > change[~good & rollout.valid].mean()


class Reader(torch.nn.Module):
    """A user's encoder: it reads an observation in the form of the space."""

    def __init__(self, space, features):
        super().__init__()
        self.card = torch.nn.Embedding(space["card"].n, features)
        self.place = torch.nn.Linear(2, features)

    def forward(self, observation):
        return self.card(observation["card"][:, 0]) + self.place(observation["place"][0])


class Wrong(Reader):
    def forward(self, observation):
        return super().forward(observation)[:, 1:]


def test_a_users_encoder(tmp_path):
    def make():
        return echo.dict__discrete()

    ppo = PPOConfig(**SMALL)
    description = describe_policy(make, "gru", ppo, hidden_size=8, encoder=Reader)
    assert description["task"]["encoder"].endswith("test_families:Reader")
    fit_policy(description, folder=tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    assert isinstance(policy.encoder.inner, Reader)
    wrong = describe_policy(make, "gru", ppo, hidden_size=8, encoder=Wrong)
    with pytest.raises(ValueError, match=r"encoder: expected \(4, 8\) from .*Wrong, got \(4, 7\)"):
        fit_policy(wrong)
    with pytest.raises(
        ConfigError, match=r"encoder: expected a torch\.nn\.Module from builtins:print.*, got None"
    ):
        build_policy(describe_policy(make, encoder="builtins:print"))
    with pytest.raises(ConfigError, match=r"encoder: math:hypot\(space, features\) failed: TypeError"):
        build_policy(describe_policy(make, encoder="math:hypot"))


def test_values_are_scaled_by_their_bounds():
    """Bounded values are scaled to −1 … 1; unbounded ones are compressed by a logarithm."""
    encoder = SpaceEncoder(ObservationSpace(echo.OBSERVATIONS["box"](), "box"), 8)
    scaled = []
    encoder.parts[0].layers[0].register_forward_pre_hook(lambda _, inputs: scaled.append(inputs[0]))
    encoder([torch.tensor([[-1.0, -1e6], [3.0, 0.0], [1.0, torch.e - 1]])])
    assert scaled[0].tolist() == [[-1, pytest.approx(-13.8155)], [1, 0], [0, pytest.approx(1)]]


def test_scaled_rewards_do_not_change_reported_returns():
    plain, scaled = (fit_policy(described("box", "box", scale_rewards=scale)) for scale in (False, True))
    assert scaled.metrics[0]["return"] == plain.metrics[0]["return"]
    assert scaled.metrics[0]["value_loss"] != plain.metrics[0]["value_loss"]
    assert "success" not in scaled.metrics[0]


def test_a_test_environment_has_the_same_spaces():
    name = f"{ECHO}box__discrete"
    ppo = PPOConfig(**SMALL)
    tested = describe_policy(name, "gru", ppo, family="gym", hidden_size=8, test_env=f"{name}__other")
    assert set(fit_policy(tested).summary["held_out"]) == {name, f"{name}__other"}
    with pytest.raises(ConfigError, match=r"test_env: .* does not match .*: expected observations Box"):
        describe_policy(name, family="gym", test_env=f"{ECHO}dict__discrete")


def test_an_evaluated_episode_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr("plait.lab.training.ppo.rollout._MAX_EPISODE", 200)
    policy = build_policy(described("discrete", "discrete", model="none"))
    env = policy.family.make_vec_env(f"{ECHO}discrete__discrete", 2)
    monkeypatch.setattr(echo.Echo, "step", lambda self, action: (3, 0.0, False, False, {}))
    monkeypatch.setattr(type(policy.family), "make_vec_env", lambda *_, **__: env)
    with pytest.raises(EnvError, match=r"has not ended after 200 steps; give it a limit \(--time-limit\)"):
        evaluate_policy(policy, "", 2)


def test_bad_descriptions():
    with pytest.raises(UnknownNameError, match="unknown family of environments 'gim': did you mean 'gym'"):
        describe_policy("CartPole-v1", family="gim")
    with pytest.raises(ConfigError, match="time_limit: expected at least 1, got 0"):
        describe_policy("CartPole-v1", family="gym", time_limit=0)
    with pytest.raises(UnknownNameError, match="unknown option of gym 'backend'"):
        describe_policy("CartPole-v1", family="gym", backend="envpool")
    with pytest.raises(ConfigError, match="encoder: math has no 'nothing'"):
        describe_policy("CartPole-v1", family="gym", encoder="math:nothing")
