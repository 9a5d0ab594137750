"""One step a call in C++: what the reference gives, whatever has changed since the last call."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import plait
from plait.errors import ShapeError
from plait.models import State
from plait.ops.attentive_scan import attentive_scan, cpu_step
from plait.ops.parity import TOLERANCE, Case, ParityResult, Problem, differences, make_problem
from plait.ops.parity_cases import reaching_cases, sampled
from plait.ops.scan import Scan, record_backends
from plait.ops.scan.backends import missing
from plait.ops.state_check import known_keys, remember
from plait.ops.walk import LayerResult, Trace

REASON = missing("cpu", "cpu", torch.float32, "elman", 6, 5)
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"cpu: {REASON}")

MEMORY = {
    "window": {"window": 4},
    "relevancy": {"window": 3, "capacity": 3},
    "uniform": {"window": 3, "capacity": 2, "every": 2},
}
CELLS = (("elman", "tanh"), ("elman", "modrelu"), ("lstm", "tanh"), ("gru", "tanh"))


def scan_of(cell: tuple[str, str], memory: str, **options: float) -> Scan:
    return Scan(cell[0], **{**MEMORY[memory], **options}, nonlinearity=cell[1])  # type: ignore[arg-type]


CASES = [
    *(
        Case(scan_of(cell, memory), steps=14, rows=3, **{flag: True})
        for (cell, memory), flag in zip(
            itertools.product(CELLS, MEMORY), itertools.cycle(("carried", "reset", "ties")), strict=False
        )
    ),
    # one row, rows one by one, part of a panel, several panels; sizes that fill vectors and such that do not
    *(
        Case(scan_of(cell, "relevancy"), steps=9, rows=rows, size=size, reset=True)
        for cell, rows, size in ((CELLS[0], 1, 17), (CELLS[2], 4, 16), (CELLS[3], 5, 33), (CELLS[2], 70, 9))
    ),
    Case(scan_of(CELLS[3], "relevancy"), steps=9, rows=21, size=32, dtype=torch.float64, carried=True),
    *(
        Case(scan_of(cell, "relevancy"), steps=14, rows=3, learned=True, noise=True, carried=True, reset=True)
        for cell in CELLS
    ),
    # keys and queries where e^{2k} is out of range
    *(
        Case(scan_of(cell, "relevancy"), steps=6, rows=3, far=True, carried=carried)
        for cell, carried in ((CELLS[0], False), (CELLS[2], True))
    ),
]


LARGE_SCORES = reaching_cases(("window", "relevancy", "uniform"), dtypes=(torch.float32, torch.float64))


@pytest.fixture(autouse=True)
def _poisoned(poison: Callable[..., None]) -> None:
    poison(torch, "empty_like")
    poison(torch.Tensor, "new_empty")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every call that went this way."""
    taken: list[int] = []
    run = cpu_step._run
    monkeypatch.setattr(cpu_step, "_run", lambda *given: (taken.append(1), run(*given))[1])
    return taken


def walked(problem: Problem, scan: Scan, one: Callable[..., LayerResult]) -> ParityResult:
    """Step by step, every step's memory in place of a trace."""
    state, outputs, borns, relevances = problem.state, [], [], []
    for t, z in enumerate(problem.projected.split(1)):
        reset, noise = (None if x is None else x[t : t + 1] for x in (problem.reset, problem.noise))
        output, state, _ = one(z, problem.weights, state, scan, reset, noise)
        outputs.append(output)
        borns.append(state.memory.born)
        relevances.append(state.memory.relevance)
    relevance = torch.stack(relevances)
    trace = Trace(torch.stack(borns), relevance, relevance)
    return ParityResult(LayerResult(torch.cat(outputs), state, trace), {})


def by_reference(z, weights, state, scan, reset, noise):  # type: ignore[no-untyped-def]
    return attentive_scan(z, weights, state, scan, reset, backend="reference", noise=noise)


def by_step(z, weights, state, scan, reset, noise):  # type: ignore[no-untyped-def]
    """The input is what is projected: its weight is 1, so its bias is split off."""
    remember(state.memory, scan.window, known_keys(state.memory))
    projection = torch.eye(z.shape[2], dtype=z.dtype), torch.full((z.shape[2],), 0.25, dtype=z.dtype)
    made = cpu_step.step(z - 0.25, projection, weights, state, scan, reset, noise)
    assert made is not None
    return made


def failures(case: Case) -> list[str]:
    problem = make_problem(case)
    with torch.no_grad():
        expected = walked(problem, case.scan, by_reference)  # type: ignore[arg-type]
        got = walked(problem, case.scan, by_step)  # type: ignore[arg-type]
    return differences(expected, got, case.dtype)


@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity(case: Case) -> None:
    assert failures(case) == []


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity_of_avx2(case: Case) -> None:
    assert failures(case) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE_SCORES, ids=str)
def test_parity_of_large_scores(case: Case) -> None:
    assert failures(case) == []


def test_every_step_of_a_stream_goes_this_way(taken: list[int]) -> None:
    model, x = plait.RelLSTM(3, 8, num_layers=2), torch.randn(6, 4, 3)
    with torch.no_grad(), record_backends() as ran:
        state = None
        for step in x.split(1):
            _, state = model(step, state)
            state = state.detach()
    assert len(taken) == 12
    assert ran == ["cpu"] * 12
    with torch.inference_mode():
        for step in x[:, 0].split(1):  # unbatched
            _, state = model(step, None if state.hidden.dim() == 3 else state)
    assert len(taken) == 24


def test_what_is_out_of_the_ordinary_goes_the_other_way(taken: list[int]) -> None:
    model, x = plait.RelLSTM(3, 8), torch.randn(1, 4, 3)
    state = model(torch.randn(5, 4, 3))[1].detach()
    output, _ = model(x, state)
    output.sum().backward()  # gradients are wanted
    assert model.layers[0].cell.weight_hh.grad.abs().sum() > 0
    with torch.no_grad():
        model(x, state, need_trace=True)
        model(torch.randn(1, 4, 6)[..., ::2], state)
        model(x, pickle.loads(pickle.dumps(state)))  # from outside: looked at first
        with torch.autocast("cpu", torch.bfloat16):
            model(x, state)
        plait.MemLSTM(3, 8)(x)
        plait.RelLSTM(3, 8, device="meta")(x.to("meta"))
        with pytest.raises(ShapeError):
            model.layers[0](x[0])
        plait.RelLSTM(3, 8, backend="torch")(x)
        model.bfloat16()(x.bfloat16(), state.to(torch.bfloat16))
    assert taken == []


def other_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(p.shape, generator=generator) * 0.3 for name, p in model.named_parameters()}


def by_optimiser(model, x, state):  # type: ignore[no-untyped-def]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    with torch.enable_grad():
        model(x)[0].square().sum().backward()
    optimiser.step()


def by_data(model, x, state):  # type: ignore[no-untyped-def]
    for parameter in model.parameters():  # as torch counts no write
        parameter.data.mul_(-1.0)


def by_numpy(model, x, state):  # type: ignore[no-untyped-def]
    model.layers[0].scorer.key.detach().numpy()[:] *= 1.5


def by_new_data(model, x, state):  # type: ignore[no-untyped-def]
    key = model.layers[0].scorer.key
    for _ in range(5):  # freed and handed out again, at the same address as like as not
        key.data = torch.randn_like(key)


def two_rows_exchanged(model, x, state):  # type: ignore[no-untyped-def]
    key = model.layers[0].scorer.key
    with torch.no_grad():
        key.copy_(key[torch.tensor([1, 0, *range(2, len(key))])])


CHANGES = {
    "optimiser": by_optimiser,
    "load_state_dict": lambda model, x, state: model.load_state_dict(other_weights(model)),
    "in place": lambda model, x, state: [p.mul_(0.7) for p in model.parameters()],
    "data": by_data,
    "numpy": by_numpy,
    "new data": by_new_data,
    "one number": lambda model, x, state: model.layers[0].scorer.key[1, 1].add_(0.5),
    "two rows exchanged": two_rows_exchanged,
    "a slot": lambda model, x, state: state.memory[0].slots[1, 0].mul_(-2),
    "slots as data": lambda model, x, state: state.memory[0].slots.data.mul_(-1),
    "nothing": lambda model, x, state: None,
}


def continued(model, state, xs):  # type: ignore[no-untyped-def]
    outputs = []
    for x in xs:
        output, state = model(x, state)
        outputs.append(output)
    return [torch.cat(outputs), state.hidden, *state.memory[0]]


def check_like_reference(model, state, xs, run=continued):  # type: ignore[no-untyped-def]
    """From this very state, and by the reference from a copy of it."""
    twin, same = copy.deepcopy(model), pickle.loads(pickle.dumps(state))
    for layer in twin.layers:
        layer.backend = "reference"
    expected = run(twin, same, xs)
    for got, wanted in zip(run(model, state, xs), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=TOLERANCE[torch.float32], atol=TOLERANCE[torch.float32])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", CHANGES)
def test_stale_keys_are_recomputed(change: str, mode: Callable[[], object], taken: list[int]) -> None:
    torch.manual_seed(11)
    model, xs = plait.RelLSTM(3, 16, window=3, capacity=2), torch.randn(12, 1, 4, 3)
    # steep energies: a wrong key shows
    model.layers[0].scorer.energy.data.mul_(8)
    with torch.no_grad() if mode is torch.no_grad else torch.inference_mode():
        _, state = model(xs[:6, 0])
        for x in xs[:6]:
            _, state = model(x, state)
        if mode is torch.inference_mode and change == "optimiser":
            pytest.skip("no optimiser steps in inference mode")
        CHANGES[change](model, xs[:4, 0], state)
        before = len(taken)
        check_like_reference(model, state, xs[6:])
        assert len(taken) == before + 6


def test_keys_of_a_call_with_other_weights_are_not_taken() -> None:
    torch.manual_seed(5)
    model, xs = plait.RelGRU(3, 16, window=3, capacity=2), torch.randn(12, 1, 4, 3)
    weights = other_weights(model)

    def run(model, state, xs):  # type: ignore[no-untyped-def]
        seen = []
        for number, x in enumerate(xs):
            if number % 2:
                output, state = torch.func.functional_call(model, weights, (x, state))
            else:
                output, state = model(x, state)
            seen.append(output)
        return [*seen, *state.memory[0]]

    with torch.no_grad():
        _, state = model(xs[0])
        check_like_reference(model, state, xs[1:], run)


def test_a_state_is_accepted_by_a_layer_of_another_type() -> None:
    torch.manual_seed(6)
    options = {"window": 3, "capacity": 2}
    model, other = plait.RelRNN(3, 16, **options), plait.RelRNN(3, 16, **options)
    xs = torch.randn(12, 1, 4, 3)
    with torch.no_grad():
        state = None
        for x in xs[:8]:
            _, state = model(x, state)
        check_like_reference(other, state, xs[8:])
        check_like_reference(model, state.rows(torch.tensor([2, 0, 3, 1])), xs[8:])
        check_like_reference(model, state.rows(slice(0, 2)), xs[8:, :, :2])
        check_like_reference(model, state.clone(), xs[8:])
        expected = continued(model, state, xs[8:])
        loaded = copy.deepcopy(state)
        for got, wanted in zip(continued(model, loaded, xs[8:]), expected, strict=True):
            torch.testing.assert_close(got, wanted)
        wide = continued(model.double(), state.to(torch.float64), xs[8:].double())
        for got, wanted in zip(wide, expected, strict=True):
            torch.testing.assert_close(got.to(wanted.dtype), wanted, rtol=2e-5, atol=2e-5)
        model.float()
        for got, wanted in zip(continued(model, state, xs[8:]), expected, strict=True):
            torch.testing.assert_close(got, wanted)


def test_a_step_changes_nothing_it_was_given_and_may_be_taken_again() -> None:
    model, xs = plait.RelLSTM(3, 16, window=3, capacity=2), torch.randn(3, 1, 4, 3)
    with torch.no_grad():
        _, state = model(torch.randn(9, 4, 3))
        _, state = model(xs[0], state)
        before = pickle.dumps(state)
        first, after = model(xs[1], state)
        model(xs[2], after)
        again, _ = model(xs[1], state)
        other, _ = model(xs[2], state)
    assert pickle.dumps(state) == before
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_keys_are_carried_but_not_part_of_the_state() -> None:
    model, x = plait.RelRNN(3, 16, window=3, capacity=2), torch.randn(1, 4, 3)

    def saved(state: State) -> int:
        file = io.BytesIO()
        torch.save(state, file)
        return file.getbuffer().nbytes

    with torch.no_grad():
        _, walked_state = model(torch.randn(9, 4, 3))
        _, state = model(x, walked_state)
        assert saved(state) == saved(walked_state)
        assert len(torch.utils._pytree.tree_leaves(state)) == len(
            torch.utils._pytree.tree_leaves(walked_state)
        )
        keys = known_keys(state.memory[0])
        assert keys is not None
        keys[: 4 * 5 * 16] = torch.nan  # the keys, not their marks: if they are read, it shows
        assert model(x, state)[1].hidden.isnan().all()
        assert not model(x, pickle.loads(pickle.dumps(state)))[1].hidden.isnan().any()


def test_a_wrong_state_is_refused_by_a_step_too() -> None:
    model, x = plait.RelLSTM(3, 8, window=3, capacity=2), torch.randn(1, 4, 3)
    with torch.no_grad():
        _, state = model(torch.randn(9, 4, 3))
        memory = state.memory[0]
        for wrong in (
            memory._replace(age=memory.age - 1),
            memory._replace(slots=memory.slots.long()),
            memory._replace(slots=memory.slots[:, :, 1:]),
            memory._replace(relevance=memory.relevance[1:]),
            memory._replace(born=memory.born.roll(1, 1)),
        ):
            with pytest.raises(ShapeError):
                model(x, state.replace(memory=(wrong,)))
        with pytest.raises(ShapeError, match="hidden"):
            model(x, state.replace(hidden=state.hidden[:, 1:]))
        memory.age.fill_(-1)
        with pytest.raises(ShapeError, match="age"):
            model(x, state)


def test_noise_is_drawn_once_whichever_way_a_step_goes() -> None:
    model, xs = plait.RelRNN(3, 8, window=2, capacity=2, relevance="learned"), torch.randn(9, 1, 4, 3)
    with torch.no_grad():
        _, state = model(torch.randn(5, 4, 3))
        streams = []
        for begin in (state, pickle.loads(pickle.dumps(state))):
            torch.manual_seed(1)
            continued(model, begin, xs)
            streams.append(torch.get_rng_state())
    assert torch.equal(*streams)


def test_a_key_out_of_range_is_not_kept_where_the_query_is_in_range() -> None:
    """e^{2k} overflows at k = 45; q + k is about 3, where tanh is not 1 yet."""
    layer = plait.SelfAttentive(plait.ElmanCell(1, 1, nonlinearity="identity"), plait.WindowMemory(4))
    weights = {"cell.weight_ih": 1, "cell.weight_hh": 0, "cell.bias": 0}
    weights |= {"scorer.query": -43, "scorer.key": 45, "scorer.energy": 5}
    layer.load_state_dict({name: torch.full_like(layer.state_dict()[name], w) for name, w in weights.items()})
    model = plait.Recurrent([layer])
    with torch.no_grad():
        _, state = model(torch.full((1, 1, 1), 0.96))
        check_like_reference(model, state, torch.ones(3, 1, 1, 1))
