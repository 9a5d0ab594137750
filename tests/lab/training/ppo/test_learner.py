"""Runs of PPO: deterministic, equal after a crash, and stopped by an error at a non-finite value."""

import json

import pytest
import torch

from plait.errors import CheckpointError, DivergedError, OutputError
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.callbacks import Callback
from plait.lab.training.ppo import learner as learner_module
from plait.lab.training.ppo.fit import fit_policy
from plait.lab.training.ppo.learner import learner_of
from plait.lab.training.ppo.policy import describe_policy, load_policy, parse_policy
from plait.lab.training.ppo.rollout import Episode, evaluate_policy
from plait.lab.training.process import Group
from plait.lab.training.recipe import PPOConfig
from plait.lab.training.stop import Stop


class Crash(BaseException):
    """A crash of the process: nothing catches it."""


class CrashAfter(Callback):
    """Crashes after a number of updates of this session."""

    def __init__(self, updates):
        self.left = updates

    def updated(self, update, step):
        self.left -= 1
        if not self.left:
            raise Crash


class Notes(Callback):
    """Records the messages to the user."""

    def __init__(self):
        self.lines = []

    def noted(self, text):
        self.lines.append(text)


def timeless(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def backends():
    import importlib.util

    missing = importlib.util.find_spec("envpool") is None
    return ["minigrid", pytest.param("envpool", marks=pytest.mark.skipif(missing, reason="needs envpool"))]


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("model", ["rellstm", "memlstm", "none"])
def test_a_killed_run_resumes_to_the_same_curve(small_fit, outcome_of, tmp_path, model, backend):
    """Killed twice, between checkpoints; every bit but the clock equals an uninterrupted run's."""
    arguments = {"model": model, "backend": backend, "test_env": "GoToDoor-6x6"}
    small_fit(tmp_path / "whole", **arguments)
    for updates in (3, 2):
        with pytest.raises(Crash):
            small_fit(tmp_path / "killed", callbacks=[CrashAfter(updates)], resume=updates == 2, **arguments)
        assert not (tmp_path / "killed" / "summary.json").exists()
    small_fit(tmp_path / "killed", resume=True, **arguments)
    assert outcome_of(tmp_path / "killed") == outcome_of(tmp_path / "whole")


def test_the_seed_decides(small_fit):
    first, again, other = small_fit(), small_fit(), small_fit(seed=1)
    assert timeless(first.metrics) == timeless(again.metrics)
    assert timeless(first.metrics) != timeless(other.metrics)
    for one, two in zip(first.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_run_folder_has_curve_summary_and_checkpoint(small_fit, tmp_path):
    fitted = small_fit(tmp_path / "run", test_env="GoToDoor-8x8")
    assert fitted.status == "complete"
    assert {path.name for path in fitted.folder.iterdir()} >= {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "checkpoint.safetensors",
        "summary.json",
    }
    updates = [line for line in fitted.metrics if "policy_loss" in line]
    assert [line["steps"] for line in updates] == [40, 80, 120, 160, 200, 240]
    evaluations = [line for line in fitted.metrics if "held_out" in line]
    assert [line["update"] for line in evaluations] == [3, 6, 6]
    assert [len(line["held_out"]) for line in evaluations] == [1, 1, 2]
    assert set(fitted.summary["held_out"]) == {"GoToDoor-5x5", "GoToDoor-8x8"}
    assert evaluations[-1]["held_out"] == fitted.summary["held_out"]
    again = small_fit(tmp_path / "run", test_env="GoToDoor-8x8")
    assert again.summary == fitted.summary
    policy = load_policy(tmp_path / "run")
    assert evaluate_policy(policy, "GoToDoor-5x5", 3) == fitted.summary["held_out"]["GoToDoor-5x5"]


@pytest.mark.parametrize("name", ["actor.2.weight", "critic.2.bias", "encoder.view.0.weight"])
def test_nan_is_named_and_the_last_good_checkpoint_is_kept(small_fit, tmp_path, name):
    class Poison(Callback):
        def updated(self, update, step):
            if update == 120:  # steps: after update 3, of which 2 are saved
                dict(policies[0].named_parameters())[name].data.fill_(torch.nan)

    policies = []
    build = learner_module.build_policy

    def build_and_record(*arguments):
        policies.append(build(*arguments))
        return policies[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner_module, "build_policy", build_and_record)
        what = "values" if name == "critic.2.bias" else "logits"
        message = (
            f"update 4: the policy's {what} are not finite from step 1 .* last good checkpoint is kept in"
        )
        with pytest.raises(DivergedError, match=message):
            small_fit(tmp_path / "run", callbacks=[Poison()], evaluate_every=100)
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors")
    assert checkpoint.counters["update"] == 2
    assert all(torch.isfinite(v).all() for k, v in checkpoint.tensors.items() if k.startswith("model."))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"


def test_a_non_finite_loss_is_named(small_fit, monkeypatch):
    from plait.lab.training.ppo import learner

    def nan_loss(*arguments):
        losses = ppo_loss(*arguments)
        return losses._replace(total=losses.total * torch.tensor(float("nan")))

    ppo_loss = learner.ppo_loss
    monkeypatch.setattr(learner, "ppo_loss", nan_loss)
    with pytest.raises(DivergedError, match="update 1: the loss is nan"):
        small_fit()


def test_a_stopped_run_resumes(small_fit, outcome_of, tmp_path):
    stopped = small_fit(tmp_path / "run", stop_when=lambda: True)
    assert (stopped.status, stopped.summary["updates"]) == ("stopped", 1)
    with pytest.raises(OutputError, match="unfinished; continue"):
        small_fit(tmp_path / "run")
    small_fit(tmp_path / "run", resume=True)
    small_fit(tmp_path / "whole")
    assert outcome_of(tmp_path / "run") == outcome_of(tmp_path / "whole")


def test_until_return_stops_early(small_fit):
    fitted = small_fit(until_return=0.0)
    assert fitted.summary["updates"] == 3
    assert "held-out return reached 0.0" in fitted.summary["reason"]


def test_another_runs_checkpoint_is_refused(small_fit, tmp_path):
    small_fit(tmp_path / "a")
    small_fit(tmp_path / "b", seed=1, stop_when=lambda: True)
    (tmp_path / "b" / "checkpoint.safetensors").write_bytes(
        (tmp_path / "a" / "checkpoint.safetensors").read_bytes()
    )
    with pytest.raises(CheckpointError, match="belongs to run"):
        small_fit(tmp_path / "b", seed=1, resume=True)


def test_evaluation_does_not_change_training(small_fit):
    """More frequent evaluations give the same training curve."""
    often, seldom = small_fit(evaluate_every=1), small_fit(evaluate_every=6)
    assert [x for x in often.metrics if "policy_loss" in x] == [
        x for x in seldom.metrics if "policy_loss" in x
    ]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_learns_doorkey(described):
    """With RelLSTM: a held-out mean return of 0.9, the paper's 0.93 being an average over training."""

    ppo = PPOConfig(total_timesteps=400_000, until_return=0.9, evaluate_every=4)
    fitted = fit_policy(describe_policy("DoorKey-5x5", "rellstm", ppo))
    assert fitted.summary["best_score"] >= 0.9


def test_every_update_has_a_generator_of_its_own(small_fit, monkeypatch):
    calls = []

    def recorded(seed, purpose, index, device):
        calls.append((purpose, index))
        return generator_for(seed, purpose, index, device)

    generator_for = learner_module.generator_for
    monkeypatch.setattr(learner_module, "generator_for", recorded)
    small_fit()
    assert [call for call in calls if call[0] == "train"] == [("train", number) for number in range(1, 7)]


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize(("model", "steps"), [("rellstm", 4), ("memlstm", 24), ("none", 29)])
def test_a_rollout_is_aborted_when_a_stop_is_overdue(
    small_fit, outcome_of, tmp_path, monkeypatch, model, steps, backend
):
    """Within the first rollout of ten steps, or the third: the run is saved as it was before that rollout."""
    checks, notes, arguments = [], Notes(), {"model": model, "backend": backend}
    with monkeypatch.context() as patch:
        patch.setattr(Stop, "overdue", property(lambda _: checks.append(1) or len(checks) > steps))
        stopped = small_fit(tmp_path / "run", callbacks=[notes], **arguments)
    updates = steps // 10
    assert (stopped.status, stopped.summary["updates"], len(checks)) == ("stopped", updates, steps + 1)
    assert notes.lines[0] == f"update {updates + 1} was cut short; resuming repeats it"
    small_fit(tmp_path / "run", resume=True, **arguments)
    small_fit(tmp_path / "whole", **arguments)
    assert outcome_of(tmp_path / "run") == outcome_of(tmp_path / "whole")


def test_no_test_environment_no_final_evaluation(described):
    learner = learner_of(parse_policy(described()), torch.device("cpu"), Group())
    assert learner.evaluate(final=True) == {}


def test_figures_of_an_update_are_means_over_its_episodes():
    episodes = [Episode(1.0, 10), Episode(0.0, 20), Episode(0.5, 60)]
    figures = learner_module._figures(
        learner_module.PolicyStep({"total": 2.0}, 0.5, episodes), has_success=True
    )
    assert figures == {
        "episodes": 3,
        "return": 0.5,
        "success": pytest.approx(2 / 3),
        "length": 30.0,
        "loss": 2.0,
        "gradient_norm": 0.5,
    }
    none = learner_module._figures(learner_module.PolicyStep({"total": 2.0}, 0.5, []), has_success=False)
    assert none == {"episodes": 0, "return": None, "length": None, "loss": 2.0, "gradient_norm": 0.5}
