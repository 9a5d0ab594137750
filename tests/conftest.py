"""Every test runs on one torch thread and from a known seed; kernels for a GPU run in the interpreter
where there is none."""

import os

import pytest
import torch
from hypothesis import settings

# A busy machine is slow, which is no failure; CI draws the same examples every time, a developer new ones.
settings.register_profile("plait", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("plait")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel's module is first imported


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)
