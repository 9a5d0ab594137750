"""Draws which steps the memory holds when it is asked, earned beside learned, from two runs of

    plait train copy --model relrnn --delay 40 --lead-in 30 --hidden 128 --window 5 --capacity 15 --mix 0.75 \
        --lr 1e-3 --clip 0.1 --updates 5000 --until-accuracy 0.99 --evaluate-every 250 --seed 1

the second with `--relevance learned`: python docs/figures/make_keeping.py EARNED_RUN LEARNED_RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from plait.figures import save
from plait.figures.canvas import blank
from plait.tasks import task_named
from plait.training import load, read_run

HERE = Path(__file__).parent
SEQUENCES = 256


def held(run: Path) -> tuple[list[float], float, int]:
    """For every step before the question the share of held-out sequences whose memory holds it; the share
    of symbols named rightly; the lead-in."""
    description = read_run(run).description
    network, task = load(run), task_named(**description["task"])
    batch = task.batch(SEQUENCES, torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, _, (trace,) = network.eval()(batch.inputs, need_trace=True)
    question = len(batch.inputs) - 10
    born = trace.born[question - 1]
    shares = [(born == step).any(dim=1).float().mean().item() for step in range(question)]
    return shares, task.score(logits, batch.targets).item(), task.lead_in


def main(earned: Path, learned: Path) -> None:
    figure, ax = blank(7.0, 3.2)
    for name, run in (("earned, as published", earned), ("learned", learned)):
        shares, score, lead_in = held(run)
        ax.plot([100 * share for share in shares], label=f"{name}: {score:.0%} of symbols right")
    ax.axvspan(lead_in, lead_in + 9, alpha=0.15, color="grey", lw=0)
    ax.text(lead_in + 4.5, 104, "symbols", ha="center", fontsize=8)
    ax.set(xlabel="step", ylabel="held when asked, % of sequences", ylim=(0, 112))
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    save(figure, HERE / "keeping.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
