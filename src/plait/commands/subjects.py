"""What `plait gradients probe` examines: a run, a function of one's own, or a Hugging Face folder."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, require
from plait.input import plain_bytes

__all__ = ["Subject", "find_subject", "trained"]

_MOST = 1 << 18  # bytes of a config.json


@dataclass(frozen=True)
class Subject:
    """A model, what it is called with, a loss on what it returns, and a few words on all three."""

    model: Any
    batch: Any
    loss: Callable[[Any], Any]
    about: str
    task: str | None = None


def find_subject(name: str, sequences: int, length: int, seed: int) -> Subject:
    """By what the name is: a folder with a Hugging Face config.json, module:factory, else a run."""
    folder = Path(name)
    if _is_hugging_face(folder):
        return _hugging_face(folder, sequences, length, seed)
    if ":" in name and not folder.exists():
        return _own(name)
    network, task, batch = trained(name, sequences, seed)
    inputs = {"inputs": batch.inputs, "reset": batch.reset}
    if batch.lengths is not None:
        inputs["lengths"] = batch.lengths
    return Subject(
        network,
        inputs,
        lambda output: task.probe_loss(output[0], batch.targets),
        f"on {task.name}",
        task.name,
    )


def trained(run: str, sequences: int, seed: int) -> tuple[Any, Any, Any]:
    """A run's network in float64, its task, and a batch of sequences nobody trained on."""
    import torch

    training = importlib.import_module("plait.training")
    folder = training.find_run(run)
    _, task = training.build(training.read_run(folder).description)
    network = training.load(folder).double()
    held_out = next(iter(task.held_out().values()))
    batch = held_out.batch(sequences, torch.Generator().manual_seed(seed))
    if batch.inputs.is_floating_point():
        batch = batch._replace(inputs=batch.inputs.double())
    return network, task, batch


def _own(name: str) -> Subject:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name}: expected a module and a function in it ({error})") from error
    made = factory() if callable(factory) else None
    if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
        raise ConfigError(
            f"{name}: expected a function that returns model, batch and loss, as plait.gradients.probe takes "
            f"them, got {type(made if made is not None else factory).__name__}"
        )
    return Subject(*made, about="by its own batch and loss")


def _is_hugging_face(folder: Path) -> bool:
    try:
        values = json.loads(plain_bytes(folder / "config.json", _MOST))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "model_type" in values


def _hugging_face(folder: Path, sequences: int, length: int, seed: int) -> Subject:
    """A local folder, nothing fetched; without weights in it the model is as it is initialised."""
    import torch

    transformers = require("transformers", "test")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    causal = type(config) in transformers.AutoModelForCausalLM._model_mapping and not _is_encoder(config)
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    weights = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    torch.manual_seed(seed)
    if weights:
        model = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager")
    else:
        model = kind.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(config.get_text_config().vocab_size, (sequences, length), generator=generator)
    batch = {"input_ids": tokens, "output_attentions": True}

    def surprise(output: Any) -> Any:
        return -output.logits[:, -2].log_softmax(-1).gather(1, tokens[:, -1:]).mean()

    def first(output: Any) -> Any:
        return output.last_hidden_state[:, 0].square().sum()

    words = "as its weights are" if weights else "untrained, the folder holds no weights"
    read = "its surprise at the last token" if causal else "its state at the first token"
    about = f"({words}): {read} of {sequences} sequences of {length} random tokens"
    return Subject(model.eval(), batch, surprise if causal else first, about)


def _is_encoder(config: Any) -> bool:
    """BERT and its kin can be built as decoders; unless they say so they are not."""
    return hasattr(config, "is_decoder") and not config.is_decoder and hasattr(config, "type_vocab_size")
