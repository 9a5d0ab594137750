"""Steps a second of PPO: everyone takes turns, ratios point the right way, the peer is set up as ours is."""

from __future__ import annotations

import json
import sys
import time

import pytest

pytest.importorskip("minigrid")

from plait.errors import BackendError
from plait.lab.bench import recurrent_ppo, rl
from plait.lab.bench.ppo_learners import PlaitPPO, Record, StableBaselinesPPO, take_turns_playing
from plait.lab.bench.rl import bench_rl
from plait.lab.cli import main
from plait.lab.tasks.minigrid import make_vec_env
from plait.lab.training.recipe import PPOConfig

TINY = {"n_envs": 4, "n_steps": 8, "n_epochs": 1, "n_minibatches": 2, "hidden": 8, "rounds": 2}
SETTINGS = PPOConfig(
    n_envs=4, n_steps=8, n_epochs=3, n_minibatches=2, lr=0.002, vf_coef=0.5, ent_coef=0.02, seed=3
)
with_peer = pytest.mark.skipif(
    not recurrent_ppo.is_installed(), reason="needs stable-baselines3 and sb3-contrib"
)


def as_flags(values):
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


class Sleeper:
    """Plays and learns for as long as it is told."""

    def __init__(self, called, name, playing=0, learning=0, clock=time):
        self.called, self.name, self.naps, self.clock = called, name, (playing, learning), clock
        self.steps = 10

    def play(self):
        self.called.append(self.name)
        self.clock.sleep(self.naps[0])

    def learn(self):
        self.called.append(self.name.upper())
        self.clock.sleep(self.naps[1])


def test_everyone_warms_up_and_takes_turns():
    called = []
    learners = {name: Sleeper(called, name) for name in "ab"}
    records = take_turns_playing(learners, rounds=2, warm_up=3)
    assert "".join(called) == "aaaAbbbB" + "aAbB" * 2
    assert len(records["a"].playing) == len(records["a"].training) == 2


def test_collection_is_part_of_training(clock):
    record = take_turns_playing({"a": Sleeper([], "a", 0.01, 0.03, clock)}, rounds=2, warm_up=1)["a"]
    assert record.collection.median == pytest.approx(0.001)
    assert record.collection_and_update.median == pytest.approx(0.004)


def test_a_ratio_above_one_is_faster():
    def record(playing, learning):
        return Record(1, [playing] * 2, [playing + learning] * 2)

    records = {
        ("lstm", "envpool"): record(1, 1),
        ("rellstm", "envpool"): record(2, 2),
        (rl._MATCHED, "minigrid"): record(4, 4),
    }
    learners = {key: Sleeper([], "") for key in records}
    lstm, rellstm, peer = rl._rows(records, learners)
    assert (rellstm["to lstm"], rellstm["to RecurrentPPO"]) == (0.5, 2)
    assert (lstm["to lstm"], lstm["to RecurrentPPO"], lstm["collection"]) == (1, 4, 1)
    assert (peer["to lstm"], peer["to RecurrentPPO"]) == (None, 1)


def test_ours_alone(tmp_path, capsys):
    out = tmp_path / "rl.json"
    flags = ["--policies", "lstm,memlstm", "--backends", "minigrid", "--no-peer", "--out", str(out)]
    assert main(["bench", "rl", *as_flags(TINY), *flags]) == 0
    assert "to RecurrentPPO" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert [(row["learner"], row["backend"]) for row in found["rows"]] == [
        ("lstm", "minigrid"),
        ("memlstm", "minigrid"),
    ]
    assert all(row["collection"] > row["training"] > 0 for row in found["rows"])
    assert found["rows"][0]["steps a turn"] == 32
    assert {"machine", "versions", "commit", "command", "date"} <= set(found)
    assert found["machine"]["threads"] == 1
    assert found["versions"]["minigrid"]


def test_missing_packages_are_left_out_and_reported(monkeypatch):
    monkeypatch.setattr(rl, "version_of", lambda name: None)
    monkeypatch.setattr(recurrent_ppo, "version_of", lambda name: None)
    found = bench_rl(policies="lstm", **TINY).data
    assert [row["learner"] for row in found["rows"]] == ["lstm"]
    assert [note.split(",")[0] for note in found["notes"]] == [
        "no rows of envpool",
        "no rows of RecurrentPPO",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env", "DorKey-5x5"], "unknown environment 'DorKey-5x5'"),
        (["--policies", "lsm"], "unknown policy 'lsm'"),
        (["--backends", "gym"], "unknown backend 'gym'"),
        (["--n-envs", "0"], "envs: expected at least 1, got 0"),
        (["--n-envs", "12"], "n_minibatches: expected a divisor of n_envs = 12, got 8"),
        (["--rounds", "0"], "rounds: expected at least 1"),
        (["--threads", "0"], "threads: expected at least 1"),
        (["--out", "nowhere/rl.json"], "the folder nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys):
    assert main(["bench", "rl", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_requested_peer_must_be_installed(monkeypatch):
    monkeypatch.setattr(recurrent_ppo, "version_of", lambda name: None)
    with pytest.raises(BackendError, match="pip install stable-baselines3 sb3-contrib"):
        recurrent_ppo.matched("Empty-5x5", SETTINGS, 8)


def test_requested_envpool_must_be_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert main(["bench", "rl", "--backends", "envpool"]) == 2
    assert "pip install 'plait[envpool]'" in capsys.readouterr().err


def test_ours_is_what_training_runs():
    learner = PlaitPPO("DoorKey-5x5", "minigrid", "rellstm", 8, SETTINGS)
    before = [parameter.clone() for parameter in learner.learner.parameters]
    learner.play()
    learner.learn()
    assert learner.rollout.actions.shape == (8, 4)
    assert learner.learner.policy.recurrent.hidden_size == 8
    moved = [not old.equal(new) for old, new in zip(before, learner.learner.parameters, strict=True)]
    assert sum(moved) > len(moved) / 2


@with_peer
def test_the_peer_has_our_settings():
    model = recurrent_ppo.matched("GoToDoor-5x5", SETTINGS, 8)
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs) == (4, 8, 16, 3)
    assert (model.learning_rate, model.gamma, model.gae_lambda) == (0.002, 0.99, 0.95)
    assert (model.vf_coef, model.ent_coef, model.max_grad_norm) == (0.25, 0.02, 0.5)
    policy = model.policy
    assert (policy.lstm_actor.input_size, policy.lstm_actor.hidden_size) == (8, 8)
    assert policy.lstm_critic is None
    assert policy.critic is None
    ours = PlaitPPO("GoToDoor-5x5", "minigrid", "lstm", 8, SETTINGS)
    own = recurrent_ppo.matched("GoToDoor-5x5", SETTINGS, 8, own_critic=True).policy
    assert own.lstm_critic.hidden_size == 8
    second_bias = 4 * 8  # torch's LSTM has two, which are added up
    numbers = sum(p.numel() for p in ours.learner.parameters)
    assert sum(p.numel() for p in policy.parameters()) == numbers + second_bias


@with_peer
def test_the_peer_sees_what_we_see():
    from plait.lab.tasks.minigrid import GridObservation

    env = recurrent_ppo.vector_env("GoToDoor-5x5", 2, seed=0)
    seen = env.reset()
    assert {name: part.shape for name, part in seen.items()} == {
        "image": (2, 7, 7, 3),
        "direction": (2, 1),
        "mission": (2, 13),
    }
    like = make_vec_env("GoToDoor-5x5", 2).reset().observation
    assert (seen["mission"][:, :3] == like.mission[:, :3].numpy()).all()  # go to the …
    model = recurrent_ppo.matched("GoToDoor-5x5", SETTINGS, 8)
    batch = model.policy.obs_to_tensor(seen)[0]
    parts = (batch["image"], batch["direction"].squeeze(-1), batch["mission"])
    expected = model.policy.features_extractor.encoder(GridObservation(*parts))
    assert model.policy.extract_features(batch).equal(expected)


@with_peer
def test_the_peer_plays_and_learns():
    learner = StableBaselinesPPO(recurrent_ppo.matched("Empty-5x5", SETTINGS, 8))
    before = [parameter.clone() for parameter in learner.model.policy.parameters()]
    for _ in range(2):
        learner.play()
        learner.learn()
    assert learner.steps == 32
    assert learner.model.num_timesteps == 64
    after = learner.model.policy.parameters()
    assert any(not old.equal(new) for old, new in zip(before, after, strict=True))


@with_peer
def test_all_in_one_run():
    found = bench_rl(policies="lstm", backends="minigrid", **TINY).data
    names = [row["learner"] for row in found["rows"]]
    assert names == ["lstm", rl._MATCHED, rl._SHARED, rl._DEFAULTS]
    assert found["rows"][0]["to RecurrentPPO"] > 0
    assert found["rows"][1]["to RecurrentPPO"] == 1
    assert found["rows"][3]["steps a turn"] == 128
