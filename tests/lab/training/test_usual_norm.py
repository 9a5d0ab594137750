"""Clipping by what the norm of the gradient usually is."""

import math

import pytest
import torch

from plait.errors import ConfigError, DivergedError
from plait.lab.training.learner import UsualNorm
from plait.lab.training.recipe import Recipe


def settled(factor=3.0, norm=1.0):
    usual = UsualNorm(factor)
    for _ in range(UsualNorm.SETTLING):
        assert usual.bound(norm) == math.inf
    return usual


def test_a_spike_is_left_out_and_moves_the_mean_by_no_more_than_the_bound():
    usual = settled()
    for spike in (12.5, 1e18, math.inf, math.nan):
        before = usual.state[0].item()
        assert usual.bound(spike) is None
        assert usual.state[0].item() == pytest.approx(before * (0.99 + 0.01 * 3))


def test_what_is_a_little_long_is_scaled_down():
    assert settled().bound(11.0) == pytest.approx(3.0)


def test_a_norm_that_stays_high_is_let_in_again():
    usual = settled()
    counts = next(n for n in range(UsualNorm.LONGEST) if usual.bound(100.0) is not None)
    assert 50 < counts < 150


def test_a_run_whose_gradients_stay_infinite_is_given_up():
    usual = settled()
    assert all(usual.bound(math.inf) is None for _ in range(UsualNorm.LONGEST))
    with pytest.raises(DivergedError, match="not finite in 200 updates in a row; try a smaller lr"):
        usual.bound(math.inf)


def test_an_exploding_batch_is_skipped(small_fit, monkeypatch):
    """Update 30 sees a gradient 10⁹ times the others'; without the option its direction is followed."""
    from plait.lab.training import supervised

    kept, passes = {}, supervised.SupervisedLearner._passes

    def exploding(self, *arguments):
        made = passes(self, *arguments)
        kept["calls"] += 1
        if kept["calls"] == 30:
            for parameter in self.parameters:
                parameter.grad.mul_(1e9)
            figures = made.figures.clone()
            figures[3] *= 1e9
            return made._replace(figures=figures, norm=made.norm * 1e9)
        return made

    monkeypatch.setattr(supervised.SupervisedLearner, "_passes", exploding)
    for option in (0.0, 3.0):
        kept["calls"] = 0
        fitted = small_fit(updates=30, relative_clip=option, gradients_every=0)
        kept[option] = torch.cat([p.detach().flatten() for p in fitted.network.parameters()])
        kept["calls"] = -100
        before = small_fit(updates=29, relative_clip=option, gradients_every=0)
        kept[option, "before"] = torch.cat([p.detach().flatten() for p in before.network.parameters()])
    assert torch.equal(kept[3.0], kept[3.0, "before"])
    assert not torch.equal(kept[0.0], kept[0.0, "before"])


def test_the_option_is_checked_and_left_out_where_it_is_not_used():
    assert "relative_clip" not in Recipe().values()
    with pytest.raises(ConfigError, match="relative_clip: expected at least 0, got -1"):
        Recipe(relative_clip=-1.0).check()
