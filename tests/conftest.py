"""Every test runs on one torch thread and from a known seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def quiet_torch():
    torch.set_num_threads(1)
    torch.manual_seed(0)
