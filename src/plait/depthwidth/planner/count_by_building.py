"""Parameter counts of models without a formula: `transformers` builds them on the meta device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plait.depthwidth.planner.cost import TWO_LENGTHS, Attention, Kind, Stack
from plait.depthwidth.planner.count import Count
from plait.depthwidth.planner.families import NAMES
from plait.errors import DataError, MissingExtraError, require
from plait.hugging_face import build_empty, make_config

__all__ = ["Built", "count_by_building", "count_module", "read_stack"]

_NORM = re.compile(r"norm|^ln(_|\d?$)", re.IGNORECASE)
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


@dataclass(frozen=True)
class Built:
    """Model that transformers built from a file.

    Attributes:
        model: name of its class.
        decoder: layers of its decoder beside `depth` of an encoder; 0 for a single stack.
        assumed: sizes that the file leaves out, with the defaults of the configuration class.
    """

    depth: int
    width: int
    count: Count
    stack: Stack
    model: str
    decoder: int
    assumed: dict[str, Any]


def count_by_building(values: dict[str, Any]) -> Built:
    """Build the model that a file describes on the meta device, and count it."""
    family = values["model_type"]
    try:
        config = make_config(values)
    except MissingExtraError:
        raise DataError(
            f"model_type {family!r} is counted on the model that transformers builds, which is not "
            "installed (pip install 'plait[hf]'); or give --depth and --width"
        ) from None
    depth, width = _setting(config, "num_hidden_layers"), _setting(config, "hidden_size")
    if depth is None or width is None:
        raise DataError(
            f"model_type {family!r} has no single depth and width to judge; give --depth and --width"
        )
    encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
    model = (
        build_empty(config, ("AutoModelForSeq2SeqLM", "AutoModel"))
        if encoder_decoder
        else build_empty(config)
    )
    mixture = getattr(config, "ffn_config", config)  # DBRX has these settings in a group
    experts = (
        _setting(mixture, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") or 1
    )
    active = _setting(mixture, "num_experts_per_tok", "moe_top_k") or experts
    if active > experts:
        raise DataError(f"active experts: expected at most the {experts} there are, got {active}")
    count = count_module(model, 1 - active / experts)
    decoder = (_setting(config, "decoder_layers", "num_decoder_layers") or depth) if encoder_decoder else 0
    stack = read_stack(model, config, encoder_decoder)
    return Built(depth, width, count, stack, type(model).__name__, decoder, _assumed(values, config, model))


def _assumed(values: dict[str, Any], config: Any, model: Any) -> dict[str, Any]:
    """Return the sizes that the file leaves out, by their names in the configuration class."""
    own = config.to_dict()
    rotary = not any(re.search(r"position|wpe", name) for name, _ in model.named_parameters())
    assumed = {}
    for kind, names in NAMES.items():
        name = next((name for name in names if name in own), None)
        if name is None or own[name] is None or (kind == "positions" and rotary):
            continue
        if not any(key in values for key in names):
            assumed[name] = own[name]
    return assumed


def count_module(model: Any, unused: float = 0.0) -> Count:
    """Count parameters by part, sorted by their names.

    Args:
        unused: share of the experts that a token does not use.
    """
    parts = dict.fromkeys(("attention", "feed_forward", "norms", "embeddings", "output"), 0)
    inactive = 0.0
    base = f"{getattr(model, 'base_model_prefix', '')}."
    headed = getattr(model, "base_model", model) is not model
    for name, parameter in model.named_parameters():
        module = name.split(".")[-2] if "." in name else ""
        if re.search(r"\.\d+\.", name):
            norm, attention = _NORM.search(module), _ATTENTION.search(name)
            part = "norms" if norm else "attention" if attention else "feed_forward"
        elif headed and not name.startswith(base):  # a tied output layer has the name of the embeddings
            part = "output"
        else:
            part = "norms" if _NORM.search(module) and "embed" not in name else "embeddings"
        parts[part] += parameter.numel()
        if re.search(r"\bexperts\b", name) and "shared" not in name:
            inactive += parameter.numel() * unused
    return Count(**parts, inactive=round(inactive))


def read_stack(model: Any, config: Any, encoder_decoder: bool = False) -> Stack:
    """Return the layers of a model, read from its modules and, for windows, its configuration.

    A layer attends if one of its modules is an attention by its class name and has queries or heads; linear
    attention, state space models and convolutions have a state of fixed size instead.

    Args:
        encoder_decoder: the model has both an encoder and a decoder; a built model may not record that.
    """
    depth = config.num_hidden_layers
    if encoder_decoder:
        return Stack(depth, "encoder and decoder", (), unknown=TWO_LENGTHS)
    kind = _kind(model, config)
    layers = next(
        (m for m in model.modules() if type(m).__name__ == "ModuleList" and len(m) == depth > 0), None
    )
    head = _output_layer(model)
    output = sum(p.numel() for p in head.parameters() if p.dim() > 1) if head is not None else 0
    if layers is None:
        reason = "its layers are not a list of modules, each with weights of its own"
        attends = depth if _setting(config, "num_attention_heads") else 0
        return Stack(depth, kind, (Attention(0, 0, 0),) * attends, output=output, unknown=reason)
    types = _layer_types(config, depth)
    shared = _setting(config, "num_kv_shared_layers") or 0
    unknown, attention, recurrent = "", [], 0
    state: int | None = 0
    for i, layer in enumerate(layers):
        layer_type = types[i] if types else ""
        attending = None if layer_type in _NO_ATTENTION else _attention(layer, config)
        mixers = [size for m in layer.modules() if (size := _state_numbers(m)) is not None]
        if mixers or layer_type in _RECURRENT:
            recurrent += 1
            state = state + sum(mixers) if mixers and state is not None else None
        if attending is None:
            if not mixers and layer_type not in _NO_ATTENTION:  # RWKV, xLSTM: state of unknown size
                recurrent, state = recurrent + 1, None
            continue
        flops, cache = _per_token(attending, config)
        window = _window(attending, layer_type, config)
        if layer_type in _SPARSE or flops is None or cache is None or window is None:
            unknown = f"attention of the kind {layer_type or type(attending).__name__} is not supported here"
        caches = kind == "decoder" and i < depth - shared
        attention.append(Attention(window or 0, flops or 0, (cache or 0) if caches else 0))
    notes = ["without the updates of recurrent states"] if recurrent else []
    if _setting(config, "kv_lora_rank") and attention:
        notes.append("with keys and values expanded, as in training; the cache stores their latents")
    return Stack(depth, kind, tuple(attention), recurrent, state, output, unknown, "; ".join(notes))


_RECURRENT = {"linear_attention", "mamba", "conv", "hybrid", "hybrid_sliding", "recurrent"}
_NO_ATTENTION = {"linear_attention", "mamba", "conv", "recurrent", "moe", "mlp"}
_WHOLE = {"full_attention", "hybrid", "global"}
_WINDOWED = {"sliding_attention", "chunked_attention", "hybrid_sliding", "local"}
_WINDOW_SIZES = (
    "local_attention",
    "sliding_window",
    "window_size",
)  # ModernBERT's sliding_window is half of it
_SPARSE = {
    "indexed_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "minimax_m3_sparse",
    "reference_sliding_attention",
}
_QUERIES = re.compile(
    r"^(q|query|q_proj|q_a_proj|q_b_proj|qkv\w*|query_key_value|c_attn|Wqkv|W_pack|in_proj)$"
)


def _kind(model: Any, config: Any) -> Kind:
    """Classify the model by its configuration and by whether its attention is causal."""
    causal = [m.is_causal for m in model.modules() if isinstance(getattr(m, "is_causal", None), bool)]
    if causal and not any(causal):
        return "encoder"
    if getattr(config, "is_decoder", True) is False and hasattr(config, "type_vocab_size"):
        return "encoder"
    transformers = require("transformers", "hf")
    if type(config) in transformers.AutoModelForCausalLM._model_mapping:
        return "decoder"
    return "encoder" if type(config) in transformers.AutoModelForMaskedLM._model_mapping else "other"


def _attention(layer: Any, config: Any) -> Any:
    """Return the attention module of a layer, which has the query projection; None if there is none."""
    by_name = None
    for name, module in layer.named_modules():
        is_attention = _ATTENTION.search(type(module).__name__) or _ATTENTION.search(name.rpartition(".")[2])
        if not is_attention or _state_numbers(module) is not None:
            continue
        if any(_QUERIES.match(child) for child, _ in module.named_children()):
            return module
        by_name = by_name or module
    # RWKV names its recurrence attention; it has no heads.
    return by_name if _setting(config, "num_attention_heads") else None


def _per_token(module: Any, config: Any) -> tuple[int | None, int | None]:
    """Return a layer's operations per attended token and its KV cache entries per token."""
    heads = _setting(config, "num_attention_heads")
    latent, rotary = _setting(config, "kv_lora_rank"), _setting(config, "qk_rope_head_dim")
    if latent and rotary and heads:
        plain, values = _setting(config, "qk_nope_head_dim"), _setting(config, "v_head_dim")
        flops = 2 * heads * (plain + rotary + values) if plain and values else None
        return flops, latent + rotary
    keys, values = _width(module, "k_proj", "key"), _width(module, "v_proj", "value")
    size = _setting(module, "head_dim") or _setting(config, "head_dim")
    if size is None and heads:
        size = (_setting(config, "hidden_size") or 0) // heads
    if not heads or not size:
        return None, None
    if keys and values:
        return 4 * size * heads, keys + values
    names = ("num_key_value_heads", "num_kv_heads")
    return 4 * size * heads, 2 * size * (_setting(module, *names) or _setting(config, *names) or heads)


def _width(module: Any, *names: str) -> int | None:
    """Return the output features of the first of these linear layers that the module has."""
    linear = next((part for name in names if (part := getattr(module, name, None)) is not None), None)
    width = getattr(linear, "out_features", None)
    return width if _is_size(width) else None


def _window(module: Any, layer_type: str, config: Any) -> int | None:
    """Return the attention window of a layer in tokens, 0 for none, None if unknown."""
    if layer_type in _SPARSE:
        return None
    chunk = _setting(config, "attention_chunk_size")
    if layer_type in _WINDOWED:
        return chunk if layer_type == "chunked_attention" else _setting(config, *_WINDOW_SIZES)
    if layer_type not in ("", "attention"):
        return 0 if layer_type in _WHOLE else None
    # Without a list of layer types, transformers gives every layer the window, if one is set.
    return _setting(config, "sliding_window") or chunk or 0


def _layer_types(config: Any, depth: int) -> list[str]:
    """Return the type of each layer, if the configuration lists them, else an empty list."""
    for name in ("layer_types", "layers_block_type", "attention_layers"):
        types = getattr(config, name, None)
        if isinstance(types, list) and len(types) == depth and all(isinstance(kind, str) for kind in types):
            return types
    return []


def _state_numbers(module: Any) -> int | None:
    """Return the state size of a recurrent mixer, None for any other module."""
    heads, key, value = (_setting(module, name) for name in ("num_v_heads", "head_k_dim", "head_v_dim"))
    if heads and key and value:  # a gated delta rule
        return heads * key * value + (_setting(module, "conv_dim") or 0) * (
            _setting(module, "conv_kernel_size") or 0
        )
    inner, state = _setting(module, "intermediate_size"), _setting(module, "ssm_state_size")
    if inner and state:  # Mamba and Mamba-2
        width = _setting(module, "conv_dim") or inner
        return inner * state + width * (_setting(module, "conv_kernel_size") or 0)
    return None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _setting(owner: Any, *names: str) -> int | None:
    """Return the first of these attributes that is a positive integer."""
    values = (getattr(owner, name, None) for name in names)
    return next((value for value in values if _is_size(value)), None)


def _output_layer(model: Any) -> Any:
    """Return the layer that computes the logits, None if there is none."""
    try:
        return model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return None
