"""The Transformer over features: written out by hand, shifted, traced, and its refusals."""

import math

import pytest
import torch

import plait
from plait.errors import ConfigError, ShapeError, UnknownNameError
from plait.models.block import Block
from plait.models.rotation import rotated

DOUBLE = torch.float64


def build(**options):
    return plait.Transformer(3, 8, **{"num_layers": 2, "heads": 2, "dtype": DOUBLE, **options})


def norm(module, x):
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return scaled * module.weight + module.bias


def turned(vector, place):
    """Pairs (i, i + d/2) as complex numbers times e^{i·place·rate}."""
    half = len(vector) // 2
    rates = torch.tensor([10000.0 ** (-i / half) for i in range(half)], dtype=DOUBLE)
    pairs = torch.complex(vector[:half], vector[half:]) * torch.polar(
        torch.ones(half, dtype=DOUBLE), place * rates
    )
    return torch.cat([pairs.real, pairs.imag])


def by_hand(model, x):
    """One sequence (T, F), step by step, head by head."""
    stream = model.embedding(x)
    for layer in model.layers:
        block, size = layer.block, model.hidden_size // model.heads
        joint = block.into_heads(norm(block.before_attention, stream))
        query, key, value = (part.unflatten(1, (model.heads, size)) for part in joint.chunk(3, dim=-1))
        rows = []
        for t in range(len(x)):
            heads = []
            for head in range(model.heads):
                q = turned(query[t, head], t)
                energies = [q @ turned(key[s, head], s) / math.sqrt(size) for s in range(t + 1)]
                weights = torch.softmax(torch.stack(energies), 0)
                heads.append(weights @ value[: t + 1, head])
            rows.append(torch.cat(heads))
        stream = stream + block.out_of_heads(torch.stack(rows))
        inner = torch.nn.functional.gelu(block.widen(norm(block.before_mlp, stream)))
        stream = stream + block.narrow(inner)
    return norm(model.norm, stream)


def test_against_the_definition_by_hand():
    model, x = build(), torch.randn(7, 3, 3, dtype=DOUBLE)
    output, _ = model(x)
    for row in range(3):
        torch.testing.assert_close(output[:, row], by_hand(model, x[:, row]))


def test_the_reference_and_torchs_attention_agree_in_pieces_and_under_resets():
    auto, written = build(), build(backend="reference")
    written.load_state_dict(auto.state_dict())
    x = torch.randn(9, 3, 3, dtype=DOUBLE, requires_grad=True)
    reset = torch.zeros(9, 3, dtype=torch.bool)
    reset[0, 1] = reset[4, 0] = reset[7, 2] = True
    results = []
    for model in (auto, written):
        first, state = model(x[:5], reset=reset[:5])
        second, _ = model(x[5:], state, reset=reset[5:])
        output = torch.cat([first, second])
        results.append((output, *torch.autograd.grad(output.square().sum(), [x, *model.parameters()])))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_only_distances_between_steps_count():
    """With an empty cache that claims to be a thousand steps old, nothing changes."""
    model, x = build(), torch.randn(7, 2, 3, dtype=DOUBLE)
    output, state = model(x)
    old = model(x[:1])[1]
    old = old.replace(
        memory=tuple(
            m._replace(
                slots=m.slots[:, :0], relevance=m.relevance[:, :0], born=m.born[:, :0], age=m.age + 999
            )
            for m in old.memory
        )
    )
    late, late_state = model(x, old)
    torch.testing.assert_close(late, output)
    assert (late_state.memory[1].slots - state.memory[1].slots).abs().max() > 0.1


@pytest.mark.parametrize("size", [1, 4, 5])
def test_rotation_keeps_lengths_and_the_odd_feature(size):
    x, places = torch.randn(2, 3, 6, size), torch.arange(12).view(2, 6)
    y = rotated(x, places)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    if size % 2:
        assert torch.equal(y[..., -1], x[..., -1])
    if size > 1:
        assert (y - x)[:, :, 1:].abs().max() > 0.1


def test_positions_matter():
    """Without them the set of earlier steps would be all there is to see."""
    model, x = build(num_layers=1), torch.randn(6, 1, 3, dtype=DOUBLE)
    swapped = x[[1, 0, 2, 3, 4, 5]]
    assert (model(x)[0][-1] - model(swapped)[0][-1]).abs().max() > 1e-4


def test_traces_are_the_weights():
    model, x = build(), torch.randn(6, 2, 3, dtype=DOUBLE)
    reset = torch.zeros(6, 2, dtype=torch.bool)
    reset[4, 1] = True
    output, _, traces = model(x, reset=reset, need_trace=True)
    torch.testing.assert_close(output, model(x, reset=reset)[0])
    assert len(traces) == 2
    for trace in traces:
        assert trace.born.shape == trace.weights.shape == (6, 2, 6)
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(6, 2, dtype=DOUBLE))
        assert (trace.weights[trace.born < 0] == 0).all()
        assert [sorted(b for b in row if b >= 0) for row in trace.born[:, 1].tolist()] == [
            [0],
            [0, 1],
            [0, 1, 2],
            [0, 1, 2, 3],
            [0],
            [0, 1],
        ]


def test_nudges_receive_the_derivative_by_each_blocks_output():
    model, x = build(), torch.randn(8, 2, 3, dtype=DOUBLE)
    nudges = [torch.zeros(8, 2, 8, dtype=DOUBLE, requires_grad=True) for _ in range(2)]
    totals = torch.autograd.grad(model(x, nudge=nudges)[0][-1].square().sum(), nudges)
    direction, eps = torch.randn(2, 8, dtype=DOUBLE), 1e-6
    for layer, t in ((0, 0), (0, 5), (1, 7)):
        values = []
        for sign in (1, -1):
            shifted = [torch.zeros_like(n) for n in nudges]
            shifted[layer][t] = sign * eps * direction
            values.append(model(x, nudge=shifted)[0][-1].square().sum())
        difference = (values[0] - values[1]) / (2 * eps)
        torch.testing.assert_close(difference, (totals[layer][t] * direction).sum(), atol=1e-7, rtol=1e-5)
    assert totals[1][:7].abs().max() == 0, "nobody above reads the last block's earlier outputs"


def test_sequences_far_longer_than_any_seen():
    model = build()
    state = None
    for _ in range(3):
        output, state = model(torch.randn(400, 1, 3, dtype=DOUBLE), state)
        state = state.detach()
    assert output.isfinite().all()
    assert state.memory[0].born[0].tolist() == list(range(1200))


@pytest.mark.parametrize(("hidden", "heads"), [(6, 1), (64, 2), (128, 4), (96, 3), (100, 2), (97, 1)])
def test_heads_left_out(hidden, heads):
    assert plait.Transformer(3, hidden).heads == heads


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plait.Transformer(3, 8, heads=3), ConfigError, "heads: expected a divisor of hidden_size 8"),
        (lambda: plait.Transformer(3, 8, heads=0), ConfigError, "heads: expected at least 1"),
        (lambda: plait.Transformer(3, 8, bidirectional=True), ConfigError, "it is causal"),
        (lambda: plait.Transformer(3, 8, backend="triton"), UnknownNameError, "unknown backend"),
        (lambda: plait.Transformer(3, 8, dropout=2), ConfigError, "dropout: expected a probability"),
        (
            lambda: plait.Transformer(3, 8)(torch.randn(5, 2, 3), torch.zeros(1, 2, 8)),
            ShapeError,
            "has no h_0",
        ),
        (lambda: plait.Transformer(3, 8)(torch.randn(5, 2, 4)), ShapeError, "expected 3 features, got 4"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("depth", [1, 4])
def test_what_is_added_to_the_stream_begins_smaller_the_more_layers_there_are(depth):
    """Two additions a layer, of variance 1/(2·depth) each; widths that a spread can be read from."""
    torch.manual_seed(0)
    block = Block(128, 4, depth)
    for layer, shrink in (
        (block.into_heads, 1),
        (block.widen, 1),
        (block.out_of_heads, 2 * depth),
        (block.narrow, 2 * depth),
    ):
        wanted = 1 / math.sqrt(shrink * layer.in_features)
        assert layer.weight.std().item() == pytest.approx(wanted, rel=0.02)
