"""Small runs: a few updates of a few units, so that a test can afford dozens of them."""

from __future__ import annotations

import json

import pytest
from safetensors import safe_open

from plait.lab import cli
from plait.lab.runs.checkpoint import read_checkpoint, write_checkpoint
from plait.lab.training.callbacks import Callback


class _Dying(Callback):
    """Dies after a number of updates of this session; nothing catches its error."""

    class error(BaseException):
        pass

    def __init__(self, updates):
        self.left = updates

    def updated(self, update, step):
        self.left -= 1
        if not self.left:
            raise self.error


@pytest.fixture
def dying():
    """A callback that stands for the process's death, and as `dying.error` what it raises."""
    return _Dying


@pytest.fixture
def edited():
    """Changes tensors (None: leaves one out) and counters of a checkpoint, with the digest of what it then
    holds."""

    def edit(folder, change=lambda name, value: value, **counters):
        path = folder / "checkpoint.safetensors"
        found = read_checkpoint(path)
        with safe_open(path, "pt") as file:
            run = json.loads(file.metadata()["plait"])["run"]
        changed = {name: change(name, value) for name, value in found.tensors.items()}
        tensors = {name: value.contiguous() for name, value in changed.items() if value is not None}
        write_checkpoint(path, tensors, run, {**found.counters, **counters})

    return edit


@pytest.fixture
def refused(capsys):
    """That `plait train --resume` says one line and leaves with code 2; the line."""

    def resume(folder):
        capsys.readouterr()
        assert cli.main(["train", "--resume", str(folder)]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1, said
        return said[0]

    return resume
