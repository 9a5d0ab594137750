"""Runs on images and text from the command line: learning, resuming, the schedule, and generated text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.tasks import CopyTask, PermutedMNIST, TextTask
from plait.lab.training.description import Network, build
from plait.lab.training.fit import fit
from plait.lab.training.generation import continue_text
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner
from plait.models import RelLSTM, RelRNN

SENTENCE = "to be, or not to be, that is the question:\n"


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(SENTENCE * 60)
    return str(path)


def only(folder):
    (found,) = [path.parent for path in Path(folder).glob("*/config.json")]
    return found


def mistake(capsys, arguments, words):
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("cell", [RelRNN, nn.LSTM])
def test_the_last_step_alone_gives_the_same_gradients(digits, cell):
    task = PermutedMNIST(images=str(digits.folder))
    batch = task.batch(7, torch.Generator().manual_seed(0))
    every = Network(cell(1, 5), 3)
    last = Network(cell(1, 5), 3, reads="last")
    last.load_state_dict(every.state_dict())
    logits, _ = last(batch.inputs)
    assert logits.shape == (1, 7, 3)
    torch.testing.assert_close(logits, every(batch.inputs)[0][-1:])
    for network in (every, last):
        task.loss(network(batch.inputs)[0], batch.targets).backward()
    for a, b in zip(every.parameters(), last.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_embedding_and_input_weights_begin_as_published(book):
    description = {
        "task": {"name": "text", "text": (book,), "embedding": 30},
        "model": {"name": "relrnn", "hidden_size": 500, "initialiser": "cayley"},
    }
    network, task = build(description)
    assert network.embedding.weight.shape == (task.vocabulary, 30)
    for weight in (network.embedding.weight, network.decoder.weight):
        assert 0.09 < weight.abs().max() <= 0.1
        assert weight.mean().abs() < 0.01
    assert not network.decoder.bias.any()
    spread = network.recurrent.layers[0].cell.weight_ih.std().item()
    assert spread == pytest.approx((2 / 30) ** 0.5, rel=0.03)  # kaiming; xavier would be (2 / 530)^½
    copying, _ = build({"task": {"name": "copy"}, "model": {"name": "relrnn", "hidden_size": 500}})
    assert copying.recurrent.layers[0].cell.weight_ih.std().item() == pytest.approx(
        (2 / 510) ** 0.5, rel=0.03
    )


def test_an_epoch_of_training_shows_every_image_once(digits):
    task = PermutedMNIST(images=str(digits.folder))
    network = Network(RelRNN(1, 2), 3, reads="last")
    learner = SupervisedLearner(network, task, Recipe(batch_size=10), torch.device("cpu"), Group())
    epochs = []
    for epoch in range(2):
        batches = [learner.batch(5 * epoch + n) for n in range(1, 6)]
        epochs.append([tuple(row) for b in batches for row in b.inputs.squeeze(2).t().tolist()])
    assert set(epochs[0]) == set(epochs[1])
    assert len(set(epochs[0])) == 50
    assert epochs[0] != epochs[1]


def test_images_are_learned_and_a_killed_run_resumes(digits, tmp_path):
    def run(folder, updates_first):
        task = PermutedMNIST(images=str(digits.folder), group=4)
        recipe = Recipe(
            updates=60, batch_size=10, lr=0.02, evaluate_every=5, evaluate_on=None, record_every=1
        )
        network, _ = build(
            {"task": {"name": "pmnist", **task.options()}, "model": {"name": "relrnn", "hidden_size": 12}}
        )
        minutes = 1e-9 if updates_first else None
        fitted = fit(
            network, task, recipe, device="cpu", folder=folder, checkpoint_every=4, max_minutes=minutes
        )
        while fitted.status == "stopped":
            network, _ = build(
                {"task": {"name": "pmnist", **task.options()}, "model": {"name": "relrnn", "hidden_size": 12}}
            )
            fitted = fit(
                network,
                task,
                recipe,
                device="cpu",
                folder=folder,
                resume=True,
                max_minutes=minutes if len(fitted.metrics) < 9 else None,
            )
        return fitted

    whole, pieces = run(tmp_path / "whole", False), run(tmp_path / "pieces", True)
    assert whole.summary["held_out"]["test"]["score"] > 0.8
    task = PermutedMNIST(images=str(digits.folder), group=4)
    assert fit(RelRNN(4, 3), task, epochs=2, batch_size=10, device="cpu").summary["updates"] == 10
    with pytest.raises(ConfigError, match="copy draws new sequences for ever"):
        fit(RelRNN(10, 3), CopyTask(3), epochs=2, device="cpu")
    for line in (*whole.metrics, *pieces.metrics):
        line.pop("seconds", None)
    assert pieces.metrics == whole.metrics


def test_the_schedule_halves_when_nothing_improves(book, tmp_path):
    task = TextTask(text=(book,), span=10, embedding=4)
    recipe = Recipe(updates=40, batch_size=8, lr=0.3, evaluate_every=2, evaluate_on=None, schedule="halve")
    fitted = fit(RelRNN(4, 4), task, recipe, device="cpu")
    evaluations = [line for line in fitted.metrics if "held_out" in line]
    best, rate, halved = None, 0.3, 0
    for line in evaluations:
        assert line["lr"] == pytest.approx(rate)
        loss = line["held_out"]["validation"]["loss"]
        if best is not None and loss >= best:
            rate, halved = rate / 2, halved + 1
        best = loss if best is None else min(best, loss)
    assert 0 < halved < len(evaluations)
    constant = fit(RelRNN(4, 4), task, recipe.changed(schedule="constant"), device="cpu")
    assert all("lr" not in line for line in constant.metrics)


def test_train_and_generate_from_the_command_line(book, tmp_path, capsys):
    out = tmp_path / "runs"
    options = ["--hidden", "24", "--span", "20", "--batch-size", "4", "--embedding", "8", "--lr", "0.02"]
    command = ["train", "text", "--text", book, "--model", "rellstm", *options, "--epochs", "6", "--quiet"]
    assert main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "bits per character" in shown
    assert "predicted" in shown
    folder = only(out)
    os.remove(book)  # a run knows its vocabulary
    assert main(["generate", str(folder), "--prompt", "to be", "--length", "60", "--temperature", "0"]) == 0
    text = capsys.readouterr().out
    assert len(text) == 5 + 60 + 1
    assert text.startswith("to be")
    assert text[:-1] in SENTENCE * 3  # learned by heart
    for seed in (1, 1, 2):
        assert main(["generate", str(folder), "--length", "40", "--seed", str(seed), "--json"]) == 0
    drawn = capsys.readouterr().out
    texts = [json.loads(part + "}")["text"] for part in drawn.split("}\n") if part]
    assert texts[0] == texts[1] != texts[2]
    mistake(capsys, ["generate", folder, "--prompt", "TO"], "not in the vocabulary: 'O', 'T'")
    mistake(capsys, ["generate", folder, "--length", "0"], "length: expected at least 1, got 0")
    mistake(capsys, ["generate", folder, "--temperature", "-1"], "temperature: expected at least 0")
    mistake(
        capsys, ["generate", folder, "--temperature", "1e-7"], "temperature: expected 0, or at least 1e-06"
    )
    mistake(capsys, ["generate", "nothing", "--out", out], "no run 'nothing'")
    assert (
        main(
            [
                "train",
                "copy",
                "--delay",
                "2",
                "--updates",
                "1",
                "--hidden",
                "2",
                "--quiet",
                "--out",
                str(tmp_path / "other"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    mistake(capsys, ["generate", only(tmp_path / "other")], "expected a run on characters")


@pytest.mark.parametrize("carried", [True, False])
def test_generating_reads_the_prompt_as_training_would(book, carried):
    """Step by step with temperature 0 is what the whole text so far, in one go, says is likeliest."""
    task = TextTask(text=(book,), span=10, embedding=6, memory_across_spans=carried)
    network = Network(RelLSTM(6, 8, window=3, capacity=2), task.num_classes, task.vocabulary).eval()
    text = "not to be," + "".join(continue_text(network, task, "not to be,", 30, temperature=0))
    tokens = torch.tensor(task.encode(text)).unsqueeze(1)
    if carried:
        logits, _ = network(tokens[:-1])
        assert logits[9:, 0].argmax(-1).tolist() == tokens[10:, 0].tolist()
    else:  # each span from an emptied memory and the last s_T, c_T
        state = None
        for begin in range(0, 40, 10):
            logits, after = network(tokens[begin : begin + 10], state)
            state = (after.hidden, after.cell_state)
            if begin + 10 < 40:
                assert logits[-1, 0].argmax() == tokens[begin + 10, 0]


def test_memory_does_not_grow_with_the_length(book):
    task = TextTask(text=(book,), span=10, embedding=6)
    network = Network(RelLSTM(6, 8), task.num_classes, task.vocabulary).eval()
    sizes = []

    def watch(module, arguments, output):
        sizes.append(output[1].memory[0].slots.numel())

    network.register_forward_hook(watch)
    assert len(list(continue_text(network, task, length=200))) == 200
    assert len(sizes) == 200
    assert len(set(sizes)) == 1


def test_characters_appear_as_they_are_drawn(book, tmp_path):
    """The first characters can be read long before the last are made."""
    task = TextTask(text=(book,), span=10, embedding=6)
    fit(RelRNN(6, 8), task, updates=1, batch_size=2, evaluate_on=1, device="cpu", folder=tmp_path / "run")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "plait", "generate", str(tmp_path / "run"), "--length", "10000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        first = process.stdout.read(20)
        process.kill()
        process.wait()
    assert len(first) == 20


def test_mistakes_are_reported_before_a_folder_is_created(nowhere, book, tmp_path, capsys):
    out = tmp_path / "runs"
    (tmp_path / "empty.txt").write_text("")
    for arguments, words in [
        (["pmnist"], "no train-images-idx3-ubyte: looked in"),
        (["ptb"], "set PLAIT_DATA, or pass --data DIR"),
        (["text"], "expected --text FILE"),
        (["text", "--text", tmp_path / "empty.txt"], "is empty"),
        (["text", "--text", book, "--span", "150"], "characters (batch size × span), got 2322; lower --span"),
        (["pmnist", "--subset", "10"], "at least one batch of 100 images, got 10"),
        (["pmnist", "--span", "3"], "unknown option of pmnist 'span'"),
        (["copy", "--epochs", "2"], "say updates instead"),
        (["text", "--text", book, "--schedule", "cosine"], "unknown schedule 'cosine'"),
    ]:
        mistake(capsys, ["train", *arguments, "--out", out], words)
    assert not out.exists()


@pytest.mark.data
@pytest.mark.slow
def test_permuted_mnist_is_learned(mnist, tmp_path, capsys):
    command = [
        "train",
        "pmnist",
        "--model",
        "relrnn",
        "--subset",
        "10000",
        "--epochs",
        "3",
        "--out",
        str(tmp_path),
    ]
    assert main([*command, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held_out"]["validation"]["score"] > 0.3
