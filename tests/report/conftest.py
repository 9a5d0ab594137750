"""A demonstration of a few updates of a few units, trained once for all tests of this room; and run folders
written by hand."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import pytest

from plait.experiments.description import Experiment, PlannedRun
from plait.report.demo import Plan, run_demo
from plait.strict import plain
from plait.training import Recipe


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
    recipe = Recipe(
        updates=6, batch_size=4, evaluate_every=3, evaluate_on=4, record_every=2, gradients_every=6
    )
    return Plan(delay=12, hidden=6, window=4, capacity=3, recipe=recipe)


@pytest.fixture(scope="session")
def trained(small_plan, tmp_path_factory):
    """The results, and the folder of the runs."""
    out = tmp_path_factory.mktemp("demo") / "runs"
    return run_demo(small_plan, out, quiet=True), out


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
        clock=True,
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
            time = {"seconds": 2.0 * place} if clock else {}
            lines.append({"update": 100 * place, **time, "held_out": results})
        for place, loss in enumerate(losses or (2.0, 1.0, 0.5), start=1):
            lines.append({"update": 10 * place, "loss": loss, "score": 0.0, "gradient_norm": 1.0})
        lines.sort(key=lambda line: (line["update"], "held_out" in line))
        summary = {
            "run": folder.name,
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
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder

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
        text = json.dumps(plain(Experiment(**{**values, **changes})))
        (folder / "experiment.json").write_text(text)
        return folder


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def bench_at():
    return Bench
