"""Subjects of `plait gradients probe`: a run, a factory function, or a Hugging Face folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, DataError, require
from plait.estimates import check_fits
from plait.files import plain_bytes
from plait.hugging_face import (
    build_empty,
    build_random,
    load_tokenizer,
    load_weights,
    make_config,
    one_line_errors,
    read_settings,
    weights_of,
)

__all__ = ["Subject", "find_subject", "trained"]

USUAL_LENGTH = 128  # tokens of a sequence
_MOST_TEXT = 2**24  # bytes of a text
_SILENT = 10.0  # seconds of work that need no announcement
# On one or two CPU cores: multiply-adds and loaded bytes per second, and seconds of overhead per module.
_PER_SECOND, _LOADED_PER_SECOND, _PER_MODULE = 2e10, 4e8, 1e-3


@dataclass(frozen=True)
class Subject:
    """A model, its input batch, a loss of its output, and a short description of all three."""

    model: Any
    batch: Any
    loss: Callable[[Any], Any]
    about: str
    task: str | None = None


def find_subject(
    name: str, sequences: int, length: int | None, seed: int, text: Path | None = None
) -> Subject:
    """Load a subject by its name: a folder with a Hugging Face config.json, module:factory, else a run."""
    folder = Path(name)
    values = _settings(folder)
    if values is not None:
        return _hugging_face(folder, values, sequences, length, seed, text)
    if text is not None:
        raise ConfigError(f"--text is read by a Hugging Face model, which {name} is not")
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
    """Return a run's network in float64, its task, and a batch of held-out sequences."""
    import torch

    from plait.lab.runs.reading import find_run, read_run
    from plait.lab.training.session import load
    from plait.lab.training.spec import task_of

    folder = find_run(run)
    task = task_of(read_run(folder).description)
    network = load(folder).double()
    held_out = next(iter(task.held_out().values()))
    batch = held_out.batch(sequences, torch.Generator().manual_seed(seed))
    if batch.inputs.is_floating_point():
        batch = batch._replace(inputs=batch.inputs.double())
    return network, task, batch


def _own(name: str) -> Subject:
    module, _, attribute = name.partition(":")
    cwd = str(Path.cwd())
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name}: expected a module and a function in it ({error})") from error
    parts = factory() if callable(factory) else None
    if not isinstance(parts, tuple) or len(parts) != 3 or not callable(parts[2]):
        raise ConfigError(
            f"{name}: expected a function that returns model, batch and loss, as plait.gradients.probe takes "
            f"them, got {type(parts if parts is not None else factory).__name__}"
        )
    return Subject(*parts, about="by its own batch and loss")


def _settings(folder: Path) -> dict[str, Any] | None:
    """Return the settings of a Hugging Face folder or config.json, None for anything else."""
    try:
        values = read_settings(folder)
    except DataError:
        if folder.is_file():
            raise
        return None
    return values if "model_type" in values else None


def _hugging_face(
    folder: Path, values: dict[str, Any], sequences: int, length: int | None, seed: int, text: Path | None
) -> Subject:
    """Load a local folder's model without any download; if the folder has no weights, they are random."""
    import torch

    folder = folder if folder.is_dir() else folder.parent
    if (folder / "adapter_config.json").exists():
        raise ConfigError(f"{folder}: holds an adapter; merge it into its model first (merge_and_unload)")
    weights = weights_of(folder, values)
    config = make_config(values)
    kind, causal = _kind_of(config)
    planned = build_empty(config, (kind,))
    vocab = _check_reads_tokens(planned, config)
    length = _fitting_length(planned, config, length)
    _check_affordable(planned, config, sequences, length, vocab, is_random=weights is None)
    torch.manual_seed(seed)
    missing: list[str] = []
    if weights is not None:
        model, missing = load_weights(folder, config, kind)
    else:
        model = build_random(config, kind)
    for part in (model.config, model.config.get_text_config()):
        part.use_cache = False  # RWKV would update its states in place and lose their gradients
    model.forward = one_line_errors(
        model.forward, f"{folder}: its model does not run on {sequences} sequences of {length} random tokens"
    )
    kind_of_tokens = "random tokens" if text is None else f"tokens of {text.name}"
    if text is None:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(vocab, (sequences, length), generator=generator)
    else:
        tokens = _tokens_of(text, folder, sequences, length, vocab)
    batch = {"input_ids": tokens, "output_attentions": True}

    def surprise(output: Any) -> Any:
        return -output.logits[:, -2].log_softmax(-1).gather(1, tokens[:, -1:]).mean()

    def first(output: Any) -> Any:
        return output.last_hidden_state[:, 0].square().sum()

    state = "as its weights are" if weights is not None else "untrained, the folder holds no weights"
    if missing:
        state += f", but {len(missing)} tensors that they lack are random: {', '.join(missing[:3])}"
        state += " …" if len(missing) > 3 else ""
    loss_name = "its loss at the last token" if causal else "its state at the first token"
    about = f"({state}): {loss_name} of {len(tokens)} sequences of {length} {kind_of_tokens}"
    return Subject(model.eval(), batch, surprise if causal else first, about)


def _tokens_of(text: Path, folder: Path, sequences: int, length: int, vocab: int) -> Any:
    """Return pieces of a text, spread over it, as the folder's tokenizer reads them: (sequences, length)."""
    import torch

    try:
        words = plain_bytes(text, _MOST_TEXT).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"text: cannot read {text} as UTF-8 text: {error}") from error
    ids = load_tokenizer(folder)(words, add_special_tokens=False)["input_ids"]
    count = min(sequences, len(ids) // length)
    if not count:
        raise ConfigError(
            f"text: expected at least {length:,} tokens in {text}, got {len(ids):,}; take a smaller --length"
        )
    if max(ids) >= vocab:
        raise DataError(f"{folder}: its tokenizer has token {max(ids):,}, its model {vocab:,}")
    starts = [index * (len(ids) - length) // max(count - 1, 1) for index in range(count)]
    return torch.tensor([ids[start : start + length] for start in starts])


def _kind_of(config: Any) -> tuple[str, bool]:
    """Return which of transformers' classes builds the model, and whether it predicts the next token."""
    transformers = require("transformers", "hf")
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigError(
            f"{config.model_type} has an encoder and a decoder, which take a sequence each: expected one of "
            "them; plait.gradients.probe takes a batch of your own"
        )
    causal = type(config) in transformers.AutoModelForCausalLM._model_mapping and not _is_encoder(config)
    return ("AutoModelForCausalLM" if causal else "AutoModel"), causal


def _is_encoder(config: Any) -> bool:
    """Return whether a model of BERT's kind is an encoder: it is unless its config sets `is_decoder`."""
    return hasattr(config, "is_decoder") and not config.is_decoder and hasattr(config, "type_vocab_size")


def _check_reads_tokens(model: Any, config: Any) -> int:
    """Return the vocabulary size; raise for images, sound and pairs of inputs: only tokens are generated."""
    vocab = getattr(config.get_text_config(), "vocab_size", None)
    reads = getattr(model, "main_input_name", "input_ids")
    if reads != "input_ids" or vocab is None:
        raise ConfigError(
            f"{config.model_type} reads {reads}: expected a model that reads tokens; plait.gradients.probe "
            "takes a batch of your own"
        )
    return _positive("vocab_size", vocab)


def _positive(name: str, value: Any) -> int:
    """Return a setting that must be a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"{name}: expected a positive whole number, got {value!r}")
    return value


def _fitting_length(model: Any, config: Any, length: int | None) -> int:
    """Return the number of tokens: as requested, else `USUAL_LENGTH` or as many as the model accepts."""
    most = getattr(config.get_text_config(), "max_position_embeddings", None)
    most = most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if padding is not None and "position" in name.rpartition(".")[2]:
            # RoBERTa and its relatives count positions from the one after the padding index.
            last = module.num_embeddings - padding - 1
            most = last if most is None else min(most, last)
    if length is None:
        length = USUAL_LENGTH if most is None else min(USUAL_LENGTH, most)
        return max(2, length)
    if most is not None and length > most:
        raise ConfigError(f"length: expected at most the {most:,} positions the model has, got {length:,}")
    return length


def _check_affordable(
    model: Any, config: Any, sequences: int, length: int, vocab: int, is_random: bool
) -> None:
    """Raise if the probe does not fit into memory, before anything is allocated; announce long ones."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    weights += sum(b.numel() * b.element_size() for b in model.buffers())
    text = config.get_text_config()
    layers, width, heads = (
        number if isinstance(number := getattr(text, name, None), int) else 1
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    tokens = sequences * length
    # Per layer about ten states, and the scores and weights of every head; then logits and their gradient.
    numbers = tokens * (layers * (10 * width + 3 * heads * length) + 3 * vocab)
    check_fits(weights + 4.0 * numbers, "take a smaller model, fewer --sequences or a smaller --length")
    modules = sum(1 for _ in model.modules())
    products = 6.0 * sum(p.numel() for p in model.parameters()) * tokens
    if is_random and config.model_type == "rwkv":
        # Its matrices are drawn orthogonal: a QR decomposition each, and Q from its reflections.
        products += sum(2.0 * p.numel() * min(p.shape) for p in model.parameters() if p.dim() == 2)
    seconds = products / _PER_SECOND + weights / _LOADED_PER_SECOND + modules * _PER_MODULE
    if seconds > _SILENT:
        sys.stderr.write(f"plait: {weights / 1e9:,.1f} GB of weights, about {seconds:,.0f} s of work\n")
        sys.stderr.flush()
