"""Capturing CUDA graphs; what is captured is tested with the kernels."""

import gc
from pathlib import Path

import pytest

import plait
from plait.ops.scan.cuda_graph import uncollected


@pytest.fixture(autouse=True)
def collecting():
    yield
    gc.enable()


def test_no_garbage_is_collected_in_a_capture():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError), uncollected():
        raise RuntimeError("operation not permitted when stream is capturing")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_every_capture_pauses_the_collector():
    root = Path(plait.__file__).parent
    lines = [line for path in root.rglob("*.py") for line in path.read_text().splitlines()]
    captures = [line for line in lines if "torch.cuda.graph(" in line]
    assert len(captures) == 4
    assert all("uncollected(), torch.cuda.graph(" in line for line in captures)
