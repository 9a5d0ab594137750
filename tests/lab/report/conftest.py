"""A demonstration of a few updates of a few units, trained once for all tests of this room."""

from __future__ import annotations

import os
import shutil

import pytest

from plait.lab.experiments.demo import Plan, run_demo
from plait.lab.training.recipe import Recipe


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; tests are left out where it or what drives it is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'plait[browser]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=chromium, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="session")
def small_plan():
    recipe = Recipe(updates=6, batch_size=4, evaluate_every=3, evaluate_on=4, record_every=2)
    return Plan(delay=12, hidden=8, window=4, capacity=3, recipe=recipe)


@pytest.fixture(scope="session")
def trained(small_plan, tmp_path_factory):
    """The results, and the folder of the runs."""
    out = tmp_path_factory.mktemp("demo") / "runs"
    return run_demo(small_plan, out, quiet=True), out
