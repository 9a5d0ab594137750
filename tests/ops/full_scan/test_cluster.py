"""The cluster kernels of the full memory: their logic in the emulator, on a CPU; on a GPU on real shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

import plait
from plait.ops import cuda_program
from plait.ops.full_scan import cluster_scan
from plait.ops.full_scan.cluster_shape import BACKWARD, BACKWARD_TEXT, FORWARD, FORWARD_TEXT, Shape
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.parity_cases import REACHES, reaching_cases, sampled
from plait.ops.parity_problem import converted
from plait.ops.scan import FullScan, record_backends

ELMAN = ("tanh", "relu", "modrelu", "identity")
TEXTS = {"forward": FORWARD_TEXT, "backward": BACKWARD_TEXT}


# two of them in every run, one below where e^{2q} overflows
EVERY_REACH = [r if r in (24, 200) else pytest.param(r, marks=pytest.mark.slow) for r in REACHES]


def case(cell: str, steps: int = 6, rows: int = 1, mix: float = 0.5, **flags: object) -> Case:
    scan = FullScan("elman", mix, cell) if cell in ELMAN else FullScan(cell, mix)
    return Case(scan, steps=steps, rows=rows, **flags)  # type: ignore[arg-type]


# blocks of a cluster, its rows on the way back, and the case: three positions a block lie near, or eight on
# the way back, where 16 steps are walked at a time
SMALL = [
    (3, 1, case("tanh", steps=18, rows=2, carried=True, reset=True, nudge=True, strided=True)),
    (1, 1, case("tanh", steps=40, size=17)),
    (2, 1, case("modrelu", steps=5, carried=True, nudge=True)),
    (2, 1, case("lstm", steps=11, carried=True, reset=True)),
    (2, 1, case("lstm", steps=1, nudge=True)),
    (3, 1, case("gru", steps=9, carried=True, reset=True, nudge=True)),
    (2, 1, case("lstm", steps=3, rows=0, reset=True)),
    (2, 1, case("tanh", steps=15, size=256)),
    (2, 1, case("tanh", steps=5, far=True)),
    (2, 1, case("relu", steps=21, rows=2, reset=True)),
    (1, 1, case("lstm", steps=9, carried=True, dtype=torch.bfloat16)),
    (2, 1, case("tanh", steps=9, ties=True, mix=0.8)),
    (2, 2, case("tanh", steps=37, rows=4, carried=True, reset=True, nudge=True)),
    (2, 2, case("lstm", steps=19, rows=2, size=17, carried=True, reset=True)),
    (3, 3, case("gru", steps=9, rows=3, carried=True, reset=True, nudge=True)),
    (2, 2, case("tanh", steps=18, rows=2, far=True, carried=True)),
]


def shape_of(way: str, case: Case, cluster: int, together: int) -> Shape:
    """As many warps as a small hidden size needs, and few positions near."""
    assert isinstance(case.scan, FullScan)
    warps = 8 if case.size > 128 else 4
    if way == "forward":  # which takes its rows one by one, whatever the walk back does
        return Shape(way, case.scan, case.size, case.dtype, cluster, warps, near=3)
    return Shape(way, case.scan, case.size, case.dtype, cluster, warps, near=8, rows=together)


@dataclass
class Emulated:
    """`cluster_scan` whose kernels run in the emulator, with the shape that is set."""

    compile: Callable[..., ctypes.CDLL]
    shapes: dict[tuple[str, str], Shape]
    cluster: tuple[int, int] = (1, 1)
    seed: int = 0
    made: dict[tuple[str, str], ctypes.CDLL] = field(default_factory=dict)

    def launch(
        self, way: str, scan: FullScan, like: torch.Tensor, tensors: dict[str, Any], initial: int
    ) -> None:
        steps, rows, _ = like.shape
        names = {str(shape): name for (there, name), shape in self.shapes.items() if there == way}
        case = Case(scan, size=like.shape[2], dtype=like.dtype)
        name = names[str(shape_of(way, case, *self.cluster))]
        if (way, name) not in self.made:  # all of a way at once: most of a small compilation is the headers
            wanted = {name: shape for (there, name), shape in self.shapes.items() if there == way}
            library = self.compile("full_scan", way, TEXTS[way], wanted)
            self.made |= {(way, name): library for name in wanted}
        struct = FORWARD if way == "forward" else BACKWARD
        given = cluster_scan.arguments(struct, tensors, steps, rows, initial, scan.mix)
        getattr(self.made[way, name], f"run_{name}")(ctypes.byref(given), self.seed)


@pytest.fixture(scope="module")
def compiled(emulated: Callable[..., ctypes.CDLL]) -> Emulated:
    shapes = {
        (way, f"walk_{index}"): shape
        for way in TEXTS
        for index, shape in enumerate(
            dict.fromkeys(shape_of(way, case, *cluster) for *cluster, case in SMALL)
        )
    }
    return Emulated(emulated, shapes)


@pytest.fixture
def walking(compiled: Emulated, poison: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Emulated:
    poison(torch.Tensor, "new_empty")
    monkeypatch.setattr(cluster_scan, "_launch", compiled.launch)
    monkeypatch.setattr(cluster_scan, "missing", lambda *_: None)
    return compiled


def compared(case: Case, device: str) -> list[str]:
    problem = make_problem(case, device)
    # The weights of far queries multiply rounding, whose size depends on the processor's libraries.
    exact = run(converted(problem, torch.float64), case.scan, "reference") if case.far else None
    with record_backends() as ran:
        expected, got = run(problem, case.scan, "reference"), run(problem, case.scan, "cluster")
    assert ran == ["reference", "cluster"]
    return differences(expected, got, case.dtype, exact)


@pytest.mark.parametrize(("cluster", "together", "case"), SMALL, ids=lambda x: str(x))
def test_it_equals_the_reference(walking: Emulated, cluster: int, together: int, case: Case) -> None:
    walking.cluster = cluster, together
    for walking.seed in range(2):
        assert compared(case, "cpu") == []


@pytest.mark.parametrize("reach", EVERY_REACH)
@pytest.mark.parametrize("index", [0, 3, 5, 13], ids=lambda i: str(SMALL[i][2]))
def test_large_queries_and_keys(walking: Emulated, index: int, reach: int) -> None:
    """Where e^{2q}, e^{2k} or their product alone would overflow, and gates saturate."""
    *cluster, case = SMALL[index]
    walking.cluster, walking.seed = (cluster[0], cluster[1]), 1
    assert compared(replace(case, steps=3, carried=True, reach=float(reach)), "cpu") == []


# what is changed in the kernels' source, and that it shows: signs, orders, masks, and barriers left out
MUTATIONS = {
    "largest energy": ("return x > y || x != x ? x : y;", "return x < y || x != x ? x : y;"),
    "mass without fading": ("r.mass *= fade, ", ""),
    "an empty slot is read": ("if (p < a.initial && u < there) e[u] += barred[p];  // minus", "// minus"),
    "the past survives a reset": ("if (clears) c = 0.0f, first = here + 1;", "if (clears) c = 0.0f;"),
    "the state survives a reset": ("clears ? 0.0f : s;", "s;"),
    "keys of another block": ("k, (a.initial + t) % K::C);", "k, t % K::C);"),
    "no wait for h_t": ("      take_in(t + 1);\n      cluster_sync();\n", "      take_in(t + 1);\n"),
    "no wait for the parts": ("      tell(r, energy);\n      cluster_sync();\n", "      tell(r, energy);\n"),
    "one buffer for h_t": ("sm[K::STATE + t % 2 * K::HP + thread], share", "sm[K::STATE + thread], share"),
    "mean of the weights' gradients": ("((lane < 16 ? other : sum) - s.mean)", "(lane < 16 ? other : sum)"),
    "slope": ("dq[n] = s.once[n] - s.twice[n];", "dq[n] = s.once[n] + s.twice[n];"),
    "weights for scores": ("lane < 16 ? share : score;", "lane < 16 ? score : share;"),
    "given by steps before a reset": ("if (a.first && own_before", "if (false && own_before"),
    "a step is forgotten": ("int t = begin; t < end; t++", "int t = begin + 1; t < end; t++"),
    "what later steps gave": ("p < end ? gathered[", "false ? gathered["),
    "no wait for dq": ("    tell(t, base);\n    cluster_sync();\n", "    tell(t, base);\n"),
    "no wait for ds": ("    push();\n    cluster_sync();\n", "    push();\n"),
    "a reset stops nothing": ("cut ? 0.0f : over_parts", "over_parts"),
    "another matrix kept": ("block <= K::G ? a.weights", "block < K::G ? a.weights"),
    "the cell of another row": ("cell_row(cluster_index() * K::R + which", "cell_row(cluster_index() * K::R"),
    "gradients of another row": ("float d = sm[K::D_GATES + r *", "float d = sm[K::D_GATES + 0 *"),
    "powers that are none": ("logs(a.logs[row])", "logs(false)"),
}
BACK = [*MUTATIONS].index("mean of the weights' gradients")
# which of SMALL shows it, where not the first does: more positions than are read at a time, two rows, far
SHOWN_BY = {
    "mass without fading": 1,
    "an empty slot is read": 12,
    "the cell of another row": 12,
    "gradients of another row": 12,
    "powers that are none": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_of_the_source_shows(
    name: str, walking: Emulated, emulated: Callable[..., ctypes.CDLL], monkeypatch: pytest.MonkeyPatch
) -> None:
    *cluster, case = SMALL[SHOWN_BY.get(name, 0)]
    way = "forward" if [*MUTATIONS].index(name) < BACK else "backward"
    shape = shape_of(way, case, *cluster)
    (found,) = (name for (there, name), other in walking.shapes.items() if there == way and other == shape)
    changed = emulated("full_scan", way, TEXTS[way], {found: shape}, MUTATIONS[name])
    walking.cluster, walking.seed = (cluster[0], cluster[1]), 0
    assert compared(case, "cpu") == []
    monkeypatch.setitem(walking.made, (way, found), changed)
    assert any(compared(case, "cpu") for walking.seed in range(3))


# the energies and their slopes from a product of exponentials, which is infinity times zero
PRODUCTS = {
    "forward": ("ex2(r.q[n] + four.k[u][n])", "ex2(r.q[n]) * ex2(four.k[u][n])"),
    "backward": ("half_gap(q, k) :", "rcp(mad(ex2(q), ex2(k), 1.0f)) :"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", PRODUCTS)
def test_a_product_of_exponentials_shows(
    way: str, walking: Emulated, emulated: Callable[..., ctypes.CDLL], monkeypatch: pytest.MonkeyPatch
) -> None:
    *cluster, case = SMALL[0]
    shape = shape_of(way, case, *cluster)
    (found,) = (name for (there, name), other in walking.shapes.items() if there == way and other == shape)
    walking.cluster, walking.seed = (cluster[0], cluster[1]), 1
    moderate = replace(case, steps=3, carried=True, reach=1.0)
    assert compared(moderate, "cpu") == []
    changed = emulated("full_scan", way, TEXTS[way], {found: shape}, PRODUCTS[way])
    monkeypatch.setitem(walking.made, (way, found), changed)
    assert compared(moderate, "cpu") == []
    assert compared(replace(moderate, reach=200.0), "cpu") != []


# on a GPU: every split of the rows over clusters, and positions beyond what shared memory holds
LARGE = [
    case("tanh", steps=40, rows=3, size=128, carried=True, reset=True, nudge=True, strided=True),
    case("tanh", steps=150, rows=10, size=128),
    case("tanh", steps=70, rows=20, size=128, reset=True),
    case("tanh", steps=300, rows=60, size=32),
    case("tanh", steps=260, rows=140, size=128),
    case("tanh", steps=90, rows=128, size=128, carried=True, reset=True),
    case("tanh", steps=90, rows=133, size=128),
    case("lstm", steps=40, rows=3, size=128, carried=True, reset=True),
    case("lstm", steps=60, rows=128, size=128, carried=True, reset=True),
    case("lstm", steps=40, rows=30, size=64, dtype=torch.bfloat16),
    case("gru", steps=33, rows=2, size=60, carried=True),
    case("gru", steps=33, rows=80, size=128, carried=True, reset=True),
    case("modrelu", steps=20, rows=2, size=256),
    case("tanh", steps=40, rows=70, size=256),
    case("tanh", steps=5, far=True),
]


CLUSTERED = reaching_cases(["full"], dtypes=[torch.float32, torch.bfloat16], size=33)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*LARGE, *sampled(CLUSTERED)], ids=str)
def test_on_a_gpu(case: Case) -> None:
    if reason := cuda_program.missing():
        pytest.skip(reason)
    assert compared(case, "cuda") == []


@pytest.mark.gpu
def test_the_same_bits_twice() -> None:
    if reason := cuda_program.missing():
        pytest.skip(reason)
    model = plait.MemLSTM(10, 128, backend="cluster").cuda()
    x = torch.randn(400, 128, 10, device="cuda")
    found = [torch.autograd.grad(model(x)[0].square().sum(), [*model.parameters()]) for _ in range(2)]
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_what_it_does_not_run() -> None:
    asked = ("cuda", torch.float32, "lstm", None)
    assert cluster_scan.missing("cpu", *asked[1:], 128) == "it needs a CUDA device, got cpu tensors"
    assert cluster_scan.missing(*asked, 257) == "it walks with up to 256 features, got 257"
    assert "torch.float64" in (cluster_scan.missing("cuda", torch.float64, "lstm", None, 8) or "")


def test_how_rows_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most blocks a row with which all rows run at a time, as an H200 has room for them."""
    fitting = {8: 15, 4: 30, 2: 66, 1: 132}

    class Kernel:
        def clusters_that_fit(self, block: int, cluster: int, shared_bytes: int) -> int:
            assert shared_bytes <= 232_448
            return fitting[cluster]

    class Device:
        multi_processor_count = 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Device)
    monkeypatch.setattr(cluster_scan, "_kernel", lambda *_: Kernel())
    cluster_scan._chosen.cache_clear()
    asked = ("forward", FullScan("lstm"))
    found = {
        rows: [
            (shape.cluster, shape.rows)
            for way in TEXTS
            if (shape := cluster_scan._chosen(way, asked[1], 128, torch.float32, rows, 0))
        ]
        for rows in (1, 15, 16, 30, 31, 66, 67, 132, 1000)
    }
    several = {1: 8, 15: 8, 16: 4, 30: 4, 31: 2, 66: 2, 67: 1}
    assert {rows: found.pop(rows) for rows in several} == {n: [(c, 1)] * 2 for n, c in several.items()}
    assert found == {132: [(1, 1), (2, 2)], 1000: [(1, 1), (2, 2)]}
    assert cluster_scan._chosen(*asked, 256, torch.float32, 10, 0).threads == 256
    cluster_scan._chosen.cache_clear()
