"""A backend with wrong numbers is found out: in its output, a gradient, or a choice."""

from __future__ import annotations

import pytest
import torch

from plait.lab.bench.layer_config import LayerConfig
from plait.lab.bench.parity import check, tolerance
from plait.ops.attentive_scan import torch_scan
from plait.ops.scan import Scan
from plait.ops.scan.contract import Arriving, Inputs, Scanned

CPU = torch.device("cpu")


def config(layer: str = "relrnn", dtype: torch.dtype = torch.float32) -> LayerConfig:
    return LayerConfig(layer, "torch", CPU, hidden=8, dtype=dtype, input_size=3)


@pytest.mark.parametrize("layer", ["relrnn", "rellstm", "relgru", "memrnn", "memlstm"])
def test_a_sound_backend_passes(layer: str) -> None:
    assert check(config(layer)) == []


def test_bfloat16_and_tf32_have_their_own_tolerance() -> None:
    assert check(config(dtype=torch.bfloat16)) == []
    assert check(config(), tf32=True) == []
    assert tolerance(config()) < tolerance(config(), tf32=True) < tolerance(config(dtype=torch.bfloat16))
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_wrong_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = torch_scan.forward

    def perturbed(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
        made = sound(inputs, scan, need_trace, save)
        return made._replace(output=made.output * 1.001)

    monkeypatch.setattr(torch_scan, "forward", perturbed)
    assert any(line.startswith("layer's output: off by") for line in check(config()))


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_wrong_gradient_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = torch_scan.backward

    def perturbed(arriving: Arriving, inputs: Inputs, made: Scanned, scan: Scan, nudged: bool) -> Inputs:
        found = sound(arriving, inputs, made, scan, nudged)
        return found._replace(energy=found.energy * factor)

    monkeypatch.setattr(torch_scan, "backward", perturbed)
    found = check(config())
    assert any(line.startswith("layer's d layers.0.scorer.energy") for line in found)
    assert all("energy" in line for line in found)


def test_a_wrong_choice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screening begins beyond as many steps as there are slots; a comparison of fewer would miss it."""
    sound = torch_scan.forward

    def perturbed(inputs: Inputs, scan: Scan, need_trace: bool, save: bool) -> Scanned:
        made = sound(inputs, scan, need_trace, save)
        if made.trace_born.shape[0] > scan.width:
            made.trace_born[-1, 0, -1] += 1
        return made

    monkeypatch.setattr(torch_scan, "forward", perturbed)
    assert check(config()) == ["trace.born: choices differ"]
