"""Every test runs on one torch thread and from a known seed; kernels for a GPU run in the interpreter
where there is none. Data sets are there or a reason to skip; `nowhere` is a machine without them. Run folders
are trained in a moment (`small_fit`), or written by hand (`bench`)."""

import contextlib
import dataclasses
import gc
import hashlib
import json
import multiprocessing
import os
import re
import struct
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from packaging.requirements import Requirement
from torch.nn.functional import one_hot
from torch.utils._device import _device_constructors

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which models may do

from plait.lab import own_code
from plait.lab.experiments import processes
from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.runs.checksums import SUMS, digest, digest_of, with_own_digest
from plait.lab.runs.folder import run_id
from plait.lab.tasks import IGNORE, Batch, Task, image_files, language, sources, text
from plait.lab.training.description import build
from plait.lab.training.fit import fit
from plait.lab.training.recipe import Recipe
from tests.warm import Warm

ROOT = Path(__file__).parent.parent

# torch caches the functions that `torch.device(…)` redirects at its first use. In a test that replaces
# torch.empty that would be the replacement, and later tests would build models in memory, not on meta.
_device_constructors()

# A busy machine is slow, which is no failure; CI draws the same examples every time, a developer new ones.
settings.register_profile("plait", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("plait")


def pytest_collection_finish():
    """What imports and thousands of collected tests left lasts to the end: no garbage is sought in it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    """Skip tests for a GPU on a machine without one; `make nightly` selects them with all kernels."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def warm_workers():
    """Workers of experiments are forked from a warm process; `spawned_workers` has them as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "multiprocessing", Warm())
        yield


@pytest.fixture(scope="session", autouse=True)
def named_code(tmp_path_factory):
    """Code named in tests is remembered in a folder of theirs, not in the user's cache."""
    file = tmp_path_factory.mktemp("named") / "named-code.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_code, "_record_file", lambda: file)
        yield file


@pytest.fixture
def spawned_workers(monkeypatch):
    monkeypatch.setattr(processes, "multiprocessing", multiprocessing)


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
        arguments = {
            key: changes.pop(key) for key in ("callbacks", "max_minutes", "device") if key in changes
        }
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
    """A folder to put on the path: links to the packages that plait requires and to those they require."""
    return _linked(tmp_path_factory.mktemp("site"), [])


@pytest.fixture(scope="session")
def with_lab(tmp_path_factory):
    """A folder like `without_extras`, with the packages of the extra `lab`."""
    return _linked(tmp_path_factory.mktemp("lab"), ["lab"])


@pytest.fixture(scope="session")
def alone():
    """Run a module in a process that sees the standard library, one folder and this source alone."""

    def run(folder, *module, cwd=None, **environment):
        command = [sys.executable, "-S", "-W", "error", "-m", *module]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "OMP_NUM_THREADS") if name in os.environ}
        paths = os.pathsep.join(map(str, (folder, ROOT / "src")))
        return subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            env={**kept, "PYTHONPATH": paths, **environment},
        )

    return run


def _linked(folder, extras):
    """Link the required packages and those of `extras` into a folder; return it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    waiting, seen = [*project["dependencies"], *(line for extra in extras for line in optional[extra])], set()
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


@dataclass(frozen=True)
class StreamTask(Task):
    """An endless text of period `period`, `span` steps a batch: predict the next symbol.

    Rows go on from batch to batch. The text is 0 0 … 0 1, so only who remembers across batches can tell
    when the 1 comes; the first two steps have no target, and row 0 is cleared at every fourth batch.
    """

    name: ClassVar[str] = "stream"
    carries_state: ClassVar[bool] = True
    period: int = 7
    span: int = 5

    @property
    def input_size(self) -> int:
        return 2

    @property
    def num_classes(self) -> int:
        return 2

    def held_out(self):
        return {self.name: self}  # the same text, on purpose: there is no other

    def batch(self, batch_size, generator, device="cpu", index=0):
        steps = index * self.span + torch.arange(self.span + 1, device=device)
        text = ((steps[:, None] + torch.arange(batch_size, device=device)) % self.period == 0).long()
        targets = text[1:].clone()
        targets[:2] = IGNORE
        reset = torch.zeros(self.span, batch_size, dtype=torch.bool, device=device)
        reset[0, 0] = index % 4 == 0
        return Batch(one_hot(text[:-1], 2).float(), targets, reset)


@pytest.fixture
def stream_task():
    return StreamTask


class Bench:
    """Makes run folders as training leaves them, with curves that are known beforehand."""

    def __init__(self, root):
        self.root = root

    def run(
        self,
        where="runs",
        model="relrnn",
        delay=100,
        seed=0,
        scores=(0.2, 0.6, 1.0),
        status="complete",
        losses=None,
        gradients=(),
        trace=None,
        recipe=None,
        held_out=None,
    ):
        """A run scored every 100 updates and every 2 seconds; `held_out` maps further sets to a factor."""
        updates = 100 * len(scores)
        description = {
            "format": "plait run 1",
            "task": {"name": "copy", "delay": delay},
            "model": {"name": model, "hidden_size": 128},
            "recipe": {"updates": updates, "lr": 0.001, "seed": seed, **(recipe or {})},
        }
        digest = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:10]
        folder = self.root / where / f"copy-{model}-{digest}"
        folder.mkdir(parents=True)
        sets = {"copy": 1.0, **(held_out or {})}
        lines = []
        for place, score in enumerate(scores, start=1):
            results = {name: {"loss": 1 - score, "score": score * factor} for name, factor in sets.items()}
            lines.append({"update": 100 * place, "seconds": 2.0 * place, "held_out": results})
        for place, loss in enumerate(losses or (2.0, 1.0, 0.5), start=1):
            lines.append({"update": 10 * place, "loss": loss, "score": 0.0, "gradient_norm": 1.0})
        lines.sort(key=lambda line: (line["update"], "held_out" in line))
        summary = {
            "run": run_id(description),
            "status": status,
            "reason": f"{updates} updates made",
            "updates": updates,
            "score": scores[-1],
            "best_score": max(scores),
            "held_out": lines[-1].get("held_out", {}),
            "seconds": 2.0 * len(scores) + 1.0,
            "parameters": 12345,
            "peak_memory_bytes": 300 * 2**20,
            "device": "cpu",
        }
        session = {
            "from_update": 0,
            "began": "2026-01-02T03:04:05+00:00",
            "commit": "abcdef012345",
            "torch": "2.13.0",
            "device_name": "A Processor",
        }
        files = {
            "config.json": json.dumps(description),
            "environment.json": json.dumps({"sessions": [session]}),
            "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
            "summary.json": json.dumps(summary),
        }
        if gradients:
            files["gradients.jsonl"] = "".join(json.dumps(line) + "\n" for line in gradients)
        if trace:
            files["trace.json"] = json.dumps(trace)
        for name, content in files.items():
            (folder / name).write_text(content)
        self.seal(folder)
        return folder

    @staticmethod
    def seal(folder):
        """Write checksums that match whatever the files hold, so that readers get to their contents."""
        with contextlib.suppress(ValueError, OSError, TypeError, KeyError, AttributeError, RecursionError):
            config, environment = (
                json.loads((folder / f"{name}.json").read_text()) for name in ("config", "environment")
            )
            owner = {"run": run_id(config), "configs": [digest_of(config)]}
            text = json.dumps(with_own_digest({**owner, "sessions": environment["sessions"]}))
            (folder / "environment.json").write_text(text)
            summary = json.loads((folder / "summary.json").read_text())
            (folder / "summary.json").write_text(json.dumps({**summary, "run": run_id(config)}))
        files = [path for path in folder.iterdir() if path.is_file() and path.name not in ("lock", SUMS)]
        (folder / SUMS).write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))

    def experiment(self, where, planned, seeds=(0, 1, 2), **changes):
        """An experiment.json of cells (row, column, model, delay, published, note)."""
        runs = tuple(
            PlannedRun(row, column, {"name": "copy", "delay": delay}, {"name": model}, {}, published, note)
            for row, column, model, delay, published, note in planned
        )
        values = {
            "name": "table5",
            "title": "Copy",
            "source": "a paper, table 5",
            "claim": "it learns",
            "kind": "table",
            "metric": "accuracy on the last ten steps",
            "updates_to": 0.99,
            "needs": "",
            "seeds": seeds,
            "runs": runs,
            "notes": ("ours differ in size",),
        }
        folder = self.root / where
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(Experiment(**{**values, **changes})))
        (folder / "experiment.json").write_text(text)
        return folder


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def bench_at():
    return Bench
