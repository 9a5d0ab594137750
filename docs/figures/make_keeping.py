"""Record and draw the steps whose states are kept until the question, by earned and by learned relevance.

The two runs are those of

    plait reproduce keeping --rows "lead-in 60" --columns "relrnn earned,relrnn learned" --seeds 0 --out RUNS

python docs/figures/make_keeping.py EARNED_RUN LEARNED_RUN; without runs it draws the record.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from plait.lab.figures import save_figure
from plait.lab.report.slot_example import RECORD, draw_kept, record_kept, recorded

HERE = Path(__file__).parent

if __name__ == "__main__":
    if len(sys.argv) > 1:
        pair = {"earned": Path(sys.argv[1]), "learned": Path(sys.argv[2])}
        RECORD.write_text(json.dumps(record_kept(pair)) + "\n")
    save_figure(draw_kept(recorded(), (7.0, 3.4)), HERE / "keeping.png")
