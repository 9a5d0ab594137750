"""One update against the loop everybody writes, and the names of what went wrong."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from plait.cells import orthogonal_parameters
from plait.errors import ConfigError, DivergedError
from plait.lab.tasks import CopyTask
from plait.lab.training.description import Network, network_for
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner
from plait.models import GORU, GRU, LSTM, ExpRNN, RelRNN

CPU = torch.device("cpu")


def learner(model=LSTM, group=None, delay=2, **recipe):
    torch.manual_seed(0)
    return SupervisedLearner(
        Network(model(10, 6), 9), CopyTask(delay), Recipe(batch_size=6, **recipe), CPU, group or Group()
    )


@pytest.mark.parametrize("model", [ExpRNN, GORU])
def test_what_is_beneath_an_orthogonal_matrix_has_its_own_rate(model):
    """Rates as small as these leave what they govern where it was; Adam's first step is the rate itself."""
    for rates, moved, still in (((1e-2, 1e-30), False, True), ((1e-30, 1e-2), True, False)):
        one = learner(model, lr=rates[0], orthogonal_lr=rates[1])
        before = {name: p.detach().clone() for name, p in one.network.named_parameters()}
        one.update(1, one.batch(1))
        slow = {id(p) for p in orthogonal_parameters(one.network)}
        for name, p in one.network.named_parameters():
            wanted = moved if id(p) in slow else still
            assert ((p - before[name]).abs().max() > 1e-6) == wanted, name
    assert len(learner(model).optimizer.param_groups) == 1


def test_one_rate_given_twice_is_one_rate():
    one, two = learner(ExpRNN, lr=0.01), learner(ExpRNN, lr=0.01, orthogonal_lr=0.01)
    for n in range(1, 5):
        one.update(n, one.batch(n))
        two.update(n, two.batch(n))
    assert torch.equal(weights(one.network), weights(two.network))


def test_a_rate_for_a_matrix_that_is_not_there():
    with pytest.raises(ConfigError, match=r"orthogonal_lr: expected a model .* \(exprnn, goru\)"):
        learner(LSTM, orthogonal_lr=0.1)


def weights(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_updates_are_the_textbook_loop(optimizer):
    ours = learner(optimizer=optimizer, lr=0.01, clip=0.05)
    torch.manual_seed(0)
    network = Network(LSTM(10, 6), 9)
    theirs = (
        torch.optim.Adam(network.parameters(), lr=0.01)
        if optimizer == "adam"
        else torch.optim.RMSprop(network.parameters(), lr=0.01, alpha=0.99)
    )
    for update in range(1, 6):
        batch = ours.batch(update)
        step = ours.update(update, batch)
        theirs.zero_grad()
        logits, _ = network(batch.inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 0.05)
        theirs.step()
        assert norm > 0.05, "the test is to see clipping"
        assert step.loss == loss.item()
        assert step.gradient_norm == pytest.approx(norm.item(), rel=1e-6)
        assert step.score == pytest.approx(
            (logits[-10:].argmax(-1) == batch.targets[-10:]).float().mean().item()
        )
    torch.testing.assert_close(weights(ours.network), weights(network), rtol=1e-6, atol=1e-7)


def test_no_clipping_with_clip_zero():
    free, clipped = learner(clip=0, optimizer="rmsprop"), learner(clip=1e-12, optimizer="rmsprop")
    start = weights(free.network).clone()
    for one in (free, clipped):
        one.update(1, one.batch(1))
    assert (weights(free.network) - start).norm() > 10 * (weights(clipped.network) - start).norm() > 0


@pytest.mark.parametrize("parts", [2, 4, 6])
def test_parts_of_a_batch_add_up(parts):
    """Accumulation changes the memory, not the gradient; unequal parts (6 rows in 4) included."""
    whole, split = learner(delay=3), learner(delay=3, accumulate=parts)
    for update in range(1, 4):
        one, two = (x.update(update, x.batch(update)) for x in (whole, split))
        assert one.loss == pytest.approx(two.loss, rel=1e-6)
        assert one.score == pytest.approx(two.score, rel=1e-6)
        assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)
    torch.testing.assert_close(weights(whole.network), weights(split.network), rtol=1e-5, atol=1e-6)


def test_spans_share_the_rows():
    spans = [span for rank in range(3) for span in Group(rank, 3).spans(10, 2)]
    assert [row for begin, end in spans for row in range(begin, end)] == list(range(10))
    with pytest.raises(ConfigError, match=r"batch_size: expected at least 6 .* got 5"):
        Group(0, 3).spans(5, 2)


class Poison(torch.nn.Module):
    """Makes the logits of the second row of the second call NaN from the eighth step on."""

    def __init__(self, network):
        super().__init__()
        self.network, self.calls = network, 0

    def forward(self, inputs, state=None):
        logits, state = self.network(inputs, state)
        self.calls += 1
        if self.calls == 2:
            logits = logits.clone()
            logits[7:, 1] = math.nan
        return logits, state


def test_nan_in_inputs_is_named():
    one = learner()
    before = weights(one.network).clone()
    batch = one.batch(1)
    batch.inputs[3, 2, 5] = math.nan
    with pytest.raises(
        DivergedError, match=r"^update 1: inputs hold nan at step 4 of sequence 3 of the batch$"
    ):
        one.update(1, batch)
    assert torch.equal(weights(one.network), before)


class Inattentive(torch.nn.Module):
    """Looks at the first five features only."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 9)

    def forward(self, inputs, state=None):
        return self.layer(inputs[..., :5]), state


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_bad_inputs_are_named_though_the_loss_hides_them(value):
    one = SupervisedLearner(Inattentive(), CopyTask(2), Recipe(batch_size=6), CPU, Group())
    batch = one.batch(1)
    batch.inputs[0, 0, 7] = value
    with pytest.raises(DivergedError, match=f"inputs hold {value} at step 1 of sequence 1"):
        one.update(1, batch)


def test_bad_logits_loss_and_gradients_are_named():
    one = learner(accumulate=2)
    one.network = Poison(one.network)
    with pytest.raises(DivergedError, match="logits are not finite from step 8 on, in sequence 5"):
        one.update(9, one.batch(9))  # sequences 4 to 6 are the second part

    @dataclasses.dataclass(frozen=True)
    class Endless(CopyTask):
        def loss(self, logits, targets):
            return super().loss(logits, targets) * math.inf

    two = learner()
    two.task = Endless(2)
    with pytest.raises(DivergedError, match="update 3: loss is inf"):
        two.update(3, two.batch(3))

    three = learner()
    name, parameter = list(three.network.named_parameters())[1]
    parameter.register_hook(lambda grad: grad * math.nan)
    with pytest.raises(DivergedError, match=f"update 2: gradient of {name} is not finite"):
        three.update(2, three.batch(2))


def test_a_mask_weighs_parts_by_their_targets():
    """Loss is a mean over targets; parts with few of them weigh little."""
    whole, split = learner(), learner(accumulate=3)
    batch = whole.batch(1)
    batch.targets[2:, :3] = -100
    one, two = (x.update(1, batch) for x in (whole, split))
    assert one.loss == pytest.approx(two.loss, rel=1e-6)
    assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)


def test_a_bare_model_gets_an_output_layer_and_others_do_not():
    network = network_for(RelRNN(10, 4), CopyTask(3), seed=1)
    again = network_for(RelRNN(10, 4), CopyTask(3), seed=1)
    assert torch.equal(network.decoder.weight, again.decoder.weight)
    assert network_for(network, CopyTask(3), seed=1) is network
    assert network_for(torch.nn.GRU(10, 4), CopyTask(3), seed=1).decoder.out_features == 9
    with pytest.raises(ConfigError, match="input_size 10 as 'copy' has, got 3"):
        network_for(GRU(3, 4), CopyTask(3), seed=1)
    turned = network_for(GRU(10, 4, batch_first=True), CopyTask(3), seed=1)
    assert turned(torch.zeros(7, 2, 10))[0].shape == (7, 2, 9), "a network is time first, whatever is inside"


@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_a_gradient_whose_squares_overflow_is_clipped_or_refused(clip):
    """Elements of 1e25 are finite in float32, their squares are not."""
    one = learner(RelRNN, clip=clip)
    decoder = one.network.decoder.weight
    decoder.register_hook(lambda gradient: torch.full_like(gradient, 1e25))
    before = decoder.detach().clone()
    if clip:
        step = one.update(1, one.batch(1))
        assert step.gradient_norm == pytest.approx(1e25 * decoder.numel() ** 0.5, rel=1e-4)
        assert torch.isfinite(decoder).all()
        assert not decoder.equal(before)
    else:
        with pytest.raises(DivergedError, match=r"norm overflows; clipping .* would bound it"):
            one.update(1, one.batch(1))
        assert decoder.equal(before)
