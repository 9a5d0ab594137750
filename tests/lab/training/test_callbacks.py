"""What a person sees while waiting."""

from __future__ import annotations

import io

import pytest

from plait.lab.training.callbacks import Bar, Callback, CallbackList, Lines, display
from plait.lab.training.learner import Step

STEP = Step({"loss": 0.25, "score": 0.5, "gradient_norm": 1.0})
SUMMARY = {"status": "complete", "reason": "4 updates made", "updates": 4, "seconds": 1.25}


def story(callback):
    callback.began("copy-lstm-1", 1, 4)
    callback.updated(2, STEP)
    callback.evaluated(2, {"delay 1": {"loss": 0.1, "score": 0.75}, "delay 9": {"loss": 0.1, "score": 0.25}})
    callback.updated(3, STEP)
    callback.noted("a note")
    callback.ended(SUMMARY)


def test_lines():
    stream = io.StringIO()
    story(Lines(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "copy-lstm-1: 4 updates, resuming after 1"
    assert lines[1].startswith("update 2/4  ")
    assert lines[1].endswith("left  held out: loss 0.10000  accuracy 75.0%  delay 9 25.0%")
    assert lines[2:] == ["a note", "complete (4 updates made) after update 4, 1.2 s"]


def test_lines_come_at_least_so_often():
    stream = io.StringIO()
    story(Lines(stream, seconds=0))
    assert stream.getvalue().count("loss 0.25000  accuracy 50.0% (training)") == 2


def test_a_long_duration_is_announced_once_and_early(monkeypatch):
    """At 8 s an update, 100 updates: told after the first, in seconds an update."""
    now = [0.0]
    monkeypatch.setattr("plait.lab.training.callbacks.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    lines = Lines(stream, seconds=30)
    lines.began("text-rellstm-1", 0, 100)
    for update in (1, 2, 3):
        now[0] += 8
        lines.updated(update, STEP)
    said = stream.getvalue().splitlines()
    assert said == [
        "text-rellstm-1: 100 updates",
        "about 0:13:12 to go, at 8.0 s each; Ctrl-C saves and stops",
    ]
    quick = Lines(stream, seconds=30)
    quick.began("copy-lstm-1", 0, 10)
    now[0] += 4
    quick.updated(5, STEP)
    assert stream.getvalue().splitlines()[2:] == ["copy-lstm-1: 10 updates"]


def test_bar():
    from rich.console import Console

    stream = io.StringIO()
    story(Bar(Console(file=stream, force_terminal=True, width=120)))
    text = stream.getvalue()
    for words in (
        "copy-lstm-1",
        "3/4",
        "loss 0.2500",
        "accuracy 50.0%",
        "held out 75.0%",
        "/s",
        "left",
        "a note",
    ):
        assert words in text


def test_bar_fits_into_80_columns():
    from rich.console import Console

    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, width=80))
    bar.began("a-run-with-a-long-name-1234567890", 0, 100_000)
    bar.clock.began -= 400  # as if it had taken a while
    bar.evaluated(99_000, {"copy": {"loss": 0.1, "score": 0.75}})
    bar.updated(99_999, STEP)
    bar.ended(SUMMARY)
    for words in ("99999/100000", "loss 0.2500", "accuracy 50.0%", "/s", "left"):
        assert words in stream.getvalue()
    assert "…" not in stream.getvalue(), "nothing is cut off"


def test_the_display_fits_the_stream(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    assert isinstance(display(True, terminal)[0], Bar)
    assert isinstance(display(True, io.StringIO())[0], Lines)
    assert display(False, terminal) == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(display(True, terminal)[0], Lines), "without rich there are lines"


def test_every_callback_is_called(small_fit):
    told = []

    class Ear(Callback):
        def __getattribute__(self, name):
            if not name.startswith("_"):
                told.append(name)
            return super().__getattribute__(name)

    small_fit(callbacks=[Ear(), Ear()])
    assert told[:2] == ["began", "began"]
    assert told[-2:] == ["ended", "ended"]
    assert told.count("updated") == 24
    assert told.count("evaluated") == 4
    story(CallbackList([Callback()]))


def test_tensorboard(tmp_path, small_fit):
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from plait.lab.training.callbacks import TensorBoard

    small_fit(tmp_path / "run", callbacks=[TensorBoard(tmp_path / "events", every=3)], max_minutes=1e-9)
    small_fit(tmp_path / "run", callbacks=[TensorBoard(tmp_path / "events", every=3)], resume=True)
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [3, 6, 9, 12]
    assert [event.step for event in events.Scalars("held_out/copy/score")] == [6, 12]


def test_tensorboard_that_is_missing_is_named(tmp_path, monkeypatch):
    import sys

    from plait.errors import MissingExtraError
    from plait.lab.training.callbacks import TensorBoard

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'plait\[track\]'"):
        TensorBoard(tmp_path)
