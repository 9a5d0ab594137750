"""Training of scores for bounded caches: a run like any other, with the language model frozen."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plait._version import __version__
from plait.errors import (
    ConfigError,
    DivergedError,
    check_choice,
    check_float32,
    check_int,
    check_min,
    check_seed,
)
from plait.hf import Adapter, Scores
from plait.hf.layer import Limits
from plait.hf.scores import FEATURES, MOST_WIDTH
from plait.lab.caches.choice import ChoiceRecipe
from plait.lab.caches.eviction import EvictionRecipe, FullRecipe
from plait.lab.caches.facts import FactWriter
from plait.lab.caches.future_use import UsageRecipe
from plait.lab.caches.models import LanguageModel
from plait.lab.caches.texts import Document, part_of
from plait.lab.runs.checkpoint import Checkpoint
from plait.lab.runs.folder import read_json
from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.learner import Learner, Schedule, Step, generator_for
from plait.lab.training.process import Group
from plait.lab.training.registry import parse_spec
from plait.lab.training.session import Fitted, train
from plait.lab.training.stop import Stop
from plait.provenance import commit

__all__ = ["RECIPES", "ScoresLearner", "ScoresOptions", "train_scores"]

FORMAT = "plait scores 1"
RECIPES: dict[str, type[UsageRecipe] | type[ChoiceRecipe] | type[EvictionRecipe]] = {
    "usage": UsageRecipe,
    "choice": ChoiceRecipe,
    "eviction": EvictionRecipe,
    "full": FullRecipe,
}
TUNED = ("none", "lora")
MOST_DOCUMENTS = 4096  # documents per update
_EVALUATIONS = 5  # evaluations on held-out texts per run
_TRIAL = 0.05  # share of the minutes in which updates are timed
_WARM_UP = 0.05  # share of the updates in which the learning rate rises


@dataclass(frozen=True)
class ScoresOptions:
    """Hyperparameters of trained scores, which decide the result together with the model and the texts."""

    window: int
    capacity: int
    sinks: int = 4
    recipe: str = "usage"
    updates: int = 100
    batch_size: int = 1
    lr: float = 0.0
    """Largest learning rate; 0 for that of the recipe."""
    width: int = 64
    features: str = "states"
    """Input of a head: `states` (keys and values) or the `hidden` state that they come from."""
    sizes: tuple[float, ...] = (1.0,)
    """Sizes of the cache, as multiples of window and capacity, which the updates take in turn."""
    held_out: int = 4
    """Held-out documents of an evaluation."""
    facts: float = 0.0
    """Share of the documents with facts that are asked for later."""
    answer_weight: float = 10.0
    """Weight of a token of an answer in the loss of recipe `eviction`."""
    tune: str = "none"
    """Part of the model that is trained with the scores: `none`, or `lora`, adapters of its attention."""
    rank: int = 16
    """Rank of the adapters."""
    adapter_lr: float = 3e-4
    """Largest learning rate of the adapters."""
    seed: int = 0

    @property
    def limits(self) -> Limits:
        return Limits(self.window, self.capacity, self.sinks)

    def with_updates(self, updates: int) -> ScoresOptions:
        """Return these options with another number of updates, at least 1."""
        return replace(self, updates=max(1, updates))

    def check(self, context: int) -> None:
        """Refuse values out of range, and documents too short for anything to be dropped."""
        check_choice(self.recipe, RECIPES, "recipe")
        check_choice(self.tune, TUNED, "tune")
        if self.tune == "lora" and not issubclass(RECIPES[self.recipe], EvictionRecipe):
            raise ConfigError(
                f"tune: expected recipe eviction, or full for a control, with lora, got {self.recipe}; start "
                f"with scores that {self.recipe} trained (--start)"
            )
        if self.tune == "none" and self.recipe == FullRecipe.name:
            raise ConfigError("recipe: full is a control of --tune lora; it trains no scores")
        check_int(1, rank=self.rank)
        check_choice(self.features, FEATURES, "features")
        if not self.sizes:
            raise ConfigError("sizes: expected at least one multiple of the cache's size, got none")
        for size in self.sizes:
            check_min(0, size=size)
        check_int(1, window=self.window, updates=self.updates, held_out=self.held_out)
        check_int(1, MOST_DOCUMENTS, batch_size=self.batch_size)
        check_int(0, capacity=self.capacity, sinks=self.sinks)
        check_int(0, MOST_WIDTH, width=self.width)
        check_seed(seed=self.seed)
        check_float32(0, lr=self.lr, answer_weight=self.answer_weight, adapter_lr=self.adapter_lr)
        check_min(0, facts=self.facts)
        if self.facts > 1:
            raise ConfigError(f"facts: expected a share, at most 1, got {self.facts:g}")
        largest = self.limits.times(max(self.sizes))
        shortest = largest.slots + largest.window
        if context < shortest:
            raise ConfigError(
                f"context: expected at least sinks + 2 · window + capacity = {shortest:,} tokens, so that "
                f"states are dropped and later ones could have read them, got {context:,}"
            )


class ScoresLearner(Learner):
    """Learner of scores; update n takes the next documents of an order drawn for each epoch.

    Facts are drawn for each document each time it comes.
    """

    score = "score"

    def __init__(
        self,
        language: LanguageModel,
        pieces: Sequence[Document],
        options: ScoresOptions,
        start: Scores | None = None,
    ) -> None:
        model, self.options, self.device = language.model, options, language.device
        self.scores = Scores(
            model,
            **options.limits._asdict(),
            width=options.width,
            features=options.features,
            seed=options.seed,
        )
        self.is_fresh = start is None
        if start is not None:
            self.scores.load_state_dict(start.state_dict())
        self.adapter: Adapter | None = None
        self.network: nn.Module = self.scores
        self.lr = [options.lr or RECIPES[options.recipe].lr]
        groups = [{"params": list(self.scores.parameters())}]
        if options.tune == "lora":
            self.adapter = Adapter(model, rank=options.rank, seed=options.seed).apply_to(model)
            self.network = nn.ModuleDict({"scores": self.scores, "adapter": self.adapter})
            self.lr.append(options.adapter_lr)
            groups.append({"params": list(self.adapter.parameters())})
        self.optimizer = torch.optim.AdamW(groups, lr=self.lr[0], weight_decay=0.01)
        self.recipe = _recipe(model, options, self.adapter)
        self.formatter = ProgressFormat(self.recipe.score)
        self.writer = FactWriter(language.tokenizer) if options.facts else None
        self.train_ids = _ids(part_of(pieces, "train"))
        self.held_out_ids = _ids(part_of(pieces, "held-out"))[: options.held_out]
        every = max(1, math.ceil(options.updates / _EVALUATIONS))
        self.schedule = Schedule(options.updates, evaluate_at=range(every, options.updates + 1, every))

    def advance(self, number: int, stop: Stop) -> Step:
        """Perform update `number`, counted from 1."""
        options = self.options
        rows = range((number - 1) * options.batch_size, number * options.batch_size)
        ids, answers = self._batch([self._document(row) for row in rows], "train", rows)
        if number == 1 and self.is_fresh:
            self.recipe.calibrate(self.scores, ids)
        warm_up = min(1.0, number / max(1.0, _WARM_UP * options.updates))
        for group, lr in zip(self.optimizer.param_groups, self.lr, strict=True):
            group["lr"] = lr * warm_up * (1 - (number - 1) / options.updates)
        self.recipe.limits = options.limits.times(options.sizes[(number - 1) % len(options.sizes)])
        figures = self.recipe.update(self.scores, self.optimizer, ids, answers)
        wrong = [name for name, value in figures.items() if not math.isfinite(value)]
        if wrong:
            raise DivergedError(f"update {number}: the {wrong[0].replace('_', ' ')} is not finite")
        return Step({**figures})

    def evaluate(self, final: bool) -> Results:
        """Return the mean loss and score on held-out documents."""
        if final:
            return {}
        parts = []
        for first in range(0, len(self.held_out_ids), self.options.batch_size):
            rows = range(first, min(first + self.options.batch_size, len(self.held_out_ids)))
            batch = self._batch([self.held_out_ids[row] for row in rows], "held-out", rows)
            for size in self.options.sizes:
                self.recipe.limits = self.options.limits.times(size)
                parts += [self.recipe.evaluate(self.scores, *batch)] * len(rows)
        return {"held_out": {name: math.fsum(part[name] for part in parts) / len(parts) for name in parts[0]}}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint."""
        super().restore(checkpoint)
        self.is_fresh = False

    def _batch(self, ids: list[Tensor], part: str, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return documents (B, T), a share of them with facts, and the tokens that are answers."""
        answers = [torch.zeros(len(x), dtype=torch.bool) for x in ids]
        for i, row in enumerate(rows):
            rng = random.Random(f"{self.options.seed}:{part}:{row}")
            if self.writer is not None and rng.random() < self.options.facts:
                written = self.writer.write(ids[i].tolist(), rng)
                ids[i], answers[i] = torch.tensor(written.tokens), torch.tensor(written.answers)
        return torch.stack(ids).to(self.device), torch.stack(answers).to(self.device)

    def _document(self, row: int) -> Tensor:
        count = len(self.train_ids)
        return self.train_ids[_order(self.options.seed, row // count, count)[row % count]]


def _recipe(
    model: Any, options: ScoresOptions, adapter: Adapter | None
) -> UsageRecipe | ChoiceRecipe | EvictionRecipe:
    kind = RECIPES[options.recipe]
    if issubclass(kind, EvictionRecipe):
        return kind(model, options.limits, options.answer_weight, adapter)
    return kind(model, options.limits)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    """Return the order of the documents in an epoch."""
    generator = generator_for(seed, "train", epoch, "cpu")
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


def train_scores(
    language: LanguageModel,
    pieces: Sequence[Document],
    options: ScoresOptions,
    folder: Path | None = None,
    *,
    minutes: float | None = None,
    start: Scores | None = None,
    resume: bool = False,
    checkpoint_every: int = 20,
    progress: bool = False,
) -> tuple[Scores, Fitted]:
    """Train scores for a model's bounded caches; return them and how the training went.

    Two runs of one description give the same bits, also if one of them was killed and resumed.

    Args:
        language: the model, whose weights stay as they are.
        pieces: documents of one length; a tenth is held out (`plait.lab.caches.texts.part_of`).
        options: hyperparameters.
        folder: folder of the run and of the scores; without one nothing is written.
        minutes: as many updates as fit, by the time of a few; `options.updates` is not used then.
        start: scores to begin with, those of another recipe; by default zero.
        resume: resume the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        progress: show progress on stderr.

    Raises:
        ConfigError: for options out of range.
        DataError: for fewer than two documents.
    """
    context = len(pieces[0].tokens) if pieces else 0
    options.check(context)
    for name in ("width", "features") if start is not None else ():
        wanted, got = getattr(options, name), getattr(start, name)
        if wanted != got:
            raise ConfigError(f"start: expected scores of {name} {wanted}, got {name} {got}")
    if minutes is not None:
        options = _with_minutes(language, pieces, options, minutes, folder)
    recipe = {**asdict(options), "sizes": list(options.sizes)}
    if start is not None:
        recipe["start"] = _digest(start.state_dict().values())
    description = {
        "format": FORMAT,
        "task": {
            "name": "cache",
            "context": context,
            "documents": len(pieces),
            "tokens": _digest([_ids(pieces)]),
        },
        "model": {"name": "scores", "of": language.name, "checksum": language.digest},
        "recipe": recipe,
    }

    def learner(group: Group) -> ScoresLearner:
        if group.size > 1:
            raise ConfigError(f"cache: expected one process, got {group.size}; leave torchrun out")
        return ScoresLearner(language, pieces, options, start)

    fitted = train(
        learner,
        parse_spec(description),
        language.device,
        folder=folder,
        resume=resume,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )
    scores, adapter = fitted.network, None
    if isinstance(scores, nn.ModuleDict):
        parts = dict(scores.items())
        scores, adapter = parts["scores"], parts["adapter"]
    assert isinstance(scores, Scores)
    scores.trained = {
        "recipe": options.recipe,
        "score": RECIPES[options.recipe].score,
        "updates": fitted.summary["updates"],
        "of_updates": options.updates,
        "context": context,
        "documents": len(pieces),
        "facts": options.facts,
        "seed": options.seed,
        "lr": options.lr or RECIPES[options.recipe].lr,
        "held_out": fitted.summary["held_out"],
        "plait": __version__,
        "commit": commit(),
    }
    if isinstance(adapter, Adapter):
        adapter.trained = {**scores.trained, "lr": options.adapter_lr}
        if folder is not None:
            scores.adapter = adapter.save(folder, language.model)
    if folder is not None:
        scores.save(folder, language.model)
    return scores.eval(), fitted


def _with_minutes(
    language: LanguageModel,
    pieces: Sequence[Document],
    options: ScoresOptions,
    minutes: float,
    folder: Path | None,
) -> ScoresOptions:
    """Return options with as many updates as fit, those of the folder's run where there is one."""
    check_min(0, minutes=minutes)
    if folder is not None and (folder / "config.json").exists():
        recipe = read_json(folder / "config.json").get("recipe", {})
        updates = recipe.get("updates") if isinstance(recipe, dict) else None
        return replace(options, updates=updates if isinstance(updates, int) else options.updates)
    began = time.monotonic()
    trial = ScoresLearner(language, pieces, options)
    stop, sizes = Stop(signals=False), len(options.sizes)
    for number in range(1, sizes + 1):  # each size may compile kernels of its own
        trial.advance(number, stop)
    trial.evaluate(final=False)
    ready = time.monotonic()
    trial.evaluate(final=False)
    evaluation = time.monotonic() - ready
    second, done = time.monotonic(), 0
    while not done or time.monotonic() - second < _TRIAL * 60 * minutes:
        for number in range(1, sizes + 1):
            trial.advance(sizes + done + number, stop)
        done += sizes
    update = (time.monotonic() - second) / done
    left = 60 * minutes - (time.monotonic() - began)
    most = (left - _EVALUATIONS * evaluation) / update
    return options.with_updates(int(max(most, min(_EVALUATIONS, left / (update + evaluation)))))


def _ids(pieces: Sequence[Document]) -> Tensor:
    return torch.tensor([piece.tokens for piece in pieces])


def _digest(tensors: Iterable[Tensor]) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
