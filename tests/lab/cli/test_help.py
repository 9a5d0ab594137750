"""Help says what holds for the line it is asked in; what is wrong with a line is said in one."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest

from plait.lab.annotations import arguments_of
from plait.lab.cli import COMMANDS, main
from plait.lab.cli.arguments import read_arguments
from plait.lab.tasks import TASKS
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import published_for
from plait.models import MODELS


def command(name):
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(module), attribute)


def help_of(capsys, *words):
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module", autouse=True)
def no_gpu():
    """Defaults of a machine with a GPU are others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.device_count", lambda: 0)
        yield


def default(said, option):
    """What help says of an option's default: None where it says nothing."""
    text = re.search(rf"^  {option} .*?(?=^  -|^\S|\Z)", said, re.MULTILINE | re.DOTALL)
    assert text, f"no {option}"
    found = re.search(r"\(default: ([^)]*)\)", " ".join(text.group().split()))
    return found and found.group(1)


def test_no_help_says_that_a_default_is_none(capsys):
    for name in COMMANDS:
        assert main([*name.split(), "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"usage: plait {name}"), name
        assert not re.search(r"default:\s*(None|False)|\{None\}|\(default:\s*\)", said), name
        assert not re.search(r"\d %", said), f"{name}: a share is written 3%, as in tables"
        assert all(len(line) <= 80 or " " not in line.strip() for line in said.splitlines()), name


def test_the_help_of_a_task_and_a_model_has_their_options_and_their_defaults(capsys):
    said = help_of(capsys, "train", "copy", "--model", "rellstm")
    found = {name: default(said, name) for name in ("--delay", "--hidden", "--window", "--lr", "--updates")}
    assert found == {
        "--delay": "100",
        "--hidden": "128",
        "--window": "10",
        "--lr": "0.004",
        "--updates": "3000",
    }
    assert default(said, "--seed") == "0"
    assert default(said, "--relevance") == "learned"
    assert "--span" not in said
    assert "--heads" not in said
    said = help_of(capsys, "train", "ptb", "--model", "exprnn")
    row = published_for("ptb", "exprnn")
    assert default(said, "--lr") == str(row.lr)
    assert default(said, "--orthogonal-lr") == str(row.orthogonal_lr)
    assert default(said, "--epochs") == str(row.epochs)
    assert default(said, "--nonlinearity") == "tanh"
    assert "  --delay" not in said


def test_all_train_commands_describe_common_options_alike(capsys):
    lines = [
        [*name.split(), *rest] for name in COMMANDS if name.split()[0] == "train" for rest in ([], ["copy"])
    ]
    said = [help_of(capsys, *line).partition("Device, limits and output")[2].split() for line in lines]
    assert all(words == said[0] for words in said)
    for option in ("--out", "--device", "--threads", "--checkpoint-every", "--max-minutes", "--tensorboard"):
        assert option in said[0]


def test_every_pair_has_defaults_and_they_are_those_a_run_gets(capsys):
    from plait.lab.training.options import recommended
    from plait.lab.training.spec import parse_supervised

    for task in TASKS:
        for model in MODELS:
            assert defaults_for([task, f"--model={model}"])["hidden_size"] > 0
    found = defaults_for(["denoise", "--model", "sab"])
    parts = {"task": TASKS["denoise"](), "model": {"name": "sab"}, "recipe": {}}
    run = parse_supervised(parts, recommended).to_json()
    for part in ("task", "model", "recipe"):
        for name, value in run[part].items():
            if name not in ("name", "batch_first", "bias") and name in found:
                assert found[name] == value, name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ["train", "copy", "--dealy", "5"],
            "unknown option --dealy: did you mean --delay? (plait train --help)",
        ),
        (["train", "copy", "--max_minuts=5"], "unknown option --max_minuts: did you mean --max-minutes? "),
        (["runs", "--colour"], "unknown option --colour (plait runs --help)"),
        (["train", "gym", "--steps", "9"], "unknown option --steps: did you mean --total-timesteps? "),
        (["train", "copy", "--steps", "9"], "unknown option --steps: did you mean --updates? "),
        (["train", "copy", "--updates", "1.0005k"], "--updates: expected a whole number, got '1.0005k'"),
        (
            ["train", "copy", "--delay", "five"],
            "--delay: expected a whole number, got 'five' (plait train --help)",
        ),
        (["train", "copy", "--lr=fast"], "--lr: expected a number, got 'fast'"),
        (["train", "copy", "--updates", "9" * 5000], "--updates: expected a whole number, got '999"),
        (["train", "copy", "--test-delays", "3", "x"], "--test-delays: expected a whole number, got 'x'"),
        (["train", "copy", "--delay"], "--delay: expected a value, got none (plait train --help)"),
        (["train", "copy", "--quiet=yes"], "unexpected argument: yes (plait train --help)"),
        (["bench", "layers", "--device", "tpu"], "--device: expected one of auto, cpu, cuda, got 'tpu'"),
        (["generate"], "expected RUN, got none (plait generate --help)"),
        (["runs", "one", "two"], "unexpected argument: two (plait runs --help)"),
        (["runs", "pack", "one", "-o"], "--output: expected a value, got none (plait runs pack --help)"),
        (["runs", "unpack", "a.tar.gz", "--out", ""], "--out: expected a path, got ''"),
        (["train", "copy", "--out="], "--out: expected a path, got ''"),
        (["doctor", "--colour"], "unexpected argument: --colour (plait doctor --help)"),
    ],
)
def test_a_wrong_argument_is_one_line(line, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # in case one is taken for right
    assert main(line) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"plait: error: {words}")
    assert error.count("\n") == 1


def test_every_argument_of_every_command_has_a_description():
    for name in COMMANDS:
        for argument in arguments_of(command(name)):
            assert argument.description, f"{name} {argument.label}"


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        (
            "train",
            ["copy", "--delay", "7", "--lr", "0.01", "--test-delays", "3", "5", "--evaluate-on", "None"],
            {"task": "copy", "delay": 7, "lr": 0.01, "test_delays": (3, 5), "evaluate_on": None},
        ),
        (
            "train",
            ["--resume", "some", "--quiet", "--max_minutes=2", "--out", "a b"],
            {"resume": "some", "quiet": True, "max_minutes": 2.0, "out": Path("a b")},
        ),
        (
            "gradients law",
            ["--eigenvalue", "0.25", "--eigenvalue=-0.5", "--length", "1e3", "--plot", "a.png"],
            {"eigenvalue": ("0.25", "-0.5"), "length": 1e3, "plot": Path("a.png")},
        ),
        (
            "runs pack",
            ["one", "two", "-o", "x.tar.gz", "--light"],
            {"runs": ("one", "two"), "output": Path("x.tar.gz"), "light": True},
        ),
        ("bench layers", ["--device", "cpu", "--quick"], {"device": "cpu", "quick": True}),
    ],
)
def test_arguments_are_read_and_all_others_keep_their_defaults(name, line, expected):
    function = command(name)
    call = read_arguments(function, name, line)
    bound = inspect.signature(function).bind(*call.args, **call.keywords)
    bound.apply_defaults()
    values = {}
    for parameter, value in bound.arguments.items():
        values |= vars(value) if dataclasses.is_dataclass(value) else {parameter: value}
    defaults = {argument.name: argument.default for argument in arguments_of(function)}
    assert values == {**defaults, **expected}


def test_a_place_without_runs_says_what_can_be_typed_there(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("runs", "report"):
        assert main([command]) == 2
        error = capsys.readouterr().err
        assert error == (
            "plait: error: no folder runs; train something first (plait train copy), "
            "or name another folder of runs\n"
        )


def test_every_command_is_in_one_section_of_the_overview(capsys):
    from plait.lab.cli import _SECTIONS, COMMANDS, main

    first_words = [word for words in _SECTIONS.values() for word in words]
    assert sorted(first_words) == sorted({name.split()[0] for name in COMMANDS})
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{title}:\n" in shown for title in _SECTIONS)
    assert all(f"\n  {name} " in shown for name in COMMANDS)
