"""Long use, compressed: `python -m tests.faults.soak -o results/bench/soak.json` (about ten minutes).

A stream of a million steps, 200 trainings in one process, a listing and a report of 1,000 runs, an explorer
of those with 50 readers at a time. What is looked at is memory: it must be flat.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import plait
from plait.lab.machine import circumstances
from plait.lab.runs.folder import Run, write_json, write_summary
from plait.lab.training.recipe import Recipe
from plait.lab.training.session import train_run
from tests.faults.isolation import command

FLAT = 4.0  # megabytes that may come or go between the first tenth and the end
ADDRESSES = ("runs", "group?group=0", "plot?group=0&plot=0", "norms/runs", "memory/runs", "plane", "law")


def resident(process: int | str = "self") -> float:
    """Megabytes that a process holds."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def flat(marks: list[float]) -> bool:
    return max(marks) - marks[0] <= FLAT


def stream(steps: int) -> dict[str, Any]:
    """One step at a time, batch 1, the state carried on for ever."""
    model = plait.RelLSTM(8, 32, window=5, capacity=5).eval()
    inputs, state = torch.randn(1, 1, 8), None
    memory, times, began = [], [], time.monotonic()
    with torch.no_grad():
        for step in range(1, steps + 1):
            _, state = model(inputs, state)
            if step % (steps // 10) == 0:
                memory.append(round(resident(), 2))
                times.append(round((time.monotonic() - began) / (steps // 10) * 1e6, 1))
                began = time.monotonic()
    return {"steps": steps, "µs per step": times, "MB": memory, "flat": flat(memory)}


def described(seed: int, model: str = "rnn", delay: int = 1) -> dict[str, Any]:
    recipe = Recipe(updates=4, batch_size=2, evaluate_every=4, evaluate_on=2, seed=seed, record_every=1)
    return {
        "task": {"name": "copy", "delay": delay},
        "model": {"name": model, "hidden_size": 4},
        "recipe": recipe.values(),
    }


def trainings(out: Path, count: int) -> dict[str, Any]:
    """Whole runs, one after the other in this process, in one folder."""
    memory, began = [], time.monotonic()
    for seed in range(count):
        train_run(described(seed), device="cpu", folder=out / f"run-{seed}")
        if (seed + 1) % (count // 10) == 0:
            memory.append(round(resident(), 2))
    seconds = time.monotonic() - began
    listed = timed(lambda: command("runs", out))
    return {
        "runs": count,
        "seconds": round(seconds, 1),
        "MB": memory,
        "flat": flat(memory),
        "listing seconds": listed,
    }


def timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    done = work()
    assert getattr(done, "code", 0) == 0, done
    return round(time.monotonic() - began, 2)


def make_runs(out: Path, count: int) -> None:
    """Run folders as training leaves them, with the sums, and curves of 60 lines; nothing is trained."""
    kinds = itertools.cycle(itertools.product(("rnn", "lstm", "relrnn", "memrnn", "gru"), (1, 10, 100, 1000)))
    for seed, (model, delay) in zip(range(count), kinds, strict=False):
        folder = out / f"run-{seed:04}"
        description = {"format": "plait run 1", **described(seed, model, delay)}
        with Run.open(folder, description, resume=False) as run:
            session = {"from_update": 0, "began": "2026-01-02T03:04:05+00:00", "torch": torch.__version__}
            run._remember([session])
            for update in range(1, 51):
                run.metrics.write({"update": update, "loss": 1 / update, "score": 0.5, "gradient_norm": 1.0})
                if update % 5 == 0:
                    results = {"copy": {"loss": 1 / update, "score": seed / count}}
                    run.metrics.write({"update": update, "seconds": 0.1 * update, "held_out": results})
            score = seed / count
            summary = {
                "run": run.id,
                "status": "complete",
                "reason": "50 updates made",
                "updates": 50,
                "score": score,
                "best_score": score,
                "held_out": results,
                "seconds": 5.0,
                "parameters": 100,
                "device": "cpu",
            }
            write_summary(folder, summary)


def _made(out: Path, count: int) -> Path:
    if not out.exists():
        make_runs(out, count)
    return out


def reports(out: Path, count: int) -> dict[str, Any]:
    _made(out, count)
    found: dict[str, Any] = {"runs": count}
    found["listing seconds"] = [timed(lambda: command("runs", out)) for _ in range(3)]
    memory, seconds = [round(resident(), 1)], []
    for _ in range(3):
        seconds.append(timed(lambda: command("report", out, "-o", out.parent / "report.html")))
        memory.append(round(resident(), 1))
    size = (out.parent / "report.html").stat().st_size / 2**20
    return {
        **found,
        "report seconds": seconds,
        "report MB": round(size, 2),
        "MB": memory,
        "flat": memory[-1] - memory[1] <= 4 * FLAT,
    }


def explorer(out: Path, readers: int, rounds: int) -> dict[str, Any]:
    """A server in a process of its own; every reader asks for everything, in each round."""
    words = [sys.executable, "-m", "plait", "explore", str(out), "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            first = [_asked(address, name)[1] for name in ADDRESSES]
            memory, taken, wrong = [round(resident(server.pid), 1)], [], []
            for _ in range(rounds):
                times, errors = _round(address, readers)
                taken += times
                wrong += errors
                memory.append(round(resident(server.pid), 1))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)
    return {
        "readers": readers,
        "requests": len(taken),
        "errors": len(wrong),
        "first answers s": first,
        "median s": round(statistics.median(taken), 3),
        "slowest s": round(max(taken), 3),
        "MB": memory,
        "flat": memory[-1] - memory[rounds // 2] <= 4 * FLAT,
    }


def _round(address: str, readers: int) -> tuple[list[float], list[str]]:
    times: list[float] = []
    errors: list[str] = []

    def reads() -> None:
        for name in ADDRESSES:
            status, seconds = _asked(address, name)
            times.append(seconds)
            if status != 200:
                errors.append(f"{name}: {status}")

    threads = [threading.Thread(target=reads) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, errors


def _asked(address: str, name: str) -> tuple[int, float]:
    began = time.monotonic()
    try:
        with urllib.request.urlopen(f"{address}api/{name}", timeout=120) as answer:
            answer.read()
            return int(answer.status), round(time.monotonic() - began, 3)
    except OSError as error:
        return int(getattr(error, "code", 0)), round(time.monotonic() - began, 3)


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    words.add_argument("-o", "--out", type=Path)
    words.add_argument("--parts", nargs="+", default=["stream", "trainings", "report", "explorer"])
    words.add_argument("--share", type=float, default=1.0, help="of the usual amounts, for a trial")
    given = words.parse_args()
    torch.set_num_threads(1)
    share = given.share
    before = json.loads(given.out.read_text()) if given.out is not None and given.out.exists() else {}
    found: dict[str, Any] = {**before, **circumstances(torch.device("cpu"), 1)}
    with tempfile.TemporaryDirectory(prefix="plait-soak-") as room:
        runs = Path(room, "many")
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "stream": lambda: stream(int(1_000_000 * share)),
            "trainings": lambda: trainings(Path(room, "trained"), int(200 * share)),
            "report": lambda: reports(runs, int(1000 * share)),
            "explorer": lambda: explorer(_made(runs, int(1000 * share)), 50, 6),
        }
        for name, work in parts.items():
            if name not in given.parts:
                continue
            found[name] = {**work(), "commit": found["commit"], "load": round(os.getloadavg()[0], 1)}
            print(name, json.dumps(found[name], ensure_ascii=False), flush=True)
            if given.out is not None:
                write_json(given.out, found)


if __name__ == "__main__":
    main()
