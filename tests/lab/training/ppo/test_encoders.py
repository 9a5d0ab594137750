"""Encoders by the space: integers are distinguished, images have channels first or last."""

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium")
from gymnasium import spaces

from plait.errors import PlaitError
from plait.lab.tasks.environments.base import Observation
from plait.lab.tasks.environments.spaces import ObservationSpace
from plait.lab.tasks.minigrid import GridObservation
from plait.lab.training.ppo.encoders import GridEncoder, SpaceEncoder


def encoder_of(space, features=8):
    torch.manual_seed(0)
    return SpaceEncoder(ObservationSpace(space, "env"), features)


def test_integers_are_distinguished_by_position_and_value():
    encoder = encoder_of(spaces.MultiDiscrete([3, 3]))
    rows = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    table = encoder.parts[0](rows)
    distances = torch.cdist(table, table) + torch.eye(9) * 99
    assert distances.min() > 0.1  # (0, 1) is not (1, 0)
    interaction = table[0] - table[3] - table[1] + table[4]
    torch.testing.assert_close(interaction, torch.zeros(8), atol=1e-6, rtol=0)  # a sum over positions


def test_the_code_is_the_sum_of_the_parts():
    encoder = encoder_of(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))))
    observation = Observation((torch.tensor([[0], [1]]), torch.tensor([[0.5, -0.5], [0.5, -0.5]])))
    total = sum(part(values) for part, values in zip(encoder.parts, observation, strict=True)).relu()
    torch.testing.assert_close(encoder(observation), total)
    changed = Observation((observation[0], -observation[1]))
    assert not torch.allclose(encoder(changed), encoder(observation))


@pytest.mark.parametrize("shape", [(40, 32, 3), (16, 16, 1), (20, 90, 4)])
def test_an_image_has_the_same_code_with_channels_first_or_last(shape):
    last, first = spaces.Box(0, 255, shape, np.uint8), spaces.Box(0, 255, (shape[2], *shape[:2]), np.uint8)
    one, other = encoder_of(last), encoder_of(first)
    picture = torch.randint(256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        one(Observation((picture,))), other(Observation((picture.permute(0, 3, 1, 2),)))
    )
    assert (one(Observation((picture,)))[0] - one(Observation((picture,)))[1]).abs().max() > 1e-3


def test_a_greyscale_image_has_two_axes():
    encoder = encoder_of(spaces.Box(0, 255, (30, 20), np.uint8))
    assert encoder(Observation((torch.zeros(3, 30, 20, dtype=torch.uint8),))).shape == (3, 8)


def test_a_table_that_cannot_fit_is_refused_before_it_is_allocated():
    with pytest.raises(PlaitError, match="GB"):
        encoder_of(spaces.Discrete(10**12))


def test_the_grid_encoder_equals_convolutions_over_one_hot_planes():
    """Raw and prepared, in outputs and gradients; values out of range and the padding word count as zero."""
    torch.manual_seed(0)
    encoder = GridEncoder(16)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    image = torch.randint(0, 14, (40, 7, 7, 3), dtype=torch.uint8)
    image[0] = 255
    mission = torch.randint(0, 20, (40, 13), dtype=torch.uint8)
    observation = GridObservation(image, torch.randint(0, 4, (40,), dtype=torch.uint8), mission)
    others = encoder.direction(observation.direction.int()) + encoder.mission(mission.int())
    convolved = torch.relu(encoder.view(encoder.planes(image).permute(0, 3, 1, 2)) + others)
    expected = (convolved, *torch.autograd.grad(convolved.sin().sum(), list(encoder.parameters())))
    for form in (observation, encoder.prepare(observation)):
        code = encoder(form)
        results = (code, *torch.autograd.grad(code.sin().sum(), list(encoder.parameters())))
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(result, wanted, atol=2e-5, rtol=1e-4)
    with torch.no_grad():  # the lookup of weights
        torch.testing.assert_close(encoder(observation), convolved, atol=2e-5, rtol=1e-4)
    assert not expected[-1][0].any()
