"""RelLSTM in place of nn.LSTM in an existing model: name a symbol seen early in a long sequence.

python examples/drop_in.py            # about a minute on one core
python examples/drop_in.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import torch
from torch import nn

import plait

SMOKE = "--smoke" in sys.argv
LENGTH, LATE, UPDATES, SYMBOLS = (12, 4, 3, 8) if SMOKE else (200, 61, 300, 8)


class Classifier(nn.Module):
    """Somebody's model: it asks for a layer that returns `output, state`, and does not ask which."""

    def __init__(self, layer: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.layer = layer
        self.readout = nn.Linear(hidden_size, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.layer(x)
        return self.readout(output[-1])


def batch(generator: torch.Generator, step: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A symbol at one step, noise on another channel at all others: (T, B, F) and (B,)."""
    symbols = torch.randint(SYMBOLS, (size,), generator=generator)
    x = torch.zeros(LENGTH, size, SYMBOLS + 1)
    x[step - 1, torch.arange(size), symbols] = 1
    others = [t for t in range(LENGTH) if t != step - 1]
    x[others, :, SYMBOLS] = torch.randn(LENGTH - 1, size, generator=generator)
    return x, symbols


def train(model: nn.Module, step: int) -> float:
    """Accuracy on 512 new sequences."""
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    for _ in range(UPDATES):
        x, symbols = batch(generator, step)
        loss = nn.functional.cross_entropy(model(x), symbols)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, symbols = batch(generator, step, 512)
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(dim=-1) == symbols).float().mean().item()


def report(words: str, layer: nn.Module, step: int) -> None:
    print(f"{words:23} names the symbol of step {step:2}, {LENGTH - step} steps later: ", end="", flush=True)
    print(f"{train(Classifier(layer, 64), step):.1%}")


for step in (1, LATE):
    torch.manual_seed(0)
    lstm = nn.LSTM(SYMBOLS + 1, 64)
    memory = {"window": 10, "capacity": 10}
    attentive = plait.RelLSTM.from_torch(lstm, **memory)  # the same weights, and a memory
    chooses = plait.RelLSTM.from_torch(lstm, **memory, relevance="learned")  # of what it learns to keep
    if step == 1:
        report("nn.LSTM", lstm, step)
    report("RelLSTM", attentive, step)
    report("RelLSTM, learned memory", chooses, step)
