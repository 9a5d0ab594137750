"""Draws which steps the memory holds when it is asked, earned beside learned, from two runs of

    plait train copy --model relrnn --delay 40 --lead-in 30 --hidden 128 --window 5 --capacity 15 --mix 0.75 \
        --lr 1e-3 --clip 0.1 --updates 5000 --until-accuracy 0.99 --evaluate-every 250 --seed 1

the second with `--relevance learned`: python docs/figures/make_keeping.py EARNED_RUN LEARNED_RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

from plait.figures import save
from plait.figures.canvas import blank
from plait.report.attention import held_when_asked
from plait.training import read_run

HERE = Path(__file__).parent


def main(earned: Path, learned: Path) -> None:
    figure, ax = blank(7.0, 3.2)
    for name, run in (("earned, as published", earned), ("learned", learned)):
        record = read_run(run)
        lead_in, score = record.description["task"]["lead_in"], record.summary["score"]
        shares = held_when_asked(run)
        ax.plot([100 * share for share in shares], label=f"{name}: {score:.0%} of symbols right")
    ax.axvspan(lead_in, lead_in + 9, alpha=0.15, color="grey", lw=0)
    ax.text(lead_in + 4.5, 104, "symbols", ha="center", fontsize=8)
    ax.set(xlabel="step", ylabel="held when asked, % of sequences", ylim=(0, 112))
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    save(figure, HERE / "keeping.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
