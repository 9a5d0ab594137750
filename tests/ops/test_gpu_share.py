"""What kernels take of a GPU alone, and beside other programs."""

import pytest

from plait.errors import ConfigError
from plait.ops.attentive_scan import cluster_choice
from plait.ops.attentive_scan.cluster_back import back_shape
from plait.ops.gpu_share import programs, share_gpu, waves
from plait.ops.scan.kinds import Scan

H200 = {8: 15, 4: 32, 2: 66, 1: 132}  # clusters that run at a time


@pytest.fixture(autouse=True)
def alone():
    yield
    share_gpu(1)


def split_by(monkeypatch, count, rows, cell="lstm"):
    """Blocks of a cluster and its rows, forward and back, of 128 features and 25 slots."""
    share_gpu(count)
    monkeypatch.setattr(cluster_choice, "clusters_that_fit", lambda cluster, device: H200[cluster])
    forward = cluster_choice.choose(cell, 128, 25, rows, None)
    scan = Scan(cell, window=10, capacity=15)
    back = back_shape(scan, 128, cluster_choice.torch.float32, rows, {n: H200[n] for n in (8, 4, 2)})
    return (forward.cluster, forward.rows), (back.cluster, back.rows)


def test_alone_a_scan_takes_all_of_the_gpu(monkeypatch):
    assert split_by(monkeypatch, 1, rows=32) == ((4, 1), (4, 1))
    assert split_by(monkeypatch, 1, rows=10) == ((8, 1), (8, 1))


@pytest.mark.parametrize("count", [4, 8, 28, 48])
def test_beside_others_it_takes_what_is_cheapest_for_all(count, monkeypatch):
    assert split_by(monkeypatch, count, rows=32) == ((4, 4), (4, 4))


def test_waves_are_whole_for_one_program_alone():
    assert [waves(n, 16) for n in (1, 16, 17, 33)] == [1, 1, 2, 3]
    share_gpu(4)
    assert [waves(n, 16) for n in (1, 4, 6)] == [1, 1, 1.5]


def test_the_environment_changes_nothing(monkeypatch):
    monkeypatch.setenv("PLAIT_GPU_SHARED_BY", "4")
    assert programs() == 1


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_program_is_refused(count):
    with pytest.raises(ConfigError, match="programs"):
        share_gpu(count)
