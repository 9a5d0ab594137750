"""The cluster kernels against the definition: their own source on a machine of fibres, and on a Hopper GPU.

The emulator runs threads in random order, delivers messages between blocks late and out of order, and lets
warps fall behind; shared memory and every result begin as NaN.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from plait.errors import BackendError
from plait.lab.training.options import settings_for
from plait.models.options import model_defaults
from plait.models.table import MODELS
from plait.ops import parity
from plait.ops.attentive_scan import attentive_scan, cluster_choice, cluster_scan, reference
from plait.ops.attentive_scan.cluster_back import BackShape, back_shape, kernels_back
from plait.ops.attentive_scan.cluster_choice import Split, splits
from plait.ops.attentive_scan.cluster_outer import OUTER_TEXT, OuterShape
from plait.ops.attentive_scan.cluster_shape import BACKWARD_TEXT, FORWARD_TEXT, Shape
from plait.ops.attentive_scan.cluster_usage import USAGE_TEXT, UsageShape
from plait.ops.parity import TOLERANCE, Case, make_problem
from plait.ops.parity_cases import REACHES, reaching_cases, sampled
from plait.ops.scan import Scan, backends, record_backends
from plait.ops.scan.boundary import conform
from plait.ops.scan.contract import Inputs, Projection

RELEVANCY = {"window": 2, "capacity": 2}
LARGER = {"window": 5, "capacity": 4}
UNIFORM = {"window": 2, "capacity": 2, "every": 2}
WINDOW = {"window": 3}


# two of them in every run, one below where e^{2q} overflows
EVERY_REACH = [r if r in (24, 200) else pytest.param(r, marks=pytest.mark.slow) for r in REACHES]


def case(
    cell: str, memory: dict[str, int], split: tuple[int, ...], steps: int, rows: int, size: int = 32, **flags
):
    nonlinearity = cell if cell not in ("lstm", "gru") else "tanh"
    scan = Scan(cell if cell in ("lstm", "gru") else "elman", **memory, nonlinearity=nonlinearity)
    return Case(scan, steps=steps, rows=rows, size=size, **flags), Split(*split)


# what is computed, and (blocks of a cluster, rows it walks, warps, weights in shared memory)
SMALL = [
    case("lstm", LARGER, (2, 2, 4, 0), steps=14, rows=3),
    case(
        "lstm", RELEVANCY, (2, 1, 4, 0), steps=9, rows=2, carried=True, reset=True, nudge=True, strided=True
    ),
    case("lstm", RELEVANCY, (4, 4, 8, 0), steps=6, rows=5, size=64, carried=True, reset=True),
    case("lstm", UNIFORM, (2, 2, 4, 3), steps=8, rows=2, size=64, nudge=True, carried=True),
    case("lstm", RELEVANCY, (2, 1, 4, 0), steps=9, rows=2, learned=True, noise=True, carried=True),
    case("lstm", WINDOW, (2, 2, 4, 0), steps=5, rows=2, nudge=True, dtype=torch.bfloat16),
    case("gru", RELEVANCY, (2, 2, 4, 0), steps=9, rows=2, carried=True, reset=True, nudge=True),
    case("gru", LARGER, (4, 3, 8, 0), steps=14, rows=3, size=64, learned=True, noise=True, reset=True),
    case("gru", WINDOW, (1, 2, 4, 0), steps=5, rows=2, dtype=torch.bfloat16),
    case(
        "tanh", RELEVANCY, (2, 2, 4, 0), steps=9, rows=2, carried=True, reset=True, nudge=True, strided=True
    ),
    case("tanh", RELEVANCY, (2, 8, 4, 0), steps=12, rows=5, ties=True, carried=True),
    case("tanh", RELEVANCY, (1, 1, 4, 0), steps=5, rows=1, far=True),
    case("tanh", LARGER, (2, 1, 8, 0), steps=16, rows=2, size=96, learned=True, noise=True, reset=True),
    case("relu", UNIFORM, (4, 1, 8, 0), steps=7, rows=2, size=64, reset=True),
    case("modrelu", LARGER, (2, 3, 4, 0), steps=14, rows=3, nudge=True, carried=True),
    case("identity", WINDOW, (2, 1, 4, 0), steps=1, rows=2, carried=True),
]


def shape_of(case: Case, split: Split, trace: bool = True) -> Shape:
    return Shape(case.scan, case.size, case.dtype, *split, True, trace, case.reset, case.nudge, case.learned)


@pytest.fixture(scope="module")
def walks(emulated) -> ctypes.CDLL:
    shapes = {f"walk_{i}": shape_of(*item) for i, item in enumerate(SMALL)}
    return emulated("attentive_scan", "forward", FORWARD_TEXT, shapes)


def differences(
    case: Case, split: Split, library: ctypes.CDLL, name: str, seed: int, monkeypatch
) -> list[str]:
    """What a walk forward makes of a problem and the definition does not: choices first, then numbers."""
    inputs = conform(make_problem(case).inputs(), case.scan)
    expected = reference.attentive_scan(inputs, case.scan, need_trace=True)
    monkeypatch.setattr(cluster_scan, "shape_for", lambda *_: shape_of(case, split))
    run = getattr(library, f"run_{name}")
    monkeypatch.setattr(cluster_scan, "launch", lambda _, __, given, ___: run(ctypes.byref(given), seed))
    empty = torch.Tensor.new_empty
    poison = lambda x: x.fill_(float("nan") if x.is_floating_point() else 77_777)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: poison(empty(*a, **k)))
    with torch.no_grad():
        made = cluster_scan.forward(inputs, case.scan, True, True)
    state, trace = expected.state, expected.trace
    discrete = {"trace_born": trace.born, "born": state.memory.born, "age": state.memory.age}
    wrong = [name for name, x in discrete.items() if not torch.equal(x, getattr(made, name))]
    cells = {} if state.cell_state is None else {"cell_state": state.cell_state}
    numbers = {
        "output": expected.output,
        "hidden": state.hidden,
        "slots": state.memory.slots,
        **cells,
        "weights": trace.weights,
        "trace_relevance": trace.relevance,
        "relevance": state.memory.relevance,
        **_saved(inputs, made, case),
    }
    for name, x in {} if wrong else numbers.items():
        got = made.products[case.scan.width :] if name == "products" else getattr(made, name)
        off = (x.double() - got.double()).abs().max().item() / max(1.0, x.double().abs().max().item())
        wrong += [] if off <= TOLERANCE[case.dtype] else [f"{name}: {off:.1e}"]
    return wrong


def _saved(inputs: Inputs, made, case: Case) -> dict[str, torch.Tensor]:
    """What a backward pass is promised, from what the walk itself gave."""
    matrix = torch.cat([inputs.recurrent, inputs.query, inputs.key]).float()
    states = torch.cat([inputs.slots.transpose(0, 1), made.output]).float()
    ids = made.ids >> 6
    places = (made.ids & 63).long()
    born = torch.full_like(made.trace_born, -5).scatter(2, places, torch.where(ids < 0, -1, 0).long())
    assert torch.equal(born < 0, made.trace_born < 0)
    # what the slots hold after the last step, by their ids
    rows = torch.arange(case.rows).unsqueeze(1)
    held = torch.where((ids[-1] >= 0).unsqueeze(2), states[ids[-1].long().clamp_min(0), rows], 0)
    slots = torch.zeros_like(held).scatter(1, places[-1].unsqueeze(2).expand_as(held), held)
    return {
        "products": made.output.float() @ matrix.t(),
        "queries": made.prev_states.float() @ inputs.query.float().t(),
        "slots": slots,
    }


@pytest.mark.parametrize("index", range(len(SMALL)), ids=lambda i: str(SMALL[i][0]))
def test_forward_on_the_emulator(index, walks, monkeypatch):
    case, split = SMALL[index]
    for seed in (1, 2):
        assert differences(case, split, walks, f"walk_{index}", seed, monkeypatch) == []


# forward and back together, as a layer calls them
WHOLE = [
    case("lstm", RELEVANCY, (2, 1, 4, 0), steps=7, rows=2, carried=True, reset=True, nudge=True),
    case("gru", RELEVANCY, (2, 2, 4, 0), steps=7, rows=3, learned=True, noise=True),
    case("tanh", RELEVANCY, (2, 1, 4, 0), steps=5, rows=1, limited=True),
    case("lstm", RELEVANCY, (2, 1, 4, 0), steps=2, rows=0),
    case("lstm", RELEVANCY, (2, 2, 4, 0), steps=7, rows=3, new=True, nudge=True),
    case("gru", RELEVANCY, (2, 1, 4, 0), steps=9, rows=2, new=True, learned=True, noise=True, reset=True),
    case("tanh", RELEVANCY, (2, 1, 4, 0), steps=5, rows=1, new=True, limited=True),
]


@pytest.fixture(scope="module")
def both(emulated) -> dict[str, ctypes.CDLL]:
    forward = {f"walk_{i}": shape_of(*item) for i, item in enumerate(WHOLE)}
    backward = {f"walk_{i}": back_shape_of(case) for i, (case, _) in enumerate(WHOLE)}
    blocks = {"elman": 2, "gru": 5, "lstm": 5}
    outer = {
        f"walk_{i}": OuterShape(
            blocks[case.scan.cell] * case.size,
            case.size,
            case.size + 4 * case.learned,
            case.scan.cell == "gru",
            case.dtype,
            cluster=2,
        )
        for i, (case, _) in enumerate(WHOLE)
    }
    usage = {
        f"walk_{i}": UsageShape(case.scan, case.size, case.dtype, threads=64, stretch=4)
        for i, (case, _) in enumerate(WHOLE)
        if case.learned
    }
    return {
        "forward": emulated("attentive_scan", "forward", FORWARD_TEXT, forward),
        "backward": emulated("attentive_scan", "backward", BACKWARD_TEXT, backward),
        "usage": emulated("attentive_scan", "usage", USAGE_TEXT, usage),
        "outer": emulated("attentive_scan", "outer", OUTER_TEXT, outer),
    }


def back_shape_of(case: Case) -> BackShape:
    shape = back_shape(case.scan, case.size, case.dtype, max(case.rows, 1), {2: 66}, case.limited)
    return replace(shape, reset=case.reset, learned=case.learned)


@pytest.fixture
def there_and_back(both, monkeypatch):
    """What differs from the definition, of a case of `WHOLE` with other inputs."""
    return lambda index, **inputs: _there_and_back(
        index, replace(WHOLE[index][0], **inputs), both, monkeypatch
    )


def _there_and_back(index, case, both, monkeypatch, item=None):
    split, back = item or (WHOLE[index][1], back_shape_of(case))

    def launch(way, _, given, __):
        getattr(both[way], f"run_walk_{index}")(ctypes.byref(given), 3)

    monkeypatch.setattr(cluster_scan, "missing", lambda *_: None)
    monkeypatch.setattr(cluster_scan, "shape_for", lambda *_: shape_of(case, split))
    monkeypatch.setattr(cluster_scan, "back_shape_for", lambda *_: back)
    monkeypatch.setattr(cluster_scan, "launch", launch)
    backends._resolved.cache_clear()
    problem = make_problem(case)
    with record_backends() as ran:
        got = parity.run(problem, case.scan, "cluster", case.new)
    backends._resolved.cache_clear()
    assert ran == ["cluster"]
    return parity.differences(parity.run(problem, case.scan, "reference", case.new), got, case.dtype)


@pytest.mark.parametrize("index", range(len(WHOLE)), ids=lambda i: str(WHOLE[i][0]))
def test_forward_and_back_on_the_emulator(index, there_and_back):
    assert there_and_back(index) == []


@pytest.mark.parametrize("reach", EVERY_REACH)
@pytest.mark.parametrize("index", [0, 1, 2], ids=lambda i: str(WHOLE[i][0]))
def test_large_queries_and_keys_on_the_emulator(index, reach, there_and_back):
    """Where e^{2q}, e^{2k} or their product alone would overflow, and gates saturate."""
    steps = 3 - 2 * WHOLE[index][0].learned  # few draws of a learned relevance keep its choices apart
    assert there_and_back(index, steps=steps, carried=True, reach=float(reach)) == []


# sizes that few divide, as a GPU splits them: all that is chosen for so many rows
UNUSUAL = [("lstm", 96, 3), ("gru", 96, 1), ("elman", 96, 37), ("lstm", 160, 1), ("elman", 224, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "size", "rows"), UNUSUAL)
def test_sizes_that_few_divide(cell, size, rows, emulated, monkeypatch):
    at_a_time = {8: 16, 4: 30, 2: 66, 1: 132}  # of a whole H200
    monkeypatch.setattr(cluster_choice, "clusters_that_fit", lambda cluster, _: at_a_time[cluster])
    case = Case(Scan(cell, **RELEVANCY), steps=3, rows=rows, size=size, carried=True)
    split = cluster_choice.choose(cell, size, case.scan.width, rows, 0)
    back = back_shape(case.scan, size, case.dtype, rows, {c: at_a_time[c] for c in (8, 4, 2)})
    blocks = {"elman": 2, "gru": 5, "lstm": 5}[cell]
    outer = OuterShape(blocks * size, size, size, cell == "gru", case.dtype, cluster=2)
    shapes = {"forward": shape_of(case, split), "backward": back, "outer": outer}
    texts = {"forward": FORWARD_TEXT, "backward": BACKWARD_TEXT, "outer": OUTER_TEXT}
    built = {
        way: emulated("attentive_scan", way, texts[way], {"walk_0": shape}) for way, shape in shapes.items()
    }
    assert _there_and_back(0, case, built, monkeypatch, (split, back)) == []


# the energies and their slopes from a product of exponentials, which is infinity times zero
PRODUCTS = {
    "forward": ("ex2(q + k)", "ex2(q) * ex2(k)"),
    "backward": ("ex2(x.y)", "ex2(SCALE * key.y) * ex2(q.y)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", PRODUCTS)
def test_a_product_of_exponentials_shows(way, both, emulated, there_and_back, monkeypatch):
    case = WHOLE[0][0]
    shape = shape_of(*WHOLE[0]) if way == "forward" else back_shape_of(case)
    text = FORWARD_TEXT if way == "forward" else BACKWARD_TEXT
    monkeypatch.setitem(both, way, emulated("attentive_scan", way, text, {"walk_0": shape}, PRODUCTS[way]))
    assert there_and_back(0, steps=3, carried=True, reach=1.0) == []
    assert there_and_back(0, steps=3, carried=True, reach=128.0) != []


def test_large_states_with_moderate_energies(walks, monkeypatch):
    """Weights are not normalised before they meet the states: their products must not overflow either."""
    case, split = SMALL[15]
    problem = make_problem(case).inputs()
    with torch.no_grad():
        size = len(problem.energy)
        energy = 55 * problem.energy / problem.energy.abs().sum()
        key = energy.sign().unsqueeze(1).expand(size, size) / size
        inputs = problem._replace(
            energy=energy,
            key=key.contiguous(),
            query=torch.zeros_like(key),
            recurrent=torch.zeros_like(problem.recurrent),
            **{name: 1e17 * (1 + getattr(problem, name).abs()) for name in ("projected", "hidden", "slots")},
        )
        inputs = conform(inputs, case.scan)
        expected = reference.attentive_scan(inputs, case.scan, need_trace=False)
        monkeypatch.setattr(cluster_scan, "shape_for", lambda *_: shape_of(case, split))
        run = lambda _, __, given, ___: walks.run_walk_15(ctypes.byref(given), 1)  # noqa: E731
        monkeypatch.setattr(cluster_scan, "launch", run)
        made = cluster_scan.forward(inputs, case.scan, True, True)
    torch.testing.assert_close(made.hidden, expected.state.hidden)


@pytest.fixture
def layer_on_the_emulator(both, monkeypatch):
    """The cluster scan of a case of `WHOLE`, with no state, of a projection whose gradients it takes too."""
    index = next(i for i, (case, _) in enumerate(WHOLE) if case.new and case.scan.cell == "lstm")
    case, split = WHOLE[index]
    run = f"run_walk_{index}"
    monkeypatch.setattr(cluster_scan, "missing", lambda *_: None)
    monkeypatch.setattr(cluster_scan, "shape_for", lambda *_: shape_of(case, split))
    monkeypatch.setattr(cluster_scan, "back_shape_for", lambda *_: back_shape_of(case))
    launch = lambda way, _, given, __: getattr(both[way], run)(ctypes.byref(given), 3)  # noqa: E731
    monkeypatch.setattr(cluster_scan, "launch", launch)
    backends._resolved.cache_clear()
    problem = make_problem(case)
    torch.manual_seed(0)
    shapes = (case.steps, case.rows, 3), (4 * case.size, 3), (4 * case.size,)
    source = [torch.randn(shape).requires_grad_() for shape in shapes]

    def walked(backend):
        given = Projection(*source)
        return attentive_scan(given, problem.weights, None, case.scan, None, problem.nudge, True, backend)

    yield walked, source
    backends._resolved.cache_clear()


def test_a_projections_gradients_are_taken_with_the_scans(layer_on_the_emulator):
    walked, source = layer_on_the_emulator
    found = walked("cluster").output
    assert found.grad_fn.next_functions[0][0].variable is source[0]  # no node of autograd between
    expected = walked("reference").output
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    several = torch.randn(2, *found.shape)
    batch = torch.autograd.grad(found, source, several, is_grads_batched=True, retain_graph=True)
    for place, arriving in enumerate(several):
        one = torch.autograd.grad(found, source, arriving, retain_graph=True)
        wanted = torch.autograd.grad(expected, source, arriving, retain_graph=True)
        for x, y, z in zip(one, wanted, batch, strict=True):
            torch.testing.assert_close(x, y, atol=2e-5 * y.abs().max().item(), rtol=0)
            torch.testing.assert_close(z[place], y, atol=2e-5 * y.abs().max().item(), rtol=0)


def test_a_projection_has_no_second_derivative(layer_on_the_emulator):
    walked, (x, *_) = layer_on_the_emulator
    (d_x,) = torch.autograd.grad(walked("cluster").output.sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative; use backend='reference'"):
        d_x.sum().backward()


@pytest.mark.parametrize("name", ["rellstm", "relgru", "relrnn"])
def test_what_train_begins_with_is_walked_there_and_back(name, monkeypatch):
    """`plait train copy --model rellstm` says `--relevance learned --grad-limit 1`: nothing of it leaves the
    cluster. What the kernels compute is another test's; here they are only called."""
    called = []
    monkeypatch.setattr(cluster_scan, "missing", lambda *_: None)
    monkeypatch.setattr(cluster_scan, "clusters_that_fit", lambda *_: 15)
    monkeypatch.setattr(cluster_choice, "clusters_that_fit", lambda *_: 15)
    monkeypatch.setattr(cluster_scan, "launch", lambda way, shape, *_: called.append((way, shape)))
    monkeypatch.setattr(backends, "PREFERRED", {"cpu": ("cluster",)})
    for cached in (backends._resolved, cluster_scan.shape_for, cluster_scan.back_shape_for):
        cached.cache_clear()
    options = settings_for("copy", name, on_cpu=False).model(frozenset(model_defaults(name)))
    layer = MODELS[name](10, 32, **options)
    with record_backends() as ran:
        layer(torch.randn(12, 2, 10))[0].sum().backward()
    for cached in (backends._resolved, cluster_scan.shape_for, cluster_scan.back_shape_for):
        cached.cache_clear()
    assert ran == ["cluster"]
    shapes = dict(called)
    learns = options.get("relevance") == "learned"
    assert shapes == {"forward": shapes["forward"], **kernels_back(shapes["backward"], learns, 12 * 2)}
    assert set(shapes) == {"forward", "backward", "outer"} | ({"usage"} if learns else set())
    assert shapes["backward"].limited == (options.get("grad_limit") is not None)
    assert learns == (name != "relrnn")


def test_a_reset_removes_nans(walks, monkeypatch):
    """NaN of before the reset is gone after it: records are cleared, not multiplied by zero."""
    case, split = SMALL[1]
    problem = make_problem(case).inputs()
    projected, reset = problem.projected.detach().clone(), torch.zeros_like(problem.reset)
    projected[:3, 0], reset[3, 0] = float("nan"), True
    inputs = conform(problem._replace(projected=projected, reset=reset), case.scan)
    monkeypatch.setattr(cluster_scan, "shape_for", lambda *_: shape_of(case, split))
    run = lambda _, __, given, ___: walks.run_walk_1(ctypes.byref(given), 1)  # noqa: E731
    monkeypatch.setattr(cluster_scan, "launch", run)
    with torch.no_grad():
        made = cluster_scan.forward(inputs, case.scan, True, True)
    assert made.output[:3, 0].isnan().all()
    assert not made.output[3:].isnan().any()
    assert not made.slots.isnan().any()


# what is broken: a piece of the kernels' source, and what stands there instead
MUTATIONS = {
    "a tie decided the other way": ("from[i])) > least[i]", "from[i])) >= least[i]"),
    "credit for what is kept": ("!K::LEARNED && place[i] < WINDOW) credit", "!K::LEARNED) credit"),
    "a key in another slot": ("where(r, t & 1) + K::KEYS", "where(r, (t + 1) & 1) + K::KEYS"),
    "h read before it came": ("      mbarrier_wait(mbarriers, t & 1);\n", ""),
    "energies read before they came": ("      mbarrier_wait(arrived, before >> 1 & 1);\n", ""),
    "the newest state's energy": ("e.y = at == 1 ? fresh", "e.y = false ? fresh"),
    "s_0 mixed like the others": ("= t == 0 ? 1.0f : a.mix", "= a.mix"),
    "noise forgotten": ("credit[i] = rated + noise_then[i]", "credit[i] = rated"),
    "a reset that keeps the cell's state": (
        "before[I] = cut(tasks_at.gates_row(I)) ? 0.0f : c[I];",
        "before[I] = c[I];",
    ),
    "one task's sum for all": ("take_step<I>(given[I]);", "take_step<I>(given[0]);"),
    "energies that are not kept": (
        "sm[tasks_at.energy_to[j]] = all[j];",
        "sm[tasks_at.energy_to[j]] = all[0];",
    ),
    "products before all have read": (
        "      barrier_sync(PLACED, K::MEET);\n      save(t);",
        "      save(t);",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_emulator_can_fail(mutation, emulated, monkeypatch):
    """Each is seen in one of: carried state with resets and nudges, ties, learned relevance with
    noise, warps with several tasks."""
    cases = [SMALL[0], SMALL[1], SMALL[3], SMALL[4], SMALL[10]]
    shapes = {f"walk_{i}": shape_of(*item) for i, item in enumerate(cases)}
    library = emulated("attentive_scan", "forward", FORWARD_TEXT, shapes, MUTATIONS[mutation])
    found = []
    for i, (case, split) in enumerate(cases):
        with monkeypatch.context() as patch:
            try:
                found += differences(case, split, library, f"walk_{i}", 1, patch)
            except AssertionError as error:
                found.append(str(error))
    assert found


def test_unsupported_scans_give_a_reason():
    assert "float32 or bfloat16" in cluster_scan.missing("cuda", torch.float64, "lstm", 20, 128)
    assert "32 slots" in cluster_scan.missing("cuda", torch.float32, "lstm", 33, 128)
    assert "multiples of 32" in cluster_scan.missing("cuda", torch.float32, "lstm", 20, 100)
    assert "CUDA device" in cluster_scan.missing("cpu", torch.float32, "lstm", 20, 128)


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_every_usual_size_has_a_split(cell):
    for size in (32, 64, 128, 256):
        assert splits(cell, size, 20)
    assert not splits(cell, 100, 20)


REAL = [
    Case(Scan(cell, 10, capacity, every, nonlinearity=nonlinearity), steps=steps, rows=5, size=size, **flags)
    for cell, nonlinearity, capacity, every, size, steps, flags in [
        ("lstm", "tanh", 10, None, 128, 60, {}),
        ("lstm", "tanh", 10, None, 128, 300, {"new": True, "learned": True, "noise": True}),
        ("gru", "tanh", 10, None, 128, 60, {"new": True, "learned": True}),
        ("elman", "tanh", 10, None, 128, 60, {"new": True}),
        ("lstm", "tanh", 10, None, 128, 40, {"carried": True, "reset": True, "nudge": True}),
        ("lstm", "tanh", 10, None, 128, 60, {"learned": True, "noise": True, "reset": True}),
        ("lstm", "tanh", 10, None, 128, 40, {"limited": True, "carried": True}),
        ("gru", "tanh", 10, None, 128, 40, {"limited": True, "carried": True, "reset": True, "nudge": True}),
        ("elman", "tanh", 10, None, 128, 60, {"limited": True, "new": True, "learned": True}),
        ("lstm", "tanh", 6, 3, 64, 60, {"carried": True}),
        ("lstm", "tanh", 10, None, 256, 40, {}),
        ("lstm", "tanh", 0, None, 128, 40, {"dtype": torch.bfloat16}),
        ("gru", "tanh", 10, None, 128, 40, {"carried": True, "reset": True, "nudge": True}),
        ("gru", "tanh", 10, None, 128, 40, {"learned": True}),
        ("gru", "tanh", 10, None, 256, 40, {"reset": True}),
        ("gru", "tanh", 0, None, 128, 40, {"dtype": torch.bfloat16}),
        ("elman", "tanh", 10, None, 128, 40, {"carried": True, "reset": True, "nudge": True}),
        ("elman", "tanh", 10, None, 128, 40, {"learned": True, "noise": True, "limited": True}),
        ("elman", "relu", 6, 3, 32, 40, {"reset": True}),
        ("elman", "modrelu", 10, None, 128, 40, {"carried": True, "strided": True}),
        ("elman", "identity", 2, None, 64, 7, {"ties": True}),
        ("elman", "tanh", 10, None, 256, 40, {}),
        ("elman", "tanh", 0, None, 128, 40, {"dtype": torch.bfloat16}),
    ]
]


CLUSTERED = reaching_cases(["relevancy", "uniform"], dtypes=[torch.float32, torch.bfloat16], size=64)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*REAL, *sampled(CLUSTERED, 13)], ids=str)
def test_parity_on_a_gpu(case):
    """Choices, numbers, gradients; and the same bits twice: there are no atomics."""
    reason = cluster_scan.missing("cuda", case.dtype, case.scan.cell, case.scan.width, case.size)
    if reason:
        pytest.skip(reason)
    torch.backends.cuda.matmul.allow_tf32 = False
    problem = make_problem(case, "cuda")
    first, second = (parity.run(problem, case.scan, "cluster", case.new) for _ in range(2))
    assert parity.differences(parity.run(problem, case.scan, "reference", case.new), first, case.dtype) == []
    assert torch.equal(first.walked.output, second.walked.output)
    for name, gradient in first.gradients.items():
        assert gradient is None or torch.equal(gradient, second.gradients[name]), name
