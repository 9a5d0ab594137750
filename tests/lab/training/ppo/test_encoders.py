"""Encoders chosen by the space: numbers are told apart, pictures read whichever way they lie."""

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium")
from gymnasium import spaces

from plait.errors import PlaitError
from plait.lab.tasks.minigrid import GridObservation
from plait.lab.tasks.environments.base import Observation
from plait.lab.tasks.environments.spaces import ObservationSpace
from plait.lab.training.ppo.encoders import Encoder, SpaceEncoder


def encoder_of(space, features=8):
    torch.manual_seed(0)
    return SpaceEncoder(ObservationSpace(space, "world"), features)


def test_choices_are_told_apart_by_place_and_value():
    encoder = encoder_of(spaces.MultiDiscrete([3, 3]))
    rows = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    table = encoder.parts[0](rows)
    distances = torch.cdist(table, table) + torch.eye(9) * 99
    assert distances.min() > 0.1  # (0, 1) is not (1, 0)
    apart = table[0] - table[3] - table[1] + table[4]
    torch.testing.assert_close(apart, torch.zeros(8), atol=1e-6, rtol=0)  # a sum over the places


def test_parts_add_up_and_each_is_felt():
    encoder = encoder_of(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))))
    seen = Observation((torch.tensor([[0], [1]]), torch.tensor([[0.5, -0.5], [0.5, -0.5]])))
    found = sum(part(one) for part, one in zip(encoder.parts, seen, strict=True)).relu()
    torch.testing.assert_close(encoder(seen), found)
    moved = Observation((seen[0], -seen[1]))
    assert not torch.allclose(encoder(moved), encoder(seen))


@pytest.mark.parametrize("shape", [(40, 32, 3), (16, 16, 1), (20, 90, 4)])
def test_a_picture_is_read_the_same_with_its_colours_first_or_last(shape):
    last, first = spaces.Box(0, 255, shape, np.uint8), spaces.Box(0, 255, (shape[2], *shape[:2]), np.uint8)
    one, other = encoder_of(last), encoder_of(first)
    picture = torch.randint(256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(one(Observation((picture,))), other(Observation((picture.permute(0, 3, 1, 2),))))
    assert (one(Observation((picture,)))[0] - one(Observation((picture,)))[1]).abs().max() > 1e-3


def test_a_grey_picture_has_two_axes():
    encoder = encoder_of(spaces.Box(0, 255, (30, 20), np.uint8))
    assert encoder(Observation((torch.zeros(3, 30, 20, dtype=torch.uint8),))).shape == (3, 8)


def test_a_choice_among_too_many_is_refused_before_it_is_made():
    with pytest.raises(PlaitError, match="GB"):
        encoder_of(spaces.Discrete(10**12))


def test_a_grid_is_read_as_convolutions_read_its_planes():
    """Raw and prepared, in what comes out and in every gradient; numbers that stand for nothing count for
    nothing, and so does the place of no word."""
    torch.manual_seed(0)
    encoder = Encoder(16)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    image = torch.randint(0, 14, (40, 7, 7, 3), dtype=torch.uint8)
    image[0] = 255
    mission = torch.randint(0, 20, (40, 13), dtype=torch.uint8)
    seen = GridObservation(image, torch.randint(0, 4, (40,), dtype=torch.uint8), mission)
    told = encoder.direction(seen.direction.int()) + encoder.mission(mission.int())
    convolved = torch.relu(encoder.view(encoder.planes(image).permute(0, 3, 1, 2)) + told)
    wanted = (convolved, *torch.autograd.grad(convolved.sin().sum(), list(encoder.parameters())))
    for form in (seen, encoder.prepared(seen)):
        code = encoder(form)
        found = (code, *torch.autograd.grad(code.sin().sum(), list(encoder.parameters())))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
    with torch.no_grad():  # while playing it looks weights up
        torch.testing.assert_close(encoder(seen), convolved, atol=2e-5, rtol=1e-4)
    assert not wanted[-1][0].any()
