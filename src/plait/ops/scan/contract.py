"""The tensors of a scan, listed once: inputs, results, and the gradients that a reverse walk leaves.

A fused backend is a module with two functions:

    forward(inputs: Inputs, scan, need_trace: bool, save: bool) -> Scanned
    backward(arriving: Arriving, inputs: Inputs, scanned: Scanned, scan, nudged: bool) -> Inputs

The second gets the inputs and results that are marked `saved` here, and returns gradients under the names of
the inputs. All code that handles these tensors reads their `Spec`: to add a tensor, add a line here, and its
arithmetic. (A weight is also a line of `ScanWeights`.)

Sizes: T steps, B rows, H hidden size, GH its gates' blocks, F features of saved gates, K initial slots, W
final slots (κ, and κ₀ + T of a full memory), S states in all (κ initial slots, then T), PH the rows of [V;
W_a; U_a]. "wide" is `accumulation_dtype` of the layer's type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.nn.functional import linear

from plait.ops.slots import MemoryState
from plait.ops.walk import LayerState

__all__ = [
    "Arriving",
    "Inputs",
    "PlainWeights",
    "Projection",
    "ReverseWalk",
    "ScanWeights",
    "Scanned",
    "Spec",
    "named",
    "specs",
]

# the value of a tensor that a scan does not have; its own code never reads it
ABSENT: Any = None
_FEW = 2**22  # up to this many elements, launching an addition takes longer than adding


@dataclass(frozen=True)
class Spec:
    """One tensor: its shape in the letters above, its type, and the scans that have it.

    Args:
        shape: sizes, a space between them.
        kind: "layer" (the type of `projected`), "wide", or a torch type by its name.
        scans: the scans that have it, one of a scan's `traits`.
        saved: the scans whose backward pass reads it.
        has_gradient: an input that the scan is differentiated with respect to.
        requested_by: what requires an output, each word of it: "save", "trace", "read" (a trace, or a bounded
            memory's backward); of a walk back "nudged", "learned", "state" (an initial state). Where it is
            not required it has no steps.
        backends: the backends that compute it, where not all do; it is never required of the others.
        cell: the cell or the nonlinearity that has it.
        error_prefix: the prefix of an input's name in errors, as callers write it.
        later: added after programs had been exported whose operator lacks it.
        optional: set by `specs`: None is allowed.
    """

    shape: str
    kind: str = "layer"
    scans: str = "all"
    saved: str = ""
    has_gradient: bool = False
    requested_by: str = ""
    backends: tuple[str, ...] = ()
    cell: str = ""
    error_prefix: str = ""
    later: bool = False
    optional: bool = False


def _weight(shape: str, scans: str = "all", cell: str = "", later: bool = False) -> Spec:
    return Spec(
        shape, scans=scans, saved="all", has_gradient=True, cell=cell, error_prefix="weights.", later=later
    )


def _slot(shape: str, kind: str = "layer", saved: str = "", has_gradient: bool = False) -> Spec:
    return Spec(shape, kind, "memory", saved, has_gradient, error_prefix="state.memory.")


class Inputs(NamedTuple):
    """Every tensor a scan reads, in the order of the operator; a gradient has the name of its input.

    z = U x_t + b of all steps; the weights as in `ScanWeights`; s_0, c_0 and the memory as in `LayerState`
    and `MemoryState`; `reset`, `nudge` as in `plait.ops.walk.walk`. Nothing need be contiguous. At the start
    of a sequence the `stateless_start` backends of `FusedScan` get no state.

    Where there is `worth` (g), relevance is learned: it is gᵀh of a state, plus the `noise` of its step; with
    `usage` (a number) g is also trained by usage (`usage.py`). With `grad_limit` (a number) no element of
    dL/ds_t is larger than that multiple of the largest that arrives. b is in `projected`: `bias` exists for
    its gradient alone, where a backend computes it anyway.
    """

    projected: Annotated[Tensor, Spec("T B GH", has_gradient=True)]
    recurrent: Annotated[Tensor, _weight("GH H")]
    query: Annotated[Tensor, _weight("H H", "memory")] = ABSENT
    key: Annotated[Tensor, _weight("H H", "memory")] = ABSENT
    energy: Annotated[Tensor, _weight("H", "memory")] = ABSENT
    candidate_bias: Annotated[Tensor | None, _weight("H", cell="gru")] = None
    modrelu_bias: Annotated[Tensor | None, _weight("H", cell="modrelu")] = None
    worth: Annotated[Tensor | None, _weight("H", "bounded", later=True)] = None
    hidden: Annotated[Tensor, Spec("B H", saved="plain", has_gradient=True, error_prefix="state.")] = ABSENT
    cell_state: Annotated[
        Tensor | None, Spec("B H", has_gradient=True, cell="lstm", error_prefix="state.")
    ] = None
    slots: Annotated[Tensor, _slot("B K H", saved="memory", has_gradient=True)] = ABSENT
    relevance: Annotated[Tensor, _slot("B K", "wide")] = ABSENT
    born: Annotated[Tensor, _slot("B K", "int64", saved="full")] = ABSENT
    age: Annotated[Tensor, _slot("B", "int64")] = ABSENT
    reset: Annotated[Tensor | None, Spec("T B", "bool", saved="all")] = None
    nudge: Annotated[Tensor | None, Spec("T B H", has_gradient=True)] = None
    noise: Annotated[Tensor | None, Spec("T B", "wide", scans="bounded", later=True)] = None
    grad_limit: Annotated[Tensor | None, Spec("", "wide", scans="bounded", saved="bounded", later=True)] = (
        None
    )
    usage: Annotated[Tensor | None, Spec("", "wide", scans="bounded", saved="bounded", later=True)] = None
    bias: Annotated[Tensor | None, Spec("GH", scans="projection", has_gradient=True)] = None

    @classmethod
    def of(
        cls,
        projected: Tensor,
        weights: ScanWeights | PlainWeights,
        state: LayerState | None,
        reset: Tensor | None = None,
        nudge: Tensor | None = None,
        noise: Tensor | None = None,
        grad_limit: Tensor | None = None,
        usage: Tensor | None = None,
    ) -> Inputs:
        """Return the inputs from grouped arguments; without a state the sequence starts here."""
        if isinstance(weights, PlainWeights):
            weights = ScanWeights(weights[0], ABSENT, ABSENT, ABSENT, *weights[1:])
        options: tuple[Any, ...] = (reset, nudge, noise, grad_limit, usage)
        if state is None:
            return cls(projected, *weights, ABSENT, None, ABSENT, ABSENT, ABSENT, ABSENT, *options)
        slots, relevance, born, age = state.memory
        before = state.hidden, state.cell_state, slots, relevance, born, age
        return cls(projected, *weights, *before, *options)

    @property
    def is_new(self) -> bool:
        """Return whether the sequence starts here; after a scan only of one with a memory."""
        slots: Any = self.slots
        return slots is None

    @property
    def state(self) -> LayerState:
        """The initial state of a scan."""
        memory = MemoryState(self.slots, self.relevance, self.born, self.age)
        return LayerState(self.hidden, self.cell_state, memory)


class Projection(NamedTuple):
    """The factors of `projected`, for a scan that also computes their gradients.

    They are the input (T, B, I), weight (G·H, I) and bias (G·H) or None.
    """

    input: Tensor
    weight: Tensor
    bias: Tensor | None

    def project(self, unseen: bool = False) -> Tensor:
        """Return the projected input (..., G·H), with `unseen` without recording it for autograd."""
        x, weight, bias = self
        shape = *x.shape[:-1], weight.shape[0]
        if unseen:
            with torch.no_grad():
                if not x.is_cuda or bias is None or math.prod(shape) > _FEW:
                    return linear(x, weight, bias)
                # with a bias torch runs cuBLAS's kernel selection at every call
                return (x.flatten(0, -2) @ weight.t()).add_(bias).view(shape)
        if bias is None or x.dim() < 2 or not x.is_cpu or not torch.is_grad_enabled():
            return linear(x, weight, bias)
        # With a transposed weight, because otherwise torch computes its gradient the slow way (`gradients`).
        return torch.addmm(bias, x.flatten(0, -2), weight.t().contiguous()).view(shape)

    def gradients(
        self, d_projected: Tensor, d_bias: Tensor | None, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of input, weight and bias, None for those not wanted."""
        rows = d_projected.reshape(-1, self.weight.shape[0])  # a batch of gradients cannot be flattened
        x = self.input.flatten(0, -2)
        # MKL takes 30 ms for δzᵀ x, few columns (120 steps, 100 rows, 10 features to 512), and 5 for xᵀ δz
        return [
            (rows @ self.weight).reshape(self.input.shape) if wanted[0] else None,
            ((x.t() @ rows).t() if x.is_cpu else rows.t() @ x) if wanted[1] else None,
            (rows.sum(dim=0) if d_bias is None else d_bias) if wanted[2] else None,
        ]


class Scanned(NamedTuple):
    """The results of a forward pass; contiguous, no two share storage.

    h_t and the state after T steps; the trace; and for the backward pass:

    - `prev_states`: s_{t−1} as step t used it, after a reset; `cells`: c_{t−1} likewise;
    - `gates`: LSTM σ(i), σ(f), tanh(g), σ(o); GRU r, z, n and V_n s + b'_n; Elman φ(·) before the nudge, and
      only if there is one (without it φ(·) is the output);
    - of a bounded memory `queries` = W_a s_{t−1}, `keys` = U_a h_t, and `ids`: the state in each slot
      when it was read: j < κ is the initial slot j, κ + t is h_t, −1 nothing;
    - `products` = [V; W_a; U_a] h of every state by its id, from a backend that takes one product per state;
      its keys are the last block;
    - of a full one `contexts`, c_t before it is rounded, and `normalisers`, log Σ exp of a step's energies.
    """

    output: Annotated[Tensor, Spec("T B H", saved="all")]
    hidden: Annotated[Tensor, Spec("B H")]
    cell_state: Annotated[Tensor, Spec("B H", cell="lstm")]
    slots: Annotated[Tensor, Spec("B W H", scans="memory")] = ABSENT
    relevance: Annotated[Tensor, Spec("B W", "wide", scans="memory")] = ABSENT
    born: Annotated[Tensor, Spec("B W", "int64", scans="memory")] = ABSENT
    age: Annotated[Tensor, Spec("B", "int64", scans="memory")] = ABSENT
    weights: Annotated[
        Tensor, Spec("T B W", "wide", scans="memory", saved="bounded", requested_by="read")
    ] = ABSENT
    trace_born: Annotated[Tensor, Spec("T B W", "int64", scans="memory", requested_by="trace")] = ABSENT
    trace_relevance: Annotated[Tensor, Spec("T B W", "wide", scans="memory", requested_by="trace")] = ABSENT
    prev_states: Annotated[Tensor, Spec("T B H", scans="memory", saved="memory", requested_by="save")] = (
        ABSENT
    )
    cells: Annotated[Tensor, Spec("T B H", saved="all", requested_by="save", cell="lstm")] = ABSENT
    gates: Annotated[Tensor, Spec("T B F", saved="all", requested_by="save")] = ABSENT
    queries: Annotated[
        Tensor, Spec("T B H", "wide", scans="bounded", saved="bounded", requested_by="save")
    ] = ABSENT
    keys: Annotated[
        Tensor,
        Spec(
            "T B H",
            "wide",
            scans="bounded",
            saved="bounded",
            requested_by="save",
            backends=("cpu", "torch", "triton"),
        ),
    ] = ABSENT
    ids: Annotated[Tensor, Spec("T B W", "int32", scans="bounded", saved="bounded", requested_by="save")] = (
        ABSENT
    )
    contexts: Annotated[Tensor, Spec("T B H", "wide", scans="full", saved="full", requested_by="save")] = (
        ABSENT
    )
    normalisers: Annotated[Tensor, Spec("T B", "wide", scans="full", saved="full", requested_by="save")] = (
        ABSENT
    )
    products: Annotated[
        Tensor,
        Spec("S B PH", "wide", scans="bounded", saved="bounded", requested_by="save", backends=("cluster",)),
    ] = ABSENT

    @property
    def activated(self) -> Tensor:
        """The gates, or for an Elman cell without saved gates the output: the slope of φ follows from it."""
        return self.gates if self.gates.shape[2] else self.output


class Arriving(NamedTuple):
    """Gradients with respect to the results of a forward pass; None where none arrives."""

    output: Annotated[Tensor | None, Spec("T B H")] = None
    hidden: Annotated[Tensor | None, Spec("B H")] = None
    cell_state: Annotated[Tensor | None, Spec("B H")] = None
    slots: Annotated[Tensor | None, Spec("B W H", scans="memory")] = None


class ReverseWalk(NamedTuple):
    """The recurrent gradients computed by a walk back through time, all wide.

    dL/dz_t; dL/dq_t; dL/dk of h_t; the total dL/dh_t, for `nudge`; the gradients of key and state for the
    initial slots; dL/dv_a, of each row where a backend sums it later; dL/ds_0 and dL/dc_0; and, where
    relevance is learned, dL/d(gᵀh_t), the same for the initial slots, and dL/de of every slot at every step.
    """

    projected: Annotated[Tensor, Spec("T B GH", "wide")]
    hidden: Annotated[Tensor, Spec("B H", "wide", requested_by="state")]
    cell_state: Annotated[Tensor | None, Spec("B H", "wide", requested_by="state", cell="lstm")]
    states: Annotated[Tensor, Spec("T B H", "wide", requested_by="nudged")]
    queries: Annotated[Tensor, Spec("T B H", "wide", scans="memory")] = ABSENT
    keys: Annotated[Tensor, Spec("T B H", "wide", scans="memory")] = ABSENT
    initial_keys: Annotated[Tensor, Spec("B K H", "wide", scans="memory", requested_by="state")] = ABSENT
    initial_states: Annotated[Tensor, Spec("B K H", "wide", scans="memory", requested_by="state")] = ABSENT
    energy: Annotated[Tensor, Spec("B H", "wide", scans="memory")] = ABSENT
    scores: Annotated[Tensor, Spec("T B", "wide", scans="bounded", requested_by="learned")] = ABSENT
    initial_scores: Annotated[Tensor, Spec("B K", "wide", scans="bounded", requested_by="learned state")] = (
        ABSENT
    )
    energies: Annotated[Tensor, Spec("T B W", "wide", scans="bounded", requested_by="learned")] = ABSENT


class ScanWeights(NamedTuple):
    """The tensors a scan with a memory differentiates with respect to, besides its input and state.

    `recurrent` (G·H, H), gates in torch's order; `query`, `key` (H, H); `energy` (H,); `candidate_bias` (H,)
    or None, the recurrent bias of a GRU's candidate; `modrelu_bias` (H,) or None; `worth` (H,) or None, by
    which a bounded memory learns what to keep.
    """

    recurrent: Tensor
    query: Tensor
    key: Tensor
    energy: Tensor
    candidate_bias: Tensor | None = None
    modrelu_bias: Tensor | None = None
    worth: Tensor | None = None


class PlainWeights(NamedTuple):
    """The tensors a scan without a memory differentiates with respect to, besides its input and state."""

    recurrent: Tensor
    candidate_bias: Tensor | None = None
    modrelu_bias: Tensor | None = None


@cache
def specs(record: Any, traits: frozenset[str] | None = None) -> dict[str, Spec]:
    """Return the tensors of `record` by name, those that a scan of these traits has.

    >>> list(specs(Arriving, frozenset({"all"})))
    ['output', 'hidden', 'cell_state']
    """
    selected = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        spec: Spec = hint.__metadata__[0]
        optional = type(None) in getattr(hint.__origin__, "__args__", ())
        if traits is None or spec.scans in traits:
            selected[name] = Spec(**{**spec.__dict__, "optional": optional})
    return selected


def named(inputs: Any, scanned: Any = None, arriving: Any = None, walked: Any = None) -> dict[str, Any]:
    """Return the values of these records under the names that compiled code uses, in its order.

    A gradient has the prefix `d_`, and a result the suffix `_out` where an input has the same name.

    >>> list(named(Inputs._fields, Scanned._fields))[19:22]
    ['bias', 'output', 'hidden_out']
    """
    values: dict[str, Any] = {}
    for record, part, mark in (
        (Inputs, inputs, ""),
        (Scanned, scanned, ""),
        (Arriving, arriving, "d_"),
        (ReverseWalk, walked, "d_"),
    ):
        for name, value in zip(record._fields, () if part is None else part, strict=part is not None):
            values[f"{mark}{name}_out" if f"{mark}{name}" in values else f"{mark}{name}"] = value
    return values
