"""Text from a trained character model, one character after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, at_least, seeded, whole
from plait.tasks import LanguageTask
from plait.tasks.text import END
from plait.training.carried_state import carried_over

__all__ = ["continue_text"]

MOST_CHARACTERS = 10_000_000
COLDEST = 1e-6  # what is colder draws the likeliest, by numbers that overflow; 0 takes it


def continue_text(
    network: nn.Module,
    task: LanguageTask,
    prompt: str = "",
    length: int = 500,
    temperature: float = 1.0,
    seed: int = 0,
) -> Iterator[str]:
    """Read the prompt and give the characters that follow, each as soon as it is drawn.

    The state is all that is kept between two characters. As in training, what the task does not carry over is
    dropped after every span, so memory per step is bounded for every model unless the task carries a memory
    that grows.

    Args:
        prompt: the text to continue; left out, the beginning of a line.
        length: how many characters.
        temperature: logits are divided by it before one is drawn; 0 takes the likeliest.
        seed: of the draws.

    Raises:
        DataError: if the prompt has a character that is not in the vocabulary.
    """
    whole(1, MOST_CHARACTERS, length=length)
    at_least(0, temperature=temperature)
    if 0 < temperature < COLDEST:
        raise ConfigError(f"temperature: expected 0, or at least {COLDEST}, got {temperature}")
    seeded(seed=seed)
    return _characters(network, task, task.encode(prompt or END), length, temperature, seed)


@torch.no_grad()
def _characters(
    network: nn.Module, task: LanguageTask, read: list[int], length: int, temperature: float, seed: int
) -> Iterator[str]:
    device = next(network.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    state, place = None, read[0]
    for step in range(1, len(read) + length):
        logits, state = network(torch.tensor([[place]], device=device), state)
        if step % task.span == 0:
            state = carried_over(network, state, task.carried)
        if step < len(read):
            place = read[step]
            continue
        place = _drawn(logits[-1, 0], temperature, generator)
        yield task.decode(place)


def _drawn(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    # In float64: a small temperature makes large numbers.
    shares = torch.softmax(logits.double().cpu() / temperature, dim=0)
    return int(torch.multinomial(shares, 1, generator=generator))
