"""Draw tokens a second against the prompt's length, by cache, from two runs of `plait bench decoding`.

Other processes shared the machine, so a cache's fastest step is drawn, of both runs.
"""

from __future__ import annotations

import json
from pathlib import Path

from plait.lab.caches.decoding import CACHES
from plait.lab.figures import Curve, draw_curves, save_figure

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / "results" / "cache"
LABELS = {
    "bounded": "BoundedCache, 512 slots",
    "dynamic": "DynamicCache",
    "static": "StaticCache",
}

if __name__ == "__main__":
    times = json.loads((RESULTS / "decoding.json").read_text(encoding="utf-8"))["times"]
    first = (RESULTS / "decoding-first.jsonl").read_text(encoding="utf-8")
    times += [json.loads(line) for line in first.splitlines()]
    curves = []
    for color, kind in enumerate(CACHES):
        fastest: dict[int, float] = {}
        for record in times:
            if record["cache"] == kind:
                speed = 1e3 * record["batch"] / record["milliseconds"]["fastest"]
                fastest[record["length"]] = max(speed, fastest.get(record["length"], 0.0))
        lengths = sorted(fastest)
        curves.append(Curve(lengths, [fastest[n] for n in lengths], LABELS[kind], color=color))
    figure = draw_curves(
        curves,
        x_label="tokens of the prompt",
        y_label="tokens a second, fastest step",
        log_x=True,
        y_range=(0, 600),
    )
    save_figure(figure, HERE / "decoding.png")
