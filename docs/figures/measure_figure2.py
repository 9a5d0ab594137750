"""The claims beside figure 2, measured: `python docs/figures/measure_figure2.py`, a minute or two on a CPU.

A symbol is shown at the first of 60 steps and asked for at the last; noise lies between. A fully attentive
MemRNN and a RelLSTM learn it, and what their attention does is recorded on the way, for three seeds.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import plait
from plait.gradients import probe
from plait.gradients.snapshot import snapshot

LENGTH, ROWS, WIDTH, AT = 60, 16, 16, (0, 25, 50, 100, 200, 400)
OUT = Path(__file__).parents[2] / "results" / "untangling" / "figure2.json"
BUILDERS = {
    "memrnn": lambda: plait.MemRNN(4, WIDTH),
    "rellstm": lambda: plait.RelLSTM(4, WIDTH, window=5, capacity=5),
}


def draw() -> tuple[Tensor, Tensor]:
    symbol, x = torch.randint(3, (ROWS,)), torch.zeros(LENGTH, ROWS, 4)
    x[..., 3] = torch.randn(LENGTH, ROWS) / 2
    x[0, torch.arange(ROWS), symbol] = 1.0
    return x, symbol


def course(name: str, seed: int) -> list[dict[str, object]]:
    torch.manual_seed(seed)
    model, head = BUILDERS[name](), nn.Linear(WIDTH, 3)
    weights = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=0.005)
    x_test, wanted = draw()
    rows: list[dict[str, object]] = []
    for update in range(max(AT) + 1):
        if update in AT:
            seen = snapshot(model, x_test, lambda h: nn.functional.cross_entropy(head(h[-1]), wanted[0]))
            loss = nn.functional.cross_entropy(head(model(x_test)[0][-1]), wanted)
            layer = probe(
                model, x_test, lambda o: nn.functional.cross_entropy(head(o[0][-1]), wanted)
            ).layers[0]
            first = float(layer.norms[0] / layer.norms[-1])
            numbers = dataclasses.asdict(seen) | {"loss": loss.item(), "first_over_last": first}
            rows.append({"model": name, "seed": seed, "update": update, **numbers})
        x, symbol = draw()
        loss = nn.functional.cross_entropy(head(model(x)[0][-1]), symbol)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    return rows


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for name in BUILDERS for seed in range(3) for row in course(name, seed)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"length": LENGTH, "torch": torch.__version__, "rows": rows}) + "\n")
    keys = ("loss", "evenness", "kappa", "depth", "relevant_share", "gradient_share", "first_over_last")
    sys.stdout.write("| model | update | " + " | ".join(keys) + " |\n")
    for name in BUILDERS:
        for update in AT:
            mine = [row for row in rows if (row["model"], row["update"]) == (name, update)]
            means = [f"{statistics.mean(row[key] for row in mine):.3g}" for key in keys]
            sys.stdout.write(f"| {name} | {update} | " + " | ".join(means) + " |\n")


if __name__ == "__main__":
    main()
