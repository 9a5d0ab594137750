"""`fit`: what it learns, when it stops, what it leaves alone."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch.nn.functional import one_hot

from plait.errors import ConfigError, DivergedError, UnknownNameError
from plait.lab.cli import main
from plait.lab.tasks import Batch, CopyTask, Task, TransferCopyTask
from plait.lab.training.callbacks import Callback
from plait.lab.training.description import build
from plait.lab.training.fit import fit
from plait.lab.training.learner import seed_for
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import evaluate
from plait.models import GRU, LSTM


@dataclass(frozen=True)
class EchoTask(Task):
    """Name the symbol that is shown: learned in a moment."""

    name: ClassVar[str] = "echo"
    input_size: ClassVar[int] = 3
    num_classes: ClassVar[int] = 3

    def batch(self, batch_size, generator, device="cpu", index=0):
        tokens = torch.randint(3, (4, batch_size), generator=generator, device=device)
        return Batch(one_hot(tokens, 3).float(), tokens)


def test_learns_and_stops_at_the_wanted_accuracy(tmp_path):
    torch.manual_seed(0)
    fitted = fit(
        LSTM(3, 8),
        EchoTask(),
        updates=400,
        lr=0.03,
        batch_size=16,
        until_accuracy=0.95,
        evaluate_every=20,
        folder=tmp_path / "run",
        device="cpu",
    )
    assert fitted.status == "complete"
    assert "reached 0.95" in fitted.summary["reason"]
    assert fitted.summary["updates"] < 400
    assert fitted.summary["score"] >= 0.95
    results = evaluate(fitted.network, EchoTask(), sequences=256, batch_size=16)
    assert results["echo"]["score"] == fitted.summary["score"], "the same held-out sequences"
    assert evaluate(fitted.network, EchoTask(), seed=1)["echo"]["score"] > 0.9


@pytest.mark.slow
def test_relrnn_learns_copy_at_delay_100():
    """Chance is 12.5 %; without memory nothing above it can be learned."""
    network, task = build(
        {"task": {"name": "copy", "delay": 100}, "model": {"name": "relrnn", "hidden_size": 128}}
    )
    fitted = fit(
        network, task, updates=1500, batch_size=16, until_accuracy=0.85, device="cpu", evaluate_on=64
    )
    assert fitted.summary["score"] >= 0.85


LEARNS = {
    "orthrnn": {"lr": 1e-3},
    "exprnn": {"lr": 1e-3, "orthogonal_lr": 1e-4},
    "goru": {"lr": 3e-3},
    "transformer": {"lr": 1e-3},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNS)
def test_baselines_learn_copy_at_delay_10(name):
    recipe = Recipe(updates=1500, until_accuracy=0.9, **LEARNS[name])
    layers = 2 if name == "transformer" else 1
    network, task = build(
        {
            "task": {"name": "copy", "delay": 10},
            "model": {"name": name, "hidden_size": 64, "num_layers": layers},
            "recipe": recipe.values(),
        }
    )
    assert fit(network, task, recipe, device="cpu").summary["score"] >= 0.9


def test_evaluation_neither_reads_nor_moves_training(small_fit):
    often, seldom = small_fit(evaluate_every=1), small_fit(evaluate_every=12, evaluate_on=50)
    for one, two in zip(often.network.parameters(), seldom.network.parameters(), strict=True):
        assert torch.equal(one, two)
    before = torch.random.get_rng_state()
    small_fit()
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's random state is left alone"


def test_figures_are_written_as_often_as_they_are_recorded_and_at_the_end(small_fit, tmp_path):
    small_fit(tmp_path / "run", record_every=5, evaluate_every=12)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if "loss" in line] == [5, 10, 12]


def test_held_out_sequences_are_none_of_the_training_ones():
    seeds = []

    class Spy(EchoTask):
        def batch(self, batch_size, generator, device="cpu", index=0):
            seeds.append(generator.initial_seed())
            return super().batch(batch_size, generator, device, index)

    fit(LSTM(3, 4), Spy(), updates=20, batch_size=4, evaluate_every=20, evaluate_on=40, device="cpu")
    del seeds[:2]  # drawn before, to see that they differ
    assert len(seeds) == 20 + 10, "twenty updates, ten held-out batches"
    assert len(set(seeds)) == 30


def test_recording_gradients_moves_nothing(small_fit):
    with_record, without = small_fit(gradients_every=1), small_fit(gradients_every=0)
    for one, two in zip(with_record.network.parameters(), without.network.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_seed_decides_everything(small_fit, timeless):
    one, two, other = small_fit(), small_fit(), small_fit(seed=1)
    assert timeless(one.metrics) == timeless(two.metrics)
    assert timeless(one.metrics) != timeless(other.metrics)


def test_dropout_is_redrawn_at_every_update_and_repeatable():
    def masks(elsewhere):
        seen = []

        class Noisy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(10, 9)

            def forward(self, inputs, state=None):
                if self.training:
                    seen.append(torch.rand(3).tolist())
                return self.layer(torch.nn.functional.dropout(inputs, 0.5, self.training)), None

        torch.manual_seed(elsewhere)  # what the caller did before is of no account
        fit(Noisy(), CopyTask(2), updates=3, batch_size=2, evaluate_on=2, device="cpu")
        return seen

    first = masks(elsewhere=0)
    assert first == masks(elsewhere=1)
    assert len({tuple(mask) for mask in first}) == 3
    assert seed_for(0, "noise", 1) != seed_for(0, "noise", 2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precisions(precision):
    torch.manual_seed(0)
    fitted = fit(
        GRU(10, 8),
        CopyTask(2),
        updates=30,
        lr=0.01,
        batch_size=8,
        precision=precision,
        device="cpu",
        record_every=1,
        evaluate_on=8,
    )
    losses = [line["loss"] for line in fitted.metrics if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    assert all(p.dtype == torch.float32 for p in fitted.network.parameters())


def test_transfer_is_scored_at_every_delay():
    fitted = fit(
        LSTM(10, 4), TransferCopyTask(2, (5, 9)), updates=2, batch_size=4, evaluate_on=4, device="cpu"
    )
    assert list(fitted.summary["held_out"]) == ["delay 2", "delay 5", "delay 9"]


def test_state_is_carried_between_batches_and_cleared_where_the_task_says(stream_task):
    seen = []

    class Spy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = GRU(2, 4)
            self.out = torch.nn.Linear(4, 2)

        def forward(self, inputs, state=None, reset=None):
            if self.training:
                seen.append((None if state is None else state.hidden.detach().clone(), reset.clone()))
            output, state = self.cell(inputs, state, reset=reset)
            return self.out(output), state

    fitted = fit(Spy(), stream_task(), updates=9, batch_size=4, evaluate_on=12, device="cpu", accumulate=2)
    assert fitted.status == "complete"
    begins = [state for state, _ in seen]
    assert begins[0] is None
    assert begins[1] is None
    assert all(state is not None and not state.requires_grad for state in begins[2:])
    assert [bool(reset[0, 0]) for _, reset in seen[::2]] == [n % 4 == 0 for n in range(9)]


def test_remembering_across_batches_can_be_learned(stream_task):
    """Period 7 with spans of 5: the loss without carried state stays near that of guessing."""
    torch.manual_seed(1)
    fitted = fit(GRU(2, 12), stream_task(), updates=500, batch_size=7, lr=0.01, device="cpu", evaluate_on=70)
    assert fitted.summary["held_out"]["stream"]["loss"] < 0.1


class Ask(Callback):
    """Sends this process a signal after an update."""

    def __init__(self, number, update):
        self.number, self.update = number, update

    def updated(self, update, step):
        if update == self.update:
            signal.raise_signal(self.number)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_signals_save_and_stop(number, error, small_fit, timeless, tmp_path):
    handler = signal.getsignal(number)
    with pytest.raises(error) as caught:
        small_fit(tmp_path / "run", callbacks=[Ask(number, 5)])
    if error is SystemExit:
        assert caught.value.code == 143
    assert signal.getsignal(number) is handler
    resumed = small_fit(tmp_path / "run", resume=True)
    whole = small_fit(tmp_path / "whole")
    assert timeless(resumed.metrics) == timeless(whole.metrics)
    assert resumed.gradients == whole.gradients
    for one, two in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_clock_continues_over_sessions(small_fit, tmp_path, monkeypatch):
    """An hour between two sessions is nobody's training time; a session's own seconds are."""
    from plait.lab.training import session

    now = [0.0]

    class Ticking:
        @staticmethod
        def monotonic():
            now[0] += 1.0
            return now[0]

    monkeypatch.setattr(session, "time", Ticking)
    with pytest.raises(KeyboardInterrupt):
        small_fit(tmp_path / "run", evaluate_every=1, callbacks=[Ask(signal.SIGINT, 5)])
    now[0] += 3600.0
    fitted = small_fit(tmp_path / "run", evaluate_every=1, resume=True)
    clock = [line["seconds"] for line in fitted.metrics if "held_out" in line]
    assert len(clock) == 12
    assert clock == sorted(set(clock))
    assert 12 <= clock[-1] <= fitted.summary["seconds"] < 100
    assert not [line for line in fitted.metrics if "loss" in line and "seconds" in line]


def test_a_second_signal_interrupts_at_once(small_fit, tmp_path):
    class Twice(Callback):
        def updated(self, update, step):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        small_fit(tmp_path / "run", callbacks=[Twice()])
    assert not (tmp_path / "run" / "summary.json").exists()


def test_time_that_is_up_saves_and_returns(small_fit, timeless, tmp_path):
    fitted = small_fit(tmp_path / "run", max_minutes=1e-9)
    assert (fitted.status, fitted.summary["reason"], fitted.summary["updates"]) == (
        "stopped",
        "max-minutes",
        1,
    )
    assert timeless(small_fit(tmp_path / "run", resume=True).metrics) == timeless(small_fit().metrics)
    with pytest.raises(ConfigError, match="max_minutes: expected a number above 0, got 0"):
        small_fit(max_minutes=0)


def test_divergence_keeps_the_last_good_checkpoint(small_fit, timeless, tmp_path, monkeypatch, capsys):
    draw = CopyTask.batch

    def poisoned(self, batch_size, generator, device="cpu", index=0):
        batch = draw(self, batch_size, generator, device, index)
        if index == 9:
            batch.inputs[2, 1] = torch.nan
        return batch

    monkeypatch.setattr(CopyTask, "batch", poisoned)
    with pytest.raises(
        DivergedError, match=r"update 10: inputs hold nan at step 3 of sequence 2.*is kept in"
    ):
        small_fit(tmp_path / "run", gradients_every=0)
    from plait.lab.runs.checkpoint import read_checkpoint
    from plait.lab.runs.reading import read_run

    record = read_run(tmp_path / "run")
    assert record.status == "diverged"
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert "update 10: inputs hold nan at step 3 of sequence 2" in capsys.readouterr().out
    assert read_checkpoint(tmp_path / "run" / "checkpoint.safetensors").counters["update"] == 8
    monkeypatch.undo()
    mended = small_fit(tmp_path / "run", resume=True, gradients_every=0)
    assert timeless(mended.metrics) == timeless(small_fit(gradients_every=0).metrics)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"updates": 0}, ConfigError, "updates: expected at least 1, got 0"),
        ({"batch_size": 2.5}, ConfigError, "batch_size: expected a whole number"),
        ({"lr": 0}, ConfigError, "lr: expected a finite number above 0"),
        ({"lr": float("nan")}, ConfigError, "lr: expected at least 0, got nan"),
        ({"lr": "x"}, ConfigError, "lr: expected a number, got 'x'"),
        ({"until_accuracy": 99}, ConfigError, "until_accuracy: expected a share"),
        ({"accumulate": 9}, ConfigError, "accumulate: expected at most batch_size = 4, got 9"),
        ({"optimizer": "adamw"}, ConfigError, "did you mean 'adam'"),
        ({"learning_rate": 1}, UnknownNameError, "unknown part of a recipe 'learning_rate'"),
        ({"device": "gpu"}, UnknownNameError, "unknown device 'gpu'"),
        ({"device": "cpu:1"}, ConfigError, "device: expected auto, cpu, cuda or cuda:N"),
        ({"checkpoint_every": 0}, ConfigError, "checkpoint_every: expected at least 1"),
    ],
)
def test_bad_settings(small_fit, changes, error, words):
    with pytest.raises(error, match=words):
        small_fit(**changes)


def test_all_problems_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        Recipe(updates=-1, clip=-1, seed=-1, precision="fp8").check()
    assert str(caught.value).count(";") == 3
