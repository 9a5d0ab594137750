"""The README's table, row by row, as a new user follows it from a clean clone.

Slow: it trains what the rows name; `pytest -m slow tests/test_walk_table.py -s` prints what was seen.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([a-z][^|]*?) \| (.+) \|$", re.MULTILINE)
LAYERS = "import torch, plait\n"
# What the first cell of a row says -> what is typed, and a part of what must be seen.
STEPS: dict[str, list[tuple[str, str]]] = {
    "give a Transformer a state of fixed size": [
        (
            f"python -c '''{LAYERS}"
            'memory = plait.RelevancyMemory(window=10, capacity=15, relevance="learned")\n'
            "model = plait.Transformer(10, 64, num_layers=2, heads=4, memory=memory)\n"
            "_, state = model(torch.randn(100, 8, 10))\n"
            "output, state = model(torch.randn(1, 8, 10), state)\n"
            "print(tuple(output.shape), model.slots)'''",
            "(1, 8, 64) 25",
        )
    ],
    "give my LSTM or GRU a memory": [
        (
            f"python -c '''{LAYERS}"
            "model = plait.RelLSTM.from_torch(torch.nn.LSTM(10, 32), window=10, capacity=10)\n"
            "print(tuple(model(torch.randn(20, 4, 10))[0].shape))'''",
            "(20, 4, 32)",
        )
    ],
    "bound the cache of a language model I have": [
        ("python CLONE/examples/bounded_cache.py --smoke", "64 slots"),
    ],
    "train on my own table, arrays or text": [
        ("python make_table.py", ""),
        ("plait train csv sales.csv --target units --horizon 7 --length 50 --epochs 2", "complete"),
        ("plait predict csv-rellstm sales.csv -o predictions.csv", "predictions; RMSE"),
    ],
    "train an agent that remembers": [
        ("plait train gym --env CartPole-v1 --total-timesteps 4096", "complete: 4,096 steps"),
        ("plait runs", "gym CartPole-v1"),
        ("plait watch gym-rellstm", "return"),
    ],
    "know why my model forgets": [
        (
            "python -c '''import torch\nfrom plait.gradients import probe\n"
            "layer = torch.nn.LSTM(8, 8)\n"
            "print(probe(layer, torch.randn(100, 2, 8), lambda y: y[0][-1].square().mean()).summary())'''",
            "vanishes",
        )
    ],
    "choose depth and width of a Transformer": [("plait plan 1.3B", "depth")],
    "repeat a paper's table or figure": [("plait reproduce table5 --smoke --seeds 0", "report.html")],
    "see it at work in a minute": [("plait demo --quiet", "demo/index.html")],
    "find out what works on this machine": [("plait doctor", "torch")],
}
TABLE = """
import csv, datetime, math
with open("sales.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["date", "units"])
    for day in range(1000):
        date = datetime.date(2024, 1, 1) + datetime.timedelta(days=day)
        writer.writerow([date.isoformat(), round(100 + 20 * math.sin(day * math.tau / 7) + day / 10, 2)])
"""


def test_every_row_has_its_steps():
    table = (ROOT / "README.md").read_text().partition("## I want to …")[2]
    assert [row for row, _ in ROW.findall(table)] == list(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_row_works_from_a_clean_clone(tmp_path):
    clone, folder = tmp_path / "clone", tmp_path / "work"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    folder.mkdir()
    (folder / "make_table.py").write_text(TABLE)
    environment = {**os.environ, "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
    for row, steps in STEPS.items():
        for line, expected in steps:
            typed = line.replace("CLONE", str(clone))
            typed = re.sub(r"^plait ", f"{sys.executable} -m plait ", typed)
            typed = re.sub(r"^python ", f"{sys.executable} ", typed).replace("'''", "'")
            began = time.monotonic()
            done = subprocess.run(
                typed, shell=True, cwd=folder, env=environment, capture_output=True, text=True
            )
            seen = done.stdout + done.stderr
            seconds = time.monotonic() - began
            print(f"{row}\n  $ {line.splitlines()[0]}\n  {seconds:.1f} s, exit code {done.returncode}")
            print("  " + "\n  ".join(done.stdout.strip().splitlines()[-3:]))
            assert done.returncode == 0, f"{line}: {seen[-2000:]}"
            assert expected in seen, f"{line}: {seen[-2000:]}"
