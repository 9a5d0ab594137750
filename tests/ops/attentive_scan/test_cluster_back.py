"""The cluster scan's walk back, its own source on a machine of fibres, against the definition in float64.

What the walk reads is made here by plain torch, so that this holds whatever walks forward. Every tensor a
walk leaves begins as NaN, and so does what nobody wrote of what it reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.ops import parity
from plait.ops.attentive_scan import cluster_back, reference, torch_scan
from plait.ops.attentive_scan.cluster_back import BackShape, back_shape, walk_back
from plait.ops.attentive_scan.cluster_outer import OUTER_TEXT, OuterShape
from plait.ops.attentive_scan.cluster_shape import BACKWARD_TEXT
from plait.ops.attentive_scan.cluster_sums import SUMS_TEXT, SumsShape
from plait.ops.attentive_scan.cluster_usage import USAGE_TEXT, UsageShape
from plait.ops.parity import Case, make_problem
from plait.ops.scan import Scan
from plait.ops.scan.boundary import conform
from plait.ops.scan.contract import Arriving, Inputs, Scanned

FLOAT, SIZE = torch.float32, 32
LSTM, GRU = Scan("lstm", 3, 2), Scan("gru", 3, 2, mix=0.7)
TANH, RELU = Scan("elman", 2, 3), Scan("elman", 3, 2, every=2, nonlinearity="relu")
MODRELU = Scan("elman", 1, 2, nonlinearity="modrelu")
WIDE = Scan("elman", 20, 20)
PAST = {"carried": True, "reset": True}


def case(scan: Scan, split: tuple[int, ...], steps: int, rows: int, size: int = SIZE, dtype=FLOAT, **flags):
    """A kernel (blocks of a cluster, rows it walks, kinds of weights in shared memory), and what it gets."""
    problem = Case(scan, steps=steps, rows=rows, size=size, dtype=dtype, **flags)
    compiled = {name: getattr(problem, name) for name in ("reset", "learned", "limited")}
    return replace(BackShape(scan, size, dtype, *split), **compiled), problem


CASES: dict[str, tuple[BackShape, Case]] = {
    "lstm": case(LSTM, (4, 2), 12, 3),
    "twelve_slots": case(Scan("lstm", 7, 5), (4, 2), 16, 2),
    "past": case(LSTM, (2, 1), 9, 2, **PAST, nudge=True),
    "learned": case(LSTM, (4, 2), 10, 2, **PAST, learned=True, noise=True),
    "kept": case(TANH, (2, 1), 30, 2, learned=True, noise=True),  # a kept state makes room for another
    "gru": case(GRU, (4, 2), 10, 3, **PAST),
    "tanh": case(TANH, (8, 1), 9, 2, reset=True),
    "relu": case(RELU, (4, 3), 8, 4, carried=True, nudge=True),
    "modrelu": case(MODRELU, (2, 2), 8, 3),
    "one_step": case(LSTM, (2, 1), 1, 1, carried=True),
    "three_steps": case(GRU, (4, 2), 3, 2, carried=True, learned=True),
    "narrow": case(GRU, (4, 2), 6, 3, dtype=torch.bfloat16, carried=True),
    "far": case(LSTM, (4, 2), 7, 2, far=True),
    "limited": case(LSTM, (4, 2), 12, 3, limited=True),
    "limited_past": case(GRU, (2, 1), 9, 2, **PAST, nudge=True, limited=True),
    "limited_learned": case(TANH, (4, 2), 12, 3, **PAST, learned=True, noise=True, limited=True),
    "limited_ring": case(
        MODRELU, (2, 3), 8, 4, carried=True, limited=True
    ),  # h_t may take the place of h_{t-1}
    "limited_narrow": case(LSTM, (8, 1), 6, 2, dtype=torch.bfloat16, carried=True, limited=True),
    "limited_step": case(LSTM, (2, 1), 1, 1, carried=True, limited=True),
}
SLOW = {
    "wide": case(WIDE, (2, 1), 46, 1, carried=True),
    "shared": case(LSTM, (8, 1, 2), 7, 1, 128),
    "many_rows": case(LSTM, (2, 5), 12, 7, **PAST),
}
ALL = CASES | SLOW


def physical(ids: Tensor, width: int, reset: Tensor | None) -> Tensor:
    """Ids by place as ids by slot, with the place packed beside: a state that is kept trades places with the
    one it replaces, whose slot the newest takes."""
    packed = torch.empty_like(ids)
    for b in range(ids.shape[1]):
        place = list(range(width))  # of each slot
        before = [j if j in ids[0, b].tolist() else -1 for j in range(width)]  # by place
        for t in range(ids.shape[0]):
            if reset is not None and reset[t, b]:
                before = [-1] * width
            now = ids[t, b].tolist()
            at = now.index(width + t)
            leaving = before[at]
            slot = place.index(at)
            if leaving >= 0 and leaving in now:
                other = place.index(now.index(leaving))
                place[slot], place[other] = place[other], place[slot]
            for x in range(width):
                packed[t, b, x] = now[place[x]] * 64 + place[x]
            before = now
    return packed


def saved(inputs: Inputs, scan: Scan) -> Scanned:
    """What a forward walk of the cluster scan leaves."""
    made = torch_scan.forward(inputs, scan, False, True)
    weights = torch.cat([inputs.recurrent, inputs.query, inputs.key]).float()
    states = torch.cat([inputs.slots.transpose(0, 1), made.output]).float()
    products = states @ weights.t()
    products[: scan.width][(inputs.born < 0).t()] = torch.nan  # never written
    nothing = made.keys.new_empty(0, *made.keys.shape[1:])
    ids = physical(made.ids, scan.width, inputs.reset)
    if scan.cell == "elman" and inputs.nudge is None:
        assert made.gates.shape[2] == 0
    return made._replace(products=products.contiguous(), keys=nothing, ids=ids)


Built = Callable[..., ctypes.CDLL]


@pytest.fixture(scope="module")
def built(emulated: Built) -> Built:
    """The kernels of these cases."""

    @cache
    def library(names: tuple[str, ...], replaced: tuple[str, str] | None = None) -> ctypes.CDLL:
        return emulated(
            "attentive_scan", "backward", BACKWARD_TEXT, {name: ALL[name][0] for name in names}, replaced
        )

    return library


@pytest.fixture(scope="module")
def others(emulated: Built) -> Built:
    """The kernels that follow a walk back: they teach g what use its states are, multiply and add up."""

    @cache
    def library(way: str, wrong: tuple[str, tuple[str, str]] = ("", ("", ""))) -> ctypes.CDLL:
        shapes: dict[str, UsageShape | SumsShape | OuterShape] = {}
        for name, (_, case) in ALL.items():
            is_gru, size = case.scan.cell == "gru", case.size
            columns = (case.scan.gates + 1 + is_gru) * size
            if way == "sums":
                shapes[name] = SumsShape(columns, size, threads=64, cluster=2)
            elif way == "outer":
                keyed = size + 4 * case.learned
                shapes[name] = OuterShape(columns, size, keyed, is_gru, case.dtype, cluster=2)
            elif case.learned:
                shapes[name] = UsageShape(case.scan, case.size, case.dtype, threads=64, stretch=4)
        text = {"usage": USAGE_TEXT, "sums": SUMS_TEXT, "outer": OUTER_TEXT}[way]
        return emulated("attentive_scan", way, text, shapes, wrong[1] if wrong[0] == way else None)

    return library


def arriving(case: Case, outputs: tuple[str, ...]) -> Arriving:
    """Something random at the outputs of these names, the same in every type."""
    generator, scan = torch.Generator().manual_seed(7), case.scan
    shapes = {"output": (case.steps, case.rows, case.size), "hidden": (case.rows, case.size)}
    shapes |= {"cell_state": shapes["hidden"], "slots": (case.rows, scan.width, case.size)}
    found = {name: torch.randn(shape, generator=generator).to(case.dtype) for name, shape in shapes.items()}
    return Arriving(**{name: found[name] for name in outputs if name != "cell_state" or scan.cell == "lstm"})


EVERYTHING = ("output", "hidden", "cell_state", "slots")


def by_kernel(
    name: str,
    library: ctypes.CDLL,
    others: Built,
    seed: int = 1,
    outputs: tuple[str, ...] = EVERYTHING,
) -> Inputs:
    shape, case = ALL[name]
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        inputs = conform(make_problem(case).inputs(), case.scan)
        made = saved(inputs, case.scan)
        unwritten = (inputs.born < 0).unsqueeze(2)
        inputs = inputs._replace(slots=inputs.slots.masked_fill(unwritten, torch.nan))
        empty = torch.Tensor.new_empty
        patch.setattr(torch.Tensor, "new_empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))

        def launch(way: str, of: BackShape | UsageShape, arguments: ctypes.Structure) -> None:
            run = library if way == "backward" else others(way)
            run[f"run_{name}"](ctypes.byref(arguments), seed)

        return walk_back(arriving(case, outputs), inputs, made, case.scan, case.nudge, shape, launch)


@cache
def by_definition(name: str, outputs: tuple[str, ...] = EVERYTHING) -> dict[str, Tensor | None]:
    """The same by autograd through the definition, in float64."""
    _, case = ALL[name]
    problem = parity.Problem(*(_double(x) for x in make_problem(case)))
    walked = reference.attentive_scan(conform(problem.inputs(), case.scan), case.scan)
    end = walked.state
    given = Arriving(walked.output, end.hidden, end.cell_state, end.memory.slots)
    weighed = [
        (x, g.double())
        for x, g in zip(given, arriving(case, outputs), strict=True)
        if x is not None and g is not None
    ]
    leaves = problem.leaves()
    total = sum((x * g).sum() for x, g in weighed)
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return dict(zip(leaves, found, strict=True))


def _double(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.detach().double().requires_grad_() if x.is_floating_point() and x.dim() else x
    return x if x is None else type(x)(*(_double(y) for y in x))


def gaps(found: Inputs, expected: dict[str, Tensor | None], dtype: torch.dtype) -> list[str]:
    wrong = []
    for name, x in expected.items():
        got = getattr(found, name)
        x = torch.zeros_like(got).double() if x is None else x
        gap = (got.double() - x).abs().max().item() / max(1.0, x.abs().max().item())
        if name == "projected":  # b's gradient is its sum
            total = x.sum(dim=(0, 1))
            off = (found.bias.double() - total).abs().max().item() / max(1.0, total.abs().max().item())
            gap = max(gap, off)
        if not gap <= parity.TOLERANCE[dtype]:
            wrong.append(f"{name} {gap:.1e}")
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, built: Built, others: Built) -> None:
    assert gaps(by_kernel(name, built(tuple(CASES)), others), by_definition(name), ALL[name][1].dtype) == []


@pytest.mark.parametrize("name", ["learned", "gru", "narrow"])
def test_products_by_torch(name: str, built: Built, others: Built, monkeypatch) -> None:
    """As where rows are many: one kernel adds up, torch multiplies."""
    monkeypatch.setattr(cluster_back, "FEW", 0)
    assert gaps(by_kernel(name, built(tuple(CASES)), others), by_definition(name), ALL[name][1].dtype) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_gradients_of_larger_ones(name: str, built: Built, others: Built) -> None:
    assert gaps(by_kernel(name, built(tuple(SLOW)), others), by_definition(name), ALL[name][1].dtype) == []


def test_what_does_not_arrive_counts_as_zero(built: Built, others: Built) -> None:
    found = by_kernel("past", built(tuple(CASES)), others, outputs=("slots",))
    assert gaps(found, by_definition("past", ("slots",)), FLOAT) == []
    found = by_kernel("past", built(tuple(CASES)), others, outputs=("output",))
    assert gaps(found, by_definition("past", ("output",)), FLOAT) == []


def test_the_order_of_events_changes_no_bit(built: Built, others: Built) -> None:
    first, second = (by_kernel("learned", built(tuple(CASES)), others, seed) for seed in (1, 2))
    for name, gradient in first._asdict().items():
        assert gradient is None or torch.equal(gradient, getattr(second, name)), name


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_every_usual_size_has_a_kernel(cell: str) -> None:
    at_a_time = {8: 15, 4: 30, 2: 66}
    for size in (32, 64, 128, 256):
        for rows in (1, 10, 100, 1000):
            shape = back_shape(Scan(cell, 10, 10), size, FLOAT, rows, at_a_time)
            assert shape is not None
            assert shape.shared_bytes <= 232_448
    assert back_shape(Scan(cell, 10, 10), 100, FLOAT, 1, at_a_time) is None


def without_waiting(what: str, stage: int) -> tuple[str, str]:
    """A piece of a step that waits for messages, and the same where only one thread does."""
    first = "if (thread_index() == 0) "
    expects = f"{first}mbarrier_expect({what}_came, rows * L::{what.upper()[:-1]}_BYTES);"
    waits = f"mbarrier_wait({what}_came, parity);\n    {expects}\n    watch.stamp({stage});\n"
    return waits, first + waits


MUTATIONS = {
    "scores of half the blocks": ("total<C>(sm + L::SCORES_IN", "total<C / 2>(sm + L::SCORES_IN"),
    "a softmax without its mean": ("share[r][i] * (d[r][i] - mean[r])", "share[r][i] * d[r][i]"),
    "h_t beside what is read": (": a.mix * (1.0f + B::shares(t)", ": a.mix * (0.0f + B::shares(t)"),
    "a slot not emptied": ("if (lane < GATHERED) store4", "if (false) store4"),
    "a slot not refilled": ("if (lane < HELD) store4", "if (false) store4"),
    "an older state given what it was not read for": (
        "if (lane + 32 * i == slot[r]) d_score[r][i] = 0.0f, share[r][i] = 0.0f;",
        "if (lane + 32 * i == slot[r]) d_score[r][i] = 0.0f;",
    ),
    "a reset that keeps dL/dc": ("        d_cell = 0.0f;\n", ""),
    "a reset that keeps the slots": ("            refill(t - 1, r, i);\n", ""),
    "scores read before they came": without_waiting("scores", 3),
    "products read before they came": without_waiting("states", 8),
    "inputs of another step": ("ask_inputs(t - 2, ring == 0 ? 2 : ring - 1)", "ask_inputs(t - 2, ring)"),
    "half of dL/dv": ("2.0f * d_energy", "d_energy"),
    "a score that does not reach its state": ("base = mad(score,", "base = mad(0.0f * score,"),
    "what arrives at slots by slot": ("(b * SLOTS + place(id)) * H", "(b * SLOTS + lane + 32 * i) * H"),
    "a GRU without its direct way": ("ready.direct = L::DIRECT ||", "ready.direct ="),
    "dL/de by slot": ("place(ids(t)[r * SLOTS + lane + 32 * i])] = de", "lane + 32 * i] = de"),
    "a forget gate's slope": ("before * f * (1.0f - f)", "before * f"),
    "an initial slot that was lost": ("bool stayed = held(ids(0)[r * SLOTS + x]) == x", "bool stayed = true"),
    "dL/dq of another row": ("L::TOGETHER, 4>(each, group)", "L::TOGETHER, 4>(each, group ^ 4)"),
    "the scores of another row": ("shuffle(g[k], (r << L::OF_ROW) * 4 + feature)", "shuffle(g[k], feature)"),
    "a slot's score at another": ("slot = group + 8 * (i + feature);\n", "slot = group + 8 * i + feature;\n"),
    "dL/ds_0 without its product": ("put_product(r, 0, product), put", "put_product(r, 0, none), put"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_emulator_can_fail(mutation: str, built: Built, others: Built) -> None:
    """Each is seen in one of: a past with resets and a nudge; a GRU; learned relevance; more than
    eight slots."""
    names = ("past", "gru", "learned", "twelve_slots")
    library = built(names, MUTATIONS[mutation])
    assert any(gaps(by_kernel(name, library, others), by_definition(name), FLOAT) for name in names)


LIMITED_WRONG = {
    "no limit": ("if (t < a.steps - 1) limited = below(limited);", ""),
    "a limit on the last state": ("if (t < a.steps - 1) limited =", "limited ="),
    "no limit below zero": ("x < -most ? -most : x", "x"),
    "s_0 without a limit": ("ds = {T::below(ds.x), T::below(ds.y), T::below(ds.z), T::below(ds.w)};", ";"),
    "what arrives, not so many times that": ("*a.grad_limit * *a.limit", "*a.limit"),
    "a key without its own step": ("mad(pulled, sums[1], sums[0])", "sums[0]"),
    "a key without the later steps": ("mad(pulled, sums[1], sums[0])", "pulled * sums[1]"),
    "dL/de of another row": ("if (r == mine) T::pulled = of_row;", "T::pulled = of_row;"),
    "scores of another row": ("shuffle(limited, (r << L::OF_ROW)", "shuffle(limited, (0 << L::OF_ROW)"),
    "no direct way": ("limited = L::DIRECT || t == a", "limited = t == a"),
    "h_t's own share twice": ("part = L::LIMITED ? a.mix", "part = L::LIMITED ? 2.0f * a.mix"),
    "slots are given nothing": ("T::gain(r, i);\n    }", "load4(at[i] + gathered(r, 1));\n    }"),
    "states read before they came": without_waiting("states", 4),
    "scores read too soon": without_waiting("scores", 8),
    "a product sent too soon": (
        "    barrier_sync(0, THREADS);\n    watch.stamp(1);",
        "    barrier_arrive(0, THREADS);\n    watch.stamp(1);",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", LIMITED_WRONG)
def test_a_limited_walk_can_fail(mutation: str, built: Built, others: Built) -> None:
    names = ("limited", "limited_past", "limited_learned", "limited_ring")
    library = built(names, LIMITED_WRONG[mutation])
    assert any(gaps(by_kernel(name, library, others), by_definition(name), FLOAT) for name in names)


TAUGHT_WRONG = {
    "what the window holds": ("place >= S::WINDOW && a.weights", "a.weights"),
    "a sum that goes on past a birth": ("          gathered = 0.0f;\n", ""),
    "use with its sign": ("felt = felt < 0.0f ? -felt : felt;", ""),
    "a share of all": ("divide(likely, all) * total - used", "divide(likely, all) - used"),
    "what the same step is told": ("a.d_scores[(at + a.rows) * APART + 2]", "a.d_scores[at * APART + 2]"),
    "told at the last step": ("* APART + 2] : 0.0f", "* APART + 2] : a.d_scores[at * APART + 2]"),
    "one step's score for four": ("to[1] = rated[i]", "to[1] = rated[0]"),
    "felt of what is kept alone": ("float felt = id < 0 ?", "float felt = !read ?"),
    "dL/dp forgotten": ("mad(usage, gathered, scores[t - begin])", "usage * gathered"),
    "initial slots forgotten": ("mad(usage, gathered, a.d_initial", "mad(usage, 0.0f, a.d_initial"),
    "a stretch begun before the last was read": (
        "      }\n    }\n    barrier_sync(0, S::THREADS);\n",
        "      }\n    }\n",
    ),
}


SUMMED_WRONG = {
    "half of the blocks": ("for (int c = 1; c < C; c++) sum +=", "for (int c = 1; c < 1; c++) sum +="),
    "some of the rows": ("n += C * WARPS) sum", "n += C * WARPS + 1) sum"),
    "dL/dv of some clusters": ("of_energy ? a.clusters", "of_energy ? a.clusters - 1"),
    "written before it is read": (
        "  cluster_sync();\n  if (warp == 0 && rank == 0) {",
        "  if (warp == 0 && rank == 0) {",
    ),
}
WRONG = {f"usage: {name}": ("usage", pair) for name, pair in TAUGHT_WRONG.items()}
WRONG |= {f"sums: {name}": ("sums", pair) for name, pair in SUMMED_WRONG.items()}
OUTER_WRONG = {
    "rows of one block": ("c < C; c++) v += parts", "c < 1; c++) v += parts"),
    "columns of one block": ("c < C; c++) v += summed", "c < 1; c++) v += summed"),
    "a candidate by its dz": ("S::SKIPS && column >= 2 * H && column < 3 * H", "false"),
    "dg left out": ("? COLUMNS : KEYED > H ? H + 1 : H)", "? COLUMNS : H)"),
    "keys with s": ("of_beside ? a.prev_states : a.output", "a.prev_states"),
    "rows beyond the last": ("const bool there = n < count;", "const bool there = n < count - 1;"),
    "dL/dv of some clusters": ("multiplies ? a.count : a.clusters", "multiplies ? a.count : a.clusters - 1"),
    "added up before it is there": (
        "  cluster_sync();\n  for (int e = thread; multiplies",
        "  for (int e = thread; multiplies",
    ),
}
WRONG |= {f"outer: {name}": ("outer", pair) for name, pair in OUTER_WRONG.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", WRONG)
def test_what_follows_a_walk_can_fail(mutation: str, built: Built, others: Built, monkeypatch) -> None:
    monkeypatch.setattr(cluster_back, "FEW", 0 if mutation.startswith("sums") else 4096)
    names = ("learned", "kept", "gru")
    wrong = partial(others, wrong=WRONG[mutation])
    found = [by_kernel(name, built(tuple(CASES)), wrong, seed) for name in names for seed in (1, 2)]
    expected = [by_definition(name) for name in names for _ in range(2)]
    assert any(gaps(x, y, FLOAT) for x, y in zip(found, expected, strict=True))
