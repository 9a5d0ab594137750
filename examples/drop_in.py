"""RelLSTM in place of nn.LSTM in an existing model: name a symbol seen early in a long sequence.

python examples/drop_in.py            # about a minute on one core
python examples/drop_in.py --smoke    # seconds; its numbers mean nothing
"""

import sys

import torch
from torch import nn

import plait

LENGTH, LATE, UPDATES, SYMBOLS = (12, 5, 3, 8) if "--smoke" in sys.argv else (200, 61, 300, 8)


class Classifier(nn.Module):
    """Somebody's model: it asks for a layer that returns `output, state`, and does not ask which."""

    def __init__(self, layer: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(hidden_size, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.layer(x)
        return self.readout(output[-1])


def batch(generator: torch.Generator, step: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A symbol at one step, noise on another channel at all others: (T, B, F) and (B,)."""
    symbols = torch.randint(SYMBOLS, (size,), generator=generator)
    x = torch.zeros(LENGTH, size, SYMBOLS + 1)
    x[torch.arange(LENGTH) != step - 1, :, SYMBOLS] = torch.randn(LENGTH - 1, size, generator=generator)
    x[step - 1, torch.arange(size), symbols] = 1
    return x, symbols


def train(layer: nn.Module, step: int) -> float:
    """Accuracy on 512 new sequences."""
    model, generator = Classifier(layer, 64), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(UPDATES):
        x, symbols = batch(generator, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), symbols).backward()
        optimizer.step()
    x, symbols = batch(generator, step, 512)
    with torch.no_grad():
        return (model.eval()(x).argmax(dim=-1) == symbols).float().mean().item()


torch.manual_seed(0)
lstm = nn.LSTM(SYMBOLS + 1, 64)
attentive = plait.RelLSTM.from_torch(lstm, window=10, capacity=10)  # the same weights, and a memory
for layer in (lstm, attentive):
    print(f"{type(layer).__name__:8} names the first symbol of {LENGTH} steps: {train(layer, 1):.1%}")
for rule in ("earned", "learned"):  # what is kept: by the published rule, or by a score it learns
    torch.manual_seed(0)
    attentive = plait.RelLSTM.from_torch(nn.LSTM(SYMBOLS + 1, 64), window=10, capacity=10, relevance=rule)
    print(f"RelLSTM  names the symbol of step {LATE}, what it keeps {rule}: {train(attentive, LATE):.1%}")
