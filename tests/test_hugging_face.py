"""Hugging Face folders: their code is never run, files outside are not read, mistakes are one line."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from plait.errors import ConfigError
from plait.lab.cli import main

hub = pytest.importorskip("transformers", reason="the folders are for its models")
SOURCE = Path(__file__).parent.parent / "src" / "plait"
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 30, "n_positions": 64}
CLIP = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
VIT = {"model_type": "vit", **CLIP, "image_size": 8, "patch_size": 4}
LLAMA = {"model_type": "llama", **CLIP, "vocab_size": 30}
LLAVA = {"model_type": "llava", "text_config": LLAMA, "vision_config": VIT}
AUTOS = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoTokenizer")


def write(folder: Path, settings: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def refused(capsys: Any, *line: object) -> str:
    """The one line of an error that is the user's, within twenty seconds of processor time."""
    began = time.process_time()
    code = main([str(word) for word in line])
    err = capsys.readouterr().err
    assert time.process_time() - began < 20
    assert code == 2
    assert err.count("\n") == 1, err
    assert "bug in plait" not in err
    return err


def with_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Write a GPT-2 without its file of weights; return those."""
    torch.manual_seed(0)
    values = {key: value for key, value in GPT2.items() if key != "model_type"}
    model = hub.GPT2LMHeadModel(hub.GPT2Config(**values, bos_token_id=0, eos_token_id=0))
    write(folder, GPT2)
    return {name: value.clone() for name, value in model.state_dict().items() if name != "lm_head.weight"}


# Code


@pytest.mark.parametrize("command", [["plan", "judge"], ["gradients", "probe"]], ids=" ".join)
@pytest.mark.parametrize(
    "settings",
    [{"model_type": "evil"}, GPT2, VIT, LLAVA, {"model_type": "evil", "text_config": LLAMA}],
    ids=["of its own", "gpt2", "vit", "llava", "language part"],
)
def test_python_in_a_folder_is_never_run(command, settings, tmp_path, capsys, monkeypatch):
    """Everybody says yes to every question, and no file appears."""
    trace = tmp_path / "trace"
    classes = dict.fromkeys(AUTOS, "evil.Evil")
    parts = {
        key: {**value, "auto_map": classes} for key, value in settings.items() if isinstance(value, dict)
    }
    folder = write(tmp_path / "model", {**settings, **parts, "auto_map": classes})
    source = f"open({str(trace)!r}, 'w')\nfrom transformers import PreTrainedConfig as Evil\n"
    for name in ("evil.py", "modeling_evil.py", "configuration_evil.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(source)
    for name in ("tokenizer_config.json", "generation_config.json", "processor_config.json"):
        (folder / name).write_text(json.dumps({"auto_map": classes, "custom_generate": "."}))
    if settings is GPT2:
        save_file(with_weights(tmp_path / "other"), folder / "model.safetensors", {"format": "pt"})
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    code = main([*command, str(folder)])
    out, err = capsys.readouterr()
    assert not trace.exists()
    assert "trust_remote_code" not in out + err
    assert "[y/N]" not in out + err
    assert "bug in plait" not in err
    assert code == 0 or settings is not GPT2
    if settings == {"model_type": "evil"}:
        assert code == 2
        assert "is never run" in err


def test_every_call_that_could_run_code_says_no():
    """`from_pretrained` and `from_config` stand in one file, each with trust_remote_code=False."""
    calls = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
            if name in ("from_pretrained", "from_config"):
                calls.append((path.relative_to(SOURCE).name, node))
    assert {name for name, _ in calls} == {"hugging_face.py"}
    assert len(calls) >= 2
    for _, call in calls:
        words = {word.arg: word.value for word in call.keywords}
        trust = words["trust_remote_code"]
        assert isinstance(trust, ast.Constant)
        assert trust.value is False


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


@pytest.mark.parametrize("kind", ["torch", "plain", "index"])
def test_a_pickle_of_objects_is_not_unpickled(kind, tmp_path, capsys):
    trace, folder = tmp_path / "trace", write(tmp_path / "model", GPT2)
    if kind == "plain":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(trace)))
    elif kind == "torch":
        torch.save({"transformer.wte.weight": Payload(trace)}, folder / "pytorch_model.bin")
    else:
        torch.save({"transformer.wte.weight": Payload(trace)}, folder / "shard.bin")
        index = {"weight_map": {"transformer.wte.weight": "shard.bin"}, "metadata": {}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "expected tensors alone, got a pickle that" in refused(capsys, "gradients", "probe", folder)
    assert not trace.exists()


# Files outside


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
@pytest.mark.parametrize("how", ["above", "absolute", "link", "linked folder", "config"])
def test_weights_outside_the_folder_are_refused(how, index, tmp_path, capsys):
    folder, other = tmp_path / "model", tmp_path / "other"
    weights = with_weights(folder)
    other.mkdir()
    name = "weights.safetensors" if index.startswith("model") else "weights.bin"
    if name.endswith(".bin"):
        torch.save(weights, other / name)
    else:
        save_file(weights, other / name, {"format": "pt"})
    named = name
    if how == "above":
        named = f"../other/{name}"
    elif how == "absolute":
        named = str(other / name)
    elif how == "link":
        (folder / name).symlink_to(other / name)
    elif how == "linked folder":
        (folder / "inner").symlink_to(other)
        named = f"inner/{name}"
    listed = {"weight_map": dict.fromkeys(weights, named), "metadata": {}}
    (folder / index).write_text(json.dumps(listed))
    if how == "config":
        (folder / index).unlink()
        write(folder, {**GPT2, "transformers_weights": f"../other/{name}"})
    assert "expected its weights inside it" in refused(capsys, "gradients", "probe", folder)


@pytest.mark.parametrize("layout", ["plain", "cache of the Hub"])
def test_weights_in_shards_are_read(layout, tmp_path, capsys):
    root = tmp_path / "models--x" / "snapshots" / "abc"
    folder = tmp_path / "model" if layout == "plain" else root
    weights = with_weights(folder)
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, part in shards.items():
        path = folder / shard
        if layout != "plain":
            path = tmp_path / "models--x" / "blobs" / shard[0]
            path.parent.mkdir(exist_ok=True)
            (folder / shard).symlink_to(os.path.relpath(path, folder))
        save_file({name: weights[name] for name in part}, path, {"format": "pt"})
    listed = {"weight_map": {n: shard for shard, part in shards.items() for n in part}, "metadata": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
    assert main(["gradients", "probe", str(folder), "--length", "8", "--sequences", "1"]) == 0
    assert "as its weights are)" in capsys.readouterr().out


def test_tensors_that_the_weights_lack_are_named(tmp_path, capsys):
    weights = with_weights(tmp_path)
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert main(["gradients", "probe", str(tmp_path), "--length", "8", "--sequences", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 tensors that they lack are random: transformer.h.1.mlp.c_fc.weight" in out


# Mistakes

T5 = {
    "model_type": "t5",
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "d_kv": 4,
    "d_ff": 8,
    "vocab_size": 30,
}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "encoder and decoder": (T5, "t5 has an encoder and a decoder"),
    "images": (VIT, "vit reads pixel_values: expected a model that reads tokens"),
    "unknown": ({**GPT2, "model_type": "surprise"}, "'surprise' is known neither here nor to transformers"),
    "no heads": ({**GPT2, "n_head": 0}, "transformers cannot build 'gpt2'"),
    "heads that do not divide": ({**GPT2, "n_head": 3}, "transformers cannot build 'gpt2'"),
    "text": ({**GPT2, "n_layer": "12"}, "n_layer"),
    "null": ({**GPT2, "n_embd": None}, "n_embd"),
    "a list": ({**GPT2, "n_embd": [8]}, "n_embd"),
    "no words": ({**GPT2, "vocab_size": 0}, "vocab_size: expected a positive whole number, got 0"),
    "negative": ({**GPT2, "n_positions": -1}, "transformers cannot build 'gpt2'"),
    "a million layers": ({**GPT2, "n_layer": 10**6}, "n_layer: expected at most 10,000, got 1000000"),
    "a million layers of a part": (
        {**LLAVA, "vision_config": {**VIT, "num_hidden_layers": 10**6}},
        "num_hidden_layers: expected at most 10,000",
    ),
    "very wide": ({**GPT2, "n_embd": 10**7}, "GB are free"),
    "many words": ({**GPT2, "vocab_size": 2**40}, "GB are free"),
    "large": ({**LLAMA, "hidden_size": 2**17, "intermediate_size": 2**19}, "GB are free"),
    "labels": ({**GPT2, "num_labels": 10**9}, "num_labels: expected at most 1,000,000"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name, tmp_path, capsys):
    settings, words = MISTAKES[name]
    folder = write(tmp_path / "model", settings)
    assert words in refused(capsys, "gradients", "probe", folder)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[: len(data) // 2], "its weights cannot be loaded"),
        (lambda data: b"", "its weights cannot be loaded"),
        (lambda data: (2**62).to_bytes(8, "little") + data[8:], "its weights cannot be loaded"),
        (lambda data: b"\x00" * len(data), "its weights cannot be loaded"),
    ],
    ids=["cut short", "empty", "header", "zeros"],
)
def test_damaged_weights_are_one_line(damage, words, tmp_path, capsys):
    save_file(with_weights(tmp_path), tmp_path / "model.safetensors", {"format": "pt"})
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert words in refused(capsys, "gradients", "probe", tmp_path)


def test_weights_of_another_size_are_one_line(tmp_path, capsys):
    save_file(with_weights(tmp_path), tmp_path / "model.safetensors", {"format": "pt"})
    write(tmp_path, {**GPT2, "n_embd": 16})
    words = (
        "its weights do not fit its config.json: transformer.h.0.attn.c_attn.bias has (24,), expected (48,)"
    )
    assert words in refused(capsys, "gradients", "probe", tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(write(tmp_path, GPT2) / "model.safetensors")
    assert "expected a plain file of weights" in refused(capsys, "gradients", "probe", tmp_path)


def test_an_adapter_is_refused(tmp_path, capsys):
    (write(tmp_path, GPT2) / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')
    assert "holds an adapter" in refused(capsys, "gradients", "probe", tmp_path)


def test_the_length_is_what_the_model_takes(tmp_path, capsys):
    for positions, words in ((64, "8 sequences of 64 random"), (256, "8 sequences of 128 random")):
        write(tmp_path, {**GPT2, "n_positions": positions})
        assert main(["gradients", "probe", str(tmp_path / "config.json")]) == 0
        assert words in capsys.readouterr().out
    write(tmp_path, GPT2)
    error = refused(capsys, "gradients", "probe", tmp_path, "--length", "65")
    assert "length: expected at most the 64 positions the model has, got 65" in error
    roberta = {**CLIP, "model_type": "roberta", "vocab_size": 30, "max_position_embeddings": 20}
    assert main(["gradients", "probe", str(write(tmp_path, roberta))]) == 0
    assert "8 sequences of 18 random" in capsys.readouterr().out


def test_a_model_whose_state_changes_in_place(tmp_path, capsys):
    rwkv = {"model_type": "rwkv", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2}
    folder = write(tmp_path, {**rwkv, "attention_hidden_size": 8})
    assert main(["gradients", "probe", str(folder), "--length", "8", "--sequences", "1"]) == 0
    assert "RwkvForCausalLM" in capsys.readouterr().out


def test_what_takes_long_is_announced(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("plait.lab.commands.subjects._SILENT", 0.0)
    assert main(["gradients", "probe", str(write(tmp_path, GPT2)), "--sequences", "1"]) == 0
    assert "GB of weights, about" in capsys.readouterr().err


def test_the_time_that_orthogonal_weights_take_is_announced(tmp_path, capsys, monkeypatch):
    """A probe of an RWKV of 300 million weights takes 8 s of a processor; drawing them takes 58."""

    def ends(*_):
        raise ConfigError("announced")

    for name, value in {
        "_SILENT": 0.0,
        "_PER_SECOND": 1e4,
        "build_random": ends,
        "load_weights": ends,
    }.items():
        monkeypatch.setattr(f"plait.lab.commands.subjects.{name}", value)
    rwkv = {"model_type": "rwkv", "vocab_size": 30, "hidden_size": 64, "num_hidden_layers": 2}
    folder = write(tmp_path, {**rwkv, "attention_hidden_size": 64})
    seconds = []
    for _ in range(2):
        assert main(["gradients", "probe", str(folder), "--length", "2", "--sequences", "1"]) == 2
        about = capsys.readouterr().err.partition("about ")[2].partition(" s")[0]
        seconds.append(int(about.replace(",", "")))
        save_file({}, folder / "model.safetensors")
    assert seconds[0] > 10 * seconds[1]
