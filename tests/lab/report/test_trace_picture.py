"""Pictures of what was read: over a text, over an image, step by step; and validation by epoch."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread

from plait.errors import ConfigError, ShapeError
from plait.lab.cli import main
from plait.lab.figures import draw_image_attention, draw_text_attention
from plait.lab.report import trace_picture
from plait.lab.report.epoch_picture import draw_validation
from plait.lab.report.trace_picture import draw_trace

QUICK = ["--hidden", "6", "--quiet", "--lr", "0.01"]


@pytest.fixture
def runs(digits, tmp_path):
    """One run of each kind, with a trace."""
    (tmp_path / "book.txt").write_text("to be or not\n" * 400)
    commands = {
        "image": [
            "smnist",
            "--images",
            str(digits.folder),
            "--group",
            "4",
            "--batch-size",
            "10",
            "--epochs",
            "2",
        ],
        "text": [
            "text",
            "--text",
            str(tmp_path / "book.txt"),
            "--span",
            "12",
            "--batch-size",
            "4",
            "--epochs",
            "1",
        ],
        "copy": ["copy", "--delay", "3", "--updates", "2"],
    }
    found = {}
    for name, command in commands.items():
        assert main(["train", *command, "--model", "relrnn", *QUICK, "--out", str(tmp_path / name)]) == 0
        (found[name],) = [config.parent for config in (tmp_path / name).glob("*/config.json")]
        picture = tmp_path / f"{name}.png"
        assert main(["runs", "attention", str(found[name]), "-o", str(picture)]) == 0
        shades = np.unique(imread(picture)[..., :3] @ np.array([1, 256, 65536]))
        assert shades.size > 20, "weights are shades"
    return found


def test_every_kind_is_drawn_with_its_own_axes(runs, digits):
    text = draw_trace(runs["text"]).axes[0]
    assert "".join(label.get_text() for label in text.get_xticklabels()) in "to␣be␣or␣not↵" * 2
    assert len(text.get_yticklabels()) == 12
    image = draw_trace(runs["image"])
    trace = json.loads((runs["image"] / "trace.json").read_text())
    assert trace["targets"] == [int(digits.train_labels[50])]
    shown = image.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown * 255, digits.train[50])  # the first validation image
    last = np.asarray(image.axes[1].images[1].get_array().filled(np.nan))
    weights, born = (np.array(trace["layers"][0][key][-1]) for key in ("weights", "born"))
    for place, weight in zip(born[born >= 0], weights[born >= 0], strict=True):
        np.testing.assert_allclose(last[place], weight)  # four pixels a step: a row of this image
    assert np.nansum(last) == pytest.approx(4 * weights.sum())
    assert draw_trace(runs["copy"]).axes[0].get_xlabel() == "state j (step)"
    with pytest.raises(ConfigError, match="layer: expected 1 to 1, got 2"):
        draw_trace(runs["copy"], 1)


def test_validation_is_drawn_by_epoch(runs, tmp_path):
    axes = draw_validation([runs["image"]]).axes[0]
    lines = [json.loads(line) for line in (runs["image"] / "metrics.jsonl").read_text().splitlines()]
    scores = [line["held_out"]["validation"]["score"] for line in lines if "held_out" in line]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [1, 2])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * np.array(scores))
    assert "bits per character" in draw_validation([runs["text"]]).axes[0].get_ylabel()
    with pytest.raises(ConfigError, match="copy has no epochs"):
        draw_validation([runs["copy"]])
    with pytest.raises(ConfigError, match="runs on one task, got smnist, text"):
        draw_validation([runs["image"], runs["text"]])
    assert main(["runs", "curves", str(runs["image"]), "-o", str(tmp_path / "c.png")]) == 0
    assert main(["runs", "curves", str(runs["image"]), "-o", str(tmp_path / "c.txt")]) == 2


def test_runs_of_one_model_are_named_by_what_they_differ_in(digits, tmp_path):
    short = ["smnist", "--images", str(digits.folder), "--group", "6", "--batch-size", "10", "--epochs", "1"]
    plain = ["train", *short, *QUICK, "--out", str(tmp_path)]
    for options in (["lstm"], ["relrnn"], ["relrnn", "--relevance", "learned"], ["relrnn", "--seed", "1"]):
        assert main([*plain, "--model", *options]) == 0
    drawn = draw_validation([config.parent for config in tmp_path.glob("*/config.json")]).axes[0]
    assert sorted(text.get_text() for text in drawn.get_legend().get_texts()) == [
        "lstm",
        "relrnn (2 seeds)",
        "relrnn, relevance learned",
    ]
    assert len(drawn.lines) == 4
    assert len({line.get_color() for line in drawn.lines}) == 2


def test_runs_with_different_data_options_are_not_pooled(digits, tmp_path):
    for group in ("4", "6"):
        short = ["smnist", "--images", str(digits.folder), "--batch-size", "10", "--epochs", "1"]
        assert (
            main(["train", *short, "--group", group, *QUICK, "--model", "lstm", "--out", str(tmp_path)]) == 0
        )
    drawn = draw_validation([config.parent for config in tmp_path.glob("*/config.json")]).axes[0]
    names = [text.get_text() for text in drawn.get_legend().get_texts()]
    assert names == ["lstm, smnist, group 4", "lstm, smnist, group 6"]


def test_gradients_of_these_runs_can_be_looked_at(runs, capsys):
    for name in ("image", "text"):
        for command in ("probe", "support"):
            assert main(["gradients", command, str(runs[name])]) == 0
    assert "12 positions" in capsys.readouterr().out


def test_shapes_must_agree():
    with pytest.raises(ShapeError, match="expected 2, one for each step, got 3"):
        draw_text_attention("abc", [[0, -1], [0, 1]], [[1, 0], [0.5, 0.5]])
    with pytest.raises(ShapeError, match="three of one"):
        draw_image_attention(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2)))


def test_both_axes_of_attention_over_text_say_what_they_are():
    axes = draw_text_attention("a\n", [[0, -1], [0, 1]], [[1, 0], [0.5, 0.5]], title="two steps").axes[0]
    assert axes.get_xlabel().startswith("state j")
    assert axes.get_ylabel().startswith("step t")
    assert axes.get_title() == "two steps"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "↵"]


def test_the_mean_over_an_image_is_that_of_the_steps_that_could_read_a_state(monkeypatch):
    """State 0 is read with weights 1 and 0.5, state 1 with 0.5 and 1."""
    drawn = []
    monkeypatch.setattr(trace_picture, "draw_image_attention", lambda *parts, title: drawn.extend(parts))
    task = SimpleNamespace(as_image=lambda steps: steps)
    born, weights = [[0, -1], [0, 1], [2, 1]], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    trace = {"inputs": [0, 255, 51], "targets": [3]}
    trace_picture._over_image(task, trace, np.array(born), np.array(weights), "title")
    pixels, last, mean = drawn
    assert pixels.tolist() == [0.0, 1.0, 0.2]
    assert np.nan_to_num(last, nan=-1).tolist() == [-1.0, 1.0, 0.0]
    assert mean.tolist() == [0.75, 0.75, 0.0]
