"""The command that repeats a run: typed again it describes the same run."""

from __future__ import annotations

import json
import shlex
import tarfile
from pathlib import Path

import pytest

from plait.lab.cli import main
from plait.lab.result import CommandResult
from plait.lab.runs.folder import run_id
from plait.lab.training.repeat import repeat_command

RESULTS = Path(__file__).parents[3] / "results"
ARCHIVES = [
    "untangling/table5", "untangling/transfer", "untangling/figure8", "memory/keeping", "rl/table4",
]  # fmt: skip


@pytest.fixture
def typed(monkeypatch):
    """What the command line makes of a command, instead of training it."""
    from plait.lab.commands import train, train_csv, train_policy

    described = []
    for module in (train, train_csv, train_policy):
        taken = lambda description, *rest, **more: described.append(description) or CommandResult({}, ())  # noqa: E731
        monkeypatch.setattr(module, "trained", taken)

    def describe(command):
        program, *words = shlex.split(command)
        assert program == "plait"
        assert main([*words, "--quiet"]) == 0
        return json.loads(json.dumps(described[-1]))

    return describe


def one_of_each(archive):
    """Of an archive's runs one of each task and model, by description."""
    found = {}
    with tarfile.open(RESULTS / f"{archive}.tar.gz") as content:
        for member in content:
            if member.name.endswith("/config.json"):
                description = json.load(content.extractfile(member))
                found.setdefault(json.dumps([description["task"]["name"], description["model"]]), description)
    return list(found.values())


@pytest.mark.parametrize("archive", ARCHIVES)
def test_recorded_runs_are_described_again(archive, typed):
    for description in one_of_each(archive)[:6]:
        again = typed(repeat_command(description))
        assert run_id(again) == run_id({"format": again["format"], **description}), repeat_command(
            description
        )


@pytest.mark.parametrize(
    "command",
    [
        "plait train mqar --length 64 --pairs 4 --model sab --hidden 32 --top-k 3 --every 5 --seed 4",
        "plait train recall --length 30 --at 3 --model transformer --hidden 32 --heads 4 --layers 2",
        "plait train denoise --delay 30 --model relgru --bidirectional --relevance learned --noise 0.1",
        "plait train minigrid --env MemoryS7 --model rellstm --relevance learned --steps 1e5 --lr 0.0003",
        "plait train minigrid --env DoorKey-5x5 --model none --scale-returns",
        "plait train gym --env CartPole-v1 --model gru --time-limit 100",
    ],
)
def test_what_was_typed_is_typed_again(command, typed):
    pytest.importorskip("minigrid", reason="pip install 'plait[rl]'")
    first = typed(command)
    assert typed(repeat_command(first)) == first


@pytest.mark.parametrize("features", ["", " --features width 'a height'"])
def test_a_table_of_ones_own(features, typed, tmp_path):
    rows = [f"{n % 9},{n % 7}.5,{(n * n) % 5}.25,word,{'yes' if n % 3 else 'no'}" for n in range(200)]
    file = tmp_path / "my table.csv"
    file.write_text("\n".join(["person,width,a height,note,answer", *rows]) + "\n")
    command = f"plait train csv '{file}' --target answer --sequence person --asks every --held-out 0.3"
    first = typed(command + features)
    assert typed(repeat_command(first)) == first


def test_data_sets_of_images(typed, digits):
    command = (
        f"plait train pmnist --images {digits.folder} --model rellstm --batch-size 10 --epochs 2 --clip 0"
    )
    first = typed(command)
    assert typed(repeat_command(first)) == first
    assert "--evaluate-on" not in repeat_command(first), "all there is"


@pytest.mark.parametrize(
    "change",
    [
        {"task": {"name": "data", "sha256": "0"}},
        {"task": {"class": "mine.Task"}},
        {"model": {"class": "torch.nn.LSTM", "hidden_size": 4}},
        {"model": {"name": "lstm", "hidden_size": 4, "truncate": 7}},
        {"model": {"name": "lstm", "hidden_size": 4, "bias": False}},
        {"recipe": {"evaluate_on": None}},
        {"task": {"name": "copy", "delay": 3, "later": 1}},
    ],
)
def test_what_no_option_says_has_no_command(change):
    description = {
        "task": {"name": "copy", "delay": 3},
        "model": {"name": "lstm", "hidden_size": 4},
        "recipe": {},
    }
    assert repeat_command(description) == "plait train copy --plain --delay 3 --model lstm --hidden 4"
    assert repeat_command(description | change) is None
