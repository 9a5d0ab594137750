"""Text from a language model with a bounded cache, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from plait.errors import ConfigError, check_int, check_min, check_seed
from plait.lab.caches.evaluation import CHUNK, read_in
from plait.lab.caches.models import LanguageModel, end_tokens
from plait.lab.caches.texts import encode, opening

__all__ = ["continue_text", "prompt_tokens"]


def prompt_tokens(lm: LanguageModel, prompt: str, new_tokens: int) -> list[int]:
    """Return the tokens of a prompt.

    Raises:
        ConfigError: if there are none, or they and the new ones are more than the model's positions.
    """
    check_int(1, max_new_tokens=new_tokens)
    tokens = opening(lm.tokenizer) + encode(lm.tokenizer, prompt)
    if not tokens:
        raise ConfigError("prompt: expected some text, got none")
    if lm.positions is not None and len(tokens) + new_tokens > lm.positions:
        raise ConfigError(
            f"prompt: expected at most {lm.positions - new_tokens:,} tokens beside {new_tokens:,} new ones, "
            f"the positions of this model, got {len(tokens):,}; give a shorter text or fewer --max-new-tokens"
        )
    return tokens


def continue_text(
    lm: LanguageModel, tokens: list[int], cache: Any, new_tokens: int, temperature: float = 0, seed: int = 0
) -> Iterator[str]:
    """Read a prompt in chunks and yield the text that follows until it ends.

    Args:
        lm: the model.
        tokens: tokens of the prompt.
        cache: cache of the model; it holds the text afterwards.
        new_tokens: largest number of tokens to generate.
        temperature: sampling temperature; 0 takes the most likely token every time.
        seed: seed of the sampling.
    """
    check_min(0, temperature=temperature)
    check_seed(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    ends = end_tokens(lm.model)
    ids = torch.tensor([tokens], device=lm.device)
    generated: list[int] = []
    shown = 0
    with torch.inference_mode():
        for chunk in ids.split(CHUNK, dim=1):
            logits = read_in(lm.model, chunk, cache)
        while True:
            generated.append(_next(logits[0, -1], temperature, generator))
            if generated[-1] in ends:
                generated.pop()
                break
            text = lm.tokenizer.decode(generated)
            if not text.endswith("\ufffd"):  # else the rest of a character's bytes is still to come
                yield text[shown:]
                shown = len(text)
            if len(generated) == new_tokens:
                break
            logits = read_in(lm.model, torch.tensor([generated[-1:]], device=lm.device), cache)
    yield lm.tokenizer.decode(generated)[shown:]


def _next(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    shares = (logits.double().cpu() / temperature).softmax(dim=-1)
    return int(torch.multinomial(shares, 1, generator=generator))
