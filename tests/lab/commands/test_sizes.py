"""Sizes that cannot be are refused in one line, at once: none of these is tried, none goes on for ever."""

import time

import pytest

from plait import estimates
from plait.lab.cli import main

GOOGOL = "1" + "0" * 400
TRAIN = "--hidden 4 --updates 1 --batch-size 2 --evaluate-on 2 --quiet"
REFUSED = {
    "bounds --depth 9223372036854775808 --width 4": "depth: expected at most 10,000, got 9223372036854775808",
    f"bounds --depth 4 --width {GOOGOL}": "width: expected at most 1,000,000,000,000,000, got a number",
    "bounds --depth 4 --width 8 --heads 9223372036854775808": "heads: expected at most",
    "rank --depth 1000000 --width 4": "depth: expected at most 8, got 1000000",
    "rank --depth 2 --width 1000000": "width: expected at most 10,000, got 1000000",
    "rank --depth 2 --width 4 --tokens 1000000000": "take a smaller width, fewer heads or fewer tokens",
    "rank --depth 2 --width 4 --templates 1000000000": "GB are free here",
    "plan judge --depth 1000000000 --width 3": "depth: expected at most 10,000, got 1000000000",
    "plan 1e400": "budget: expected 1e+05 to 1e+15",
    f"train copy {TRAIN} --hidden 2147483648": "hidden_size: expected at most 2,147,483,647, got 2147483648",
    f"train copy {TRAIN} --hidden 500000": "GB are free here; take a smaller hidden size",
    f"train copy {TRAIN} --layers 1000000": "num_layers: expected at most 10,000, got 1000000",
    f"train copy {TRAIN} --batch-size 1000000000": "GB are free here; take a smaller batch",
    f"train copy {TRAIN} --delay 1000000000000": "delay: expected at most 2,147,483,647, got 1000000000000",
    f"train copy {TRAIN} --delay 1000000000": "GB are free here",
    f"train copy {TRAIN} --window 1000000000": "GB are free here",
    f"train copy {TRAIN} --threads 2147483647": "threads: expected at most 1,024, got 2147483647",
    f"train copy {TRAIN} --seed {GOOGOL}": "seed: expected at most 9,223,372,036,854,775,807",
    f"train copy {TRAIN} --clip inf": "clip: expected a finite number, got inf",
    f"train copy {TRAIN} --lr 1e38": "lr: expected at most 1e+37, got 1e+38",
    f"train copy {TRAIN} --clip 1e39": "clip: expected at most 1e+37, got 1e+39",
    f"train copy {TRAIN} --model exprnn --orthogonal-lr 1e38": "orthogonal_lr: expected at most 1e+37",
    f"train copy {TRAIN} --grad-limit 1e39": "grad_limit: expected at most 1e+37, got 1e+39",
    f"train copy {TRAIN} --relevance learned --usage 1e39": "usage: expected at most 1e+37, got 1e+39",
    f"train copy {TRAIN} --model lstm --forget-bias -1e39": "forget_bias: expected a finite number of at",
    "train minigrid --env DoorKey-5x5 --dropout inf": "dropout: expected a finite number",
    "train minigrid --env DoorKey-5x5 --clip-range 1e39": "clip_range: expected at most 1e+37, got 1e+39",
    f"train mqar {TRAIN} --vocab 1000000000": "GB are free here; take a smaller hidden size, fewer layers or",
    f"train mqar {TRAIN} --embedding 9223372036854775808": "embedding: expected at most",
    f"train text {TRAIN} --text /dev/zero": "cannot read /dev/zero: not a plain file",
    "train minigrid --env DoorKey-5x5 --n-envs 1000000000": "GB are free here; take fewer environments",
    "train minigrid --env DoorKey-5x5 --n-steps 1000000000": "GB are free here; take fewer environments",
    "train minigrid --env DoorKey-5x5 --capacity 1000000000": "GB are free here; take a smaller memory",
    "train minigrid --env DoorKey-5x5 --capacity 30000000": "GB are free here; take fewer environments",
    "train minigrid --env DoorKey-5x5 --hidden 1000000": "GB are free here; take a smaller hidden size",
    "tasks show copy --delay 1000000000": "GB are free here; take fewer sequences in a batch",
    "gradients law --eigenvalue 0.5 --length 1e300": "length: expected at most 1,000,000,000",
    "gradients law --eigenvalue 0.5 --start 1000000000000": "start: expected at most 1,000,000,000",
    f"gradients support a-run --seed {GOOGOL}": "seed: expected at most 9,223,372,036,854,775,807",
    f"tasks show copy --seed {GOOGOL}": "seed: expected at most 9,223,372,036,854,775,807",
    "compare --length 1000000000": "GB are free here; take a smaller batch",
    "bench memory --lengths 1000000000000": "lengths: expected at most 2,147,483,647",
    "bench memory --lengths 2 --rows 1000000000": "GB are free here; take fewer steps or rows",
    "bench attention --rows 1000000000": "GB are free here; take fewer steps or rows",
    "bench attention --window 2147483647": "GB are free here; take fewer steps or rows",
    "bench decoding --batch 1000000000": "GB are free here; take fewer or shorter texts, or a smaller model",
    "bench layers --shapes 9999999999x1": "steps: expected at most 2,147,483,647",
    "bench layers --hidden 1000000": "GB are free here; take a smaller hidden size",
    "bench layers --repeats 2147483647": "repeats: expected at most 1,000",
    "bench streaming --steps 9223372036854775808": "steps: expected at most 100,000,000",
    "bench streaming --steps 10 --threads 100000": "threads: expected at most 1,024",
    "bench rank --size 1000000": "GB are free here; take a smaller size",
    "bench rank --repeats 9223372036854775808": "repeats: expected at most 1,000",
    "bench rl --n-envs 1000000000": "GB are free here; take fewer environments",
    f"runs show {'n' * 300}": "n/config.json: File name too long",
    f"report {'n' * 300}": "File name too long",
    "plan judge /dev/zero": "/dev/zero: cannot be read (not a plain file)",
    "rank --check /dev/zero": "/dev/zero: cannot be read (not a plain file)",
}


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line[:60])
def test_refused_before_it_is_tried(line, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(estimates, "available_bytes", lambda device=None: 10**10)
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("plait: error: ")
    assert error.count("\n") == 1
    assert REFUSED[line] in error
    assert time.monotonic() - began < 20
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_bound_that_no_longer_ends_by_hand_falls_back_on_the_closed_form(capsys):
    """Partitions into many parts were counted as none, and each costs the width."""
    for words in (
        "bounds --depth 8 --width 1000000 --tokens 1000",
        "bounds --depth 3 --width 1000000 --tokens 4",
    ):
        began = time.monotonic()
        assert main(words.split()) == 0
        assert "multiset, " in capsys.readouterr().out
        assert time.monotonic() - began < 20
