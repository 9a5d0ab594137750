"""A run's description as a value: parsed once, complete without building a network, equal to its JSON."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from plait.lab.cli import main
from plait.lab.tasks import CopyTask
from plait.lab.tasks.table import task_named
from plait.lab.training.description import Network
from plait.lab.training.recipe import HyperParams
from plait.models import RelRNN
from plait.models.options import check_model


def calls(words, *functions):
    """Run a command and return how often it calls each function."""
    codes = {function.__code__: function.__qualname__ for function in functions}
    counts = Counter(dict.fromkeys(codes.values(), 0))

    def count(frame, event, argument):
        if event == "call" and frame.f_code in codes:
            counts[codes[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert main([*words, "--quiet"]) == 0
    finally:
        sys.setprofile(before)
    return dict(counts)


SMALL = ["--hidden", "4", "--updates", "2", "--batch-size", "2", "--evaluate-on", "2", "--device", "cpu"]


def test_train_copy_builds_and_validates_once(tmp_path, capsys):
    """The network, the task and the validation of each part."""
    words = ["train", "copy", "--model", "relrnn", "--delay", "2", *SMALL, "--out", str(tmp_path)]
    functions = (
        RelRNN.__init__,
        Network.__init__,
        CopyTask.__init__,
        task_named,
        check_model,
        HyperParams.check,
    )
    assert set(calls(words, *functions).values()) == {1}


@pytest.mark.parametrize("family", ["minigrid", "gym"])
def test_training_a_policy_builds_and_validates_once(family, tmp_path, capsys):
    """The policy, its layers, the probe of the environment and the validation of each part."""
    pytest.importorskip("minigrid", reason="pip install 'plait[rl]'")
    from plait.lab.tasks.worlds.gym import EnvSpec
    from plait.lab.training.ppo.families import Family
    from plait.lab.training.ppo.policy import Policy

    env = {"minigrid": "Empty-5x5", "gym": "CartPole-v1"}[family]
    words = ["train", family, "--env", env, "--model", "relrnn", "--hidden", "4", "--steps", "16"]
    words += ["--envs", "2", "--rollout", "8", "--minibatches", "1", "--evaluate-on", "1"]
    functions = (
        RelRNN.__init__,
        Policy.__init__,
        Family.checked,
        check_model,
        HyperParams.check,
        EnvSpec.__init__,
    )
    counts = calls([*words, "--out", str(tmp_path)], *functions)
    assert counts.pop(EnvSpec.__init__.__qualname__) == (family == "gym")
    assert set(counts.values()) == {1}
