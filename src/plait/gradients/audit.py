"""Theorem 2's lower bound for a trained model, compared with its measured gradients.

The theorem assumes a linear recurrence and frozen, uniform weights; a trained model has neither. The audit
reads the support off the trace, evaluates the bound, and measures ‖ds_T/dh_t‖ with everything the
theorem leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.cells import ElmanCell
from plait.errors import ConfigError
from plait.files import jsonable
from plait.gradients.paths.calculus import derivatives_to
from plait.gradients.paths.model import dynamics, layer_input
from plait.gradients.sparse import Support, depth_to, propagation_to, theorem2
from plait.gradients.sparse.sweep import log_norm
from plait.memory import NoMemory
from plait.models import SelfAttentive

__all__ = ["Audit", "audit"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """Bound and measured gradient for one T and every t = 1..T, as natural logarithms.

    `kappa` and `depth` come from the support, `log_norm` is measured. For an Elman cell, `log_frozen` is
    ln sqrt(Σ_i |p(λ_i)|²) over all eigenvalues of V: the norm (a lower bound, if V is not normal) that the
    same weights would give in a linear recurrence. `log_bound` is the theorem's γ^{d+1} λ^d κ^{−(d+1)} with
    `eigenvalue`, the largest positive real one of V; both are None where there is none. A rotation of even
    size, the default initialisation, has none.
    """

    kappa: int
    depth: NDArray[np.int64]
    eigenvalue: float | None
    log_bound: Floats | None
    log_frozen: Floats | None
    log_norm: Floats

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; minus infinity, a gradient of exactly 0, becomes null."""
        return jsonable(self)  # type: ignore[no-any-return]


def audit(model: nn.Module, x: Tensor, *, row: int = 0, layer: int = -1, threshold: float = 0.0) -> Audit:
    """Return κ, dependency depth, bound and measured norm of one layer along one sequence.

    Args:
        model: a `Recurrent` or `SelfAttentive` with a memory.
        x: its input, (T, B, F), or (B, T, F) if the model is `batch_first`; T is the last step.
        row, layer: batch row, by default the first, and layer, by default the top one.
        threshold: weights above it are edges of the support; default 0.

    >>> from plait import RelRNN
    >>> audit(RelRNN(2, 3, window=2, capacity=2), torch.zeros(9, 1, 2)).kappa
    4
    """
    unit, inputs = layer_input(model, x, layer)
    if isinstance(unit.memory, NoMemory):
        raise ConfigError("this layer has no memory, so it has no support; use plait gradients probe")
    system, size = dynamics(model, x, row=row, layer=layer)
    with torch.no_grad():
        trace = unit(inputs[:, row : row + 1], need_trace=True).trace
    support = Support.from_trace(trace, threshold=threshold)
    spectrum = _spectrum(unit)
    eigenvalue = bound = frozen = None
    if spectrum is not None:
        mix = float(unit.mix)  # type: ignore[arg-type]
        frozen = log_norm(propagation_to(support, spectrum.tolist(), mix=mix).log_abs)
        eigenvalue = _positive(spectrum)
    if eigenvalue is not None:
        bound = theorem2(support, eigenvalue, mix=mix).bound
    norms = torch.stack([matrix[:size, :size].double().norm() for matrix in derivatives_to(system)])
    with np.errstate(divide="ignore"):
        measured = np.log(norms.cpu().numpy())
    return Audit(support.kappa, depth_to(support), eigenvalue, bound, frozen, measured)


def _spectrum(unit: SelfAttentive) -> NDArray[np.complex128] | None:
    """Return the eigenvalues of an Elman cell's V if s = γ(h + c) with fixed γ; None for any other layer."""
    if not isinstance(unit.cell, ElmanCell) or callable(unit.mix):
        return None
    return np.linalg.eigvals(unit.cell.weight_hh.detach().double().cpu().numpy()).astype(np.complex128)


def _positive(values: NDArray[np.complex128]) -> float | None:
    """Return the largest positive real value, or None."""
    real = values.real[(np.abs(values.imag) < 1e-9 * np.abs(values).max()) & (values.real > 0)]
    return float(real.max()) if real.size else None
