"""The commands `plait cache eval`, `generate`, `report`, `convert` and `texts`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from plait.errors import ConfigError, check_choice
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["convert", "evaluate_caches", "fetch_texts", "generate_bounded", "report_caches"]

_MODEL = option(metavar="MODEL")


def evaluate_caches(
    model: Annotated[Path, _MODEL],
    /,
    text: tuple[Path, ...],
    policies: str = "full,sinks,knorm,keydiff,h2o,tova,earned",
    slots: str = "256",
    scores: Path | None = None,
    tuned: Path | None = None,
    context: int = 2048,
    prefix: int | None = None,
    documents: int = 8,
    needles: int = 32,
    kinds: str = "one,four,eight,tracking",
    needle_context: int | None = None,
    window: int | None = None,
    sinks: int = 4,
    batch: int = 8,
    part: Literal["all", "held-out", "train"] = "all",
    seed: int = 0,
    threads: int | None = None,
    device: str = "auto",
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
    out: Path = Path("cache-eval"),
) -> CommandResult:
    """Measure what bounded caches cost a language model: plait cache eval MODEL --text book.txt.

    Perplexity of the later tokens of documents, and numbers hidden in prose that the model must repeat, for
    each policy and number of slots. Results go into a folder, which a second call completes, and from which
    its page.html and README.md are drawn.

    Args:
        model: a folder of transformers (config.json, safetensors, tokenizer) or a .gguf file.
        text: text files, UTF-8 or .gz.
        policies: comma-separated names; full is the unbounded cache, learned needs --scores.
        slots: states that a KV head keeps, comma-separated numbers.
        scores: folder of trained scores, of plait cache train; adds the policy learned.
        tuned: folder of plait cache train --tune lora, whose adapter the model takes.
        context: tokens of a document.
        prefix: tokens read before losses are counted; half of the context if not given.
        documents: documents read, spread over all texts.
        needles: cases of each kind of needle; 0 for none.
        kinds: kinds of needles between commas: one; one of four or of eight; tracking (a variable).
        needle_context: tokens of a needle's prompt; the context if not given.
        window: latest states kept; a quarter of the slots if not given.
        sinks: first states kept.
        batch: texts read together.
        part: all texts, or the tenth of them that training holds out, or the rest.
        seed: of the needles and of the policy random.
        threads: of the CPU; as many as torch chooses if not given.
        device: auto (cuda if there is one), cpu, cuda, cuda:N.
        dtype: of the language model; auto is float32 on a CPU, and that of its weights on a GPU.
        out: folder of the results.
    """
    from plait.lab.bench.sizes import parse_names, parse_numbers
    from plait.lab.bench.timing import limit_threads
    from plait.lab.caches.evaluation import FULL, Settings, Variant, evaluate
    from plait.lab.caches.models import open_model
    from plait.lab.caches.needles import NEEDLES
    from plait.lab.training.process import device_named

    names = _policies(policies, scores)
    sizes = parse_numbers(slots, "slots")
    bounded = [name for name in names if name != FULL]
    for size in sizes if bounded else ():
        Variant.of(bounded[0], size, window, sinks)
    settings = Settings(
        context,
        context // 2 if prefix is None else prefix,
        documents,
        needles,
        tuple(parse_names(kinds, tuple(NEEDLES), "kind of needle")),
        context if needle_context is None else needle_context,
        batch,
        seed,
        part,
    )
    with limit_threads(threads):
        lm = open_model(model, device_named(device), dtype)
        _tune(lm, tuned)
        trained, digest = _scores(scores, lm)
        variants = [Variant(FULL)] if FULL in names else []
        for size in sizes:
            for name in bounded:
                learned = (trained, digest) if name == "learned" else ()
                variants.append(Variant.of(name, size, window, sinks, *learned))
        evaluate(lm, text, variants, settings, out, _progress)
    return _result(out)


def _policies(names: str, scores: Path | None) -> list[str]:
    from plait.hf.policies import POLICIES
    from plait.lab.caches.evaluation import FULL

    chosen = [check_choice(name.strip(), [FULL, *POLICIES], "policy") for name in names.split(",")]
    if scores is not None and "learned" not in chosen:
        chosen.append("learned")
    if scores is None and "learned" in chosen:
        raise ConfigError("scores: the policy learned needs --scores FOLDER, of plait cache train")
    return list(dict.fromkeys(chosen))


def _scores(folder: Path | None, lm: Any) -> tuple[Any, str | None]:
    """Return trained scores and the checksum of their tensors."""
    if folder is None:
        return None, None
    import hashlib

    from plait.hf.scores import TENSORS, Scores

    trained = Scores.load(folder, lm.model)
    return trained, hashlib.sha256((folder / TENSORS).read_bytes()).hexdigest()


def _tune(lm: Any, folder: Path | None) -> None:
    """Apply the adapter in a folder to the model."""
    if folder is not None:
        from plait.hf import Adapter

        Adapter.load(folder, lm.model).apply_to(lm.model)


def _progress(done: int, total: int, label: str) -> None:
    sys.stderr.write(f"{done + 1:4d} of {total}  {label}\n")
    sys.stderr.flush()


def report_caches(folder: Annotated[Path, option(metavar="FOLDER")], /) -> CommandResult:
    """Draw page.html and README.md again from the results of plait cache eval.

    Args:
        folder: the folder that was its --out.
    """
    return _result(folder)


def _result(folder: Path) -> CommandResult:
    """Write the page and the README of a folder of results, and return their tables."""
    from plait.lab.report.cache_page import write_cache_page

    written = write_cache_page(folder)
    data = {
        "files": [str(path) for path in written.files],
        "results": [record for table in written.tables for record in table.records()],
    }
    lines = tuple(f"wrote {path}" for path in written.files)
    return CommandResult(data, (*written.tables, *lines))


def generate_bounded(
    model: Annotated[Path, _MODEL],
    prompt: Annotated[str, option(metavar="PROMPT")] = "",
    /,
    text: Path | None = None,
    slots: int = 256,
    policy: str | None = None,
    scores: Path | None = None,
    tuned: Path | None = None,
    window: int | None = None,
    sinks: int = 4,
    max_new_tokens: int = 100,
    temperature: float = 0.0,
    seed: int = 0,
    device: str = "auto",
) -> CommandResult:
    """Continue a text with a bounded cache: plait cache generate MODEL "Once upon a time" --slots 128.

    The text is printed as it is generated; the size of the cache comes at the end, on stderr.

    Args:
        model: a folder of transformers (config.json, safetensors, tokenizer) or a .gguf file.
        prompt: the text to continue.
        text: a file, UTF-8 or .gz, to read before the prompt.
        slots: states that a KV head keeps.
        policy: states to keep; full has no bound; learned if there are scores, else sinks.
        scores: folder of trained scores, of plait cache train.
        tuned: folder of plait cache train --tune lora, whose adapter the model takes.
        window: latest states kept; a quarter of the slots if not given.
        sinks: first states kept.
        max_new_tokens: largest number of tokens to generate.
        temperature: sampling temperature; 0 takes the most likely token every time.
        seed: seed of the sampling and of the policy random.
        device: auto (cuda if there is one), cpu, cuda, cuda:N.
    """
    from plait.lab.caches.evaluation import FULL, Variant, make_cache
    from plait.lab.caches.generation import prompt_tokens
    from plait.lab.caches.models import open_model
    from plait.lab.caches.texts import read_text
    from plait.lab.training.process import device_named

    name = policy or ("sinks" if scores is None else "learned")
    _policies(name, scores)
    if scores is not None and name != "learned":
        raise ConfigError(f"scores: the policy {name} takes none; leave out --scores or --policy")
    variant = Variant(FULL) if name == FULL else Variant.of(name, slots, window, sinks)
    lm = open_model(model, device_named(device))
    _tune(lm, tuned)
    if name == "learned":
        variant = Variant.of(name, slots, window, sinks, *_scores(scores, lm))
    words = (read_text(text) if text is not None else "") + prompt
    tokens = prompt_tokens(lm, words, max_new_tokens)
    cache = make_cache(lm.model, variant, seed)
    data: dict[str, Any] = {"model": lm.name, "prompt": prompt, **variant.key}
    stream = _generated(lm, tokens, cache, max_new_tokens, temperature, seed, data)
    return CommandResult(data, stream=stream)


def _generated(
    lm: Any, tokens: list[int], cache: Any, most: int, temperature: float, seed: int, data: dict[str, Any]
) -> Iterator[str]:
    """Yield the text; at its end, write the cache's size to stderr and into the command's data."""
    from plait.lab.caches.evaluation import cache_bytes, full_bytes
    from plait.lab.caches.generation import continue_text

    yield from continue_text(lm, tokens, cache, most, temperature, seed)
    seen, size = cache.get_seq_length(), sum(cache_bytes(lm.model, cache).values())
    whole_size = full_bytes(lm.model, cache)
    data |= {"tokens_read": seen, "bytes": size, "full_bytes": whole_size}
    states = f"{seen:,} of {seen:,}" if data["slots"] is None else f"{min(seen, data['slots']):,} of {seen:,}"
    sys.stderr.write(
        f"\ncache: {states} states in each KV head, {size / 2**20:.2f} MiB; the full cache has "
        f"{whole_size / 2**20:.2f} MiB\n"
    )
    sys.stderr.flush()


def convert(
    file: Annotated[Path, option(metavar="FILE.gguf")], folder: Annotated[Path, option(metavar="FOLDER")], /
) -> CommandResult:
    """Convert a .gguf model to a folder of transformers, which is read in seconds.

    Needs pip install 'plait[gguf]'.

    Args:
        file: a causal language model of llama.cpp.
        folder: a new folder: config.json, float32 weights as safetensors, and the tokenizer.
    """
    from plait.lab.caches.models import convert_gguf

    written = convert_gguf(file, folder)
    return CommandResult({"folder": str(written)}, (f"wrote {written}",))


def fetch_texts(
    folder: Annotated[Path, option(metavar="FOLDER")],
    /,
    packages: str = "anarchism,debian-policy,linux-doc,perl-doc,python3-doc",
) -> CommandResult:
    """Fetch long English texts from Debian's documentation packages, with apt-get download.

    Each package's texts go into a folder of its name, its copyright file beside them. Nothing is installed.

    Args:
        folder: folder to write the texts to.
        packages: comma-separated names.
    """
    from plait.lab.caches.debian import fetch

    fetched = fetch([name.strip() for name in packages.split(",")], folder)
    rows = [[p.name, p.version, p.licence, len(p.files), f"{p.size / 1e6:.1f}"] for p in fetched]
    table = Table(["package", "version", "licence", "files", "MB"], rows, f"Texts in {folder}")
    return CommandResult({"folder": str(folder), "packages": table.records()}, (table,))
