"""One learner: it learns, its batches and evaluations are right, a GPU replays what it would launch."""

import math

import numpy as np
import pytest
import torch

from plait.errors import DataError
from plait.lab.experiments.depthwidth import Training, TrainingRun
from plait.lab.experiments.depthwidth.learner import DeviceText, TextLearner
from plait.lab.tasks.text import CharacterText

CPU = torch.device("cpu")
QUICK = Training(updates=60, warmup=5, batch=8, context=16, held_out=200, looks=1)


def periodic(device=CPU, period=4):
    """A text whose next symbol is certain."""
    part = np.arange(2000) % period
    return DeviceText.of(CharacterText(tuple("abcd"), part, part, part), device)


def run_of(kind, training=QUICK, seed=0):
    return TrainingRun(kind, depth=2, width=32, heads=2, seed=seed, training=training)


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_a_certain_text_is_learnt(kind):
    text = periodic()
    learner = TextLearner(run_of(kind), text)
    assert learner.evaluate(text.test) == pytest.approx(math.log(4), abs=1e-6)
    for _ in range(QUICK.updates):
        learner.advance()
    assert learner.losses[0].item() == pytest.approx(math.log(4), abs=1e-6)
    assert learner.evaluate(text.test) < 0.05


def test_evaluation_is_the_mean_over_windows_side_by_side():
    text = periodic()
    learner = TextLearner(run_of("softmax"), text)
    torch.nn.init.normal_(learner.network.readout.weight)
    part = torch.randint(4, (16 * 12 + 5,))
    windows = [
        part[i * 16 : (i + 1) * 16 + 1] for i in range(12)
    ]  # 193 characters of the 200 are whole windows
    with torch.no_grad():
        logits = torch.stack([learner.network(w[None, :-1])[0] for w in windows])
    wanted = torch.stack([w[1:] for w in windows])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    assert learner.evaluate(part) == pytest.approx(expected.item(), abs=1e-6)


def test_shapes_of_a_seed_see_the_same_batches_and_seeds_do_not():
    text = periodic()
    same = [TextLearner(run_of(kind), text).starts for kind in ("softmax", "linear")]
    torch.testing.assert_close(same[0], same[1])
    assert not torch.equal(same[0], TextLearner(run_of("softmax", seed=1), text).starts)


def test_learning_rate_and_weight_decay_reach_the_optimiser():
    learner = TextLearner(run_of("softmax"), periodic())
    learner.advance()
    learner.advance()
    assert learner.optimiser.param_groups[0]["lr"].item() == pytest.approx(QUICK.rate(1, 32))
    decayed, others = (group["params"] for group in learner.optimiser.param_groups)
    assert sum(p.numel() for p in decayed) == 12 * 2 * 32**2
    assert len(decayed) + len(others) == len(list(learner.network.parameters()))
    assert [group["weight_decay"] for group in learner.optimiser.param_groups] == [0.1, 0.0]


def test_a_text_shorter_than_a_window_is_refused():
    part = np.zeros(16, dtype=np.int64)
    text = DeviceText.of(CharacterText(("a",), part, part, part), CPU)
    with pytest.raises(DataError, match="over 16 characters in every part"):
        TextLearner(run_of("softmax"), text)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_replayed_updates_are_the_launched_ones(kind):
    """Two learners side by side, as graphs on their streams, and one that launches every kernel."""
    text = periodic(torch.device("cuda"))
    replayed = [TextLearner(run_of(kind), text), TextLearner(run_of(kind, seed=1), text)]
    launched = TextLearner(run_of(kind), text, graphs=False)
    for _ in range(QUICK.updates):
        for learner in (*replayed, launched):
            learner.advance()
    torch.cuda.synchronize()
    assert replayed[0].graph is not None
    assert launched.graph is None
    torch.testing.assert_close(replayed[0].losses, launched.losses, rtol=0.02, atol=0.02)
    assert replayed[0].evaluate(text.test) < 0.1
    assert replayed[1].evaluate(text.test) < 0.1


def test_a_gradient_whose_squares_overflow_is_clipped():
    """Elements of 1e25 are finite in float32, their squares are not; divided by infinity all would be 0."""
    learner = TextLearner(run_of("softmax"), periodic())
    weight = learner.network.readout.weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, 1e25))
    learner.advance()
    assert weight.grad.norm().item() == pytest.approx(QUICK.clip, rel=1e-3)
