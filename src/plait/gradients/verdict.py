"""Verdict of a gradient profile in words: positions reached, where they end, law, hole, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.gradients.decay import FEWEST, GOOD_FIT, VANISHED, Decay

if TYPE_CHECKING:
    from plait.gradients.profile import LayerProfile

__all__ = ["sentence"]

PAGE = "docs/gradients.md"
ADVICE = {
    "vanishes": (
        "gates that begin open (chrono), an orthogonal recurrence or a memory to attend to reach farther"
    ),
    "is blocked": "other weights let it pass: smaller ones where units saturate or die, none that are zero",
    "explodes": "clip the norm of the gradient, or bring the recurrence to norm 1 (OrthRNN, ExpRNN)",
    "peaks": (
        "look at the input there (a normalisation divides a vector of zeros, as of padding, by next to "
        "nothing), or at what shuts the others out"
    ),
    "has a hole": "what lies in the hole is not learned from: a larger memory, or training one to keep it",
    "has a built hole": "no training fills it: another window or another cut, if what matters lies there",
    "ends": "no training changes that: a wider window or fewer cuts, if what matters lies farther off",
    "ends for no known reason": "a window, a mask, a detached state or dead units do that: `probe` tells",
    "reaches": "nothing to fix",
}
HOLE = "when-there-is-a-hole"
ANCHORS = {"has a hole": HOLE, "has a built hole": HOLE, "is blocked": "when-it-is-blocked"}
BY_VALUES = "because of its weights and inputs (saturated or dead units, zero weights)"
BUILT = "by construction"


def sentence(layer: LayerProfile) -> str:
    """Return the verdict on a layer: "N of T positions", a law only where it fits, advice and its page."""
    total = layer.norms.size
    alone = "h alone, with the cell state held fixed, " if layer.has_cell_state else ""
    if not np.any(layer.norms):
        return f"{alone}{_nothing(layer, total)}."
    lead, norms = alone, layer.norms
    if layer.everywhere:
        lead += f"is read at {len(layer.acting)} of {total} positions, so there is no one distance; "
        if layer.reach is not None:
            lead += f"what is read at position {layer.reach.positions[-1]} "
            norms = layer.reach.norms[-1]
    is_felt = layer.reach is not None or layer.has_cell_state
    if layer.decay is None or layer.is_read_alone:
        number = int((norms > VANISHED * norms.max()).sum())
        felt = f"{lead}{'is felt' if is_felt else 'felt'} at {number} of {total} positions"
        if layer.is_read_alone and (layer.reach is not None or not layer.everywhere):
            single = len(layer.acting) == 1 or layer.reach is not None
            felt += ", where it is read: nothing above it mixes positions" if single else ", where it is read"
        elif not layer.everywhere or layer.reach is not None:
            felt += ", too few to speak of a decay"
        return f"{felt}.{_attention_words(layer)}"
    last = layer.acting[-1] if layer.reach is None else layer.reach.positions[-1]
    case, words, size = _case(layer.decay, total, last, layer.zeros_explained)
    aside = layer.decay.later + layer.decay.earlier
    if aside and layer.reach is None and layer.decay.reached == len(layer.acting) == total - aside:
        return f"{lead}{'is ' if is_felt else ''}{words}.{_attention_words(layer)}"
    words += size
    law = f"{_law(layer.decay)}{_attention_words(layer)}"
    if layer.has_cell_state:
        # Much more may travel through the cell state, so this is no verdict on the layer.
        return f"{lead}is {words}.{law}"
    key = "has a built hole" if case == "has a hole" and _is_built(layer) else case
    key = "ends for no known reason" if case == "ends" and not layer.zeros_explained else key
    return f"{lead}{case}: {words}.{law}{_advice(key)}"


def _advice(case: str) -> str:
    anchor = ANCHORS.get(case, f"when-it-{case.partition(' ')[0]}")
    return f" {ADVICE[case][0].upper()}{ADVICE[case][1:]} ({PAGE}#{anchor})."


def _is_built(layer: LayerProfile) -> bool:
    return layer.zeros_explained and layer.decay is not None and layer.decay.hole_is_built


def _nothing(layer: LayerProfile, total: int) -> str:
    """Return the words for norms that are all zero."""
    words = f"receives no gradient at any of {total} positions"
    if not layer.is_used:
        return f"{words}: the loss does not depend on these states, or they are detached"
    if not layer.is_cut_off:
        return f"{words}: the slope of the loss is zero at these values"
    reason = "" if not layer.zeros_explained else f", {BUILT if layer.zeros_built else BY_VALUES}"
    advice = _advice("ends" if layer.zeros_built else "is blocked").rstrip(".")
    return f"is blocked: {words}, though states above do{reason}.{advice}"


def _case(decay: Decay, total: int, last: int, explained: bool) -> tuple[str, str, str]:
    """Return the case, the facts it rests on, and the size of what arrives from farthest off.

    `last` is the last position that is read.
    """
    words = f"felt at {decay.reached} of {total} positions"
    for number, side in ((decay.later, "after"), (decay.earlier, "before")):
        if number:
            too_long = "too long " if side == "after" and number < total - last else ""
            words += f" ({number} come{'s' if number == 1 else ''} {too_long}{side} what the loss reads)"
    if decay.begins_at:
        words += f", the nearest {_steps(decay.begins_at)} off"
    if decay.hole:
        words += _hole(decay, explained)
    case = "has a hole" if decay.hole else "reaches"
    if decay.is_valley and not decay.hole_is_zero:
        case = "vanishes"
    if decay.vanishes_at is not None:
        case = "vanishes"
        if decay.zero_from == decay.vanishes_at:
            words += f", exactly zero from {_steps(decay.vanishes_at)} off on"
            words += f", {BY_VALUES}" if explained else " (too small for their precision)"
            case = "is blocked" if explained else case
        else:
            words += f", below a millionth from {_steps(decay.vanishes_at)} off"
    if decay.peak is not None:
        case = "peaks"
        words += f", {decay.peak_size:.2g} times as much at position {decay.peak} as where the loss is"
    elif decay.explodes_at is not None:
        case = "explodes"
        words += f", 1000 times larger {_steps(decay.explodes_at)} off than where the loss is"
    if decay.ends_at is not None:
        case = "ends" if case == "reaches" else case
        words += (
            f", nothing arrives from {_steps(decay.ends_at)} off on, {BUILT}"
            if explained
            else (f", exactly zero from {_steps(decay.ends_at)} off on")
        )
        if case == "ends" and explained:
            unfelt = total - decay.reached - decay.later - decay.earlier
            words += f" (a window, a mask or a detached state): {unfelt} can never be felt"
    if case not in ("reaches", "has a hole", "ends") or decay.fitted < 2:
        return case, words, ""
    of = "of the largest" if decay.of_largest else "of its size where the loss is"
    return case, words, f", the farthest at {decay.farthest:.3g} {of}"


def _hole(decay: Decay, explained: bool) -> str:
    first, last = decay.hole or (0, 0)
    words = f", not at {first} to {last}" if first < last else f", not at {first}"
    if explained and decay.hole_is_built:
        words += f" ({BUILT})"
    elif explained and decay.hole_is_zero:
        words += " (exact zeros of its weights and inputs)"
    if decay.holes > 1:
        words += f" and in {decay.holes - 1} further hole{'s' if decay.holes > 2 else ''}"
    return words


def _steps(number: int) -> str:
    return f"{number} step{'s' if number != 1 else ''}"


def _law(decay: Decay) -> str:
    if decay.fit < GOOD_FIT or decay.fitted < FEWEST:
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
        hops = int(attention.depth.max())
        words += f", and the deepest state is {hops} hop{'s' * (hops != 1)} away"
    return words + "."
