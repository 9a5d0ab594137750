"""Capturing CUDA graphs; what is captured is tested with the kernels."""

import contextlib
import gc
from pathlib import Path

import pytest
import torch

import plait
from plait.ops.scan.cuda_graph import captured


@pytest.fixture
def states(monkeypatch):
    """Whether the garbage collector ran, at every capture."""
    seen = []

    @contextlib.contextmanager
    def graph(graph, **options):
        seen.append(gc.isenabled())
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    yield seen
    gc.enable()


def test_the_garbage_collector_is_paused_in_a_capture(states):
    """A graph of an earlier run that is destroyed in a capture invalidates it."""
    with captured(None, pool=None):
        pass
    assert gc.isenabled()
    with pytest.raises(RuntimeError), captured(None):
        raise RuntimeError("operation not permitted when stream is capturing")
    assert gc.isenabled()
    assert states == [False, False]


def test_a_collector_that_was_off_stays_off(states):
    gc.disable()
    with captured(None):
        pass
    assert not gc.isenabled()


def test_every_capture_pauses_the_collector():
    root = Path(plait.__file__).parent
    places = [path for path in root.rglob("*.py") if "torch.cuda.graph(" in path.read_text()]
    assert places == [root / "ops/scan/cuda_graph.py"]
