"""The table of docs/compatibility.md, row by row: what `torch.nn.LSTM`, `GRU` and `RNN` do, and what ours do.

Every test here stands for one row and says its verdict; the last one holds the page to them.
"""

import copy
import gc
import inspect
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import plait
from plait.errors import BackendError, ConfigError, EmptyMemoryWarning, ShapeError, UnloadedWarning

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
PAIRS = [(plait.RelRNN, nn.RNN), (plait.RelLSTM, nn.LSTM), (plait.RelGRU, nn.GRU)]
ROWS: dict[str, tuple[str, str]] = {}


def row(behaviour, verdict):
    """Names the row of the table that a test proves: yes, differs or no."""

    def named(test):
        ROWS[test.__name__] = (behaviour, verdict)
        return test

    return named


def x(*shape):
    return torch.randn(*(shape or (7, 2, 3)))


class Inside(nn.Module):
    """A model of somebody's, with one of ours inside."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(4, 2)

    def forward(self, x):
        output, _ = self.layer(x)
        return self.readout(output)


@row("Arguments of the constructor, and their order", "yes")
def test_arguments():
    theirs = [p for p in inspect.signature(nn.RNNBase).parameters if p != "mode"]
    for ours, _ in PAIRS:
        assert list(inspect.signature(ours).parameters)[:10] == theirs
    model = plait.RelLSTM(3, 4, 2, False, True, 0.1, True, 0, "cpu", torch.float64)
    other = nn.LSTM(3, 4, 2, False, True, 0.1, True, 0, "cpu", torch.float64)
    for name in (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ):
        assert getattr(model, name) == getattr(other, name), name


@row("`nonlinearity` of an RNN", "differs")
def test_nonlinearity():
    assert nn.RNN(3, 4, 2, "relu").nonlinearity == "relu"
    assert plait.RelRNN(3, 4, 2, nonlinearity="relu")(x())[0].shape == (7, 2, 4)
    assert inspect.signature(plait.RelRNN).parameters["nonlinearity"].kind is inspect.Parameter.KEYWORD_ONLY


@row("`proj_size`", "no")
def test_proj_size():
    with pytest.raises(ConfigError, match=r"proj_size: expected 0, got 2; project the output with torch"):
        plait.RelLSTM(3, 4, proj_size=2)


@row("The numbers, without a memory", "yes")
def test_numbers():
    for ours, theirs in ((plait.RNN, nn.RNN), (plait.LSTM, nn.LSTM), (plait.GRU, nn.GRU)):
        reference = theirs(3, 4, 2)
        model, inputs = ours.from_torch(reference), x()
        torch.testing.assert_close(model(inputs)[0], reference(inputs)[0])


@row("`batch_first`, and (T, F) without a batch", "yes")
def test_layouts():
    for ours, theirs in PAIRS:
        for shape in ((2, 7, 3), (7, 3)):
            inputs = x(*shape)
            assert (
                ours(3, 4, batch_first=True)(inputs)[0].shape
                == theirs(3, 4, batch_first=True)(inputs)[0].shape
            )


@row("`PackedSequence`, `enforce_sorted` either way", "yes")
def test_packed():
    rows = [x(n, 3) for n in (3, 7, 5)]
    for ours, _ in PAIRS:
        model = ours(3, 4)
        packed, state = model(pack_sequence(rows, enforce_sorted=False))
        assert isinstance(packed, PackedSequence)
        output, lengths = pad_packed_sequence(packed)
        assert lengths.tolist() == [3, 7, 5]
        torch.testing.assert_close(output[:3, 0], model(rows[0])[0])
        torch.testing.assert_close(state.hidden[:, 1], model(rows[1])[1].hidden)
        sorted_rows, _ = model(pack_sequence([rows[1], rows[2], rows[0]]))
        torch.testing.assert_close(pad_packed_sequence(sorted_rows)[0], output[:, [1, 2, 0]])


@row("`output, (h_n, c_n)`, or `output, h_n`", "yes")
def test_state_unpacks():
    output, (h, c) = plait.RelLSTM(3, 4, 2)(x())
    assert output.shape == (7, 2, 4)
    assert h.shape == c.shape == (2, 2, 4)
    _, h = plait.RelGRU(3, 4, 2)(x())
    assert h[-1].shape == (2, 4)
    assert h.shape == h.detach().shape == (2, 2, 4)
    assert len(h) == 2


@row("`(h_0, c_0)` or `h_0` passed in", "differs")
def test_h_0():
    h, c = x(1, 2, 4).requires_grad_(), x(1, 2, 4)
    model = plait.RelLSTM(3, 4)
    with pytest.warns(EmptyMemoryWarning, match="begins with an empty one"):
        output, _ = model(x(), (h, c))
    assert torch.autograd.grad(output.sum(), h)[0].abs().sum() > 0


@row("What was returned, passed in again", "differs")
def test_continued():
    model, inputs = plait.RelLSTM(3, 4), x(30, 2, 3)
    whole, _ = model(inputs)
    first, state = model(inputs[:14])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyMemoryWarning)
        forgetful, _ = model(inputs[14:], tuple(state))
    second, _ = model(inputs[14:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    assert not torch.allclose(forgetful, second)


@row("`bidirectional`", "yes")
def test_bidirectional():
    for ours, theirs in PAIRS:
        model, other = ours(3, 4, 2, bidirectional=True), theirs(3, 4, 2, bidirectional=True)
        (output, state), (expected, end) = model(x()), other(x())
        assert output.shape == expected.shape == (7, 2, 8)
        assert state[0].shape == end[0].shape


@row("A bidirectional layer, continued", "differs")
def test_bidirectional_is_not_continued():
    model = plait.RelLSTM(3, 4, bidirectional=True)
    with pytest.raises(ShapeError, match="reads whole sequences and cannot be continued or streamed"):
        model(x(), model(x())[1])


@row("`dropout` between layers, while training", "yes")
def test_dropout():
    model, inputs = plait.RelLSTM(3, 4, 2, dropout=0.5), x()
    assert not torch.equal(model(inputs)[0], model(inputs)[0])
    assert torch.equal(model.eval()(inputs)[0], model(inputs)[0])


@row("No steps, no rows, wrong sizes", "yes")
def test_errors():
    for model in (plait.RelLSTM(3, 4), nn.LSTM(3, 4)):
        for shape in ((0, 2, 3), (7, 2, 5), (7, 2, 3, 1)):
            with pytest.raises((RuntimeError, ValueError)):
                model(x(*shape))
        assert model(x(7, 0, 3))[0].shape == (7, 0, 4)


@row("`device=`, `dtype=`, `.to`, `.double()`, `.half()`, `.bfloat16()`", "yes")
def test_types():
    assert plait.RelLSTM(3, 4, device="meta")(x().to("meta"))[0].device.type == "meta"
    assert plait.RelLSTM(3, 4, dtype=torch.float64)(x().double())[0].dtype == torch.float64
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        output, state = plait.RelLSTM(3, 4).to(dtype)(x().to(dtype))
        assert output.dtype == state.hidden.dtype == dtype


@row("Autocast", "yes")
def test_autocast():
    for model in (plait.RelLSTM(3, 4), nn.LSTM(3, 4)):
        with torch.autocast("cpu", torch.bfloat16):
            assert model(x())[0].dtype == torch.bfloat16


@row("`deepcopy`, `pickle`, `torch.save`", "yes")
def test_copies(tmp_path):
    model, inputs = plait.RelLSTM(3, 4), x()
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert torch.equal(other(inputs)[0], model(inputs)[0])
    torch.save(model(inputs)[1], tmp_path / "state.pt")
    assert torch.equal(torch.load(tmp_path / "state.pt").hidden, model(inputs)[1].hidden)


@row("`state_dict` of another of the same kind", "yes")
def test_state_dict():
    model, other, inputs = plait.RelLSTM(3, 4, 2), plait.RelLSTM(3, 4, 2), x()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(inputs)[0], model(inputs)[0])


@row("Names and number of parameters (`weight_ih_l0`, two biases)", "differs")
def test_names():
    names = [name for name, _ in plait.RelLSTM(3, 4).named_parameters()]
    assert names[:3] == ["layers.0.cell.weight_ih", "layers.0.cell.weight_hh", "layers.0.cell.bias"]
    assert not hasattr(plait.RelLSTM(3, 4), "weight_ih_l0")


@row("`state_dict` of a `torch.nn` layer", "differs")
def test_state_dict_of_torch():
    layer = nn.LSTM(3, 4, 2)
    for model, source in (
        (plait.RelLSTM(3, 4, 2), layer.state_dict()),
        (Inside(plait.RelLSTM(3, 4, 2)), Inside(layer).state_dict()),
    ):
        with pytest.warns(
            UnloadedWarning, match=r"none of them is loaded into RelLSTM; RelLSTM.from_torch\("
        ):
            missing, _ = model.load_state_dict(source, strict=False)
        assert any("weight_hh" in name for name in missing)
    with pytest.warns(UnloadedWarning), pytest.raises(RuntimeError, match="Unexpected key"):
        plait.RelLSTM(3, 4, 2).load_state_dict(layer.state_dict())
    model = plait.RelLSTM.from_torch(layer)
    assert torch.equal(model.layers[1].cell.weight_hh, layer.weight_hh_l1)


@row("`flatten_parameters()`", "yes")
def test_flatten_parameters():
    assert plait.RelLSTM(3, 4).flatten_parameters() is None


@row("`reset_parameters()`", "yes")
def test_reset_parameters():
    model, inputs = plait.RelLSTM(3, 4), x()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.reset_parameters()
    assert not [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    torch.manual_seed(3)
    model.reset_parameters()
    torch.manual_seed(3)
    assert torch.equal(plait.RelLSTM(3, 4)(inputs)[0], model(inputs)[0])


@row("Hooks, `functional_call`, activation checkpointing", "yes")
def test_hooks():
    model, inputs, seen = plait.RelLSTM(3, 4), x().requires_grad_(), []
    handle = model.register_forward_hook(lambda module, given, output: seen.append(output[0].shape))
    model.register_full_backward_hook(lambda module, before, after: seen.append(before[0].shape))
    output, _ = model(inputs)
    output.sum().backward()
    assert seen == [(7, 2, 4), (7, 2, 3)]
    handle.remove()
    again, _ = torch.func.functional_call(model, dict(model.named_parameters()), (inputs,))
    assert torch.equal(again, output)
    wanted = inputs.grad.clone()
    inputs.grad = None
    checkpoint(lambda part: model(part)[0], inputs, use_reentrant=False).sum().backward()
    torch.testing.assert_close(inputs.grad, wanted)


@row("`torch.compile`", "yes")
def test_compile():
    torch.compiler.reset()  # what others compiled before counts against a limit
    model, inputs = plait.RelLSTM(3, 4), x()
    output, _ = torch.compile(model, backend="aot_eager", fullgraph=True)(inputs)
    torch.testing.assert_close(output, model(inputs)[0])


LOADER = """
import sys
import plait.models
import torch
import numpy
program = torch.export.load(sys.argv[1])
given = torch.from_numpy(numpy.load(sys.argv[2]))
output, (h, c) = program.module()(given)
numpy.save(sys.argv[3], output.detach().numpy())
"""


@row("`torch.export`, and its `.pt2` in another process after `import plait.models`", "yes")
def test_export(tmp_path):
    model, inputs = plait.RelLSTM(3, 4).eval(), x()
    torch.export.save(torch.export.export(model, (inputs,)), tmp_path / "model.pt2")
    numpy.save(tmp_path / "in.npy", inputs.numpy())
    files = [str(tmp_path / name) for name in ("model.pt2", "in.npy", "out.npy")]
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *files],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    output = torch.from_numpy(numpy.load(files[2]))
    torch.testing.assert_close(output, model(inputs)[0].detach())


@row("`vmap`, gradients by sample, `jvp`", "yes")
def test_transforms():
    for ours in (plait.RelLSTM, plait.RelGRU, plait.MemRNN, plait.LSTM, plait.UniLSTM):
        model, inputs = ours(3, 4), x(25, 2, 3)
        weights = dict(model.named_parameters())

        def loss(weights, one, model=model):
            return torch.func.functional_call(model, weights, (one,))[0].square().sum()

        by_sample = torch.func.vmap(torch.func.grad(loss), (None, 1))(weights, inputs)
        model(inputs[:, 1])[0].square().sum().backward()
        for name, weight in model.named_parameters():
            torch.testing.assert_close(by_sample[name][1], weight.grad, rtol=1e-4, atol=1e-5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what torch itself scripts for it
            output, tangent = torch.func.jvp(lambda x: model(x)[0], (inputs,), (torch.ones_like(inputs),))  # noqa: B023
        torch.testing.assert_close(output, model(inputs)[0])
        moved = (model(inputs + 1e-3)[0] - model(inputs - 1e-3)[0]) / 2e-3
        torch.testing.assert_close(tangent, moved, rtol=0.05, atol=0.01)


@row("Second derivatives", "differs")
def test_second_derivatives():
    inputs = x().double().requires_grad_()

    def twice(model):
        (first,) = torch.autograd.grad(model(inputs)[0].square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(first.square().sum(), inputs)[0]

    with pytest.raises(BackendError, match="no second derivative; use backend='reference'"):
        twice(plait.RelLSTM(3, 4, dtype=torch.float64))
    reference = plait.RelLSTM(3, 4, dtype=torch.float64, backend="reference")
    assert twice(reference).abs().sum() > 0
    auto = copy.deepcopy(reference)
    auto.layers[0].backend = "auto"
    gradient = torch.func.grad(lambda x: auto(x)[0].square().sum())
    second = torch.func.grad(lambda x: gradient(x).square().sum())(inputs.detach())
    torch.testing.assert_close(second, twice(reference))


@row("`torch.jit.script`, `torch.jit.trace`", "no")
def test_jit():
    for module in (plait.RelLSTM(3, 4), Inside(plait.RelLSTM(3, 4))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its tool
            with pytest.raises(
                BackendError, match=r"torch.jit.script cannot compile RelLSTM; use torch.export"
            ):
                torch.jit.script(module)
            with pytest.raises(
                BackendError, match=r"torch.jit.trace cannot record RelLSTM; use torch.export"
            ):
                torch.jit.trace(module, (x(),))


@row("Export to ONNX", "differs")
@pytest.mark.parametrize("place", [Inside, lambda layer: layer])
def test_onnx(place, tmp_path):
    """The exporter of old, which needs no other package; today's is tried below."""
    layer, path = place(plait.RelLSTM(3, 4)), tmp_path / "old.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        with pytest.raises(BackendError, match=r"dynamo=False\) cannot record RelLSTM; leave dynamo at True"):
            torch.onnx.export(layer, (x(),), path, dynamo=False)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "others"), [(plait.RelLSTM, [5]), (plait.LSTM, [5]), (plait.MemRNN, [])])
def test_onnx_by_torch_export(model, others, tmp_path):
    """Steps unrolled: one length, any number of rows but with a full memory; the numbers are ours."""
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    layer, path = Inside(model(3, 4)).eval(), tmp_path / "layer.onnx"
    rows = ({1: torch.export.Dim("rows", min=2)},) if others else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(layer, (x(),), path, dynamic_shapes=rows, verbose=False)
    session = runtime.InferenceSession(path)
    name = session.get_inputs()[0].name
    for other in (x(7, number, 3) for number in (2, *others)):
        (found,) = session.run(None, {name: other.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), layer(other).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run(None, {name: x(8, 2, 3).numpy()})


@row("`DataParallel`, `DistributedDataParallel`", "yes")
def test_parallel(tmp_path):
    model, inputs = Inside(plait.RelLSTM(3, 4)), x()
    alone = copy.deepcopy(model)
    alone(inputs).square().sum().backward()
    wanted = {name: p.grad for name, p in alone.named_parameters()}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1
    )
    try:
        shared = nn.parallel.DistributedDataParallel(model)
        shared(inputs).square().sum().backward()
        # What goes after its group takes the group along while it holds the interpreter's lock, which the
        # group's own threads wait for: one time in a few hundred nothing went on.
        del shared
        gc.collect()
    finally:
        torch.distributed.destroy_process_group()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name])
    torch.testing.assert_close(nn.DataParallel(alone)(inputs), alone(inputs))


@row("Dynamic quantisation", "no")
def test_quantisation():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its tool
        model = torch.ao.quantization.quantize_dynamic(Inside(plait.RelLSTM(3, 4)), {nn.LSTM})
    assert model.layer.layers[0].cell.weight_hh.dtype == torch.float32  # left as it is


def table():
    """Behaviour, verdict and test of every row of the page."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and (named := re.fullmatch(r"`(test_\w+)`", cells[3])):
            found.append((cells[0], cells[1], named[1]))
    return found


def test_the_page_says_what_the_tests_show():
    assert table() == [(*row, name) for name, row in ROWS.items()]
    tests = {name for name in globals() if name.startswith("test_")}
    assert tests == {*ROWS, "test_onnx_by_torch_export", "test_the_page_says_what_the_tests_show"}
