"""Draw tokens a second against the prompt's length, by cache, from `plait bench decoding --out FILE`.

python docs/figures/make_decoding.py [FILE]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from plait.lab.caches.decoding import CACHES
from plait.lab.figures import Curve, draw_curves, save_figure

HERE = Path(__file__).parent
MEASURED = HERE.parent.parent / "results" / "cache" / "decoding.json"
LABELS = {
    "bounded": "BoundedCache, {slots} slots",
    "dynamic": "DynamicCache",
    "static": "StaticCache",
}

if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED
    times = json.loads(path.read_text(encoding="utf-8"))["times"]
    curves = []
    for color, kind in enumerate(CACHES):
        points = sorted(
            (record["length"], record["tokens_per_second"]) for record in times if record["cache"] == kind
        )
        slots = next((record["slots"] for record in times if "slots" in record), 0)
        lengths, speeds = zip(*points, strict=True)
        curves.append(Curve(lengths, speeds, LABELS[kind].format(slots=slots), color=color))
    figure = draw_curves(
        curves, x_label="tokens of the prompt", y_label="tokens a second", log_x=True, log_y=True
    )
    save_figure(figure, HERE / "decoding.png")
