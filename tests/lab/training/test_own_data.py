"""Data of one's own: shapes, kinds of answers, lengths, held-out shares, folders, resuming, loading."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import plait
from plait.errors import CheckpointError, ConfigError, DataError, ShapeError
from plait.lab.cli import main
from plait.lab.tasks import IGNORE, Batch, CopyTask, DataTask, Task, data_task
from plait.lab.training.description import Network
from plait.lab.training.fit import fit
from plait.models import GRU, LSTM, RelGRU, RelLSTM

QUICK = {"device": "cpu", "updates": 4, "batch_size": 8, "lr": 1e-2}


def draw(count=40, steps=9, features=3):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, steps, features, generator=generator)
    return inputs, inputs[:, :, 0].sum(1)


def uneven(count=40, features=3):
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(2, 12, (count,), generator=generator).tolist()
    rows = [torch.randn(n, features, generator=generator) for n in lengths]
    return rows, [float(row[:, 0].sum()) for row in rows]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("numbers", [True, False])
def test_every_kind_of_answer(batch_first, every, numbers):
    inputs, sums = draw()
    targets = inputs[:, :, 0].cumsum(1) if every else sums
    targets = targets if numbers else (targets > 0).long()
    if not batch_first:
        inputs, targets = inputs.transpose(0, 1), targets.transpose(0, 1) if every else targets
    model = RelLSTM(3, 8, batch_first=batch_first)
    fitted = fit(model, (inputs, targets), held_out=0.25, **QUICK)
    task = data_task((inputs, targets), 0.25, batch_first)
    assert (task.answer, task.asks) == ("number" if numbers else "class", "every" if every else "last")
    found = fitted.summary["held_out"]["held out"]
    assert found["predicted"] == 10 * (9 if every else 1)
    assert ("rmse" in found) == numbers
    logits, _ = fitted.network(inputs.transpose(0, 1) if batch_first else inputs)
    assert logits.shape == (9 if every else 1, 40, 1 if numbers else 2)


def test_numbers_are_learned_and_scored_in_their_own_unit():
    """A person with targets around 1,000 gets answers around 1,000, and R² says how good they are."""
    inputs, sums = draw(200, 6)
    targets = 1000 + 50 * sums
    fitted = fit(
        LSTM(3, 16, batch_first=True), (inputs, targets), held_out=0.2, epochs=25, lr=2e-2, device="cpu"
    )
    found = fitted.summary["held_out"]["held out"]
    assert found["score"] > 0.9
    held = data_task((inputs, targets), 0.2, True).split().held_out
    answers = fitted.network(held.rows(slice(None)).inputs)[0][-1].detach()
    error = (answers - held.targets).square().mean()
    assert found["rmse"] == pytest.approx(float(error.sqrt()), rel=1e-4)
    guess = (held.targets - torch.cat([targets]).mean()).square().mean()
    assert found["score"] == pytest.approx(1 - float(error / guess), abs=0.02)
    assert fitted.summary["reason"].endswith("updates made")


@pytest.mark.parametrize("model", [RelLSTM, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("every", [True, False])
def test_padding_is_never_seen(model, bidirectional, every):
    """What a network answers for a sequence does not depend on what it is padded beside."""
    rows, sums = uneven(12)
    targets = [row[:, 0].cumsum(0) for row in rows] if every else sums
    fitted = fit(model(3, 5, bidirectional=bidirectional), (rows, targets), held_out=0.25, **QUICK)
    data = data_task((rows, targets), 0.25).split().train
    batch = data.rows(slice(0, 6))
    assert batch.lengths is not None
    fitted.network.eval()
    logits, _ = fitted.network(batch.inputs, lengths=batch.lengths)
    for place, length in enumerate(batch.lengths.tolist()):
        alone, _ = fitted.network(batch.inputs[:length, place : place + 1])
        mine = logits[: len(alone), place : place + 1] if every else logits[:, place : place + 1]
        torch.testing.assert_close(mine, alone)


@pytest.mark.parametrize("model", [LSTM, nn.LSTM])
def test_the_last_step_has_read_both_directions(model):
    network = Network(model(3, 5, bidirectional=True), 2, reads="last")
    logits, (h, _) = network(torch.randn(7, 4, 3))
    torch.testing.assert_close(logits[0], network.decoder(torch.cat([h[0], h[1]], dim=-1)))


def test_a_users_module_is_scored_at_each_rows_last_step():
    class Same(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, inputs, state):
            return self.weight * inputs[:, :, :1], state

    rows, _ = uneven(12)
    fitted = fit(Same(), (rows, [row[-1, 0] for row in rows]), held_out=0.25, **(QUICK | {"lr": 1e-9}))
    assert fitted.summary["held_out"]["held out"]["score"] == pytest.approx(1, abs=1e-5)


class Pairs(Dataset):
    def __init__(self, rows, targets):
        self.rows, self.targets = rows, targets

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place], self.targets[place]


def padded(pairs):
    rows, targets = zip(*pairs, strict=True)
    return pad_sequence(list(rows), batch_first=True), torch.tensor(targets), [len(row) for row in rows]


def test_a_data_set_and_a_loader_are_the_same_data():
    rows, sums = uneven()
    arrays = data_task((rows, sums), 0.25)
    loader = DataLoader(Pairs(rows, sums), batch_size=7, shuffle=True, collate_fn=padded)
    for data, batch_first in (
        (Pairs(rows, sums), False),
        (loader, True),
        (padded(list(zip(rows, sums, strict=True))), True),
    ):
        assert data_task(data, 0.25, batch_first).sha256 == arrays.sha256
    inputs, targets = draw()
    same = data_task((inputs, targets), 0.25, True).sha256
    assert data_task(TensorDataset(inputs, targets), 0.25).sha256 == same
    assert data_task((inputs.numpy(), targets.numpy()), 0.25, True).sha256 == same
    assert data_task((inputs.transpose(0, 1), targets), 0.25).sha256 == same
    model, before = GRU(3, 4), torch.random.get_rng_state()
    fitted = fit(model, loader, held_out=0.25, batch_first=True, device="cpu", updates=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert fitted.status == "complete"


def test_classes_with_names_and_symbols(tmp_path):
    words = [torch.randint(5, (n,), generator=torch.Generator().manual_seed(n)) for n in range(3, 33)]
    names = ["odd" if int(word.sum()) % 2 else "even" for word in words]
    fitted = fit(RelGRU(6, 8), (words, names), held_out=0.2, folder=tmp_path / "run", **QUICK)
    task = json.loads((tmp_path / "run" / "config.json").read_text())["task"]
    assert (task["name"], task["classes"], task["symbols"], task["input_size"]) == (
        "data",
        ["even", "odd"],
        5,
        6,
    )
    assert fitted.network(torch.tensor([[4], [0]]))[0].shape == (1, 1, 2)


def test_held_out_is_needed_and_is_none_of_what_is_trained_on():
    data = draw()
    for nothing in (None, 0.0, 1, 2.5, True):
        with pytest.raises(ConfigError, match=r"held_out: expected a share of the sequences between 0 and 1"):
            fit(LSTM(3, 4, batch_first=True), data, held_out=nothing, **QUICK)
    split = data_task(data, 0.25, True).split()
    train = {row.sum().item() for row in split.train.rows(slice(None)).inputs.unbind(1)}
    held = {row.sum().item() for row in split.held_out.rows(slice(None)).inputs.unbind(1)}
    assert (len(train), len(held)) == (30, 10)
    assert not train & held
    others = draw(7)
    assert len(data_task(data, others, True).split().held_out.lengths) == 7
    with pytest.raises(ConfigError, match="a task says both itself"):
        fit(LSTM(10, 4), CopyTask(3), held_out=0.2, **QUICK)


@dataclass(frozen=True)
class Fixed(Task):
    """A data set of somebody's that forgot to say what is held out."""

    name: ClassVar[str] = "fixed"
    epochs: bool = False
    input_size: ClassVar[int] = 3
    num_classes: ClassVar[int] = 2

    def batch(self, batch_size, generator, device="cpu", index=0):
        inputs, sums = draw(batch_size)
        return Batch(inputs.transpose(0, 1), (sums > 0).long().expand(9, -1))


@dataclass(frozen=True)
class FixedWithEpochs(Fixed):
    """Its batches differ, as an epoch's order is drawn; its sequences are the same."""

    def batches_per_epoch(self, batch_size):
        return 3

    def batch(self, batch_size, generator, device="cpu", index=0):
        order = torch.randperm(40, generator=generator)[:batch_size]
        whole = super().batch(40, generator)
        return Batch(whole.inputs[:, order], whole.targets[:, order])


@pytest.mark.parametrize("task", [Fixed(), FixedWithEpochs()])
def test_a_fixed_task_does_not_report_training_data_as_held_out(task, tmp_path):
    with pytest.raises(ConfigError, match=r"fixed: its sequences are fixed, .* write held_out\(\)"):
        fit(LSTM(3, 4), task, folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("numbers", [True, False])
def test_a_run_that_died_ends_as_one_that_did_not(tmp_path, dying, timeless, numbers):
    rows, sums = uneven()
    targets = sums if numbers else ["up" if value > 0 else "down" for value in sums]
    given = {
        "held_out": 0.25,
        "epochs": 4,
        "device": "cpu",
        "batch_size": 8,
        "lr": 1e-2,
        "checkpoint_every": 3,
    }
    models = [RelLSTM(3, 6) for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    whole = fit(models[0], (rows, targets), folder=tmp_path / "whole", **given)
    with pytest.raises(dying.error):
        fit(models[1], (rows, targets), folder=tmp_path / "dead", callbacks=[dying(7)], **given)
    resumed = fit(models[2], (rows, targets), folder=tmp_path / "dead", resume=True, **given)
    assert timeless(resumed.metrics) == timeless(whole.metrics)
    for one, two in zip(
        whole.network.state_dict().values(), resumed.network.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two)
    with pytest.raises(CheckpointError, match="holds the run data-rellstm-"):
        fit(RelLSTM(3, 6), (rows[1:], targets[1:]), folder=tmp_path / "dead", resume=True, **given)


def test_the_folder_is_read_without_the_data(tmp_path, capsys):
    inputs, targets = draw()
    fitted = fit(
        RelLSTM(3, 6, batch_first=True, bidirectional=True),
        (inputs, 1000 + targets),
        held_out=0.25,
        folder=tmp_path / "runs" / "mine",
        **QUICK,
    )
    network = plait.load(tmp_path / "runs" / "mine")
    fitted.network.eval()
    x = inputs.transpose(0, 1)
    torch.testing.assert_close(network(x)[0], fitted.network(x)[0])
    assert main(["train", "--resume", str(tmp_path / "runs" / "mine")]) == 2
    assert "this run's were passed in Python; pass them again" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html")]) == 0
    assert "held-out R²" in (tmp_path / "page.html").read_text()


X, Y = draw()
ROWS, SUMS = uneven()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:30]), r"y: expected 40 targets, one for each sequence of X, got 30$"),
        (
            (X.transpose(0, 1), Y),
            r"y: expected 9 targets, .* got 40; is X \(T, N, F\)\? pass batch_first=False",
        ),
        ((X[:, :, 0], Y), r"X: expected \(N, T, F\), batch first, got \(40, 9\)"),
        ((X[:, :, :2], Y), r"X: expected 3 features on its last axis, as the model's input_size, got 2"),
        ((X, torch.zeros(40, 2, 2)), r"y\[0\]: expected one target, or one for each of 9 steps, got 2"),
        ((X, torch.zeros(40, 9, dtype=torch.int64) - 3), r"y: expected classes from 0 on, or -100"),
        ((X, torch.full((40,), IGNORE)), r"y\[0\]: expected a target, got none that counts"),
        (
            (X.masked_fill(X > 2.5, torch.nan), Y),
            r"X\[\d+\]: expected finite numbers, got another at step \d",
        ),
        ((ROWS, SUMS[:-1]), r"y: expected 40 targets, one for each sequence of X, got 39"),
        (
            ([*ROWS[:-1], torch.zeros(4, 2)], SUMS),
            r"X: expected the same features and type in every sequence",
        ),
        (([*ROWS[:-1], torch.zeros(0, 3)], SUMS), r"X\[39\]: expected \(T, F\) of at least one step"),
        ((X, Y, [9] * 39), r"lengths: expected 40 numbers from 1 to 9, the steps of X, got 39"),
        (
            (X, Y, [9] * 39 + [10]),
            r"lengths: expected 40 numbers from 1 to 9, the steps of X, got 40 from 9 to 10",
        ),
        ((X, Y, [9] * 39 + [2.5]), r"lengths: expected whole numbers, got 2.5"),
        ((X.long(), Y), r"X: expected \(N, T\) where integers are symbols, got \(40, 9, 3\); .*X\.float\(\)"),
        ((X, (Y > 0).long()[:, None].expand(40, 2)), r"y\[0\]: expected one class, got 2 integers"),
        (
            (X, torch.zeros(40, 9, 4, dtype=torch.int64)),
            r"y\[0\]: expected one class for each step, got 4 integers",
        ),
        ((X, torch.ones(40, dtype=torch.int64)), r"expected targets that differ, got 1 in all training"),
        (
            (X, ["a"] * 40),
            r"expected targets that differ, got a in all training data: nothing can be learned",
        ),
        ((X, torch.full((40,), 2.5)), r"expected targets that differ, got 2.5 in all training data"),
        ({"X": X, "y": Y}, r"data: expected a task, .* got dict"),
        ((X, ["a"] * 39 + [1]), r"y: expected names of classes everywhere, or nowhere"),
        ((X, object()), r"y: expected numbers, got object"),
        (7, r"data: expected a task, \(X, y\), a data set with a length or a DataLoader, got int"),
        ([], r"data: expected at least one sequence, got none"),
    ],
)
def test_wrong_shapes_are_one_line_that_names_the_argument(data, message):
    with pytest.raises((ShapeError, DataError), match=message) as caught:
        fit(LSTM(3, 4, batch_first=True), data, held_out=0.2, **QUICK)
    assert "\n" not in str(caught.value)


def test_a_column_of_classes_is_classes():
    """As other libraries return them; accuracy was counted over every pair of rows, and exceeded 1."""
    options = {"batch_first": True, "held_out": 0.25}
    classes, steps = (Y > 0).long(), (X[:, :, 0] > 0).long()
    for flat, column in ((classes, classes[:, None]), (steps, steps[:, :, None])):
        first, second = (data_task((X, y), **options) for y in (flat, column))
        assert first == second
        assert torch.equal(first.split().train.targets, second.split().train.targets)


def test_what_differs_in_the_held_out_set_is_named():
    for other, message in (
        ((X[:, :, :2], Y), r"held_out: expected X with \(3,\) features"),
        ((X, (Y > 0).long()), r"held_out: expected y with"),
        ((X, X[:, :, 0]), r"held_out: expected y as the data to train on have it"),
        ((X, Y[:3]), r"held_out: y: expected 40 targets"),
    ):
        with pytest.raises(ShapeError, match=message):
            fit(LSTM(3, 4, batch_first=True), (X, Y), held_out=other, **QUICK)
    with pytest.raises(ConfigError, match="batch_size: expected at most the 32 training sequences, got 40"):
        fit(LSTM(3, 4, batch_first=True), (X, Y), held_out=0.2, batch_size=40, device="cpu")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (None, {}, r"model: expected a torch.nn.Module, got None"),
        (LSTM, {}, r"model: expected a torch.nn.Module, got a class; construct it first"),
        (lambda x: x, {}, r"model: expected a torch.nn.Module, got function"),
        (LSTM(3, 4, batch_first=True, device="meta"), {}, r"model: is on the meta device.*to_empty"),
        (LSTM(3, 4, batch_first=True), {"recipe": {"lr": 1}}, r"recipe: expected a Recipe, got dict"),
        (LSTM(3, 4, batch_first=True), {"callbacks": print}, r"callbacks: expected a list of Callback, got"),
        (
            LSTM(3, 4, batch_first=True),
            {"callbacks": [print]},
            r"callbacks: expected a list of Callback, got",
        ),
        (LSTM(3, 4, batch_first=True), {"stop_when": True}, r"stop_when: expected a function, got True"),
    ],
)
def test_what_cannot_be_trained_with_is_one_line(model, options, message):
    with pytest.raises(ConfigError, match=message):
        fit(model, (X, Y), **{"held_out": 0.2, "batch_first": True, **QUICK, **options})


def test_a_device_of_torch_is_a_device():
    fitted = fit(
        LSTM(3, 4, batch_first=True), (X, Y), held_out=0.2, **{**QUICK, "device": torch.device("cpu")}
    )
    assert fitted.status == "complete"


def test_defaults_without_explicit_options():
    fitted = fit(LSTM(3, 4, batch_first=True), draw(20), held_out=0.25, epochs=40, device="cpu")
    assert fitted.summary["updates"] == 40, "a batch is all of 15 sequences"
    evaluations = [line["update"] for line in fitted.metrics if "held_out" in line]
    assert evaluations == list(range(2, 41, 2))


def test_a_share_is_scored_whole_and_scaled_by_training_data_alone():
    inputs, targets = draw()
    held = data_task((inputs, targets), 0.25, True).split()
    moved = inputs.clone()
    names = [str(place) for place in range(40)]
    from plait.lab.tasks.sequences import share_of

    for place, out in enumerate(share_of(names, 0.25)):
        if out:
            moved[place] += 1e6
    again = data_task((moved, targets), 0.25, True).split()
    assert torch.equal(held.input_scale.mean, again.input_scale.mean)
    np.testing.assert_allclose(held.train.inputs.mean(0), held.input_scale.mean, atol=1e-6)


def test_a_task_without_its_data_says_what_to_do():
    with pytest.raises(DataError, match=r"passed in Python; pass them again: plait.fit\("):
        DataTask(outputs=2).prepare()


def test_what_is_ignored_is_marked_as_torch_does():
    assert nn.CrossEntropyLoss().ignore_index == IGNORE


def test_the_share_explained_is_measured_against_the_mean_of_training():
    inputs, sums = draw()
    targets = 1000 + 50 * sums
    split = data_task((inputs, targets), 0.25, True).split()
    mean, deviation = split.train.targets.double().mean(), split.train.targets.double().std(unbiased=False)
    errors = ((split.held_out.targets.double() - mean) / deviation).square().mean()
    assert split.error_of_the_mean("held_out") == pytest.approx(float(errors), rel=1e-4)


def test_a_data_set_without_a_length_is_one_line():
    class Endless:
        def __getitem__(self, place):
            return torch.zeros(4, 3), 0

    with pytest.raises(DataError, match=r"expected a task, .*a data set with a length.*got Endless"):
        fit(LSTM(3, 4, batch_first=True), Endless(), held_out=0.25, **QUICK)
