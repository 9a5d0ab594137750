"""The same promises on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.tasks import CopyTask, DenoiseTask
from plait.lab.training.session import load
from plait.lab.training.supervised import evaluate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize("model", ["relrnn", "lstm", "rellstm"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_ends_as_one_that_was_not_stopped(small_fit, timeless, tmp_path, model, precision):
    options = {"model": model, "precision": precision, "device": "cuda"}
    whole = small_fit(tmp_path / "whole", **options)
    small_fit(tmp_path / "run", **options, max_minutes=1e-9)
    resumed = small_fit(tmp_path / "run", **options, resume=True)
    assert timeless(resumed.metrics) == timeless(whole.metrics)
    assert resumed.gradients == whole.gradients
    one, two = (read_checkpoint(tmp_path / x / "checkpoint.safetensors").tensors for x in ("whole", "run"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_weights_begin_the_same_everywhere_and_load_anywhere(small_fit, tmp_path):
    there, here = (small_fit(tmp_path / x, device=x, updates=1, lr=1e-12) for x in ("cuda", "cpu"))
    for a, b in zip(there.network.parameters(), here.network.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b)
    on_cpu, on_gpu = (load(tmp_path / "cuda", device=x) for x in ("cpu", "auto"))
    assert next(on_gpu.parameters()).is_cuda
    one = evaluate(on_cpu, CopyTask(1), sequences=8)["copy"]["loss"]
    assert one == pytest.approx(evaluate(on_gpu, CopyTask(1), sequences=8)["copy"]["loss"], rel=0.05)


@pytest.mark.parametrize("task", [CopyTask(2000), DenoiseTask(2000)], ids=["copy", "denoise"])
def test_batches_are_drawn_on_the_device(task):
    batch = task.batch(100, torch.Generator("cuda").manual_seed(0), "cuda")
    assert batch.inputs.is_cuda
    assert (batch.inputs.sum(-1) == 1).all()
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    task.batch(100, torch.Generator("cuda").manual_seed(1), "cuda")
    ended.record()
    torch.cuda.synchronize()
    assert began.elapsed_time(ended) < 20


def test_the_callers_random_state_is_left_alone(small_fit):
    before = torch.cuda.get_rng_state()
    small_fit(device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)
