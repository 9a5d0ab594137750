"""Draws the figures of docs/gradients.md: python docs/figures/make_gradients.py (about half a minute)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

import plait
from plait.gradients import probe, uniform
from plait.gradients.paths import path_breakdown
from plait.gradients.sparse import Support, theorem2
from plait.lab.commands.gradients import law
from plait.lab.figures import Curve, draw_curves, save_figure

HERE = Path(__file__).parent
TEN = math.log(10)


def exponents() -> None:
    """Real eigenvalues: the printed exponent, the sharp one, and slopes measured on [2^14, 2^18]."""
    fine = np.linspace(-0.95, 0.72, 300)
    lengths = np.array([2**e for e in range(14, 19)])
    values = np.linspace(-0.9, 0.7, 17)
    logs = uniform.propagation(values.tolist(), lengths).log_abs
    slopes = [uniform.slope(lengths, logs[:, i]) for i in range(len(values))]
    figure = draw_curves(
        [
            Curve(fine, [uniform.printed_exponent(v) for v in fine], "printed −min(1, 1 − λ)", "dotted", 1),
            Curve(fine, [uniform.sharp_exponent(v) for v in fine], "sharp λ/(1 − λ) − 1", "solid", 0),
            Curve(values, slopes, "measured slope", "dots", 2),
        ],
        x_label="real eigenvalue λ of V",
        y_label="power of T that |p(λ)| follows",
        title="Uniform attention: the printed exponent is too high left of 0 and too low right of it",
    )
    save_figure(figure, HERE / "gradients_exponents.png")


def bounds() -> None:
    """Return Theorem 2's bound, the best path, and p(λ) itself, for a window of 5 with 5 kept states."""
    rng, window, kept, length = np.random.default_rng(0), 5, 5, 200
    sets, held = [], []
    for m in range(1, length + 1):
        leaving = m - window
        if leaving >= 1 and (len(held) < kept or rng.random() < 0.05):
            held = [*held[-(kept - 1) :], leaving]
        sets.append(sorted({*range(max(1, m - window + 1), m + 1), *held}))
    result = theorem2(Support.from_lists(sets), 0.9, mix=0.5)
    times = np.arange(1, length + 1)
    figure = draw_curves(
        [
            Curve(times, result.value / TEN, "p(λ)", "solid", 0),
            Curve(times, result.best / TEN, "best single path", "dashed", 2),
            Curve(times, result.bound / TEN, "bound $γ^{d+1} λ^d κ^{-(d+1)}$", "dotted", 1),
        ],
        x_label="t (steps); T = 200",
        y_label="size of ds_T/dh_t along one eigenvector",
        title="Theorem 2: window 5, 5 kept states, κ = 10, λ = 0.9, γ = 1/2",
        powers_y=True,
    )
    save_figure(figure, HERE / "gradients_bound.png")


def probes() -> None:
    """Fresh models of the same size, one loss on the last step: how far back its gradient is felt."""
    curves = []
    options = {"RelLSTM": {"window": 10, "capacity": 10}}
    for place, name in enumerate(("LSTM", "RelLSTM", "MemLSTM")):
        torch.manual_seed(0)
        model = getattr(plait, name)(10, 32, dtype=torch.float64, **options.get(name, {}))
        x = torch.randn(200, 8, 10, dtype=torch.float64)
        norms = probe(model, x, lambda output: output[0][-1].square().sum()).layers[0].norms
        curves.append(Curve(np.arange(1, 201), np.log10(norms), name, "solid", place))
    figure = draw_curves(
        curves,
        x_label="position t (steps)",
        y_label="‖∂L/∂h_t‖ for a loss on step 200",
        title="Untrained models, hidden size 32",
        powers_y=True,
    )
    save_figure(figure, HERE / "gradients_probe.png")


def hops() -> None:
    """One gradient of a RelRNN taken apart by the number of attention edges on its paths."""
    curves = []
    torch.manual_seed(0)
    model = plait.RelRNN(10, 16, window=5, capacity=5, dtype=torch.float64)
    x = torch.randn(40, 1, 10, dtype=torch.float64)
    for place, start in enumerate((5, 15, 25, 35)):
        share = path_breakdown(model, x, start, 40, most=12).share
        curves.append(Curve(np.arange(len(share) - 1), share[:-1], f"t = {start}", "solid", place))
        curves.append(Curve(np.arange(len(share) - 1), share[:-1], "", "dots", place))
    figure = draw_curves(
        curves,
        x_label="attention edges on the path",
        y_label="share of ds_40/dh_t",
        title="RelRNN, window 5, capacity 5, untrained: where one gradient comes from",
    )
    save_figure(figure, HERE / "gradients_hops.png")


def main() -> None:
    law(("0.25", "-0.5", "0.6"), length=1e6, plot=HERE / "gradients_law.png")
    exponents()
    bounds()
    probes()
    hops()


if __name__ == "__main__":
    main()
