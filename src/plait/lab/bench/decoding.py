"""`plait bench decoding`: a language model that generates with a bounded cache, and with those that grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from plait.errors import ConfigError, check_choice, check_int
from plait.estimates import FLOAT, check_fits
from plait.lab.bench.sizes import parse_numbers
from plait.lab.bench.timing import limit_threads
from plait.lab.caches.decoding import CACHES, LLAMA_1B, measure_decoding
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.training.process import device_named
from plait.table import Table

__all__ = ["bench_decoding", "decoding_table"]

_HEAD = 64  # features of a head; Llama's ratios of heads, KV heads and hidden layers to the hidden size


def bench_decoding(
    lengths: str = "1024,8192,32768",
    caches: str = ",".join(CACHES),
    batch: int = 8,
    slots: int = 512,
    policy: str = "sinks",
    steps: int = 64,
    layers: int = LLAMA_1B["num_hidden_layers"],
    hidden: int = LLAMA_1B["hidden_size"],
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Time decoding after prompts of random tokens with `BoundedCache`, `DynamicCache` and `StaticCache`.

    The model is a Llama of random weights, by default of the sizes of Llama-3.2-1B, in bfloat16 on a GPU.

    Args:
        lengths: tokens of the prompt, comma-separated.
        caches: those to time, comma-separated: bounded, dynamic, static.
        batch: texts decoded together.
        slots: states that a head of the bounded cache keeps.
        policy: of the bounded cache.
        steps: tokens that are timed.
        layers: of the model.
        hidden: size of the model, a multiple of 256.
        device: device to run on.
        threads: threads of the CPU; by default torch's own number.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write, after each cache and length.
    """
    check_folder(out)
    check_int(1, layers=layers, hidden=hidden, batch=batch)
    if hidden % (4 * _HEAD):
        raise ConfigError(f"hidden: expected a multiple of {4 * _HEAD}, got {hidden}")
    kinds = [check_choice(kind.strip(), CACHES, "cache") for kind in caches.split(",")]
    sizes = {
        **LLAMA_1B,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_attention_heads": hidden // _HEAD,
        "num_key_value_heads": hidden // (4 * _HEAD),
    }
    target = device_named(device)
    counts = parse_numbers(lengths, "lengths")
    numbers = layers * (15 * hidden**2 + batch * max(counts) * hidden // 2) + 2 * hidden * sizes["vocab_size"]
    number_size = 2 if target.type == "cuda" else FLOAT
    check_fits(number_size * numbers, "take fewer or shorter texts, or a smaller model", str(target))
    with limit_threads(threads) as used:
        data: dict[str, Any] = {**circumstances(target, used, commit or None), "sizes": sizes, "times": []}
        measured = measure_decoding(
            target,
            counts,
            caches=kinds,
            batch=batch,
            slots=slots,
            policy=policy,
            steps=steps,
            sizes=sizes,
        )
        for record in measured:
            data["times"].append(record)
            if out:
                write_json(out, data)
    notes = [f"batch {batch}, {steps} tokens, {layers} layers, hidden size {hidden}", describe(data)]
    return CommandResult(data, (decoding_table(data, notes),))


def decoding_table(data: dict[str, Any], notes: list[str]) -> Table:
    """Return speed and memory by cache and length of the prompt."""
    rows: list[list[Any]] = []
    for record in sorted(data["times"], key=lambda record: (CACHES.index(record["cache"]), record["length"])):
        slots = f", {record['slots']} slots" if "slots" in record else ""
        memory = record["memory"]
        times = [f"{record['milliseconds'][name]:.1f}" for name in ("fastest", "median", "slowest")]
        rows.append(
            [
                f"{record['cache']}{slots}",
                f"{record['length']:,}",
                f"{record['tokens_per_second']:.0f}",
                " / ".join(times),
                f"{record['cache_bytes'] / 2**20:,.0f}",
                None if memory is None else f"{memory / 2**20:,.0f}",
            ]
        )
    columns = ["cache", "prompt", "tokens a second", "ms a step: fastest / median / slowest", "cache (MiB)"]
    return Table([*columns, "peak beyond the weights (MiB)"], rows, "decoding", notes)
