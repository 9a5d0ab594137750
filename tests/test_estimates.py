"""What cannot fit is refused before it is tried, and what fits is not."""

import resource
from pathlib import Path

import pytest
import torch

from plait import estimates
from plait.cells import LSTMCell
from plait.errors import ConfigError
from plait.estimates import available_bytes, check_fits
from plait.lab.bench.peak import peak_megabytes
from plait.lab.tasks import CopyTask, MultiQueryRecallTask, RecallTask
from plait.lab.training.description import Network
from plait.lab.training.fit import fit
from plait.lab.training.memory_needed import update_bytes
from plait.lab.training.recipe import Recipe
from plait.models import MODELS


@pytest.fixture
def small_machine(monkeypatch):
    """A machine of one gigabyte."""
    monkeypatch.setattr(estimates, "available_bytes", lambda device=None: 10**9)


def test_the_limit_and_what_to_do_are_named(small_machine):
    with pytest.raises(ConfigError, match=r"needs about 2\.0 GB and 1\.0 GB are free here; take less"):
        check_fits(2e9, "take less")
    check_fits(0.85e9, "take less")


def test_a_limit_of_the_process_counts(monkeypatch):
    assert available_bytes() > 2**28
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 10**7
    monkeypatch.setattr(resource, "getrlimit", lambda which: (most, most))
    assert abs(available_bytes() - 10**7) < 10**7


@pytest.mark.parametrize("name", ["rnn", "lstm", "relrnn", "rellstm", "unirnn", "memrnn", "transformer"])
def test_an_update_takes_at_least_what_is_estimated_and_not_many_times_more(name):
    """Else what would fit were refused, or what cannot fit were tried."""
    task, recipe = CopyTask(100), Recipe(batch_size=16)
    network = Network(MODELS[name](task.input_size, 64), task.num_classes)
    optimizer = torch.optim.Adam(network.parameters())

    def update():
        batch = task.batch(16, torch.Generator().manual_seed(0))

        def step():
            optimizer.zero_grad()
            task.loss(network(batch.inputs)[0], batch.targets).backward()
            optimizer.step()

        return step

    peak = 1e6 * peak_megabytes(update, torch.device("cpu"))
    most = 4 if network.recurrent.layers[0].initial_width else 20  # others' layers are not ours to know
    assert update_bytes(network, task, recipe) < peak < most * update_bytes(network, task, recipe)


@pytest.mark.parametrize(
    "task",
    [CopyTask(10**9), RecallTask(10**9), MultiQueryRecallTask(vocab=10**9)],
    ids=lambda task: task.name,
)
def test_a_batch_that_cannot_fit_is_not_drawn(task, small_machine):
    with pytest.raises(ConfigError, match=r"GB are free here; take fewer sequences"):
        task.batch(2, torch.Generator())


@pytest.mark.parametrize(
    ("name", "options"), [("lstm", {}), ("transformer", {}), ("rnn", {"num_layers": 99_999})]
)
def test_a_model_that_cannot_fit_is_not_made(name, options, small_machine):
    size = 4 if options else 50_000
    with pytest.raises(ConfigError, match="take a smaller hidden size"):
        MODELS[name](4, size, **options)
    with pytest.raises(ConfigError, match="take a smaller hidden size"):
        LSTMCell(4, 50_000)


def test_what_is_only_planned_needs_no_room(small_machine):
    assert LSTMCell(4, 50_000, device="meta").weight_hh.shape == (200_000, 50_000)


def test_an_update_that_cannot_fit_is_not_begun(small_machine, tmp_path):
    with pytest.raises(ConfigError, match="take a smaller batch"):
        fit(
            MODELS["lstm"](10, 8),
            CopyTask(5),
            Recipe(batch_size=10**7),
            folder=tmp_path / "run",
            device="cpu",
        )
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="memory"):
        fit(MODELS["relrnn"](10, 8, window=10**8), CopyTask(5), Recipe(), device="cpu")
