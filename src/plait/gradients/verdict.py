"""Verdict of a gradient profile in words: positions reached, law, hole, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.gradients.decay import FEWEST, GOOD_FIT, Decay

if TYPE_CHECKING:
    from plait.gradients.profile import LayerProfile

__all__ = ["sentence"]

PAGE = "docs/gradients.md"
ADVICE = {
    "vanishes": (
        "gates that begin open (chrono), an orthogonal recurrence or a memory to attend to reach farther"
    ),
    "explodes": "clip the norm of the gradient, or bring the recurrence to norm 1 (OrthRNN, ExpRNN)",
    "hole": "what lies in the hole is not learned from: a larger memory, or training one to keep it",
    "reaches": "nothing to mend",
}


def sentence(layer: LayerProfile) -> str:
    """Return the verdict on a layer: "N of T positions", a law only where it fits, advice and its page."""
    total = layer.norms.size
    if not np.any(layer.norms):
        return f"receives no gradient at any of {total} positions: the loss does not depend on these states."
    lead, norms = "", layer.norms
    if layer.everywhere:
        lead = f"is read at {len(layer.acting)} of {total} positions, so there is no one distance; "
        if layer.reach is not None:
            lead += f"what is read at position {layer.reach.positions[-1]} "
            norms = layer.reach.norms[-1]
    if layer.decay is None:
        verb = "is felt" if layer.reach is not None else "felt"
        felt = f"{lead}{verb} at {int((norms > 0).sum())} of {total} positions"
        few = "" if layer.everywhere and layer.reach is None else ", too few to speak of a decay"
        return f"{felt}{few}.{_attention_words(layer)}"
    case, words = _case(layer.decay, total)
    advice = f" {ADVICE[case][0].upper()}{ADVICE[case][1:]} ({PAGE}#{_anchor(case)})."
    return f"{lead}{words}{_law(layer.decay)}{_attention_words(layer)}{advice}"


def _case(decay: Decay, total: int) -> tuple[str, str]:
    """Return the case and the sentence that states it."""
    felt = f"felt at {decay.reached} of {total} positions"
    if decay.reachable < total:
        felt += f" ({total - decay.reachable} are out of reach: nothing could arrive there)"
    hole = f", not at {decay.hole[0]} to {decay.hole[1]}" if decay.hole else ""
    if decay.explodes_at is not None:
        words = (
            f"explodes: {felt}{hole}, 1000 times larger {decay.explodes_at} steps off than where the loss is."
        )
        return "explodes", words
    if decay.vanishes_at is not None:
        return "vanishes", f"vanishes: {felt}{hole}, below a millionth from {decay.vanishes_at} steps off."
    size = f"the farthest at {decay.farthest:.3g} of its size where the loss is."
    if decay.hole:
        return "hole", f"has a hole: {felt}{hole}, {size}"
    return "reaches", f"reaches: {felt}, {size}"


def _anchor(case: str) -> str:
    return {"hole": "when-there-is-a-hole"}.get(case, f"when-it-{case}")


def _law(decay: Decay) -> str:
    if decay.fit < GOOD_FIT or decay.reachable < FEWEST:
        return ""
    law = (
        f"a factor of {decay.rate:.4g} per step"
        if decay.follows == "exponential"
        else f"the power {decay.power:.3g} of the distance"
    )
    return f" It follows {law} (R² {decay.fit:.2f})."


def _attention_words(layer: LayerProfile) -> str:
    attention = layer.attention
    if attention is None:
        return ""
    words = f" A step reads {attention.participation:.3g} of {attention.readable:.3g} states effectively"
    if attention.depth is not None:
        words += f", and the deepest state is {int(attention.depth.max())} hops away"
    return words + "."
