"""Where recurrent matrices begin."""

import math

import pytest
import torch

from plait.cells import INITIALISERS, LSTMCell, initialise_
from plait.ops.steps import modrelu


@pytest.mark.parametrize("name", ["henaff", "cayley", "random", "identity"])
@pytest.mark.parametrize("size", [1, 6, 7])
def test_rotations_are_orthogonal(name, size):
    weight = initialise_(torch.empty(size, size, dtype=torch.float64), name)
    torch.testing.assert_close(weight @ weight.T, torch.eye(size, dtype=torch.float64))
    assert torch.linalg.det(weight) == pytest.approx(1)


def test_a_random_rotation_is_never_a_reflection():
    for _ in range(12):
        weight = initialise_(torch.empty(5, 5, dtype=torch.float64), "random")
        assert torch.linalg.det(weight) == pytest.approx(1)


def angles(name):
    weight = initialise_(torch.empty(400, 400, dtype=torch.float64), name)
    return torch.linalg.eigvals(weight).angle().abs()


def test_henaff_angles_cover_the_circle():
    spread = angles("henaff")
    assert spread.max() > 0.95 * math.pi
    assert spread.min() < 0.05 * math.pi
    assert spread.mean() == pytest.approx(math.pi / 2, rel=0.1)


def test_cayley_angles_stay_within_one_radian():
    spread = angles("cayley")
    assert 0.9 < spread.max() <= 1


def test_odd_sizes_have_a_last_eigenvalue_of_one():
    weight = initialise_(torch.empty(5, 5), "henaff")
    assert weight[4].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(("name", "variance"), [("xavier", 1 / 200), ("kaiming", 2 / 200)])
def test_normal_initialisers_have_their_variance(name, variance):
    weight = initialise_(torch.empty(800, 200), name)
    assert weight.var().item() == pytest.approx(variance, rel=0.05)


def test_every_gate_is_initialised_on_its_own():
    cell = LSTMCell(3, 6, initialiser="henaff", dtype=torch.float64)
    for block in cell.weight_hh.split(6):
        torch.testing.assert_close(block @ block.T, torch.eye(6, dtype=torch.float64))
    assert set(INITIALISERS) == {"henaff", "cayley", "random", "xavier", "kaiming", "identity"}


def test_modrelu_keeps_the_sign():
    z = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0])
    torch.testing.assert_close(
        modrelu(z, torch.tensor(-1.0)), torch.tensor([-1.0, 0.0, 0.0, 0.0, 1.0]), rtol=0, atol=0
    )
