"""A text that is quickly read, and the smoke experiment on it, run once."""

import random

import pytest
import torch

from plait.lab.experiments.depthwidth import SMOKE
from plait.lab.experiments.depthwidth.runner import run_missing
from plait.lab.tasks.text import read_text


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    rng = random.Random(0)
    words = ["strand", "over", "under", "the", "a", "weaves", "rope", "<unk>"]
    lines = (" ".join(rng.choices(words, k=8)) for _ in range(800))
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="session")
def text(text_file):
    return read_text([text_file])


@pytest.fixture(scope="session")
def smoke(text, tmp_path_factory):
    """A folder with a finished smoke experiment; tests that change it copy it first."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("smoke")
    outcome = run_missing(SMOKE, text, folder, torch.device("cpu"))
    assert (outcome.finished, outcome.missing, outcome.reason) == (8, 0, "")
    return folder
