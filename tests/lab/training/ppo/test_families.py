"""Families of worlds behind one learner: runs of grid worlds stay what they were, others are alike."""

import json
from pathlib import Path

import pytest
import torch

from plait.errors import CheckpointError, ConfigError, UnknownNameError, EnvError
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import run_id
from plait.lab.tasks.environments.spaces import ObservationSpace
from plait.lab.training.ppo.encoders import SpaceEncoder
from plait.lab.training.ppo.learner import PolicyLearner, fit_policy
from plait.lab.training.ppo.policy import build_policy, describe_policy, load_policy
from plait.lab.training.ppo.rollout import Collector, evaluate_policy
from plait.lab.training.recipe import Settings
from tests.lab.tasks.environments import echo

ECHO = "tests.lab.tasks.environments.echo:"
SMALL = {"steps": 240, "envs": 4, "rollout": 10, "minibatches": 2, "epochs": 2, "evaluate_every": 3,
         "evaluate_on": 3}  # fmt: skip
PAIRS = [(seen, "discrete") for seen in echo.OBSERVATIONS if seen != "text"]
PAIRS += [("dict", "several"), ("discrete", "binary"), ("tuple", "box")]


def described(seen, done, model="rellstm", fault="", **changes):
    name = f"{ECHO}{seen}__{done}" + (f"__{fault}" if fault else "")
    return describe_policy(name, model, Settings(**{**SMALL, **changes}), family="gym", hidden_size=8)


@pytest.mark.parametrize("stored", json.loads((Path(__file__).parent / "grid_runs.json").read_text()),
                         ids=lambda stored: stored["id"])  # fmt: skip
def test_runs_of_grid_worlds_are_what_they_were(stored, tmp_path):
    """Ids, descriptions and the tensors of a checkpoint as written before there were other worlds."""
    description = stored["description"]
    again = describe_policy(
        "GoToDoor-5x5", description["model"]["name"], Settings(**description["recipe"]), hidden_size=8,
        test_env="GoToDoor-6x6",
    )  # fmt: skip
    assert json.dumps(again) == json.dumps(description)
    assert run_id(again) == stored["id"]
    fitted = fit_policy(again, folder=tmp_path / "run")
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors")
    found = {
        name: [str(value.dtype).removeprefix("torch."), list(value.shape)]
        for name, value in sorted(checkpoint.tensors.items())
    }
    found["worlds.actions"][1][1] = 0  # as many as the longest open episode has
    assert found == stored["tensors"]
    returns = [line["return"] for line in fitted.metrics if "return" in line]
    assert returns == pytest.approx(stored["returns"], abs=1e-6)


@pytest.mark.parametrize(("seen", "done"), PAIRS)
def test_a_killed_run_resumes_to_the_same_curve(seen, done, tmp_path, dying, outcome_of):
    """Whatever is seen and done: killed twice, at timesteps that are no checkpoint."""
    description = described(seen, done, scale_returns=seen == "box")
    fit_policy(description, folder=tmp_path / "whole", checkpoint_every=2)
    for updates in (3, 2):
        with pytest.raises(dying.error):
            fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, resume=updates == 2,
                       watchers=[dying(updates)])  # fmt: skip
    fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, resume=True)
    assert outcome_of(tmp_path / "killed") == outcome_of(tmp_path / "whole")
    policy, name = load_policy(tmp_path / "killed"), description["task"]["env"]
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert evaluate_policy(policy, name, 3) == summary["held_out"][name]


def test_a_run_of_popgym_goes_on_with_its_best_mean(tmp_path, dying, outcome_of):
    pytest.importorskip("popgym")
    settings = Settings(**{**SMALL, "steps": 960, "rollout": 40})
    description = describe_policy("RepeatFirstEasy", "relgru", settings, family="popgym", hidden_size=8)
    fit_policy(description, folder=tmp_path / "whole", checkpoint_every=2)
    with pytest.raises(dying.error):
        fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, watchers=[dying(3)])
    fit_policy(description, folder=tmp_path / "killed", checkpoint_every=2, resume=True)
    assert outcome_of(tmp_path / "killed") == outcome_of(tmp_path / "whole")
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert summary["held_out"]["RepeatFirstEasy"]["mmer"] < 0


def test_a_checkpoint_that_was_edited_is_refused(tmp_path, dying, edited, refused):
    changes = {
        "an action there is not": (lambda n, v: v * 0 + 200 if n == "worlds.actions" else v, "out of range"),
        "a card there is not": (lambda n, v: v + 9 if n == "timestep.seen.card" else v, "out of range"),
        "a place that is none": (
            lambda n, v: v * float("nan") if n == "timestep.seen.place.0" else v, "out of range",
        ),
        "scales of fewer worlds": (lambda n, v: v[1:] if n == "scale.running" else v, "running: expected"),
        "another timestep": (
            lambda n, v: (v + 1) % 4 if n == "timestep.seen.card" else v, "did not come back to where it was",
        ),
    }  # fmt: skip
    description = described("dict", "several", scale_returns=True)
    for number, (change, message) in enumerate(changes.values()):
        folder = tmp_path / str(number)
        with pytest.raises(dying.error):
            fit_policy(description, folder=folder, checkpoint_every=2, watchers=[dying(3)])
        edited(folder, change)
        assert message in refused(folder)


def test_worlds_that_other_things_than_seeds_decide_are_not_resumed(tmp_path, dying):
    description = described("box", "discrete", fault="chance")
    with pytest.raises(dying.error):
        fit_policy(description, folder=tmp_path / "run", checkpoint_every=2, watchers=[dying(3)])
    with pytest.raises(
        CheckpointError, match="did not come back to where it was when its actions were played"
    ):
        fit_policy(description, folder=tmp_path / "run", resume=True)


@pytest.mark.parametrize("fault", ["raise", "reward"])
def test_a_world_that_fails_is_named_and_the_run_kept(fault, tmp_path):
    description = described("box", "discrete", fault=fault)
    message = f"box__discrete__{fault} .*; the run is kept, continue: plait train --resume {tmp_path / 'run'}"
    with pytest.raises(EnvError, match=message):
        fit_policy(description, folder=tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / "checkpoint.safetensors").counters["update"] == 0
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(("seen", "done"), PAIRS)
def test_playing_again_gives_the_same_outputs(seen, done):
    policy = build_policy(described(seen, done))
    worlds = policy.family.open(f"{ECHO}{seen}__{done}", 4)
    collector, draw = Collector(worlds, torch.device("cpu")), torch.Generator().manual_seed(0)
    for _ in range(2):
        rollout = collector.collect(policy, 12, draw)
        outputs, values, _ = policy(rollout.observation, rollout.state, reset=rollout.begins)
        torch.testing.assert_close(outputs, rollout.logits, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(values, rollout.values, atol=1e-6, rtol=1e-4)
        logarithms = policy.actions.chosen(outputs, rollout.actions)[0]
        torch.testing.assert_close(logarithms, rollout.old, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("relevance", ["earned", "learned"])
def test_a_learned_relevance_keeps_the_same_states_when_played_again(relevance):
    name = f"{ECHO}discrete__discrete"
    settings = Settings(**SMALL)
    options = {"hidden_size": 8, "window": 2, "capacity": 2, "relevance": relevance}
    policy = build_policy(describe_policy(name, "rellstm", settings, family="gym", **options))
    collector = Collector(policy.family.open(name, 4), torch.device("cpu"))
    rollout = collector.collect(policy, 12, torch.Generator().manual_seed(0))
    outputs = policy(rollout.observation, rollout.state, reset=rollout.begins)[0]
    torch.testing.assert_close(outputs, rollout.logits, atol=1e-6, rtol=1e-4)
    with pytest.raises(
        ConfigError, match=r"noise: expected 0 for a policy, whose actions are drawn, got 0\.3"
    ):
        describe_policy(name, "rellstm", family="gym", relevance="learned", noise=0.3)


@pytest.mark.parametrize(("seen", "done"), PAIRS)
def test_an_update_makes_what_was_rewarded_likelier(seen, done):
    policy = build_policy(described(seen, done, model="none"))
    settings = Settings(envs=4, rollout=12, minibatches=1, lr=1e-2, discount=0.0, entropy=0.0)
    learner = PolicyLearner(policy, settings, torch.device("cpu"))
    collector = Collector(policy.family.open(f"{ECHO}{seen}__{done}", 4), torch.device("cpu"))
    rollout = collector.collect(policy, 12, torch.Generator().manual_seed(0))
    good = (
        rollout.actions.flatten(2).double().sum(-1) if rollout.actions.dim() > 2 else rollout.actions.double()
    )
    good = good > good.median()
    learner.update(1, rollout._replace(rewards=good.float()))
    outputs = policy(rollout.observation, rollout.state, reset=rollout.begins)[0]
    moved = policy.actions.chosen(outputs, rollout.actions)[0] - rollout.old
    assert moved[good & rollout.counted].mean() > 0 > moved[~good & rollout.counted].mean()


class Reader(torch.nn.Module):
    """A module of one's own: it reads an observation in the form of the space."""

    def __init__(self, space, features):
        super().__init__()
        self.card = torch.nn.Embedding(space["card"].n, features)
        self.place = torch.nn.Linear(2, features)

    def forward(self, seen):
        return self.card(seen["card"][:, 0]) + self.place(seen["place"][0])


class Wrong(Reader):
    def forward(self, seen):
        return super().forward(seen)[:, 1:]


def test_an_encoder_of_ones_own(tmp_path):
    def make():
        return echo.dict__discrete()

    settings = Settings(**SMALL)
    description = describe_policy(make, "gru", settings, hidden_size=8, encoder=Reader)
    assert description["task"]["encoder"].endswith("test_families:Reader")
    fit_policy(description, folder=tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    assert isinstance(policy.encoder.inner, Reader)
    wrong = describe_policy(make, "gru", settings, hidden_size=8, encoder=Wrong)
    with pytest.raises(ValueError, match=r"encoder: expected \(4, 8\) from .*Wrong, got \(4, 7\)"):
        fit_policy(wrong)
    with pytest.raises(
        ConfigError, match=r"encoder: expected a torch\.nn\.Module from builtins:print.*, got None"
    ):
        build_policy(describe_policy(make, encoder="builtins:print"))
    with pytest.raises(ConfigError, match=r"encoder: math:hypot\(space, features\) failed: TypeError"):
        build_policy(describe_policy(make, encoder="math:hypot"))


def test_numbers_are_read_alike_whatever_their_bounds():
    """Bounded ones run from −1 to 1; of others the sign and the logarithm are read."""
    observed = ObservationSpace(echo.OBSERVATIONS["box"](), "box")
    encoder = SpaceEncoder(observed, 8)
    read = []
    encoder.parts[0].layers[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    encoder([torch.tensor([[-1.0, -1e6], [3.0, 0.0], [1.0, torch.e - 1]])])
    assert read[0].tolist() == [[-1, pytest.approx(-13.8155)], [1, 0], [0, pytest.approx(1)]]


def test_scaled_returns_leave_what_is_shown_alone():
    plain, scaled = (fit_policy(described("box", "box", scale_returns=scale)) for scale in (False, True))
    assert scaled.metrics[0]["return"] == plain.metrics[0]["return"]
    assert scaled.metrics[0]["value"] != plain.metrics[0]["value"]
    assert "success" not in scaled.metrics[0]


def test_a_world_to_be_tested_in_has_the_same_spaces():
    name = f"{ECHO}box__discrete"
    settings = Settings(**SMALL)
    tested = describe_policy(name, "gru", settings, family="gym", hidden_size=8, test_env=f"{name}__other")
    assert set(fit_policy(tested).summary["held_out"]) == {name, f"{name}__other"}
    with pytest.raises(ConfigError, match=r"test_env: .* does not match .*: expected observations Box"):
        describe_policy(name, family="gym", test_env=f"{ECHO}dict__discrete")


def test_an_episode_without_an_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("plait.lab.training.ppo.rollout._LONGEST", 200)
    policy = build_policy(described("discrete", "discrete", model="none"))
    worlds = policy.family.open(f"{ECHO}discrete__discrete", 2)
    monkeypatch.setattr(echo.Echo, "step", lambda self, action: (3, 0.0, False, False, {}))
    monkeypatch.setattr(type(policy.family), "open", lambda *_, **__: worlds)
    with pytest.raises(EnvError, match=r"has not ended after 200 steps; give it a limit \(--time-limit\)"):
        evaluate_policy(policy, "", 2)


def test_bad_descriptions():
    with pytest.raises(UnknownNameError, match="unknown family of worlds 'gim': did you mean 'gym'"):
        describe_policy("CartPole-v1", family="gim")
    with pytest.raises(ConfigError, match="time_limit: expected at least 1, got 0"):
        describe_policy("CartPole-v1", family="gym", time_limit=0)
    with pytest.raises(UnknownNameError, match="unknown option of gym 'backend'"):
        describe_policy("CartPole-v1", family="gym", backend="envpool")
    with pytest.raises(ConfigError, match="encoder: math has no 'nothing'"):
        describe_policy("CartPole-v1", family="gym", encoder="math:nothing")
