"""The tensors of a scan, listed once: what it is given, what it makes, what a reverse walk leaves.

A fused backend is a module with two functions:

    forward(inputs: Inputs, scan, need_trace: bool, save: bool) -> Scanned
    backward(arriving: Arriving, inputs: Inputs, made: Scanned, scan, nudged: bool) -> Inputs

The second is handed those `inputs` and that part of what was `made` which are marked `saved` here, and gives
gradients under the names of the inputs. Everything that handles these tensors asks their `Spec`: to add one
is to add a line here, and its arithmetic. (A weight is also a line of `ScanWeights`.)

Sizes: T steps, B rows, H hidden size, GH its gates' blocks, F features of saved gates, K slots that come in,
W slots that go out (κ, and κ₀ + T of a full memory), S states there are (κ initial slots, then T), PH the
rows of [V; W_a; U_a]. "wide" is `accumulation_dtype` of the layer's type.
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
    "Arriving", "Inputs", "PlainWeights", "Projection", "ReverseWalk", "ScanWeights", "Scanned", "Spec",
    "named", "specs",
]  # fmt: skip

# a scan leaves out what it has no use for; its own code never looks there
ABSENT: Any = None
_FEW = 2**22  # numbers that a GPU takes longer to be told about than to add up


@dataclass(frozen=True)
class Spec:
    """One tensor: its shape in the letters above, its type, and who has it.

    Args:
        shape: sizes, a space between them.
        kind: "layer" (the type of `projected`), "wide", or a torch type by its name.
        of: the scans that have it, one of a scan's `traits`.
        saved: the scans whose backward pass reads it.
        has_gradient: an input that the scan is differentiated with respect to.
        when: what asks for an output, each word of it: "save", "trace", "read" (a trace, or a bounded
            memory's backward); of a walk back "nudged", "learned", "state" (one came in). What is not asked
            for has no steps.
        by: the backends that make it, where not all do; for the others it is never asked for.
        only: the cell or the nonlinearity that has it.
        door: how a caller calls an input: before its name in an error.
        later: came when programs had been exported that know the operator without it.
        optional: set by `specs`: None is allowed.
    """

    shape: str
    kind: str = "layer"
    of: str = "every"
    saved: str = ""
    has_gradient: bool = False
    when: str = ""
    by: tuple[str, ...] = ()
    only: str = ""
    door: str = ""
    later: bool = False
    optional: bool = False


def _weight(shape: str, of: str = "every", only: str = "", later: bool = False) -> Spec:
    return Spec(shape, of=of, saved="every", has_gradient=True, only=only, door="weights.", later=later)


def _slot(shape: str, kind: str = "layer", saved: str = "", has_gradient: bool = False) -> Spec:
    return Spec(shape, kind, "memory", saved, has_gradient, door="state.memory.")


class Inputs(NamedTuple):
    """Every tensor a scan reads, in the order of the operator; a gradient stands under the same name.

    z = U x_t + b of all steps; the weights as in `ScanWeights`; s_0, c_0 and the memory as in `LayerState`
    and `MemoryState`; `reset`, `nudge` as in `plait.ops.walk.walk`. Nothing need be contiguous. Where
    nothing came before, a backend that `FusedScan` says begins by itself is given no state.

    Where there is `worth` (g), relevance is learned: it is gᵀh of a state, plus the `noise` of its step; with
    `usage` (a number) g learns from what is read, too (`usage.py`). With `grad_limit` (a number) no element
    of dL/ds_t is larger than so many times the largest that arrives. b is in `projected`: `bias` stands for
    its gradient alone, where a backend has it at hand.
    """

    projected: Annotated[Tensor, Spec("T B GH", has_gradient=True)]
    recurrent: Annotated[Tensor, _weight("GH H")]
    query: Annotated[Tensor, _weight("H H", "memory")] = ABSENT
    key: Annotated[Tensor, _weight("H H", "memory")] = ABSENT
    energy: Annotated[Tensor, _weight("H", "memory")] = ABSENT
    candidate_bias: Annotated[Tensor | None, _weight("H", only="gru")] = None
    modrelu_bias: Annotated[Tensor | None, _weight("H", only="modrelu")] = None
    worth: Annotated[Tensor | None, _weight("H", "bounded", later=True)] = None
    hidden: Annotated[Tensor, Spec("B H", saved="plain", has_gradient=True, door="state.")] = ABSENT
    cell_state: Annotated[Tensor | None, Spec("B H", has_gradient=True, only="lstm", door="state.")] = None
    slots: Annotated[Tensor, _slot("B K H", saved="memory", has_gradient=True)] = ABSENT
    relevance: Annotated[Tensor, _slot("B K", "wide")] = ABSENT
    born: Annotated[Tensor, _slot("B K", "int64", saved="full")] = ABSENT
    age: Annotated[Tensor, _slot("B", "int64")] = ABSENT
    reset: Annotated[Tensor | None, Spec("T B", "bool", saved="every")] = None
    nudge: Annotated[Tensor | None, Spec("T B H", has_gradient=True)] = None
    noise: Annotated[Tensor | None, Spec("T B", "wide", of="bounded", later=True)] = None
    grad_limit: Annotated[Tensor | None, Spec("", "wide", of="bounded", saved="bounded", later=True)] = None
    usage: Annotated[Tensor | None, Spec("", "wide", of="bounded", saved="bounded", later=True)] = None
    bias: Annotated[Tensor | None, Spec("GH", of="projection", has_gradient=True)] = None

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
        """What a caller says in groups; without a state nothing came before."""
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
        """Whether nothing came before; after a scan, of one with a memory."""
        slots: Any = self.slots
        return slots is None

    @property
    def state(self) -> LayerState:
        """The state a scan begins with."""
        memory = MemoryState(self.slots, self.relevance, self.born, self.age)
        return LayerState(self.hidden, self.cell_state, memory)


class Projection(NamedTuple):
    """What `projected` is computed of, for a scan that also takes the gradients of these: input (T, B, I),
    weight (G·H, I), bias (G·H) or None."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None

    def made(self, unseen: bool = False) -> Tensor:
        """(..., G·H); `unseen` by autograd."""
        x, weight, bias = self
        shape = *x.shape[:-1], weight.shape[0]
        if unseen:
            with torch.no_grad():
                if not x.is_cuda or bias is None or math.prod(shape) > _FEW:
                    return linear(x, weight, bias)
                # with a bias torch asks cuBLAS anew, at every call, which of its kernels is best
                return (x.flatten(0, -2) @ weight.t()).add_(bias).view(shape)
        if bias is None or x.dim() < 2 or not x.is_cpu or not torch.is_grad_enabled():
            return linear(x, weight, bias)
        # On its side: else torch takes the gradient of the weight the slow way (`gradients`).
        return torch.addmm(bias, x.flatten(0, -2), weight.t().contiguous()).view(shape)

    def gradients(
        self, d_projected: Tensor, d_bias: Tensor | None, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Of those that are wanted, in the same order."""
        rows = d_projected.reshape(-1, self.weight.shape[0])  # a batch of gradients cannot be flattened
        x = self.input.flatten(0, -2)
        # MKL needs 30 ms for δzᵀ x, of few columns (120 steps, 100 rows, 10 features to 512), and 5 for xᵀ δz
        return [
            (rows @ self.weight).reshape(self.input.shape) if wanted[0] else None,
            ((x.t() @ rows).t() if x.is_cpu else rows.t() @ x) if wanted[1] else None,
            (rows.sum(dim=0) if d_bias is None else d_bias) if wanted[2] else None,
        ]


class Scanned(NamedTuple):
    """What a forward pass gives; contiguous, no two share storage.

    h_t and the state after T steps; the trace; and for the backward pass:

    - `asked`: s_{t−1} as step t used it, after a reset; `cells`: c_{t−1} likewise;
    - `gates`: LSTM σ(i), σ(f), tanh(g), σ(o); GRU r, z, n and V_n s + b'_n; Elman φ(·) before the nudge, and
      only if there is one (without it φ(·) is the output);
    - of a bounded memory `queries` = W_a s_{t−1}, `keys` = U_a h_t, and `ids`: which state each slot held
      when it was read: j < κ is the initial slot j, κ + t is h_t, −1 nothing;
    - `products` = [V; W_a; U_a] h of every state by its id, from a backend that takes one product a state;
      its keys are the last block;
    - of a full one `contexts`, c_t before it is rounded, and `normalisers`, log Σ exp of a step's energies.
    """

    output: Annotated[Tensor, Spec("T B H", saved="every")]
    hidden: Annotated[Tensor, Spec("B H")]
    cell_state: Annotated[Tensor, Spec("B H", only="lstm")]
    slots: Annotated[Tensor, Spec("B W H", of="memory")] = ABSENT
    relevance: Annotated[Tensor, Spec("B W", "wide", of="memory")] = ABSENT
    born: Annotated[Tensor, Spec("B W", "int64", of="memory")] = ABSENT
    age: Annotated[Tensor, Spec("B", "int64", of="memory")] = ABSENT
    weights: Annotated[Tensor, Spec("T B W", "wide", of="memory", saved="bounded", when="read")] = ABSENT
    trace_born: Annotated[Tensor, Spec("T B W", "int64", of="memory", when="trace")] = ABSENT
    trace_relevance: Annotated[Tensor, Spec("T B W", "wide", of="memory", when="trace")] = ABSENT
    asked: Annotated[Tensor, Spec("T B H", of="memory", saved="memory", when="save")] = ABSENT
    cells: Annotated[Tensor, Spec("T B H", saved="every", when="save", only="lstm")] = ABSENT
    gates: Annotated[Tensor, Spec("T B F", saved="every", when="save")] = ABSENT
    queries: Annotated[Tensor, Spec("T B H", "wide", of="bounded", saved="bounded", when="save")] = ABSENT
    keys: Annotated[
        Tensor,
        Spec("T B H", "wide", of="bounded", saved="bounded", when="save", by=("cpu", "torch", "triton")),
    ] = ABSENT
    ids: Annotated[Tensor, Spec("T B W", "int32", of="bounded", saved="bounded", when="save")] = ABSENT
    contexts: Annotated[Tensor, Spec("T B H", "wide", of="full", saved="full", when="save")] = ABSENT
    normalisers: Annotated[Tensor, Spec("T B", "wide", of="full", saved="full", when="save")] = ABSENT
    products: Annotated[
        Tensor, Spec("S B PH", "wide", of="bounded", saved="bounded", when="save", by=("cluster",))
    ] = ABSENT

    @property
    def activated(self) -> Tensor:
        """The gates, or what an Elman step's slope is read from."""
        return self.gates if self.gates.shape[2] else self.output


class Arriving(NamedTuple):
    """Gradients with respect to what a forward pass gave; None where nothing arrives."""

    output: Annotated[Tensor | None, Spec("T B H")] = None
    hidden: Annotated[Tensor | None, Spec("B H")] = None
    cell_state: Annotated[Tensor | None, Spec("B H")] = None
    slots: Annotated[Tensor | None, Spec("B W H", of="memory")] = None


class ReverseWalk(NamedTuple):
    """What a walk back through time leaves, all wide: the gradients that are a recurrence.

    dL/dz_t; dL/dq_t; dL/dk of h_t; the total dL/dh_t, for `nudge`; the same two for the initial slots;
    dL/dv_a, of each row where a backend sums it later; dL/ds_0 and dL/dc_0; and, where relevance is learned,
    dL/d(gᵀh_t), the same for the initial slots, and dL/de of every slot at every step.
    """

    projected: Annotated[Tensor, Spec("T B GH", "wide")]
    hidden: Annotated[Tensor, Spec("B H", "wide", when="state")]
    cell_state: Annotated[Tensor | None, Spec("B H", "wide", when="state", only="lstm")]
    states: Annotated[Tensor, Spec("T B H", "wide", when="nudged")]
    queries: Annotated[Tensor, Spec("T B H", "wide", of="memory")] = ABSENT
    keys: Annotated[Tensor, Spec("T B H", "wide", of="memory")] = ABSENT
    initial_keys: Annotated[Tensor, Spec("B K H", "wide", of="memory", when="state")] = ABSENT
    initial_states: Annotated[Tensor, Spec("B K H", "wide", of="memory", when="state")] = ABSENT
    energy: Annotated[Tensor, Spec("B H", "wide", of="memory")] = ABSENT
    scores: Annotated[Tensor, Spec("T B", "wide", of="bounded", when="learned")] = ABSENT
    initial_scores: Annotated[Tensor, Spec("B K", "wide", of="bounded", when="learned state")] = ABSENT
    energies: Annotated[Tensor, Spec("T B W", "wide", of="bounded", when="learned")] = ABSENT


class ScanWeights(NamedTuple):
    """The tensors a scan with a memory differentiates with respect to, beside its input and state.

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
    """The same of a scan without a memory."""

    recurrent: Tensor
    candidate_bias: Tensor | None = None
    modrelu_bias: Tensor | None = None


@cache
def specs(record: Any, traits: frozenset[str] | None = None) -> dict[str, Spec]:
    """The tensors of `record` by name, those that a scan of these traits has.

    >>> list(specs(Arriving, frozenset({"every"})))
    ['output', 'hidden', 'cell_state']
    """
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        spec: Spec = hint.__metadata__[0]
        optional = type(None) in getattr(hint.__origin__, "__args__", ())
        if traits is None or spec.of in traits:
            found[name] = Spec(**{**spec.__dict__, "optional": optional})
    return found


def named(inputs: Any, made: Any = None, arriving: Any = None, walked: Any = None) -> dict[str, Any]:
    """The values of these records under the names that compiled code knows, in its order.

    A gradient has `d_` before its name, and what comes out `_out` after it where that name also goes in.

    >>> list(named(Inputs._fields, Scanned._fields))[19:22]
    ['bias', 'output', 'hidden_out']
    """
    found: dict[str, Any] = {}
    for record, given, mark in (
        (Inputs, inputs, ""), (Scanned, made, ""), (Arriving, arriving, "d_"), (ReverseWalk, walked, "d_"),
    ):  # fmt: skip
        for name, value in zip(record._fields, () if given is None else given, strict=given is not None):
            found[f"{mark}{name}_out" if f"{mark}{name}" in found else f"{mark}{name}"] = value
    return found
