"""Quality of bounded caches: perplexity and needles by policy and slots, in a resumable archive.

```
config.json    model, texts and settings, which a folder keeps; policies and slots may be added
results.jsonl  a line for each session (machine, commit, command), and one for each cell as it ends
text.json      one document, token by token, which the page colours; not needed for the numbers
```
A cell is one batch of one task, read with one policy and number of slots.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError, DataError, DivergedError, OutputError, check_int, check_seed
from plait.hf.adapters import adapter_of
from plait.hf.cache import BoundedCache, cache_utils
from plait.hf.layers import full_attention_layers
from plait.hf.scores import Scores
from plait.lab.caches.models import LanguageModel, end_tokens
from plait.lab.caches.needles import ANSWER_TOKENS, NEEDLES, Needle, hide, is_right
from plait.lab.caches.texts import Document, documents, part_of
from plait.lab.machine import circumstances
from plait.lab.runs.folder import Journal, locked, read_json, write_json

__all__ = [
    "CHUNK",
    "FULL",
    "EvaluationCell",
    "Settings",
    "Variant",
    "cache_bytes",
    "evaluate",
    "full_bytes",
    "make_cache",
    "read_in",
]

FORMAT = "plait-cache-eval/1"
FULL = "full"
BLOCK = 64  # tokens whose mean loss is recorded
CHUNK = 256  # tokens read in one call
_MOST_ROWS = 256
_MOST_CASES = 100_000


@dataclass(frozen=True)
class Variant:
    """A cache to measure: "full", or a policy with a number of slots, `window` and `sinks` of them fixed."""

    policy: str
    slots: int | None = None
    window: int = 0
    sinks: int = 0
    scores: Scores | None = field(default=None, compare=False)
    digest: str | None = None  # digest of the scores

    @staticmethod
    def of(
        policy: str,
        slots: int,
        window: int | None = None,
        sinks: int = 4,
        scores: Scores | None = None,
        digest: str | None = None,
    ) -> Variant:
        """Return a bounded cache of `slots`; by default a quarter of them is the window.

        Raises:
            ConfigError: if the sinks and the window leave no room.
        """
        check_int(0, sinks=sinks)
        check_int(1, slots=slots)
        if slots < sinks + 1:
            raise ConfigError(f"slots: expected at least sinks + 1 = {sinks + 1}, got {slots}")
        if window is None:
            window = min(max(1, slots // 4), slots - sinks)
        check_int(1, window=window)
        if window > slots - sinks:
            raise ConfigError(
                f"window: expected at most slots - sinks = {slots - sinks}, got {window}; give more slots "
                "or a smaller window"
            )
        return Variant(policy, slots, window, sinks, scores, digest)

    @property
    def key(self) -> dict[str, Any]:
        """Return the key that identifies this variant's cells."""
        key = {"policy": self.policy, "slots": self.slots, "window": self.window, "sinks": self.sinks}
        return key if self.digest is None else {**key, "scores": self.digest}

    @property
    def label(self) -> str:
        """Return the policy's name with its slots."""
        return FULL if self.slots is None else f"{self.policy}, {self.slots} slots"


@dataclass(frozen=True)
class Settings:
    """Sizes of an evaluation; they and the texts determine every prompt.

    `prefix` is the number of tokens of a document that are read before losses are counted. `batch` rows are
    read together: the last bits of a number depend on it.
    """

    context: int = 2048
    prefix: int = 1024
    documents: int = 8
    needles: int = 32
    kinds: tuple[str, ...] = tuple(NEEDLES)
    needle_context: int = 2048
    batch: int = 8
    seed: int = 0
    part: str = "all"

    def check(self, positions: int | None) -> None:
        """Refuse sizes that contradict each other or the model's positions."""
        check_int(2, context=self.context)
        check_int(1, prefix=self.prefix)
        check_int(1, _MOST_ROWS, batch=self.batch)
        check_int(0, _MOST_CASES, documents=self.documents, needles=self.needles)
        check_seed(seed=self.seed)
        if self.prefix >= self.context:
            raise ConfigError(
                f"prefix: expected fewer tokens than the context of {self.context}, got {self.prefix}"
            )
        longest = max(
            self.context if self.documents else 0,
            self.needle_context + ANSWER_TOKENS if self.needles else 0,
        )
        if positions is not None and longest > positions:
            raise ConfigError(
                f"context: expected at most {positions:,} tokens, this model's positions, got {longest:,}"
            )
        if not self.documents and not self.needles:
            raise ConfigError("nothing to measure: give --documents or --needles of at least 1")


@dataclass(frozen=True)
class EvaluationCell:
    """One batch of one task for one variant: "text" or a kind of needle, and the numbers of its cases."""

    task: str
    numbers: tuple[int, ...]
    variant: Variant

    @property
    def key(self) -> dict[str, Any]:
        return {"task": self.task, "numbers": list(self.numbers), **self.variant.key}


def evaluate(
    lm: LanguageModel,
    texts: Sequence[Path],
    variants: Sequence[Variant],
    settings: Settings,
    folder: Path,
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> int:
    """Measure every cell that is missing from the folder, and return their number.

    Cells of all variants alternate, so that a stopped evaluation compares the same cases. Numbers depend on
    model, texts and settings, not on where it was stopped.

    Raises:
        ConfigError: if sizes do not fit, or the folder belongs to other settings, texts or another model.
        DataError: if the texts are too short.
        BusyError: if another process works in the folder.
    """
    settings.check(lm.positions)
    full_attention_layers(lm.model)
    for variant in variants:
        make_cache(lm.model, variant)
    length = max(
        settings.context if settings.documents else 0, settings.needle_context if settings.needles else 0
    )
    pieces = part_of(documents(texts, lm.tokenizer, length), settings.part)
    if len(pieces) < settings.documents:
        raise DataError(
            f"text: expected {settings.documents} documents of {length:,} tokens, got {len(pieces)}; give "
            "more text, fewer --documents or a smaller --context"
        )
    chosen = _spread(pieces, settings.documents)
    prose = _spread(pieces, settings.needles)
    for kind in settings.kinds if settings.needles else ():  # fails early if prose is too short
        hide(kind, 0, settings.seed, settings.needle_context, prose[0], lm.tokenizer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    with locked(folder):
        _claim(folder, _description(lm, texts, settings, chosen))
        journal = Journal(folder / "results.jsonl")
        present = _trimmed(journal)
        cells = list(_cells(settings, variants))
        todo = [cell for cell in cells if _identity(cell.key) not in present]
        if not todo:
            return 0
        if settings.documents:
            strings = [lm.tokenizer.decode([token]) for token in chosen[0].tokens[: settings.context]]
            write_json(folder / "text.json", {"document": chosen[0].name, "tokens": strings})
        try:
            journal.write({"session": circumstances(lm.device, torch.get_num_threads())})
            for done, cell in enumerate(todo):
                progress(len(cells) - len(todo) + done, len(cells), f"{cell.task}: {cell.variant.label}")
                journal.write({"cell": cell.key, **_measure(lm, cell, settings, chosen, prose)})
        finally:
            journal.close()
    return len(todo)


def _cells(settings: Settings, variants: Sequence[Variant]) -> Iterator[EvaluationCell]:
    tasks = [("text", settings.documents), *((kind, settings.needles) for kind in settings.kinds)]
    for task, count in tasks:
        for first in range(0, count, settings.batch):
            numbers = tuple(range(first, min(first + settings.batch, count)))
            yield from (EvaluationCell(task, numbers, variant) for variant in variants)


def _measure(
    lm: LanguageModel,
    cell: EvaluationCell,
    settings: Settings,
    chosen: Sequence[Document],
    prose: Sequence[Document],
) -> dict[str, Any]:
    """Return the results of a cell, the bytes of its cache for each text, and its time."""
    if cell.task != "text":
        needles = [
            hide(cell.task, i, settings.seed, settings.needle_context, prose[i], lm.tokenizer)
            for i in cell.numbers
        ]
    wall, processor = time.perf_counter(), time.process_time()
    cache = make_cache(lm.model, cell.variant, settings.seed)
    if cell.task == "text":
        rows = [chosen[i].tokens[: settings.context] for i in cell.numbers]
        losses = _losses(lm, rows, settings.prefix, cache)
        if not losses.isfinite().all():
            raise DivergedError(f"{lm.name}: its loss is not finite with {cell.variant.label}")
        results = [
            {"name": chosen[i].name, "loss": round(float(row.double().mean()), 6), "losses": _blocks(row)}
            for i, row in zip(cell.numbers, losses, strict=True)
        ]
        tokens = len(rows) * (settings.context - 1)
    else:
        results = _answers(lm, needles, cache)
        tokens = len(needles) * (settings.needle_context + ANSWER_TOKENS - 1)
    record: dict[str, Any] = {
        "results": results,
        "tokens": tokens,
        "seconds": round(time.perf_counter() - wall, 3),
        "processor_seconds": round(time.process_time() - processor, 3),
        "bytes": {name: size // len(results) for name, size in cache_bytes(lm.model, cache).items()},
    }
    if cell.task == "text" and 0 in cell.numbers and cell.variant.slots is not None:
        record["kept"] = _kept(cache, lm.model, settings.context - 1)
    return record


def make_cache(model: Any, variant: Variant, seed: int = 0) -> Any:
    """Return a new cache of a variant."""
    if variant.slots is None:
        return cache_utils.DynamicCache(config=model.config)
    return BoundedCache(
        model,
        window=variant.window,
        capacity=variant.slots - variant.sinks - variant.window,
        sinks=variant.sinks,
        policy=variant.policy,
        scores=variant.scores,
        seed=seed,
    )


def cache_bytes(model: Any, cache: Any) -> dict[str, int]:
    """Return the bytes of keys, values, positions and scores in the layers that a bounded cache bounds."""
    if isinstance(cache, BoundedCache):
        return cache.bytes()
    layers = [cache.layers[i] for i in full_attention_layers(model)]
    return {name: sum(getattr(layer, name).nbytes for layer in layers) for name in ("keys", "values")}


def full_bytes(model: Any, cache: Any) -> int:
    """Return the bytes of a full cache after the tokens that `cache` has seen, for as many rows."""
    layers = [cache.layers[i] for i in full_attention_layers(model)]
    pairs = [(layer, part) for layer in layers for part in (layer.keys, layer.values)]
    return sum(part.nbytes // part.shape[2] * layer.get_seq_length() for layer, part in pairs)


def read_in(model: Any, ids: Tensor, cache: Any, keep: int = 1) -> Tensor:
    """Read (B, n) tokens in one call and return the logits of the last `keep`."""
    logits: Tensor = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits
    return logits


@torch.inference_mode()
def _losses(lm: LanguageModel, rows: Sequence[Sequence[int]], prefix: int, cache: Any) -> Tensor:
    """Return (B, context − prefix): the loss of every token after the prefix, in nats."""
    ids = torch.tensor(rows, device=lm.device)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    losses = []
    for first in range(0, inputs.shape[1], CHUNK):
        chunk = inputs[:, first : first + CHUNK]
        last = first + chunk.shape[1]
        scored = max(0, last - max(first, prefix - 1))
        logits = read_in(lm.model, chunk, cache, max(1, scored))
        if scored:
            flat = logits[:, -scored:].float().flatten(0, 1)
            wanted = targets[:, last - scored : last]
            losses.append(cross_entropy(flat, wanted.flatten(), reduction="none").view_as(wanted))
    return torch.cat(losses, dim=1).cpu()


@torch.inference_mode()
def _answers(lm: LanguageModel, needles: Sequence[Needle], cache: Any) -> list[dict[str, Any]]:
    """Read prompts of one length and continue them greedily."""
    ids = torch.tensor([needle.prompt for needle in needles], device=lm.device)
    for chunk in ids.split(CHUNK, dim=1):
        logits = read_in(lm.model, chunk, cache)
    steps = [logits[:, -1].argmax(dim=-1)]
    for _ in range(ANSWER_TOKENS - 1):
        logits = read_in(lm.model, steps[-1].unsqueeze(1), cache)
        steps.append(logits[:, -1].argmax(dim=-1))
    ends = end_tokens(lm.model)
    results = []
    for needle, tokens in zip(needles, torch.stack(steps, dim=1).tolist(), strict=True):
        stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
        text = lm.tokenizer.decode(tokens[:stop])
        right = is_right(text, needle.answer)
        results.append({"right": right, "answer": needle.answer, "text": text, "depths": needle.depths})
    return results


def _blocks(losses: Tensor) -> list[float]:
    """Return the mean loss of every `BLOCK` tokens; the last block may be shorter."""
    return [round(float(block.double().mean()), 4) for block in losses.split(BLOCK)]


def _kept(cache: Any, model: Any, length: int) -> dict[str, Any]:
    """Return for each token of the first row how many heads of all layers still hold it."""
    counts = torch.zeros(length, dtype=torch.int64)
    heads = 0
    for layer in full_attention_layers(model):
        births = cache.births(layer)[0].cpu()
        heads += len(births)
        counts += torch.bincount(births[births >= 0].flatten(), minlength=length)
    return {"heads": heads, "counts": counts.tolist()}


def _spread(pieces: Sequence[Document], count: int) -> list[Document]:
    """Return `count` pieces, evenly spread over all of them; they repeat if there are fewer."""
    return [pieces[i * len(pieces) // count] for i in range(count)]


def _description(
    lm: LanguageModel, texts: Sequence[Path], settings: Settings, chosen: Sequence[Document]
) -> dict[str, Any]:
    adapter = adapter_of(lm.model)
    tuned = {} if adapter is None else {"adapter": adapter.digest}
    parts = settings.part, tuple(sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in texts))
    return {
        "format": FORMAT,
        "model": {
            "name": lm.name,
            "digest": lm.digest,
            "dtype": str(lm.model.dtype).removeprefix("torch."),
            **tuned,
        },
        "settings": {**asdict(settings), "kinds": list(settings.kinds)},
        "texts": {"names": sorted(path.name for path in texts), "sha256": list(parts[1])},
        "documents": [document.name for document in chosen],
    }


def _claim(folder: Path, description: dict[str, Any]) -> None:
    """Write the folder's description, or refuse a folder that has another one."""
    path = folder / "config.json"
    if not path.exists():
        write_json(path, description)
        return
    present = read_json(path)
    if present == description:
        return
    if not isinstance(present, dict) or present.get("format") != FORMAT:
        raise ConfigError(f"{folder}: expected a new folder or one of plait cache eval, got another")
    for group in ("model", "settings", "texts", "documents"):
        before, now = present.get(group), description[group]
        if before != now:
            pairs = (
                [(name, before.get(name), now[name]) for name in now if before.get(name) != now[name]]
                if isinstance(before, dict) and isinstance(now, dict)
                else []
            )
            differing = f"{pairs[0][0]} was {pairs[0][1]} and is {pairs[0][2]}" if pairs else "they differ"
            raise ConfigError(f"{folder}: has results of other {group} ({differing}); name another --out")
    raise ConfigError(f"{folder}: has a config.json of another kind; name another --out")


def _trimmed(journal: Journal) -> set[str]:
    """Return the cells that are in the archive, and cut a partial last line of a killed writer."""
    records = Journal.read(journal.path)
    if journal.path.exists():
        content = journal.path.read_bytes()
        journal.cut(content.rfind(b"\n") + 1)
    return {_identity(record["cell"]) for record in records if "cell" in record}


def _identity(key: dict[str, Any]) -> str:
    return repr(sorted(key.items()))
