"""Every test runs on one torch thread and from a known seed; kernels for a GPU run in the interpreter
where there is none. Data sets are there or a reason to skip; `nowhere` is a machine without them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from plait.tasks import sources, text

# A busy machine is slow, which is no failure; CI draws the same examples every time, a developer new ones.
settings.register_profile("plait", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("plait")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel's module is first imported


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _folder(name: str) -> Path:
    folder = Path(os.environ.get("PLAIT_DATA", "absent")) / name
    if not folder.is_dir():
        pytest.skip(f"needs {name}: set PLAIT_DATA to a folder that holds {name}/")
    return folder


@pytest.fixture
def treebank():
    return _folder("ptb")


@pytest.fixture
def mnist():
    return _folder("mnist")


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data here, an empty cache, and mirrors at which nobody answers; gives the cache's folder."""
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for home, name in ((sources, "MNIST"), (sources, "TREEBANK"), (text, "TREEBANK")):
        silent = tuple(replace(file, mirrors=("http://127.0.0.1:9/",)) for file in getattr(home, name))
        monkeypatch.setattr(home, name, silent)
    return tmp_path / "cache"
