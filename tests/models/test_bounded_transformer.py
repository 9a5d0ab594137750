"""A Transformer whose heads keep a bounded memory: against its definition, its laws, its refusals."""

import itertools
import math

import pytest
import torch

import plait
from plait import FullMemory, RelevancyMemory, TopKMemory, UniformMemory, WindowMemory
from plait.errors import ConfigError, ShapeError, UnknownNameError
from plait.gradients import probe
from plait.gradients.paths.stack import stack_derivatives, stack_of
from plait.models.rotation import rotated
from tests.models.test_transformer import norm

DOUBLE = torch.float64
LEARNED = RelevancyMemory(3, 2, relevance="learned", noise=0.0)
SINKS = RelevancyMemory(3, 2, relevance="learned", noise=0.0, sinks=2)
MEMORIES = {
    "window": WindowMemory(3),
    "learned": LEARNED,
    "sinks": SINKS,
    "sinks and window": RelevancyMemory(3, 0, sinks=2),
    "uniform": UniformMemory(3, 2, every=2),
}


POSITIONS = ("clamped", "rotary", "counted")


def build(memory, **options):
    model = plait.Transformer(
        3, 8, **{"num_layers": 2, "heads": 2, "dtype": DOUBLE, "memory": memory, **options}
    )
    for layer in model.layers:
        if getattr(layer, "worth", None) is not None:
            torch.nn.init.normal_(layer.worth)
    return model


def draw(*shape):
    return torch.randn(*shape, dtype=DOUBLE)


def in_chunks(model, x, size, reset=None):
    state, outputs = None, []
    for begin in range(0, len(x), size):
        part = None if reset is None else reset[begin : begin + size]
        output, state = model(x[begin : begin + size], state, reset=part)
        outputs.append(output)
    return torch.cat(outputs), state


def kept(memory, scores, t):
    """Which of the states 0 … t a head can read, by going through them one after another."""
    sinks, capacity = getattr(memory, "sinks", 0), getattr(memory, "capacity", 0)
    older = range(sinks, t + 1 - memory.window)
    if isinstance(memory, UniformMemory):
        best = [j for j in older if j % memory.every == 0][-capacity:]
    else:
        best = sorted(older, key=lambda j: (-float(scores[j]), j))[:capacity]
    return sorted({*range(min(sinks, t + 1)), *best, *range(max(0, t + 1 - memory.window), t + 1)})


def distance(layer, j, t, sets):
    """The distance of state j at step t, of a head that could read the states `sets[i]` at step i."""
    window = layer.memory.window
    if t - j < window or layer.positions == "rotary":
        return t - j
    if layer.positions == "clamped":
        return window
    return window + sum(i in sets[i + window] for i in range(j + 1, t + 1 - window))


def by_hand(model, x):
    """One sequence (T, F), step by step and head by head; and what each head of each layer kept."""
    stream, sets, size = model.embedding(x), [], model.hidden_size // model.heads
    turned = lambda v, place: rotated(v.view(1, 1, 1, -1), torch.tensor([[place]])).flatten()  # noqa: E731
    for layer in model.layers:
        block, memory = layer.block, layer.memory
        normed = norm(block.before_attention, stream)
        query, key, value = (
            part.unflatten(1, (model.heads, size)) for part in block.into_heads(normed).chunk(3, dim=-1)
        )
        worth = (
            torch.zeros(model.heads, model.hidden_size, dtype=DOUBLE) if layer.worth is None else layer.worth
        )
        scores = normed @ worth.t()
        ranks = scores.detach()
        rows, held = [], []
        readable_of = [[kept(memory, r, t) for t in range(len(x))] for r in ranks.t()]
        for t in range(len(x)):
            heads = []
            for head in range(model.heads):
                readable = readable_of[head][t]
                energies = [
                    turned(query[t, head], distance(layer, j, t, readable_of[head]))
                    @ key[j, head]
                    / math.sqrt(size)
                    + scores[j, head]
                    for j in readable
                ]
                heads.append(torch.softmax(torch.stack(energies), 0) @ value[readable, head])
                held.append(readable)
            rows.append(torch.cat(heads))
        sets.append(held)
        stream = block.after(
            stream[None], torch.stack(rows).view(1, len(x), model.heads, size).transpose(1, 2)
        )[0]
    return norm(model.norm, stream), sets


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_against_the_definition_by_hand(memory, positions):
    model, x = build(memory, positions=positions), draw(13, 2, 3)
    output, state, traces = model(x, need_trace=True)
    for row in range(2):
        wanted, sets = by_hand(model, x[:, row])
        torch.testing.assert_close(output[:, row], wanted)
        for layer, trace in enumerate(traces):
            by_head = trace.born[:, row].reshape(13 * 2, model.slots).tolist()
            assert [[b for b in slots if b >= 0] for slots in by_head] == sets[layer]
        assert [b for b in state.memory[1].born[row].view(2, -1)[1].tolist() if b >= 0] == sets[1][-1]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("size", [3, 50, 131])
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_chunks_of_any_size_are_one_pass_and_the_reference(memory, size, positions):
    model, x, reset = build(memory, positions=positions), draw(140, 2, 3), torch.rand(140, 2) < 0.03
    written = build(memory, positions=positions, backend="reference")
    written.load_state_dict(model.state_dict())
    whole, end, traces = model(x, reset=reset, need_trace=True)
    torch.testing.assert_close(model(x, reset=reset)[0], whole)
    torch.testing.assert_close(written(x, reset=reset)[0], whole)
    assert model.states_read(traces) == model.slots
    pieces, state = in_chunks(model, x, size, reset)
    torch.testing.assert_close(pieces, whole)
    for a, b in zip(state.memory, end.memory, strict=True):
        torch.testing.assert_close(tuple(a), tuple(b))


@pytest.mark.parametrize("positions", POSITIONS)
def test_gradients_pass_through_the_state_and_the_score_between_chunks(positions):
    model, x = build(SINKS, positions=positions), draw(40, 2, 3).requires_grad_()
    inputs = [x, *model.parameters()]
    whole = torch.autograd.grad(model(x)[0].square().sum(), inputs)
    pieces = torch.autograd.grad(in_chunks(model, x, 7)[0].square().sum(), inputs)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-7)
    names = ["x", *(name for name, _ in model.named_parameters())]
    assert all(g.abs().max() > 0 for name, g in zip(names, whole, strict=True) if "worth" in name)


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_gradient_by_finite_differences(positions):
    model, x = build(LEARNED, num_layers=1, positions=positions), draw(9, 1, 3).requires_grad_()
    with torch.no_grad():
        model.layers[0].worth.mul_(3)  # no two scores are near enough for a step to swap them
    assert torch.autograd.gradcheck(lambda x: model(x)[0], (x,))


def test_a_window_as_long_as_the_sequence_is_full_attention():
    """With the term r_j where it is learned; without it, the Transformer without a bound."""
    full, x = build(None), draw(11, 2, 3)
    learned = RelevancyMemory(20, 4, relevance="learned")
    for memory, positions in itertools.product((WindowMemory(11), learned), POSITIONS):
        model = build(memory, positions=positions)
        missing, unexpected = model.load_state_dict(full.state_dict(), strict=False)
        assert unexpected == []
        scored = build(memory, positions=positions) if missing else None
        for layer in model.layers:
            if layer.worth is not None:
                torch.nn.init.zeros_(layer.worth)
        torch.testing.assert_close(model(x)[0], full(x)[0])
        if scored is not None:
            assert (scored(x)[0] - by_hand(scored, x[:, 0])[0][:, None]).abs()[:, 0].max() < 1e-12


def test_full_memory_is_none():
    model, full = build(None), build(FullMemory())
    assert full.memory is None
    assert full.slots is None
    full.load_state_dict(model.state_dict())
    x = draw(6, 2, 3)
    assert torch.equal(full(x)[0], model(x)[0])
    assert full.options() == model.options()
    assert build("full").options() == model.options()


@pytest.mark.parametrize(
    "memory", [RelevancyMemory(4, 0), RelevancyMemory(4, 0, relevance="learned"), UniformMemory(4, 0)]
)
def test_capacity_zero_is_a_window(memory):
    bounded, window, x = build(memory), build(WindowMemory(4)), draw(13, 2, 3)
    window.load_state_dict(bounded.state_dict())
    torch.testing.assert_close(bounded(x)[0], window(x)[0], rtol=0, atol=0)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_no_output_sees_a_later_input_through_scores_or_evictions(memory, positions):
    """Gradients do not see choices, so inputs are changed."""
    model, x = build(memory, positions=positions), draw(30, 2, 3)
    output = model(x)[0]
    for t in (1, 8, 20, 29):
        changed = torch.cat([x[:t], 50 * draw(30 - t, 2, 3)])
        torch.testing.assert_close(model(changed)[0][:t], output[:t], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_value_that_is_not_finite_is_gone_with_its_state(positions):
    """By reset and by eviction, and within one pass as between chunks."""
    model, x = build(WindowMemory(3), num_layers=1, positions=positions), draw(40, 2, 3)
    x[5, 0] = math.nan
    reset = torch.zeros(40, 2, dtype=torch.bool)
    reset[7, 0] = True
    for broken, output in ((range(5, 8), model(x)[0]), (range(5, 7), model(x, reset=reset)[0])):
        assert output[:, 0].isnan().any(-1).nonzero().flatten().tolist() == list(broken)
        assert not output[:, 1].isnan().any()


@pytest.mark.parametrize("positions", ["clamped", "counted"])
def test_a_state_far_back_is_read_as_one_that_just_left(positions):
    """So a stream can be longer than what was trained."""
    model = build(LEARNED, num_layers=1, positions=positions)
    special, blank = draw(2, 1, 3), torch.zeros(1, 1, 3, dtype=DOUBLE)
    with torch.no_grad():  # what is special is kept, blanks are not
        layer = model.layers[0]
        normed = layer.block.before_attention(model.embedding(torch.cat([special, blank])))[:, 0]
        layer.worth.copy_((normed[:2].sum(0) - 2 * normed[2]).expand_as(layer.worth))
    ends = [model(torch.cat([special, blank.expand(n, 1, 3)]))[0][-1] for n in (10, 50, 500)]
    torch.testing.assert_close(ends[1], ends[0])
    torch.testing.assert_close(ends[2], ends[0])


def test_noise_is_drawn_while_training_alone():
    model = build(RelevancyMemory(3, 2, relevance="learned", noise=5.0))
    assert model.memory.exploration == 5.0
    x = draw(30, 2, 3)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    quiet = build(LEARNED)
    quiet.load_state_dict(model.state_dict())
    assert torch.equal(model(x)[0], quiet(x)[0])
    noisy = model.train()(x)[1].memory[0]
    assert not torch.equal(noisy.relevance, quiet(x)[1].memory[0].relevance), "the state keeps the draws"


def test_earned_takes_one_step_a_call():
    model, x = build(RelevancyMemory(3, 2), num_layers=1), draw(12, 1, 3)
    with pytest.raises(ConfigError, match=r"relevance: 'earned' .* takes one step, got 12; use"):
        model(x)
    state, credit, held = None, {}, {head: [] for head in range(2)}
    for t in range(12):
        _, state, (trace,) = model(x[t : t + 1], state, need_trace=True)
        for head in range(2):
            born, weights, relevance = (part[0, 0].view(2, -1)[head].tolist() for part in trace)
            previous = held[head]
            leaving = [j for j in previous if j <= t - 3]
            best = sorted(leaving, key=lambda j: (-credit[head, j], j))[:2]
            wanted = sorted([*best, *(j for j in previous if j > t - 3), t])
            assert [b for b in born if b >= 0] == wanted
            held[head] = wanted
            for b, weight, earned in zip(born, weights, relevance, strict=True):
                if b >= 0:
                    before = credit.get((head, b), 0.0)
                    credit[head, b] = before + (2 * weight if b > t - 3 else 0.0)
                    assert earned == pytest.approx(credit[head, b], abs=1e-6)


def test_in_half_precision_chunks_are_one_pass():
    model, x = build(SINKS).to(torch.bfloat16), torch.randn(20, 2, 3, dtype=torch.bfloat16)
    whole, state = model(x)
    assert whole.dtype == state.memory[0].slots.dtype == torch.bfloat16
    assert state.memory[0].relevance.dtype == torch.float32
    torch.testing.assert_close(in_chunks(model, x, 3)[0], whole, atol=0.05, rtol=0.05)
    model = build(SINKS).float()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = model(x.float())
        torch.testing.assert_close(in_chunks(model, x.float(), 3)[0], output, atol=0.05, rtol=0.05)


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_export_and_compile_in_one_pass_and_by_the_step(positions):
    model, x = build(SINKS, num_layers=1, positions=positions).eval(), draw(9, 2, 3)
    whole, state = model(x)
    step, _ = model(x[:1], state)
    torch._dynamo.reset()  # recompilations of the same code in other tests count towards a limit
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], whole)
    torch.testing.assert_close(torch.export.export(model, (x[:1], state)).module()(x[:1], state)[0], step)


def test_a_name_and_its_options_are_a_memory():
    model = plait.Transformer(3, 8, memory="relevancy", window=4, capacity=3, sinks=1, noise=0.2)
    assert model.memory == RelevancyMemory(4, 3, relevance="learned", noise=0.2, sinks=1)
    assert model.slots == 8
    options = model.options()
    assert options["memory"] == "relevancy"
    assert plait.Transformer(3, **options).memory == model.memory
    for memory in MEMORIES.values():
        assert plait.Transformer(3, **build(memory).options()).memory == memory
    assert options["positions"] == "rotary", "as without a memory"
    clamped = plait.Transformer(3, 8, memory="window", window=2, positions="clamped")
    assert plait.Transformer(3, **clamped.options()).layers[0].positions == "clamped"
    assert plait.Transformer(3, 8).options().keys() == {
        "hidden_size",
        "num_layers",
        "bias",
        "dropout",
        "heads",
    }


def nothing_finite(model):
    torch.nn.init.constant_(model.layers[0].worth, math.nan)
    return model


def with_score(value):
    model = build(LEARNED)
    state = model(draw(9, 1, 3))[1]
    memory = [m._replace(relevance=m.relevance.index_fill(1, torch.tensor([1]), value)) for m in state.memory]
    # a tensor of its own, as a loaded state has
    return model(draw(2, 1, 3), state.replace(memory=tuple(m._replace(age=m.age.clone()) for m in memory)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: build(RelevancyMemory(3, -1)), ConfigError, "capacity: expected at least 0, got -1"),
        (lambda: build(RelevancyMemory(3, 2, sinks=-1)), ConfigError, "sinks: expected at least 0, got -1"),
        (lambda: build(TopKMemory()), ConfigError, "memory: expected one of FullMemory, .* got TopKMemory"),
        (lambda: build("window", capacity=3), ConfigError, "capacity: expected one of window with memory"),
        (lambda: build(None, window=3), ConfigError, "window: expected none without a memory, got 3"),
        (lambda: build(LEARNED, window=3), ConfigError, "window: expected none beside RelevancyMemory"),
        (lambda: build("relevant"), UnknownNameError, "unknown memory 'relevant': did you mean 'relevancy'"),
        (
            lambda: build(RelevancyMemory(3, 2, relevance="learned", usage=1.0)),
            ConfigError,
            "usage: expected none in a Transformer, got 1.0",
        ),
        (
            lambda: build("relevancy", capacity=2**31 - 1),
            ConfigError,
            "GB are free here; take a smaller window",
        ),
        (lambda: nothing_finite(build(LEARNED))(draw(3, 1, 3)), ConfigError, "worth: expected finite"),
        (lambda: with_score(math.nan), ShapeError, "relevance: expected finite scores, got nan in row 0"),
        (lambda: with_score(math.inf), ShapeError, "relevance: expected finite scores, got inf in row 0"),
        (
            lambda: build(LEARNED)(draw(2, 1, 3), build(WindowMemory(3))(draw(9, 1, 3))[1]),
            ShapeError,
            r"state: expected a memory of \[10, 10\] slots by layer, got \[6, 6\]",
        ),
        (
            lambda: build(LEARNED)(draw(2, 1, 3), build(LEARNED, heads=1)(draw(9, 1, 3))[1]),
            ShapeError,
            r"state: expected a memory of \[10, 10\] slots by layer, got \[5, 5\]",
        ),
        (lambda: build(LEARNED, positions="rope"), UnknownNameError, "unknown positions 'rope'"),
        (
            lambda: build(None, positions="clamped"),
            ConfigError,
            "positions: expected rotary without a memory",
        ),
        (lambda: plait.RelLSTM(3, 8, sinks=1), TypeError, "unexpected keyword argument 'sinks'"),
        (
            lambda: plait.SelfAttentive(plait.LSTMCell(3, 8), RelevancyMemory(3, 2, sinks=1)),
            ConfigError,
            "sinks: expected 0 in a recurrent layer, got 1; use plait.Transformer",
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_trace_has_every_slot_of_every_head_and_merges_into_means():
    model, x = build(SINKS), draw(20, 2, 3)
    _, _, traces = model(x, need_trace=True)
    assert model.states_read(traces) == model.slots == 7
    trace, merged = traces[0], traces[0].merged()
    assert trace.born.shape == (20, 2, 2 * 7)
    torch.testing.assert_close(
        trace.weights.unflatten(-1, (2, 7)).sum(-1), torch.full((20, 2, 2), 0.5).double()
    )
    torch.testing.assert_close(merged.weights.sum(-1), torch.ones(20, 2, dtype=DOUBLE))
    for step, row in ((3, 0), (12, 1), (19, 1)):
        wanted = {}
        for born, weight in zip(
            trace.born[step, row].tolist(), trace.weights[step, row].tolist(), strict=True
        ):
            if born >= 0:
                wanted[born] = wanted.get(born, 0.0) + weight
        found = merged.born[step, row] >= 0
        assert merged.born[step, row][found].tolist() == sorted(wanted)
        assert merged.weights[step, row][found].tolist() == pytest.approx([wanted[b] for b in sorted(wanted)])
    _, _, (single,) = plait.RelRNN(3, 8, window=3, capacity=2)(x.float(), need_trace=True)
    assert single.merged() is single
    full = build(None)
    assert full.states_read(full(x, need_trace=True)[2]) == 20


def test_the_probe_sees_a_state_once_whichever_heads_keep_it():
    profile = probe(build(SINKS), draw(20, 2, 3), lambda output: output[0][-1].sum())
    for layer in profile.layers:
        assert 5 < layer.attention.readable <= 12, "of two heads, which share window and sinks"
        assert layer.attention.participation <= layer.attention.readable


@pytest.mark.parametrize("memory", MEMORIES)
def test_path_sums_are_the_derivative(memory):
    """Positions are taken apart under transforms of torch.func."""
    model, x = build(MEMORIES[memory], positions="rotary"), draw(9, 8)
    layers = stack_of(model)
    by_edges = stack_derivatives(layers, x, t=3, T=9)
    whole = torch.autograd.functional.jacobian(lambda x: layers[1](layers[0](x))[8], x)[:, 2]
    torch.testing.assert_close(by_edges.sum(0), whole)


@pytest.mark.parametrize("memory", MEMORIES)
def test_sequences_under_vmap_are_those_of_a_batch_with_gradients_of_their_own(memory):
    model, x = build(MEMORIES[memory], num_layers=1), draw(4, 12, 2, 3)
    torch.testing.assert_close(torch.func.vmap(lambda part: model(part)[0])(x)[2], model(x[2])[0])
    weights = dict(model.named_parameters())

    def loss(weights, part):
        return torch.func.functional_call(model, weights, (part,))[0].square()[:, :, 0].sum()

    of_each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    alone = torch.autograd.grad(loss(weights, x[2]), list(weights.values()))
    for a, b in zip(of_each.values(), alone, strict=True):
        torch.testing.assert_close(a[2], b)
