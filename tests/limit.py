"""pytest plugin of `make nightly`: no test begins after `PLAIT_MINUTES`; `PLAIT_FIRST` is the first file.

Tests that the time does not reach are skipped and counted; another night's seed begins with another file.
"""

import os
import time
from typing import Any

import pytest

END = time.monotonic() + 60 * float(os.environ["PLAIT_MINUTES"])


def pytest_collection_modifyitems(items: list[Any]) -> None:
    files = list(dict.fromkeys(item.path for item in items))
    first = int(os.environ["PLAIT_FIRST"]) % max(len(files), 1)
    items.sort(key=lambda item: (files.index(item.path) - first) % len(files))


def pytest_runtest_setup() -> None:
    if time.monotonic() > END:
        pytest.skip("the minutes are over")
