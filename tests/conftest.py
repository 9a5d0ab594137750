"""Every test runs on one torch thread and from a known seed; kernels for a GPU run in the interpreter
where there is none. Data sets are there or a reason to skip; `nowhere` is a machine without them."""

import os
import re
import struct
import tomllib
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from packaging.requirements import Requirement

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which models may do

from plait.tasks import image_files, language, sources, text
from plait.training import Recipe, build, fit

# A busy machine is slow, which is no failure; CI draws the same examples every time, a developer new ones.
settings.register_profile("plait", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("plait")


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def timeless():
    """The lines of a curve without the clock: what two runs of one description must share."""

    def without(lines):
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    return without


@pytest.fixture
def small_fit():
    """Train `model` on copy for a few updates; keywords go to `fit` and the recipe."""

    def run(folder=None, model="rnn", resume=False, **changes):
        recipe = Recipe(
            updates=12, batch_size=4, evaluate_every=6, evaluate_on=6, record_every=2, gradients_every=5
        )
        arguments = {key: changes.pop(key) for key in ("watchers", "max_minutes", "device") if key in changes}
        arguments = {"device": "cpu", "checkpoint_every": changes.pop("checkpoint_every", 4), **arguments}
        recipe = recipe.changed(**changes)
        description = {
            "task": {"name": "copy", "delay": 1},
            "model": {"name": model, "hidden_size": 4},
            "recipe": recipe.values(),
        }
        network, task = build(description)
        return fit(network, task, recipe, folder=folder, resume=resume, **arguments)

    return run


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
    for loaded in (image_files.load_images, image_files.on_device, language._treebank):
        loaded.cache_clear()
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for home, name in ((sources, "MNIST"), (sources, "TREEBANK"), (text, "TREEBANK")):
        silent = tuple(replace(file, mirrors=("http://127.0.0.1:9/",)) for file in getattr(home, name))
        monkeypatch.setattr(home, name, silent)
    return tmp_path / "cache"


class Digits(NamedTuple):
    """A folder of IDX files, and what is in them: 60 + 10 images of 6 × 4 pixels, three classes."""

    folder: Path
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def idx(values: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    head = magic + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(np.uint8).tobytes()


@pytest.fixture
def digits(tmp_path):
    draw = np.random.default_rng(0)
    labels = [draw.integers(0, 3, count).astype(np.uint8) for count in (60, 10)]
    # A class is told by how bright an image is, so that a network can learn it.
    images = [
        np.clip(draw.normal(80 * one[:, None, None], 10, (len(one), 6, 4)) + 30, 0, 255).astype(np.uint8)
        for one in labels
    ]
    folder = tmp_path / "digits"
    folder.mkdir()
    for name, pixels, label in zip(("train", "t10k"), images, labels, strict=True):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(pixels))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(label))
    image_files.load_images.cache_clear()
    image_files.on_device.cache_clear()
    return Digits(folder, images[0], labels[0], images[1], labels[1])


@pytest.fixture(scope="session")
def without_extras(tmp_path_factory):
    """A folder to put on the path: what plait cannot do without, and what that needs, as links; no extra."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    waiting, seen = list(project["dependencies"]), set()
    while waiting:
        wanted = Requirement(waiting.pop())
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = distribution(name)
        waiting += found.requires or []
        for top in {file.parts[0] for file in found.files if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).symlink_to(found.locate_file(top))
    return folder
