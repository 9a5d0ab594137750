"""The commands `plait gradients law`, `plait gradients support` and `plait gradients probe`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from plait.errors import ConfigError, check_int, check_min, check_seed
from plait.gradients.uniform.report import joint_statement, law_sentences, law_table, measure_law
from plait.lab.annotations import option, repeated
from plait.lab.figures import check_picture, save_figure
from plait.lab.report.gradient_pictures import audit_picture, law_picture
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["law", "probe_run", "support"]

_FEW_LAYERS = 4  # more layers have a row each, and no sentence
LONGEST = 1_000_000_000  # maximum length of `law`: it takes a minute or two


def law(
    eigenvalue: Annotated[tuple[str, ...], repeated] = (),
    length: float = 1e6,
    start: int = 1,
    mix: float = 1.0,
    plot: Path | None = None,
) -> CommandResult:
    """Compare Theorem 1 as printed, the sharp law and a measurement, for eigenvalues of a recurrent matrix.

    Uniform attention, linear recurrence: ds_T/dh_t = p(V), and |p(λ)| follows a power of T.

    Args:
        eigenvalue: an eigenvalue of V, real or complex (0.25, -0.5, 0.3+0.4j); repeat the option for more.
        length: the largest T.
        start: t, counted from 1.
        mix: the factor in s = mix · (h + c); 1 in the theorem, 0.5 in the published code.
        plot: write the curves to this .png, .svg or .pdf.
    """
    if not eigenvalue:
        raise ConfigError("eigenvalue: expected at least one, as in --eigenvalue 0.25 --eigenvalue -0.5")
    if not math.isfinite(length) or length != int(length):
        raise ConfigError(f"length: expected a whole number, got {length}")
    check_int(1, LONGEST, length=int(length), start=start)
    check_min(0, mix=mix)
    if plot is not None:
        check_picture(plot)
    laws = measure_law([_complex(text) for text in eigenvalue], int(length), start, mix)
    together = joint_statement(laws)
    parts: list[str | Table] = [law_table(laws, int(length), start), *law_sentences(laws, together)]
    if plot is not None:
        parts.append(f"plot: {save_figure(law_picture(laws, start, mix), plot)}")
    return CommandResult({"laws": [x.record() for x in laws], "together": together}, tuple(parts))


def support(
    run: Annotated[str, option(metavar="RUN")],
    /,
    layer: int = -1,
    seed: int = 0,
    plot: Path | None = None,
) -> CommandResult:
    """Compare Theorem 2's bound with the measured gradients of a trained run.

    Runs one sequence of the run's task through the model and reads from its trace which states each step
    attends to: κ, the dependency depth d, the bound, and the measured norm of ds_T/dh_t for the last T.

    Args:
        run: a run's folder, or its id under runs/.
        layer: index of the layer; -1 is the last.
        seed: seed of the sequence.
        plot: write bound and norm to this .png, .svg or .pdf.
    """
    if plot is not None:
        check_picture(plot)
    check_seed(seed=seed)
    from plait.gradients.audit import audit
    from plait.lab.commands.subjects import trained

    network, task, batch = trained(run, 1, seed)

    features = network.features(batch.inputs) if hasattr(network, "features") else batch.inputs
    result = audit(network.recurrent, features.detach(), layer=layer)
    length = result.depth.size
    rows = [
        [t, length - t, int(result.depth[t - 1])]
        + [_exp(logs, t) for logs in (result.log_bound, result.log_frozen, result.log_norm)]
        for t in sorted({1, length, *(length - 2**e for e in range(20) if 2**e < length)})
    ]
    table = Table(
        ["t", "steps back", "depth", "bound", "linear", "measured norm"],
        rows,
        title=f"{run} on {task.name}: ds_T/dh_t for T = {length}, κ = {result.kappa}",
        notes=_audit_notes(result),
    )
    parts: list[str | Table] = [table]
    if plot is not None:
        parts.append(f"plot: {save_figure(audit_picture(result), plot)}")
    return CommandResult({"run": run, "task": task.name, **result.to_dict()}, tuple(parts))


def probe_run(
    subject: Annotated[str, option(metavar="RUN")],
    /,
    sequences: int = 8,
    length: int | None = None,
    text: Path | None = None,
    seed: int = 0,
    plot: Path | None = None,
) -> CommandResult:
    """Measure how far back the gradient of a model's loss reaches: the norm of dL/dh_t by layer and position.

    For a run, L is its task's probe loss (for copy and denoise: of the last ten steps); for a Hugging Face
    model, the loss of the last token of sequences of random tokens, or of pieces of a text.

    Args:
        subject: a run's folder or its id under runs/; a Hugging Face folder or its config.json; or
            module:factory, a function that returns model, batch and loss as plait.gradients.probe takes them.
        sequences: number of sequences; norms are taken over all of them.
        length: tokens per sequence, for a Hugging Face model; 128 or as many as it accepts if not given.
        text: a text file whose pieces a Hugging Face model reads instead of random tokens; its folder needs a
            tokenizer.
        seed: seed of the sequences.
        plot: write the norms to this .png, .svg or .pdf.
    """
    if plot is not None:
        check_picture(plot)
    check_int(1, sequences=sequences)
    check_int(2, length=2 if length is None else length)
    check_seed(seed=seed)
    from plait.gradients.probing import probe
    from plait.lab.commands.subjects import find_subject

    probed = find_subject(subject, sequences, length, seed, text)
    profile = probe(probed.model, probed.batch, probed.loss)
    few = len(profile.inputs) + len(profile.layers) <= _FEW_LAYERS
    words = profile.summary() if few else "\n".join(layer.verdict() for layer in profile.inputs)
    parts: list[str | Table] = [f"{subject} {probed.about}", words, _norms_by_layer(profile)]
    if plot is not None:
        profile.plot(plot)
        parts.append(f"plot: {plot}")
    return CommandResult(
        {"run": subject, "task": probed.task, "about": probed.about, **profile.to_dict()}, tuple(parts)
    )


def _norms_by_layer(profile: Any) -> Table:
    """Return a row per layer: at how many positions the loss is felt, and the norm at some of them."""
    rows = []
    for layer in (*profile.inputs, *profile.layers):
        norms = layer.norms
        at = (0, len(norms) // 2, len(norms) - 1)
        felt = f"{int((norms > 0).sum())} of {len(norms)}"
        rows.append([layer.name or "model", felt, *(f"{norms[index]:.2e}" for index in at)])
    return Table(["layer", "felt at", "first position", "middle", "last"], rows, title="norm of dL/dh_t")


def _exp(logs: Any, t: int) -> float | None:
    return None if logs is None else float(np.exp(logs[t - 1]))


def _audit_notes(result: Any) -> list[str]:
    notes = [f"deepest state: {int(result.depth.max())} s → s edges from the last step."]
    if result.eigenvalue is not None:
        notes.append(
            f"bound: γ^(d+1) λ^d κ^-(d+1), λ = {result.eigenvalue:.4g} the largest positive eigenvalue of V; "
            "it assumes a linear recurrence and uniform weights, so a trained model may lie below it."
        )
    else:
        notes.append("no bound: Theorem 2 needs a recurrent matrix with a positive real eigenvalue.")
    if result.log_frozen is not None:
        notes.append("linear: the norm that the same attention weights would give in a linear recurrence.")
    return notes


def _complex(text: str) -> complex:
    try:
        return complex(text.strip().replace(" ", "").replace("i", "j"))
    except ValueError:
        raise ConfigError(f"eigenvalue: expected a number like 0.25 or 0.3+0.4j, got {text!r}") from None
