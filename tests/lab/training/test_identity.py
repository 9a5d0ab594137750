"""Networks made in Python: what tells two apart, what does not, and what cannot be told."""

from __future__ import annotations

import functools
import importlib.util
import json
import linecache
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from torch import nn

import plait
from plait.errors import CheckpointError
from plait.lab import cli
from plait.lab.report.gather import gather
from plait.lab.runs.folder import run_id
from plait.lab.tasks import CopyTask
from plait.lab.training.description import Network, build, describe
from plait.lab.training.identity import described_module
from plait.lab.training.recipe import Recipe

MEMORIES = '''
import enum
from dataclasses import dataclass, field

import torch
from torch import nn

import plait
from plait.memory import Memory

SCALE = 2.0


class Kind(enum.Enum):
    ADD = "add"
    KEEP = "keep"


@dataclass(frozen=True)
class Inner:
    power: float = 1.0


@dataclass(frozen=True)
class FirstMemory(Memory):
    """The first states."""

    size: int = 10
    kind: Kind = Kind.ADD
    inner: Inner = field(default_factory=Inner)

    @property
    def initial_width(self):
        return self.size

    def write(self, h, state):
        here = torch.arange(self.size, device=h.device) == state.age.unsqueeze(-1)
        slots = torch.where(here.unsqueeze(-1), scaled(h).unsqueeze(1), state.slots)
        born = torch.where(here, state.age.unsqueeze(-1), state.born)
        return state._replace(slots=slots, born=born, age=state.age + 1)


class RandomMemory(FirstMemory):
    def write(self, h, state):
        here = torch.arange(self.size, device=h.device) == state.age.unsqueeze(-1) % self.size
        slots = torch.where(here.unsqueeze(-1), h.unsqueeze(1), state.slots)
        born = torch.where(here, state.age.unsqueeze(-1), state.born)
        return state._replace(slots=slots, born=born, age=state.age + 1)


def scaled(h):
    return h * SCALE


def mixed(h, c, share=0.5):
    return share * (h + c)


def swapped(h, c):
    return 0.5 * (c - h)


class Mixer:
    def __init__(self, share):
        self.share = share

    def mix(self, h, c):
        return self.share * (h + c)


class Net(nn.Module):
    """Logits from an LSTM and some attributes."""

    power = 1

    def __init__(self, **values):
        super().__init__()
        self.lstm, self.out = nn.LSTM(10, 4), nn.Linear(4, 9)
        for name, value in values.items():
            setattr(self, name, value)

    def forward(self, x, state=None):
        output, state = self.lstm(x, state)
        return self.out(output), state


class Sharper(Net):
    power = 2


def layered(memory=None, **options):
    cell = options.pop("cell", None) or plait.LSTMCell(10, 4)
    return plait.Recurrent([plait.SelfAttentive(cell, memory or FirstMemory(3), **options)])
'''


TASK = """
from dataclasses import dataclass

from plait.lab.tasks import CopyTask


@dataclass(frozen=True)
class Mine(CopyTask):
    def check_held_out(self):
        return {}
"""


def imported(folder, text=MEMORIES, name="own_memories"):
    """A user's module in a file of its own.

    Python compares files with their bytecode by size and whole seconds, so each text has a folder of its own.
    """
    folder = Path(tempfile.mkdtemp(dir=folder))
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    yield imported(tmp_path_factory.mktemp("own"))
    del sys.modules["own_memories"]


def identity(model):
    found = described_module(model)
    assert "unidentified" not in found, found
    return json.dumps(found, sort_keys=True)


def frozen(model):
    next(model.parameters()).requires_grad_(False)
    return model


def tied(model):
    model.second = model.out
    model.third = nn.Linear(4, 9)
    model.third.weight = model.out.weight
    return model


def untied(model):
    model.second, model.third = model.out, nn.Linear(4, 9)
    return model


def masked(model, *values, persistent=False):
    model.register_buffer("mask", torch.tensor(values), persistent=persistent)
    return model


def hooked(model, hook):
    model.out.register_forward_hook(hook)
    return model


def doubled(module, inputs, output):
    return output * 2


class Pair(NamedTuple):
    first: int
    second: int = 2


def double(gradient):
    return 2 * gradient


def halve(gradient):
    return gradient / 2


def halved(module, inputs, output):
    return output / 2


def forwarded(model, forward):
    model.forward = types.MethodType(forward, model)
    return model


def backward_in_time(self, x, state=None):
    output, state = self.lstm(x.flip(0), state)
    return self.out(output), state


def orthogonal(model, how):
    nn.utils.parametrizations.orthogonal(model.out, orthogonal_map=how)
    return model


def surrounded(own, share):
    class Around(own.Net):
        def forward(self, x, state=None):
            return share * super().forward(x, state)[0], state

    return Around


def defaulted(own, share):
    class Defaulted(own.Net):
        def forward(self, x, state=None, factor=share):
            return factor * super().forward(x, state)[0], state

    return Defaulted


def in_lists(model, mode):
    model.acts = [nn.Dropout(0.1).train(mode)]
    return model


def weight_hooked(model, kind, hook):
    getattr(model.out.weight, kind)(hook)
    return model


def pruned(model, *rows):
    mask = torch.ones(9, 4)
    mask[list(rows)] = 0
    nn.utils.prune.custom_from_mask(model.out, "weight", mask)
    return model


def valued(model, value, name="weight"):
    with torch.no_grad():
        getattr(model.out, name).fill_(value).requires_grad_(False)
    return model


def in_mode(model, mode):
    model.eval = model.train = types.MethodType(as_it_is, model)
    for module in model.modules():
        module.training = mode
    return model


def as_it_is(self, mode=True):
    return self


def spectral(model):
    model.out = nn.utils.parametrizations.spectral_norm(model.out)
    model.second = nn.utils.spectral_norm(nn.Linear(4, 9))
    return model


class Scaling(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor))

    def forward(self, weight):
        return weight * self.factor


def reparametrized(model, factor):
    nn.utils.parametrize.register_parametrization(model.out, "weight", Scaling(factor))
    return model


def computed(model):
    """An attribute that is computed from weights, as `torch.nn.utils.weight_norm` has one."""
    model.out.doubled = model.out.weight * 2
    return model


NAMES = ("tanh", "relu")
PAIRS = {
    "memory": lambda m: (m.layered(m.FirstMemory(3)), m.layered(m.RandomMemory(3))),
    "option of a memory": lambda m: (m.layered(m.FirstMemory(3)), m.layered(m.FirstMemory(4))),
    "option of ours": lambda m: [m.layered(plait.RelevancyMemory(3, capacity)) for capacity in (4, 5)],
    "enum": lambda m: [m.layered(m.FirstMemory(3, kind)) for kind in m.Kind],
    "nested dataclass": lambda m: [m.layered(m.FirstMemory(3, inner=m.Inner(p))) for p in (1.0, 2.0)],
    "nonlinearity": lambda m: [m.layered(cell=plait.ElmanCell(10, 4, nonlinearity=n)) for n in NAMES],
    "truncate": lambda m: [m.layered(truncate=n) for n in (None, 5)],
    "function": lambda m: [m.layered(mix=mix) for mix in (m.mixed, m.swapped)],
    "partial": lambda m: [m.layered(mix=functools.partial(m.mixed, share=s)) for s in (0.5, 1.0)],
    "bound method": lambda m: [m.layered(mix=m.Mixer(share).mix) for share in (0.5, 1.0)],
    "activation": lambda m: [m.Net(act=act) for act in (torch.tanh, torch.relu)],
    "module": lambda m: [m.Net(act=act()) for act in (nn.Tanh, nn.ReLU)],
    "dropout": lambda m: [m.Net(drop=nn.Dropout(p)) for p in (0.1, 0.2)],
    "list of modules": lambda m: [m.Net(acts=[nn.Dropout(p)]) for p in (0.1, 0.2)],
    "order of modules": lambda m: [m.Net(act=nn.ModuleDict({k: nn.Tanh() for k in o})) for o in ("ab", "ba")],
    "boolean": lambda m: [m.Net(residual=value) for value in (True, False)],
    "tuple": lambda m: [m.Net(sizes=value) for value in ((1, 2), (2, 1))],
    "dict": lambda m: [m.Net(options={"a": value}) for value in (1, 2)],
    "dtype as an option": lambda m: [m.Net(kind=value) for value in (torch.float16, torch.bfloat16)],
    "not finite": lambda m: [m.Net(fill=float(value)) for value in ("inf", "-inf")],
    "array": lambda m: [m.Net(table=np.array([1, value])) for value in (2, 3)],
    "class attribute": lambda m: (m.Net(), m.Sharper()),
    "class made around a value": lambda m: [surrounded(m, share)() for share in (0.5, 1.0)],
    "default of a method": lambda m: [defaulted(m, share)() for share in (0.5, 1.0)],
    "slice": lambda m: [m.Net(part=slice(0, end)) for end in (1, 2)],
    "made class": lambda m: [type("Made", (m.Net,), {"power": power})() for power in (1, 2)],
    "mask": lambda m: [masked(m.Net(), 1.0, value) for value in (0.0, 1.0)],
    "saved mask": lambda m: [masked(m.Net(), True, value, persistent=True) for value in (True, False)],
    "saved buffer": lambda m: [masked(m.Net(), value, persistent=True) for value in (2.0, 3.0)],
    "saved whole number": lambda m: [masked(m.Net(), value, persistent=True) for value in (2, 3)],
    "buffer of a parametrization": lambda m: [reparametrized(m.Net(), factor) for factor in (1.0, 2.0)],
    "pruned": lambda m: [pruned(m.Net(), row) for row in (0, 1)],
    "values of a frozen weight": lambda m: [valued(m.Net(), value) for value in (1.0, 2.0)],
    "training flag that train() leaves": lambda m: [in_mode(m.Net(), mode) for mode in (True, False)],
    "training flag in a list": lambda m: [in_lists(m.Net(), mode) for mode in (True, False)],
    "hook of a weight": lambda m: [weight_hooked(m.Net(), "register_hook", h) for h in (halve, double)],
    "hook of a gradient": lambda m: (
        m.Net(),
        weight_hooked(m.Net(), "register_post_accumulate_grad_hook", halve),
    ),
    "named tuple": lambda m: [m.Net(pair=Pair(1, second)) for second in (2, 3)],
    "hook": lambda m: [hooked(m.Net(), hook) for hook in (doubled, halved)],
    "no hook": lambda m: (m.Net(), hooked(m.Net(), doubled)),
    "forward of one instance": lambda m: (m.Net(), forwarded(m.Net(), backward_in_time)),
    "parametrization": lambda m: [orthogonal(m.Net(), how) for how in ("cayley", "matrix_exp")],
    "frozen weight": lambda m: (m.Net(), frozen(m.Net())),
    "tied weights": lambda m: (tied(m.Net()), untied(m.Net())),
    "dtype": lambda m: (m.Net(), m.Net().double()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_these_two_differ(name, own):
    one, two = PAIRS[name](own)
    again = PAIRS[name](own)[0]
    assert identity(one) == identity(again) != identity(two)


def devices(own):
    return own.Net(where=torch.device("cpu")), own.Net(where=torch.device("cuda", 1))


def trained(own):
    model = own.layered(own.RandomMemory(3))
    fitted = plait.fit(model, CopyTask(2), updates=2, batch_size=4, evaluate_on=4, device="cpu")
    return own.layered(own.RandomMemory(3)), fitted.network.recurrent


def normed():
    norm = nn.BatchNorm1d(3)
    norm(torch.randn(5, 3))
    return norm


ALIKE = {
    "made twice": lambda m: (m.layered(), m.layered()),
    "shared or equal": lambda m: (m.Net(pair=[m.Inner(), m.Inner()]), m.Net(pair=[m.Inner()] * 2)),
    "numpy scalars": lambda m: (m.Net(a=3, b=True), m.Net(a=np.int64(3), b=np.True_)),
    "order of a dict": lambda m: (m.Net(o={"a": 1, "b": 2}), m.Net(o={"b": 2, "a": 1})),
    "order of a set": lambda m: (m.Net(o={"a", "b", "c"}), m.Net(o={"c", "b", "a"})),
    "order of attributes": lambda m: (m.Net(a=1, b=2), m.Net(b=2, a=1)),
    "device": devices,
    "backend": lambda m: (m.layered(), m.layered(backend="reference")),
    "weights": lambda m: (m.Net(), m.Net()),
    "evaluated": lambda m: (m.Net(), m.Net().eval()),
    "running statistics": lambda m: [m.Net(norm=norm) for norm in (nn.BatchNorm1d(3), normed())],
    "drawn vectors of a norm": lambda m: [spectral(m.Net()) for _ in range(2)],
    "trained": trained,
    "weakly referenced": lambda m: [m.Net(ref=weakref.ref(m.scaled)) for _ in range(2)],
    "computed weights": lambda m: [computed(m.Net()) for _ in range(2)],
    "class made around one value": lambda m: [surrounded(m, 0.5)() for _ in range(2)],
    "partials": lambda m: [m.layered(mix=functools.partial(m.mixed, share=0.5)) for _ in range(2)],
    "objects": lambda m: [m.layered(mix=m.Mixer(0.5).mix) for _ in range(2)],
}


@pytest.mark.parametrize("name", ALIKE)
def test_these_two_are_one(name, own):
    one, two = ALIKE[name](own)
    assert identity(one) == identity(two)


def test_another_process_on_another_machine_finds_the_same(own, tmp_path):
    """Another folder, another hash seed, other addresses."""
    shutil.copy(own.__file__, tmp_path / "own_memories.py")
    made = (
        "own.layered(own.RandomMemory(3), mix=own.Mixer(0.5).mix), own.Net(o={'a', 'b', 'c'}, f=own.scaled)"
    )
    code = (
        "import json, own_memories as own\n"
        "from plait.lab.training.identity import described_module\n"
        f"print(json.dumps([described_module(model) for model in ({made})]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [described_module(model) for model in eval(made, {"own": own})]
    assert json.loads(answer.stdout) == here
    assert here[0]["sources"].keys() == {
        f"own_memories.{name}"
        for name in ("FirstMemory", "RandomMemory", "Kind", "Inner", "Mixer", "Mixer.mix", "scaled", "SCALE")
    }
    assert str(tmp_path.parent) not in answer.stdout


def test_code_is_part_of_it_with_what_it_calls(tmp_path):
    texts = {
        "as it is": MEMORIES,
        "a method": MEMORIES.replace("state.age + 1", "state.age + 2"),
        "a function it calls": MEMORIES.replace("return h * SCALE", "return h / SCALE"),
        "a number it reads": MEMORIES.replace("SCALE = 2.0", "SCALE = 3.0"),
    }
    found = {}
    for name, text in texts.items():
        module = imported(tmp_path, text, "own_changing")
        found[name] = identity(module.layered())
        untouched = MEMORIES + "\n\nUNREAD = 1\n"
    assert len(set(found.values())) == len(texts)
    assert identity(imported(tmp_path, untouched, "own_changing").layered()) == found["as it is"]


def test_one_class_defined_twice_in_a_notebook():
    """Cells have no file; their text is in linecache, as IPython puts it there."""
    space = {"__name__": "__main__", "nn": nn}
    found = []
    for cell, body in enumerate(("x + 1", "x - 1")):
        text = f"class Act(nn.Module):\n    def forward(self, x):\n        return {body}\n"
        name = f"<ipython-input-{cell}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), space)
        found.append(identity(space["Act"]()))
    assert found[0] != found[1]


def test_a_method_put_into_a_class_of_ours_is_seen(monkeypatch):
    network, task = build({"task": {"name": "copy", "delay": 3}, "model": {"name": "lstm", "hidden_size": 4}})
    before = describe(network, task, Recipe())
    monkeypatch.setattr(plait.LSTMCell, "step", backward_in_time)
    after = describe(network, task, Recipe())
    assert before["model"]["name"] == "lstm"
    assert next(iter(after["model"]["sources"])).endswith("backward_in_time")


CHANGES = {
    "memory": lambda model: setattr(model.layers[0], "memory", plait.WindowMemory(10)),
    "layer": lambda model: setattr(model.layers[1], "mix", 0.25),
    "hook": lambda model: hooked(types.SimpleNamespace(out=model), doubled),
    "frozen": frozen,
    "forward": lambda model: forwarded(model, backward_in_time),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_named_model_that_was_changed_has_no_name(name):
    def described(change=None):
        model = plait.RelGRU(10, 4, num_layers=2)
        if change is not None:
            change(model)
        return describe(Network(model, 9), CopyTask(2), Recipe())["model"]

    assert described()["name"] == "relgru"
    assert "name" not in described(CHANGES[name])


@pytest.mark.parametrize("name", plait.models.MODELS)
def test_a_named_model_keeps_its_name_when_it_was_trained(name):
    model = plait.models.MODELS[name](10, 4)
    fitted = plait.fit(model, CopyTask(2), updates=1, batch_size=2, evaluate_on=2, device="cpu")
    assert describe(fitted.network, CopyTask(2), Recipe())["model"]["name"] == name


def closure(share):
    def mix(h, c):
        return share * (h + c)

    return mix


def unreadable():
    space = {"__name__": "__main__"}
    exec("def mix(h, c):\n    return h", space)
    return space["mix"]


@pytest.mark.parametrize(
    ("mix", "why"),
    [
        (lambda h, c: h, "mix is a lambda"),
        (closure(0.5), "mix is a closure"),
        (functools.partial(lambda h, c: h), "mix.function is a lambda"),
        (unreadable(), "the source of mix cannot be read"),
    ],
)
def test_unidentified_values_give_a_reason(mix, why, own):
    found = [described_module(own.layered(mix=mix))["unidentified"] for _ in range(2)]
    assert why in found[0]["why"]
    assert "\n" not in found[0]["why"]
    assert found[0]["mark"] != found[1]["mark"]


def test_neither_can_a_state_that_is_hidden(own):
    found = described_module(own.Net(value=threading.Lock()))
    assert found["unidentified"]["why"] == "value is a lock, whose state cannot be described"


def test_code_that_was_edited_since_it_was_imported_is_not_read(tmp_path):
    module = imported(tmp_path, name="own_edited")
    first = identity(module.layered())
    Path(module.__file__).write_text(MEMORIES.replace("state.age + 1", "state.age + 22"))
    found = described_module(module.layered())
    assert "was edited after it was imported" in found["unidentified"]["why"]
    again = imported(tmp_path, MEMORIES.replace("state.age + 1", "state.age + 22"), name="own_edited")
    assert identity(again.layered()) != first


def fitted(model, folder, **options):
    usual = {"updates": 2, "batch_size": 4, "evaluate_on": 4, "device": "cpu"}
    return plait.fit(model, CopyTask(2), folder=folder, **usual | options)


def test_a_run_is_resumed_with_its_own_memory_alone(own, tmp_path, refused, capsys):
    first, random = tmp_path / "first", tmp_path / "random"
    one = fitted(own.layered(own.FirstMemory(3)), first)
    two = fitted(own.layered(own.RandomMemory(10)), random, seed=1)
    assert one.summary["run"] != two.summary["run"]
    assert fitted(own.layered(own.FirstMemory(3)), first, resume=True).already
    told = r"memory: this run's is FirstMemory\(.*size=3\), the module's RandomMemory\("
    with pytest.raises(CheckpointError, match=told) as error:
        fitted(own.layered(own.RandomMemory(10)), first, resume=True)
    assert "\n" not in str(error.value)
    with pytest.raises(CheckpointError, match=r"mix: this run's is 0\.5, the module's 1\.0"):
        fitted(own.layered(own.FirstMemory(3), mix=1.0), first, resume=True)
    assert "make it in Python and pass it" in refused(first)
    assert cli.main(["runs", "show", str(first)]) == 0
    assert "layers.0.memory FirstMemory(" in capsys.readouterr().out
    (group,) = gather([tmp_path])
    assert [len(cell.runs) for cell in group.cells] == [1, 1]
    assert "RandomMemory" in group.cells[1].column


class Averaging(nn.Module):
    """Logits and a running mean of its own, which training changes."""

    def __init__(self, begin=0.0):
        super().__init__()
        self.lstm, self.out = nn.LSTM(10, 4), nn.Linear(4, 9)
        self.register_buffer("mean", torch.tensor(begin))

    def forward(self, x, state=None):
        output, state = self.lstm(x, state)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * output.detach().mean()
        return self.out(output - self.mean), state


def test_a_network_whose_buffers_were_trained_resumes_its_run(tmp_path):
    network, run = Averaging(), tmp_path / "run"
    assert fitted(network, run, updates=4, stop_when=lambda: True).status == "stopped"
    assert network.mean != 0
    with pytest.raises(CheckpointError, match="mean"):
        fitted(Averaging(1.0), run, updates=4, resume=True)
    assert fitted(network, run, updates=4, resume=True).status == "complete"
    assert run_id(described(network)) == run_id(described(Averaging()))
    network.mean += 1  # by hand: another network
    assert run_id(described(network)) != run_id(described(Averaging()))


def described(network):
    return describe(network, CopyTask(2), Recipe())


def test_seeds_of_one_module_stand_together(own, tmp_path):
    for seed in (1, 2):
        fitted(own.layered(own.RandomMemory(3)), tmp_path / str(seed), seed=seed)
    (cell,) = gather([tmp_path])[0].cells
    assert len(cell.runs) == 2


def test_unidentified_runs_are_neither_resumed_nor_pooled(own, tmp_path, refused, capsys):
    lone = [tmp_path / name for name in "ab"]
    for seed, folder in enumerate(lone):
        fitted(own.layered(mix=closure(0.5)), folder, seed=seed)
    assert capsys.readouterr().err.count("neither resumed nor counted") == 2
    with pytest.raises(CheckpointError, match=r"recurrent.layers.0.mix is a closure"):
        fitted(own.layered(mix=closure(0.5)), lone[0], resume=True)
    assert "cannot be resumed" in refused(lone[0])
    (group,) = gather([tmp_path])
    assert [len(cell.runs) for cell in group.cells] == [1, 1]


def test_a_users_task_is_identified_by_its_code(tmp_path):
    found = []
    for body in (TASK, TASK.replace("{}", "None")):
        module = imported(tmp_path, body, "own_task")
        found.append(describe(Network(plait.RNN(10, 4), 9), module.Mine(2), Recipe())["task"])
    assert found[0] != found[1]
    assert found[0]["class"] == "own_task.Mine"
