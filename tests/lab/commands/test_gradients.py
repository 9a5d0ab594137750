"""`plait gradients …` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plait.lab.cli import main
from plait.lab.runs.reading import read_run
from plait.lab.training.description import build
from plait.lab.training.fit import fit
from plait.lab.training.gradient_record import gradient_norms
from plait.lab.training.recipe import Recipe
from plait.lab.training.session import load


def run(capsys: Any, *args: str) -> tuple[int, str, str]:
    code = main(["gradients", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_law_prints_three_laws_side_by_side(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "0.25", "--eigenvalue", "-0.5", "--length", "1e5")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split("  ")[0] == "eigenvalue"
    assert lines[2].split() == ["0.25", "T^-0.7500", "T^-0.6667", "-0.6667", "yes"]
    assert lines[3].split() == ["-0.5", "T^-1.0000", "T^-1.3333", "-1.333", "no"]
    assert "follows T^-0.6667" in out


def test_law_as_json(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "-0.3+0.6j", "--length", "1e5", "--json")
    assert code == 0
    record = json.loads(out)
    (law,) = record["laws"]
    assert law["eigenvalue"] == "-0.3+0.6j"
    assert law["measured"] == pytest.approx(-1.3659, abs=2e-3)
    assert record["together"]["reaches_inverse_length"] is False
    assert len(law["lengths"]) == len(law["log_abs"]) > 100


def test_law_with_mix_and_start(capsys: Any) -> None:
    code, out, _ = run(
        capsys, "law", "--eigenvalue", "1", "--mix", "0.5", "--start", "3", "--length", "20000", "--json"
    )
    assert code == 0
    law = json.loads(out)["laws"][0]
    assert law["sharp"] == pytest.approx(0)
    assert law["measured"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("count", [2, 8])
def test_law_draws(capsys: Any, tmp_path: Path, count: int) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "law.svg"
    values = [f"--eigenvalue={0.1 * i:.1f}" for i in range(count)]
    code, out, _ = run(capsys, "law", *values, "--length", "1e4", "--plot", str(picture))
    assert code == 0
    assert str(picture) in out
    assert picture.read_text().startswith("<?xml")


def test_unit_circle_is_a_documented_limit(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "1j", "--length", "1e5")
    assert code == 0
    assert "T^0.5000" in out
    assert "does not apply" in out


def test_near_one_no_power_is_named_before_it_begins(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "0.999999", "--length", "1e5")
    assert code == 0
    assert "T^999998" not in out
    assert "not before T ≈ 1e+13" in out
    assert "no power is named" in out
    record = json.loads(run(capsys, "law", "--eigenvalue", "0.999999", "--length", "1e5", "--json")[1])
    assert record["together"] is None
    assert record["laws"][0]["reached"] is False
    reached = json.loads(run(capsys, "law", "--eigenvalue", "0.9", "--length", "1e5", "--json")[1])
    assert reached["laws"][0]["reached"] is True
    assert reached["laws"][0]["measured"] == pytest.approx(8, abs=0.1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "eigenvalue: expected at least one"),
        (("--eigenvalue", "1"), "no power of T"),
        (("--eigenvalue", "1.5"), "|λ| < 1"),
        (("--eigenvalue", "nan"), "finite"),
        (("--eigenvalue", "abc"), "got 'abc'"),
        (("--eigenvalue", "0.5", "--length", "10"), "to fit a slope"),
        (("--eigenvalue", "0.5", "--length", "1000.5"), "whole number"),
        (("--eigenvalue", "0.5", "--plot", "a.txt"), "ending in .png"),
        (("--eigenvalue", "0.5", "--start", "0"), "start: expected at least 1"),
    ],
)
def test_mistakes_are_one_line(capsys: Any, args: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, "law", *args)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("seed", "-1", "seed: expected at least 0"), ("sequences", "0", "sequences"), ("length", "1", "length")],
)
def test_what_a_probe_cannot_draw_is_refused(capsys: Any, option: str, value: str, message: str) -> None:
    code, _, err = run(capsys, "probe", "no-such-run", f"--{option}", value)
    assert code == 2
    assert message in err


@pytest.mark.slow
def test_ten_million_steps_of_fifty_eigenvalues(capsys: Any) -> None:
    import time

    pytest.importorskip("numba")
    values = [f"--eigenvalue={-0.95 + 0.036 * i:.3f}" for i in range(50)]
    begin = time.process_time()  # of this process, whatever else runs on its core
    code, _, _ = run(capsys, "law", *values, "--length", "1e7")
    assert code == 0
    assert time.process_time() - begin < 10


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small trained runs, one per kind of model."""
    out = tmp_path_factory.mktemp("runs")
    found = {}
    for name in ("relrnn", "rellstm", "lstm"):
        recipe = Recipe(updates=3, batch_size=4, evaluate_every=3, evaluate_on=4)
        options = {"window": 3, "capacity": 2} if name.startswith("rel") else {}
        description = {
            "task": {"name": "copy", "delay": 5},
            "model": {"name": name, "hidden_size": 6, **options},
            "recipe": recipe.values(),
        }
        network, task = build(description)
        fit(network, task, recipe, folder=out / name, device="cpu")
        found[name] = str(out / name)
    return found


def test_support_of_a_run(capsys: Any, runs: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "support.svg"
    code, out, _ = run(capsys, "support", runs["relrnn"], "--plot", str(picture))
    assert code == 0
    assert "κ = 5" in out
    assert "measured norm" in out
    text = picture.read_text()
    for words in ("size of ds_T/dh_t", "κ = 5, deepest state", "measured ‖ds_T/dh_t‖"):
        assert words in text
    code, out, _ = run(capsys, "support", runs["rellstm"], "--json")
    record = json.loads(out)
    assert record["kappa"] == 5
    assert record["log_bound"] is None
    assert len(record["log_norm"]) == len(record["depth"]) == 25


def test_probe_of_a_run(capsys: Any, runs: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, path in runs.items():
        picture = tmp_path / f"{name}.png"
        code, out, _ = run(capsys, "probe", path, "--sequences", "3", "--plot", str(picture))
        assert code == 0
        assert "copy" in out
        assert picture.exists()
    code, out, _ = run(capsys, "probe", runs["lstm"], "--json")
    assert len(json.loads(out)["layers"][0]["norms"]) == 25


def test_probe_of_a_function_of_ones_own(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_to_probe.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def make():\n    return nn.GRU(3, 4), torch.randn(30, 2, 3), lambda output: output[0][-1].sum()\n\n"
        "def half():\n    return nn.GRU(3, 4)\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "probe", "mine_to_probe:make")
    assert code == 0
    assert " of 30 positions" in out
    for name, words in (
        ("half", "returns model, batch and loss"),
        ("nothing", "a module and a function in it"),
    ):
        code, _, err = run(capsys, "probe", f"mine_to_probe:{name}")
        assert code == 2
        assert words in err


def test_probe_of_a_hugging_face_folder(capsys: Any, tmp_path: Path) -> None:
    hub = pytest.importorskip("transformers", reason="the folder is one of its models")
    sizes = {"vocab_size": 30, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2}
    model = hub.GPT2LMHeadModel(hub.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    model.save_pretrained(tmp_path / "gpt2")
    code, out, _ = run(capsys, "probe", str(tmp_path / "gpt2"), "--length", "20")
    assert code == 0
    assert "its loss at the last token of 8 sequences of 20 random tokens" in out
    assert "felt at 19 of 20 positions (1 comes after what the loss reads)" in out
    config = {
        "vocab_size": 30,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    hub.BertConfig(**config).save_pretrained(tmp_path / "bert")
    code, out, _ = run(capsys, "probe", str(tmp_path / "bert"), "--length", "20")
    assert code == 0
    assert "untrained, the folder holds no weights" in out
    assert "felt at 20 of 20 positions" in out


def test_probe_and_support_agree_on_depth(capsys: Any, runs: dict[str, str]) -> None:
    for name in ("relrnn", "rellstm"):
        support = json.loads(run(capsys, "support", runs[name], "--json")[1])
        probed = json.loads(run(capsys, "probe", runs[name], "--sequences", "1", "--json")[1])
        assert probed["layers"][0]["attention"]["depth"] == support["depth"]
        assert 0 < max(support["depth"]) < 25


def test_probe_equals_the_trainers_record(runs: dict[str, str]) -> None:
    """Two ways to the same numbers: the probe's taps, and the record a run keeps while it trains."""
    import torch

    from plait.gradients import probe

    network = load(runs["rellstm"]).double()
    _, task = build(read_run(Path(runs["rellstm"])).description)
    batch = task.batch(4, torch.Generator().manual_seed(1))
    batch = batch._replace(inputs=batch.inputs.double())
    recorded = gradient_norms(network, task, batch, [(0, 4)])
    probed = probe(network, batch.inputs, lambda output: task.probe_loss(output[0], batch.targets))
    assert probed.layers[0].norms == pytest.approx(recorded[0], rel=1e-9)


@pytest.mark.parametrize("command", ["support", "probe"])
def test_no_such_run(capsys: Any, command: str) -> None:
    code, _, err = run(capsys, command, "no-such-run")
    assert code == 2
    assert "no-such-run" in err


def test_support_needs_a_memory(capsys: Any, runs: dict[str, str]) -> None:
    code, _, err = run(capsys, "support", runs["lstm"])
    assert code == 2
    assert "no memory" in err


def test_a_hugging_face_model_reads_a_text(capsys: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    letters = {chr(code): code for code in range(128)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    sizes = {"vocab_size": 128, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=5, **sizes))
    model.save_pretrained(tmp_path / "model")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
    fast.save_pretrained(tmp_path / "model")
    text = tmp_path / "book.txt"
    text.write_text("abcde fghij " * 4)
    capsys.readouterr()
    words = ["gradients", "probe", str(tmp_path / "model"), "--text", str(text)]
    assert main([*words, "--length", "12"]) == 0
    shown = capsys.readouterr().out
    assert "of 4 sequences of 12 tokens of book.txt" in shown
    assert re.search(r"^model.layers.0 +11 of 12 ", shown, re.MULTILINE)
    assert shown.count("reaches:") == 1, "of many layers one sentence, on the input"
    assert main([*words, "--length", "49"]) == 2
    assert "expected at least 49 tokens in" in capsys.readouterr().err
