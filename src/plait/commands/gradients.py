"""`plait gradients …`: the laws, the support of a trained run, and the probe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from plait.answer import Answer, Table
from plait.errors import ConfigError, at_least
from plait.figures import checked, save
from plait.gradients.pictures import audit_picture, eigenvalue_name, law_picture
from plait.gradients.uniform.report import Law, joint_statement, measure_law

__all__ = ["law", "probe_run", "support"]


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
            [
                eigenvalue_name(x.eigenvalue),
                _power(x.printed),
                _sharp(x),
                x.measured,
                _yes(x.printed_holds),
            ]
            for x in laws
        ],
        title=f"|p(λ)| from t = {start} to T = {int(length):,}; slopes of the last factor of 16",
    )
    parts: list[str | Table] = [table, *_sentences(laws, together)]
    if plot is not None:
        parts.append(f"plot: {save(law_picture(laws, start, mix), plot)}")
    return Answer({"laws": [_record(x) for x in laws], "together": together}, tuple(parts))


def support(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    layer: int = -1,
    seed: int = 0,
    plot: Path | None = None,
) -> Answer:
    """What Theorem 2 says of a trained run, beside what its gradients are.

    Runs one sequence of the run's task through the model and reads off its trace which states each step
    attends to: κ, the dependency depth d, the bound, and the measured norm of ds_T/dh_t for the last T.

    Args:
        run: a run's folder, or its id under runs/.
        layer: which layer; -1 is the last.
        seed: of the sequence.
        plot: write bound and norm to this .png, .svg or .pdf.
    """
    if plot is not None:
        checked(plot)
    from plait.commands.subjects import trained
    from plait.gradients.audit import audit

    network, task, batch = trained(run, 1, seed)

    features = network.features(batch.inputs) if hasattr(network, "features") else batch.inputs
    found = audit(network.recurrent, features.detach(), layer=layer)
    length = found.depth.size
    rows = [
        [t, length - t, int(found.depth[t - 1])]
        + [_exp(logs, t) for logs in (found.log_bound, found.log_frozen, found.log_norm)]
        for t in sorted({1, length, *(length - 2**e for e in range(20) if 2**e < length)})
    ]
    table = Table(
        ["t", "steps back", "depth", "bound", "linear", "measured norm"],
        rows,
        title=f"{run} on {task.name}: ds_T/dh_t for T = {length}, κ = {found.kappa}",
        notes=_audit_notes(found),
    )
    parts: list[str | Table] = [table]
    if plot is not None:
        parts.append(f"plot: {save(audit_picture(found), plot)}")
    return Answer({"run": run, "task": task.name, **found.to_dict()}, tuple(parts))


def probe_run(
    subject: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    sequences: int = 8,
    length: int = 128,
    seed: int = 0,
    plot: Path | None = None,
) -> Answer:
    """How far the loss of a model is felt: the total norm of dL/dh_t by layer and position.

    Of a run the loss is the one its task probes with (for copy and denoise the last ten steps), of a Hugging
    Face model what it says of the last of some random tokens.

    Args:
        subject: a run's folder or its id under runs/; a Hugging Face folder; or module:factory, a function
            that returns model, batch and loss as plait.gradients.probe takes them.
        sequences: how many sequences; norms are over all of them.
        length: tokens of each, for a Hugging Face model.
        seed: of the sequences.
        plot: write the norms to this .png, .svg or .pdf.
    """
    if plot is not None:
        checked(plot)
    at_least(1, sequences=sequences)
    at_least(2, length=length)
    from plait.commands.subjects import find_subject
    from plait.gradients.probing import probe

    found = find_subject(subject, sequences, length, seed)
    profile = probe(found.model, found.batch, found.loss)
    parts: list[str | Table] = [f"{subject} {found.about}", profile.summary()]
    if plot is not None:
        profile.plot(plot)
        parts.append(f"plot: {plot}")
    return Answer(
        {"run": subject, "task": found.task, "about": found.about, **profile.to_dict()}, tuple(parts)
    )


def _exp(logs: Any, t: int) -> float | None:
    return None if logs is None else float(np.exp(logs[t - 1]))


def _audit_notes(found: Any) -> list[str]:
    notes = [f"deepest state: {int(found.depth.max())} s → s edges from the last step."]
    if found.eigenvalue is not None:
        notes.append(
            f"bound: γ^(d+1) λ^d κ^-(d+1), λ = {found.eigenvalue:.4g} the largest positive eigenvalue of V; "
            "it assumes a linear recurrence and even weights, so a trained model may lie below it."
        )
    else:
        notes.append("no bound: Theorem 2 needs a recurrent matrix with a positive real eigenvalue.")
    if found.log_frozen is not None:
        notes.append("linear: the norm the same attention weights would give in a linear recurrence.")
    return notes


def _complex(text: str) -> complex:
    try:
        return complex(text.strip().replace(" ", "").replace("i", "j"))
    except ValueError:
        raise ConfigError(f"eigenvalue: expected a number like 0.25 or 0.3+0.4j, got {text!r}") from None


def _power(exponent: float | None) -> str | None:
    return None if exponent is None else f"T^{exponent:.4f}"


def _sharp(law_: Law) -> str | None:
    if law_.begins_at is not None and not law_.reached:
        return f"not before T ≈ {law_.begins_at:.0e}"
    return _power(law_.sharp)


def _yes(holds: bool | None) -> str | None:
    return None if holds is None else "yes" if holds else "no"


def _record(law_: Law) -> dict[str, Any]:
    return {
        "eigenvalue": eigenvalue_name(law_.eigenvalue),
        "printed": law_.printed,
        "sharp": law_.sharp,
        "measured": law_.measured,
        "printed_holds": law_.printed_holds,
        "log_constant": law_.log_constant,
        "begins_at": law_.begins_at,
        "reached": law_.reached,
        "lengths": law_.lengths.tolist(),
        "log_abs": law_.log_values.tolist(),
    }


def _sentences(laws: list[Law], together: dict[str, Any] | None) -> list[str]:
    early = [x for x in laws if x.begins_at is not None and not x.reached]
    if early:
        return [
            f"λ = {eigenvalue_name(x.eigenvalue)} lies so near 1 that its power law begins near "
            f"T ≈ {x.begins_at:.0e}: up to T = {x.lengths[-1]:,} the slope is still growing, "
            f"{x.measured:.4g} at the end, and no power is named."
            for x in early
        ]
    if together is None:
        return ["An eigenvalue on the unit circle: the theorem does not apply, |p| grows like T^0.5."]
    holds = "holds" if together["printed_holds"] else "is violated"
    reaches = "is" if together["reaches_inverse_length"] else "is not"
    return [
        f"A normal V with these eigenvalues: the norm follows T^{-together['sharp_rate']:.4f}; "
        f"the printed lower bound T^{-together['printed_rate']:.4f} {holds}, "
        f"and the norm {reaches} of order at least 1/T."
    ]
