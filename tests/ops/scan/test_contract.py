"""The one list of a scan's tensors, and what is read from it."""

from __future__ import annotations

import inspect

import pytest
import torch

from plait.errors import ShapeError
from plait.ops.attentive_scan import attentive_scan
from plait.ops.full_scan import full_scan
from plait.ops.parity import Case, make_problem
from plait.ops.plain_scan import plain_scan
from plait.ops.scan import FullScan, PlainScan, Scan, backends
from plait.ops.scan.boundary import conform
from plait.ops.scan.contract import Arriving, Inputs, ReverseWalk, Scanned, named, specs

SCANS = ("attentive_scan", "full_scan", "plain_scan")


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", backends.MODULES)
@pytest.mark.parametrize("scan", SCANS)
def test_every_backend_has_the_contracts_functions(scan: str, backend: str) -> None:
    if backend == "triton":
        pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")
    if (backend, scan) == ("cluster", "plain_scan"):  # the only one that is not there
        assert backends.missing(backend, "cuda", torch.float32, "elman", 0, 8, scan) == (
            "plain_scan has no kernels of this kind"
        )
        return
    module = backends.module_of(backend, scan)
    assert parameters(module.forward) == ["inputs", "scan", "need_trace", "save"]
    assert parameters(module.backward) == ["arriving", "inputs", "scanned", "scan", "nudged"]
    assert parameters(module.missing) == ["device", "dtype", "cell", "width", "size"]


SCHEMAS = {
    "attentive_scan": "(Tensor projected, Tensor recurrent, Tensor query, Tensor key, Tensor energy, "
    "Tensor? cell_bias, Tensor hidden, Tensor? cell_state, Tensor slots, Tensor relevance, Tensor born, "
    "Tensor age, Tensor? reset, Tensor? nudge, str cell, SymInt window, SymInt capacity, SymInt every, "
    "float mix, str nonlinearity, bool need_trace, bool save, str backend, Tensor? worth=None, "
    "Tensor? noise=None, Tensor? grad_limit=None, Tensor? usage=None) -> ",
    "full_scan": "(Tensor projected, Tensor recurrent, Tensor query, Tensor key, Tensor energy, "
    "Tensor? cell_bias, Tensor hidden, Tensor? cell_state, Tensor slots, Tensor relevance, Tensor born, "
    "Tensor age, Tensor? reset, Tensor? nudge, str cell, float mix, str nonlinearity, bool need_trace, "
    "bool save, str backend) -> ",
    "plain_scan": "(Tensor projected, Tensor recurrent, Tensor? candidate_bias, Tensor? modrelu_bias, "
    "Tensor hidden, Tensor? cell_state, Tensor? reset, Tensor? nudge, str cell, str nonlinearity, "
    "bool need_trace, bool save, str backend) -> ",
}
RESULTS = {"attentive_scan": 17, "full_scan": 15, "plain_scan": 5}


@pytest.mark.parametrize("name", SCHEMAS)
def test_exported_programs_find_their_operator(name: str) -> None:
    """A program that was exported names the operator, its arguments and the places of its results."""
    schema = getattr(torch.ops.plait, name).default._schema
    said = str(schema).removeprefix(f"plait::{name}").replace("SymInt", "int")
    assert said.startswith(SCHEMAS[name].replace("SymInt", "int"))
    assert len(schema.returns) == RESULTS[name]


@pytest.mark.parametrize(("cell", "bias"), [("gru", "candidate_bias"), ("elman", "modrelu_bias")])
def test_the_operators_one_bias_is_either_of_two(cell: str, bias: str) -> None:
    scan = Scan(cell, window=2, nonlinearity="modrelu" if cell == "elman" else "tanh")
    inputs = make_problem(Case(scan)).inputs()
    assert getattr(inputs, bias) is not None
    again = attentive_scan.unflat_inputs(attentive_scan.flat_inputs(inputs), scan)
    assert all(a is b for a, b in zip(inputs, again, strict=True))


def test_a_scan_survives_its_operator() -> None:
    for fused, scan in (
        (attentive_scan, Scan("gru", 3, 2, None, 0.0)),
        (attentive_scan, Scan("elman", 3, 2, every=4, nonlinearity="relu")),
        (full_scan, FullScan("lstm", 0.25)),
        (plain_scan, PlainScan("gru", "modrelu")),
    ):
        assert fused.unflat(*fused.flat(scan)) == scan


def test_compiled_code_knows_every_tensor_by_one_name() -> None:
    records = (Inputs, Scanned, Arriving, ReverseWalk)
    names = named(*(record._fields for record in records))
    assert list(names.values()) == [field for record in records for field in record._fields]
    assert {"hidden", "hidden_out", "d_hidden", "d_hidden_out"} <= {*names}


def test_what_a_tensor_must_be_is_checked_by_its_spec() -> None:
    """Every input of a wrong shape is refused by its own name, whatever is added to the list."""
    scan = Scan("gru", window=3, capacity=2)
    case = Case(scan, reset=True, nudge=True, learned=True, noise=True, limited=True)
    inputs = make_problem(case).inputs()
    inputs = inputs._replace(
        cell_state=torch.zeros_like(inputs.hidden),
        modrelu_bias=torch.zeros_like(inputs.energy),
        grad_limit=torch.tensor(1.0),
        bias=torch.zeros(len(inputs.recurrent)),
    )
    for name, spec in specs(Inputs).items():
        if name in ("projected", "recurrent"):  # the others' sizes come from these
            continue
        wrong = torch.zeros((1, *getattr(inputs, name).shape))
        with pytest.raises(ShapeError, match=rf"^{spec.error_prefix}{name}: expected"):
            conform(inputs._replace(**{name: wrong}), scan)
