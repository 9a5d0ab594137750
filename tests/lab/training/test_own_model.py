"""`plait.fit` with a module of one's own: layouts, states, and mistakes in one line."""

import pytest
import torch
from torch import nn

import plait
from plait.errors import ConfigError, PlaitError
from plait.lab.tasks import CopyTask

X = torch.randn(48, 6, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0, 0] > 0).long()
QUICK = {"held_out": 0.25, "epochs": 25, "lr": 0.02, "batch_size": 12, "device": "cpu"}


class Flat(nn.Module):
    """(N, T, F) to (N, K), without a state; batch norm would notice a call in training mode."""

    def __init__(self, sizes=(3, 6, 2)):
        super().__init__()
        self.norm = nn.BatchNorm1d(sizes[0] * sizes[1])
        self.out = nn.Linear(sizes[0] * sizes[1], sizes[2])

    def forward(self, x):
        return self.out(self.norm(x.flatten(1)))


class Steps(nn.Module):
    """Logits of every step; `batch_first` as given, and a state where `carries` says so."""

    def __init__(self, batch_first, carries):
        super().__init__()
        self.batch_first, self.carries = batch_first, carries
        self.gru = nn.GRU(3, 8, batch_first=batch_first)
        self.out = nn.Linear(8, 2)
        self.seen = []

    def forward(self, x, *state):
        self.seen.append(tuple(x.shape[:2]))
        output, after = self.gru(x, state[0] if state and state[0] is not None else None)
        return (self.out(output), after) if self.carries else self.out(output)


class Stateless(Steps):
    def forward(self, x):
        return super().forward(x)


def test_a_module_that_maps_batches_to_logits():
    model = Flat()
    counted = model.norm.num_batches_tracked.clone()
    fitted = plait.fit(model, (X, Y), batch_first=True, **QUICK)
    assert model.norm.num_batches_tracked - counted == fitted.summary["updates"]
    assert fitted.summary["held_out"]["held out"]["score"] > 0.7


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [lambda b: Steps(b, True), lambda b: Stateless(b, False)])
def test_the_modules_layout_is_respected(kind, batch_first):
    model = kind(batch_first)
    plait.fit(model, (X, Y), **QUICK | {"batch_first": True, "epochs": 1})
    assert {shape[0 if batch_first else 1] for shape in model.seen[1:-1]} == {12}
    assert {shape[1 if batch_first else 0] for shape in model.seen} == {6}


def test_its_runs_are_resumed(tmp_path):
    made = {}
    for name in ("whole", "parts"):
        torch.manual_seed(1)
        made[name] = Flat()
    options = {**QUICK, "batch_first": True, "seed": 3}
    plait.fit(made["whole"], (X, Y), **options)
    stopping = iter([False, False, True])
    plait.fit(made["parts"], (X, Y), folder=tmp_path / "run", stop_when=lambda: next(stopping), **options)
    again = Flat()
    fitted = plait.fit(again, (X, Y), folder=tmp_path / "run", resume=True, **options)
    assert fitted.status == "complete"
    for one, other in zip(made["whole"].parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


class Wrong(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.weight, self.result = nn.Parameter(torch.zeros(())), result

    def forward(self, x):
        return self.result(x)


MISTAKES = {
    "raises": (
        lambda x: x @ torch.zeros(5, 2),
        r"for each row of \(12, 6, …\), got RuntimeError: Expected size",
    ),
    "classes": (lambda x: x[:, -1], r"expected logits of 2 values.*, got \(12, 1, 3\)"),
    "a list": (lambda x: [x], r"got AttributeError: 'list'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name):
    result, message = MISTAKES[name]
    with pytest.raises(ConfigError, match=message) as error:
        plait.fit(Wrong(result), (X, Y), batch_first=True, **QUICK)
    assert "\n" not in str(error.value)


def test_no_parameters():
    with pytest.raises(ConfigError, match="expected parameters to train, OwnNetwork has none"):
        plait.fit(nn.Flatten(), (X, Y), batch_first=True, **QUICK)


def test_padding_is_not_read_in_silence():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.out(self.gru(x)[0][:, -1])

    odd = [X[index, : 3 + index % 4] for index in range(48)]
    with pytest.raises(ConfigError, match="logits of every step, since sequences differ in length"):
        plait.fit(Last(), (odd, Y), batch_first=True, **QUICK)


@pytest.mark.parametrize(
    ("name", "meant"), [("learning_rate", "lr"), ("epoch", "epochs"), ("updats", "updates"), ("Seed", "seed")]
)
def test_names_of_other_libraries(name, meant):
    with pytest.raises(PlaitError, match=f"unknown option of fit '{name}': did you mean '{meant}'"):
        plait.fit(plait.RNN(10, 4), CopyTask(2), **{name: 1})
