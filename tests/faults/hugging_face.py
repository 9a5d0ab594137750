"""Random Hugging Face folders: settings changed, weights damaged, code and pickles beside them.

Each case writes one folder by a seed and runs `plait plan judge` and `plait gradients probe` on it. What may
come of it: the command does its work, or says in one line why not, within twenty seconds or after a line
that announces it. Nothing of the folder is run, and nothing is written.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import random
import resource
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from tests.faults.isolation import OURS, Said, command, isolated

LONGEST = 20  # seconds of a processor for one command
FLOOD = 6 * 2**30  # bytes that a command may ask for beyond what the process has
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 48,
}
GPT = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 48}
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "num_local_experts": 3, "num_experts": 3}
CLIP = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 4},
    "gpt_neo": {
        "vocab_size": 40,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "window_size": 4,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 48,
    },
    "gpt_neox": SIZES,
    "opt": {**SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "bloom": {"vocab_size": 40, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    "falcon": SIZES,
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 8},
    "qwen2": GROUPED,
    "qwen3_moe": {**EXPERTS, "moe_intermediate_size": 8},
    "mixtral": EXPERTS,
    "phi3": GROUPED,
    "gemma2": {**GROUPED, "sliding_window": 8},
    "gemma3_text": {**GROUPED, "sliding_window": 8},
    "gpt_oss": {**EXPERTS, "sliding_window": 8},
    "cohere2": GROUPED,
    "olmo3": GROUPED,
    "bert": SIZES,
    "roberta": SIZES,
    "modernbert": {**SIZES, "pad_token_id": 0},
    "albert": SIZES,
    "distilbert": {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "t5": {"vocab_size": 40, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 24},
    "bart": {
        "vocab_size": 40,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    },
    "vit": {**CLIP, "image_size": 8, "patch_size": 4},
    "clip": {
        "text_config": {**CLIP, "vocab_size": 40},
        "vision_config": {**CLIP, "image_size": 8, "patch_size": 4},
    },
    "llava": {
        "text_config": {"model_type": "llama", **GROUPED},
        "vision_config": {"model_type": "clip_vision_model", **CLIP, "image_size": 8, "patch_size": 4},
    },
    "mamba": {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "rwkv": {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16},
    "jamba": {
        **EXPERTS,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_state": 4,
        "mamba_dt_rank": 2,
    },
    "qwen3_next": {
        **EXPERTS,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "full_attention_interval": 2,
    },
    "deepseek_v3": {
        **SIZES,
        "num_key_value_heads": 2,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 4,
        "first_k_dense_replace": 1,
    },
}
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    "12",
    "x",
    "",
    [],
    {},
    [1],
    [[]],
    {"a": 1},
    -1,
    0,
    1,
    2.5,
    7,
    10**4,
    10**6,
    10**7,
    10**9,
    2**31,
    2**63,
    10**30,
    float("nan"),
    float("inf"),
    -0.5,
    "../x",
    "eager",
    "float16",
    ["full_attention"],
)


class Payload:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def code_that_writes(folder: Path, trace: Path, settings: dict[str, Any]) -> None:
    """Put Python into a folder, and name it wherever a Hugging Face folder can name it."""
    autos = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoTokenizer")
    classes = dict.fromkeys(autos, "evil.Evil")
    source = f"open({str(trace)!r}, 'w')\nfrom transformers import *\nclass Evil(PreTrainedConfig): pass\n"
    for name in ("evil.py", "modeling_evil.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)
    settings["auto_map"] = classes
    for part in ("text_config", "vision_config"):
        if isinstance(settings.get(part), dict):
            settings[part]["auto_map"] = classes
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": classes, "tokenizer_class": "Evil"})
    )
    (folder / "generation_config.json").write_text(json.dumps({"auto_map": classes, "custom_generate": "."}))


def _changed(draw: random.Random, settings: dict[str, Any]) -> None:
    """Change one setting, of the file or of those its class knows, at the top or in a part."""
    parts = [settings, *(value for value in settings.values() if isinstance(value, dict))]
    place = draw.choice(parts)
    known = [key for key in place if key != "model_type"]
    family = settings.get("model_type")
    if place is settings and isinstance(family, str) and family in FAMILIES and draw.random() < 0.4:
        known = sorted(transformers.CONFIG_MAPPING[family]().to_dict())
    match draw.choice(("value", "value", "value", "missing", "unknown", "family")):
        case "value" if known:
            place[draw.choice(known)] = draw.choice(STRANGE)
        case "missing" if known:
            place.pop(draw.choice(known), None)
        case "unknown":
            place[draw.choice(("n_things", "layers", "window", "x" * 300))] = draw.choice(STRANGE)
        case _ if draw.random() < 0.3:
            settings["model_type"] = draw.choice((*FAMILIES, "nothing", "", None, 3))
            # Its own sizes beside the others': those of its class would be a model of full size.
            settings.update(json.loads(json.dumps(FAMILIES.get(str(settings["model_type"]), {}))))


def _weights(draw: random.Random, folder: Path, settings: dict[str, Any], trace: Path) -> None:
    """Write weights that fit the settings as they were, and perhaps damage them."""
    kind = draw.choice(("none", "none", "good", "truncated", "flipped", "empty", "pickle", "index", "header"))
    if kind == "none":
        return
    if kind == "pickle":
        data: Any = draw.choice((Payload(trace), {"a": Payload(trace)}, [1], {"a": torch.ones(2)}))
        if draw.random() < 0.5:
            torch.save(data, folder / "pytorch_model.bin")
        else:
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(data))
        return
    torch.manual_seed(0)
    try:
        config = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
        model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    except Exception:
        tensors = {"a": torch.ones(2)}
    else:
        tensors = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
    path = folder / "model.safetensors"
    if kind == "index":
        target = draw.choice(("model-1.safetensors", "../x.safetensors", "/dev/zero", "missing", "", 3))
        save_file(tensors, folder / "model-1.safetensors")
        listed: Any = dict.fromkeys(tensors, target)
        usual: Any = {"weight_map": listed, "metadata": {}}
        whole = draw.choice((usual, usual, {"weight_map": listed}, {"weight_map": []}, []))
        (folder / "model.safetensors.index.json").write_text(json.dumps(whole))
        return
    save_file(tensors, path)
    data = path.read_bytes()
    match kind:
        case "truncated":
            path.write_bytes(data[: draw.randrange(len(data))])
        case "flipped":
            spot = draw.randrange(min(len(data), 2000))
            path.write_bytes(data[:spot] + bytes([data[spot] ^ 0xFF]) + data[spot + 1 :])
        case "empty":
            path.write_bytes(b"")
        case "header":
            path.write_bytes(draw.choice((2**62, 0, 5)).to_bytes(8, "little") + data[8:])


@functools.cache
def _warm(family: str) -> None:
    """Import what a family needs, so that no forked child has to."""
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    config = transformers.CONFIG_MAPPING[family]()
    for kind in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModel"):
        if type(config) in (mapping := getattr(transformers, kind)._model_mapping):
            mapping[type(config)]


def one_case(number: int, seed: int, where: Path) -> tuple[str, list[str]]:
    """Return the family of a case and what is wrong with what came of it."""
    draw = random.Random(f"{seed} {number}")
    family = draw.choice(sorted(FAMILIES))
    folder, trace = where / "model", where / "trace"
    folder.mkdir(parents=True)
    _warm(family)
    settings = {"model_type": family, **json.loads(json.dumps(FAMILIES[family]))}

    def work() -> list[str]:
        torch.set_num_threads(1)
        original = json.loads(json.dumps(settings))
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            _changed(draw, settings)
        _weights(draw, folder, original, trace)
        if draw.random() < 0.3:
            code_that_writes(folder, trace, settings)
        (folder / "config.json").write_text(json.dumps(settings))
        resource.setrlimit(resource.RLIMIT_AS, (_size() + FLOOD, resource.RLIM_INFINITY))
        os.chdir(where)
        before = sorted(path.name for path in folder.rglob("*"))
        wrong = []
        for line in (["plan", "judge", folder], ["gradients", "probe", folder, "--sequences", "2"]):
            sys.stdin = io.StringIO("y\n" * 100)
            began = _seconds()
            wrong += _judged(line, command(*line), _seconds() - began)
        if sorted(path.name for path in folder.rglob("*")) != before:
            wrong.append("the folder was written to")
        return wrong

    status, answer = isolated(work, 10 * LONGEST)  # a line that was announced may take long
    config = folder / "config.json"
    about = config.read_text()[:600] if config.exists() else ""
    wrong = answer if status == "done" else [f"{status}: {answer}"]
    if trace.exists():
        wrong.append("code of the folder was run")
    return family, [f"{one}\n  {about}" for one in wrong]


def _judged(line: list[object], said: Said, seconds: float) -> list[str]:
    name = " ".join(map(str, line[:2]))
    silent = "GB of weights" not in said.err
    wrong = [f"{name}: {seconds:.0f} s"] if silent and seconds > LONGEST else []
    lines = said.err.splitlines(keepends=True)  # what takes long is announced before it
    said = Said(said.code, said.out, "".join(row for row in lines if "GB of weights" not in row))
    if said.code and not said.told:
        wrong.append(f"{name}: {said.code} {said.err[-900:]}")
    if "Traceback" in said.err + said.out or OURS in said.err:
        wrong.append(f"{name}: {said.err[-900:]}")
    return wrong


def _seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _size() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
