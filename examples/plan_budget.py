"""From a budget to a Transformer: depth and width by the guideline, other shapes beside it. No torch.

python examples/plan_budget.py 3B
python examples/plan_budget.py --smoke
"""

import sys

from plait.depthwidth.planner import judge, plan

SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def number(text: str) -> float:
    return float(text[:-1]) * SUFFIXES[text[-1].upper()] if text[-1].upper() in SUFFIXES else float(text)


given = [word for word in sys.argv[1:] if not word.startswith("-")]
budget = number(given[0] if given else "3B")
best = plan(params=budget, head_size=128, multiple_of=128)
print(f"{budget:.3g} parameters: {best.depth} layers of width {best.width}, {best.heads} heads")
print(f"unrounded {best.optimum.depth:.1f} ± {best.optimum.depth_error:.1f} layers", end="")
print(", outside the fitted range" if best.extrapolated else "")

for name, depth in (("half as deep", best.depth // 2), ("twice as deep", 2 * best.depth)):
    width = round((budget / (12 * depth)) ** 0.5 / 128) * 128  # 12·L·d² parameters
    print(f"{name}: {depth} × {width} is {judge(depth, width).words}")
