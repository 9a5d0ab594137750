"""A network on characters: it learns, resumes bit-exactly, and a GPU replays what it would launch."""

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from plait.errors import ConfigError, DataError, DivergedError
from plait.lab.runs.reading import read_run
from plait.lab.tasks.text import CharacterText
from plait.lab.training.character_learner import CharacterLearner, DeviceText, learner_of
from plait.lab.training.characters import CharacterModel, CharacterRecipe, CharacterSpec, CharacterTask
from plait.lab.training.process import Group
from plait.lab.training.session import load, train_run
from plait.lab.training.stop import Stop

CPU = torch.device("cpu")
QUICK = CharacterRecipe(updates=60, warmup=5, batch=8, context=16, held_out=200, looks=1)
NO_STOP = Stop(signals=False)


def periodic(device=CPU, period=4):
    """A text whose next symbol is certain."""
    part = np.arange(2000) % period
    return DeviceText.of(CharacterText(tuple("abcd"), part, part, part), device)


def learner(kind, text=None, recipe=QUICK, **options):
    task, model = CharacterTask(symbols=4), CharacterModel(kind, depth=2, width=32, heads=2)
    return CharacterLearner(CharacterSpec(task, model, recipe), text or periodic(), **options)


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_a_certain_text_is_learnt(kind):
    text = periodic()
    trained = learner(kind, text)
    assert trained.loss_on(text.test) == pytest.approx(math.log(4), abs=1e-6)
    for update in range(QUICK.updates):
        trained.advance(update + 1, NO_STOP)
    assert trained.losses[0].item() == pytest.approx(math.log(4), abs=1e-6)
    assert trained.loss_on(text.test) < 0.05


def test_evaluation_is_the_mean_over_windows_side_by_side():
    text = periodic()
    trained = learner("softmax", text)
    torch.nn.init.normal_(trained.network.readout.weight)
    part = torch.randint(4, (16 * 12 + 5,))
    windows = [
        part[i * 16 : (i + 1) * 16 + 1] for i in range(12)
    ]  # 193 characters of the 200 are whole windows
    with torch.no_grad():
        logits = torch.stack([trained.network(w[None, :-1])[0] for w in windows])
    wanted = torch.stack([w[1:] for w in windows])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    assert trained.loss_on(part) == pytest.approx(expected.item(), abs=1e-6)


def test_shapes_of_a_seed_see_the_same_batches_and_seeds_do_not():
    text = periodic()
    same = [learner(kind, text).starts for kind in ("softmax", "linear")]
    torch.testing.assert_close(same[0], same[1])
    assert not torch.equal(same[0], learner("softmax", text, replace(QUICK, seed=1)).starts)


def test_learning_rate_and_weight_decay_reach_the_optimiser():
    trained = learner("softmax", periodic())
    trained.advance(1, NO_STOP)
    trained.advance(2, NO_STOP)
    assert trained.optimizer.param_groups[0]["lr"].item() == pytest.approx(QUICK.rate(1, 32))
    decayed, others = (group["params"] for group in trained.optimizer.param_groups)
    assert sum(p.numel() for p in decayed) == 12 * 2 * 32**2
    assert len(decayed) + len(others) == len(list(trained.network.parameters()))
    assert [group["weight_decay"] for group in trained.optimizer.param_groups] == [0.1, 0.0]


def test_a_text_shorter_than_a_window_is_refused():
    part = np.zeros(16, dtype=np.int64)
    text = DeviceText.of(CharacterText(("a",), part, part, part), CPU)
    with pytest.raises(DataError, match="over 16 characters in every part"):
        learner("softmax", text)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_replayed_updates_are_the_launched_ones(kind):
    """Two learners side by side, as graphs on their streams, and one that launches every kernel."""
    text = periodic(torch.device("cuda"))
    replayed = [learner(kind, text), learner(kind, text, replace(QUICK, seed=1))]
    launched = learner(kind, text, graphs=False)
    for update in range(QUICK.updates):
        for each in (*replayed, launched):
            each.advance(update + 1, NO_STOP)
    torch.cuda.synchronize()
    assert replayed[0].graph is not None
    assert launched.graph is None
    torch.testing.assert_close(replayed[0].losses, launched.losses, rtol=0.02, atol=0.02)
    assert replayed[0].loss_on(text.test) < 0.1
    assert replayed[1].loss_on(text.test) < 0.1


def test_a_gradient_whose_squares_overflow_is_clipped():
    """Elements of 1e25 are finite in float32, their squares are not; divided by infinity all would be 0."""
    trained = learner("softmax", periodic())
    weight = trained.network.readout.weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, 1e25))
    trained.advance(1, NO_STOP)
    assert weight.grad.norm().item() == pytest.approx(QUICK.clip, rel=1e-3)


@pytest.fixture
def described(tmp_path):
    """The description of a run on a text of its own."""
    (tmp_path / "book.txt").write_text("a strand over a strand under a strand\n" * 200)
    model = {"name": "softmax", "depth": 1, "width": 16, "heads": 1}
    recipe = {"updates": 12, "warmup": 2, "batch": 4, "context": 16, "looks": 3, "held_out": 200}
    return {
        "task": {"name": "characters", "text": [str(tmp_path / "book.txt")]},
        "model": model,
        "recipe": recipe,
    }


def test_a_stopped_run_resumes_bit_exactly(described, tmp_path):
    whole = train_run(described, device="cpu", folder=tmp_path / "whole")
    limits = iter([False] * 6 + [True])
    part = train_run(described, device="cpu", folder=tmp_path / "part", stop_when=lambda: next(limits))
    assert (part.status, part.summary["updates"]) == ("stopped", 7)
    resumed = train_run(described, device="cpu", folder=tmp_path / "part", resume=True)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name])
    assert [line.get("loss") for line in resumed.metrics] == [line.get("loss") for line in whole.metrics]
    assert resumed.summary["held_out"] == whole.summary["held_out"]
    assert list(whole.summary["held_out"]) == ["validation", "test"]
    loaded = load(tmp_path / "whole")
    assert torch.equal(loaded.readout.weight, whole.network.readout.weight)


def test_a_killed_run_resumes_bit_exactly(described, tmp_path):
    whole = train_run(described, device="cpu", folder=tmp_path / "whole")
    code = (
        "import os, signal, sys\n"
        "from plait.lab.training.session import train_run\n"
        "calls = iter(range(100))\n"
        "kill = lambda: next(calls) == 8 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"train_run({described!r}, device='cpu', folder=sys.argv[1], checkpoint_every=5, stop_when=kill)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "killed")], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == -signal.SIGKILL
    resumed = train_run(described, device="cpu", folder=tmp_path / "killed", resume=True)
    assert resumed.summary["held_out"] == whole.summary["held_out"]
    assert [line["update"] for line in resumed.metrics] == [line["update"] for line in whole.metrics]


def test_a_loss_that_is_not_finite_ends_the_run(described, tmp_path, monkeypatch):
    monkeypatch.setattr(CharacterLearner, "loss_on", lambda self, part: math.nan)
    with pytest.raises(DivergedError, match="the loss on the validation text is not finite"):
        train_run(described, device="cpu", folder=tmp_path / "run")


def test_a_text_that_was_changed_is_refused(described, tmp_path):
    train_run(described, device="cpu", folder=tmp_path / "run", stop_when=lambda: True)
    (tmp_path / "book.txt").write_text("an other text\n" * 200)
    spec = read_run(tmp_path / "run").description
    with pytest.raises(ConfigError, match="it was changed since"):
        train_run(spec, device="cpu", folder=tmp_path / "run", resume=True)


def test_a_recorded_loss_is_the_mean_since_the_last_one():
    trained = learner("linear", recipe=replace(QUICK, updates=125, held_out=64))
    steps = [trained.advance(update + 1, NO_STOP).figures for update in range(125)]
    assert [number for number, figures in enumerate(steps, 1) if figures] == [*range(2, 125, 2), 125]
    assert steps[3]["loss"] == pytest.approx(trained.losses[2:4].mean().item(), rel=1e-6)
    assert steps[124]["loss"] == pytest.approx(trained.losses[124].item(), rel=1e-6)


def test_several_processes_are_refused():
    group = Group(rank=0, size=2)
    with pytest.raises(ConfigError, match="expected one process, got 2"):
        learner_of(learner("linear").spec, CPU, group, "auto")
