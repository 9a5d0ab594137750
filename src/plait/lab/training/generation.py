"""Text generation with a trained character model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, check_int, check_min, check_seed
from plait.lab.tasks import LanguageTask
from plait.lab.tasks.text import END
from plait.lab.training.carried_state import carried_over

__all__ = ["continue_text"]

MOST_CHARACTERS = 10_000_000
COLDEST = 1e-6  # below, logits / temperature overflow; 0 takes the most likely character


def continue_text(
    network: nn.Module,
    task: LanguageTask,
    prompt: str = "",
    length: int = 500,
    temperature: float = 1.0,
    seed: int = 0,
) -> Iterator[str]:
    """Continue a prompt; yield each character as soon as it is drawn.

    Only the state is kept between two characters. As in training, what the task does not carry over is
    dropped after every span, so memory per step is bounded for every model unless the task carries a memory
    that grows.

    Args:
        prompt: the text to continue; if empty, generation starts at the beginning of a line.
        length: number of characters to generate.
        temperature: divisor of the logits; 0 takes the most likely character.
        seed: of the draws.

    Raises:
        DataError: if the prompt has a character that is not in the vocabulary.
    """
    check_int(1, MOST_CHARACTERS, length=length)
    check_min(0, temperature=temperature)
    if 0 < temperature < COLDEST:
        raise ConfigError(f"temperature: expected 0, or at least {COLDEST}, got {temperature}")
    check_seed(seed=seed)
    return _characters(network, task, task.encode(prompt or END), length, temperature, seed)


@torch.no_grad()
def _characters(
    network: nn.Module, task: LanguageTask, prompt: list[int], length: int, temperature: float, seed: int
) -> Iterator[str]:
    device = next(network.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    state, token = None, prompt[0]
    for step in range(1, len(prompt) + length):
        logits, state = network(torch.tensor([[token]], device=device), state)
        if step % task.span == 0:
            state = carried_over(network, state, task.carried)
        if step < len(prompt):
            token = prompt[step]
            continue
        token = _sample(logits[-1, 0], temperature, generator)
        yield task.decode(token)


def _sample(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    # In float64, since a small temperature makes large logits.
    shares = torch.softmax(logits.double().cpu() / temperature, dim=0)
    return int(torch.multinomial(shares, 1, generator=generator))
