"""Every test runs on one torch thread and from a known seed; kernels for a GPU run in the interpreter
where there is none."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel's module is first imported


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)
