"""`plait gradients …`: the laws, the support of a trained run, and the probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from plait.answer import Answer, Table
from plait.errors import ConfigError
from plait.figures import Curve, checked, draw_curves, save
from plait.gradients.uniform.report import Law, joint_statement, measure_law

__all__ = ["law"]

LEGEND_LIMIT = 4


def law(
    eigenvalue: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    length: float = 1e6,
    start: int = 1,
    mix: float = 1.0,
    plot: Path | None = None,
) -> Answer:
    """Theorem 1 as printed, as it holds, and as measured, for the eigenvalues of a recurrent matrix.

    Uniform attention, linear recurrence: ds_T/dh_t = p(V), and |p(λ)| follows a power of T.

    Args:
        eigenvalue: an eigenvalue of V, real or complex (0.25, -0.5, 0.3+0.4j); repeat the option for more.
        length: the longest T.
        start: t, counted from 1.
        mix: the factor in s = mix · (h + c); 1 in the theorem, 0.5 in published code.
        plot: write the curves to this .png, .svg or .pdf.
    """
    if not eigenvalue:
        raise ConfigError("eigenvalue: expected at least one, as in --eigenvalue 0.25 --eigenvalue -0.5")
    if not math.isfinite(length) or length != int(length):
        raise ConfigError(f"length: expected a whole number, got {length}")
    if plot is not None:
        checked(plot)
    laws = measure_law([_complex(text) for text in eigenvalue], int(length), start, mix)
    together = joint_statement(laws)
    table = Table(
        ["eigenvalue", "printed bound", "sharp law", "measured slope", "printed bound holds"],
        [
            [_name(x.eigenvalue), _power(x.printed), _power(x.sharp), x.measured, _yes(x.printed_holds)]
            for x in laws
        ],
        title=f"|p(λ)| from t = {start} to T = {int(length):,}; slopes of the last factor of 16",
    )
    parts: list[str | Table] = [table, *_sentences(together)]
    if plot is not None:
        parts.append(f"plot: {save(_picture(laws, start, mix), plot)}")
    return Answer({"laws": [_record(x) for x in laws], "together": together}, tuple(parts))


def _complex(text: str) -> complex:
    try:
        return complex(text.strip().replace(" ", "").replace("i", "j"))
    except ValueError:
        raise ConfigError(f"eigenvalue: expected a number like 0.25 or 0.3+0.4j, got {text!r}") from None


def _name(value: complex) -> str:
    return f"{value.real:g}" if value.imag == 0 else f"{value.real:g}{value.imag:+g}j"


def _power(exponent: float | None) -> str | None:
    return None if exponent is None else f"T^{exponent:.4f}"


def _yes(holds: bool | None) -> str | None:
    return None if holds is None else "yes" if holds else "no"


def _record(law_: Law) -> dict[str, Any]:
    return {
        "eigenvalue": _name(law_.eigenvalue),
        "printed": law_.printed,
        "sharp": law_.sharp,
        "measured": law_.measured,
        "printed_holds": law_.printed_holds,
        "log_constant": law_.log_constant,
        "lengths": law_.lengths.tolist(),
        "log_abs": law_.log_values.tolist(),
    }


def _sentences(together: dict[str, Any] | None) -> list[str]:
    if together is None:
        return ["An eigenvalue on the unit circle: the theorem does not apply, |p| grows like T^0.5."]
    holds = "holds" if together["printed_holds"] else "is violated"
    reaches = "is" if together["reaches_inverse_length"] else "is not"
    return [
        f"A normal V with these eigenvalues: the norm follows T^{-together['sharp_rate']:.4f}; "
        f"the printed lower bound T^{-together['printed_rate']:.4f} {holds}, "
        f"and the norm {reaches} of order at least 1/T."
    ]


def _picture(laws: Sequence[Law], start: int, mix: float) -> Any:
    many = len(laws) > LEGEND_LIMIT
    low, high = min(x.sharp for x in laws), max(x.sharp for x in laws)
    curves = []
    for place, x in enumerate(laws):
        color = (x.sharp - low) / max(high - low, 1e-9) if many else place
        curves += [_measured(x, color, "solid", "")] if many else _compared(x, start, mix, color)
    return draw_curves(
        curves,
        x_label="length T (steps)",
        y_label=f"|p(λ)|: ds_T/dh_{start} along one eigenvector",
        title="Uniform attention: gradient against length",
        log_x=True,
        powers_y=True,
        color_bar=("sharp exponent of T", low, high) if many else None,
    )


def _measured(law_: Law, color: float, style: str, label: str) -> Curve:
    step = 4 if style == "dots" else 1
    return Curve(law_.lengths[::step], law_.log_values[::step] / math.log(10), label, style, color)


def _compared(law_: Law, start: int, mix: float, color: float) -> list[Curve]:
    """Dots for what was measured, a line for the sharp law, dotted for the printed one from T = 10 t on."""
    curves = [_measured(law_, color, "dots", f"λ = {_name(law_.eigenvalue)}, measured")]
    sharp = law_.sharp_curve(start, mix)
    if sharp is None or law_.printed is None:
        return curves
    late = law_.lengths >= 10 * start
    lengths, sharp = law_.lengths[late], sharp[late]
    printed = sharp + (law_.printed - law_.sharp) * np.log(lengths)
    ten = math.log(10)
    curves.append(Curve(lengths, sharp / ten, f"sharp $T^{{{law_.sharp:.3f}}}$", "solid", color))
    curves.append(Curve(lengths, printed / ten, f"printed $T^{{{law_.printed:.3f}}}$", "dotted", color))
    return curves
