"""RelLSTM in place of nn.LSTM in an existing model: name a symbol seen at the start of a long sequence.

The LSTM has torch's initialisation; if its gates begin open (`plait.LSTM(…, chrono=200)`) it learns this too.

python examples/drop_in.py [--seed 1]    # half a minute on one core
python examples/drop_in.py --smoke       # seconds; its numbers mean nothing
"""

import sys

import torch
from torch import nn

import plait

SMOKE = "--smoke" in sys.argv
SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
LENGTH, UPDATES, SYMBOLS = (12, 3, 8) if SMOKE else (200, 400, 8)


class Classifier(nn.Module):
    """Somebody's model: it asks for a layer that returns `output, state`, and does not ask which."""

    def __init__(self, layer: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.layer = layer
        self.readout = nn.Linear(hidden_size, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.layer(x)
        return self.readout(output[-1])


def batch(generator: torch.Generator, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a symbol at the first step, then noise on another channel: (T, B, F) and (B,)."""
    symbols = torch.randint(SYMBOLS, (size,), generator=generator)
    x = torch.zeros(LENGTH, size, SYMBOLS + 1)
    x[0, torch.arange(size), symbols] = 1
    x[1:, :, SYMBOLS] = torch.randn(LENGTH - 1, size, generator=generator)
    return x, symbols


def train(model: nn.Module) -> float:
    """Accuracy on 512 new sequences."""
    optimizer, generator = torch.optim.Adam(model.parameters()), torch.Generator().manual_seed(SEED)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=UPDATES)
    for _ in range(UPDATES):
        x, symbols = batch(generator)
        loss = nn.functional.cross_entropy(model(x), symbols)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    x, symbols = batch(generator, 512)
    with torch.no_grad():
        return (model(x).argmax(dim=-1) == symbols).float().mean().item()


torch.set_num_threads(1)  # for layers this small, two threads take several times as long as one
torch.manual_seed(SEED)
lstm = nn.LSTM(SYMBOLS + 1, 64)
attentive = plait.RelLSTM.from_torch(lstm, window=10, capacity=10)  # the same weights, and a memory
for layer in (lstm, attentive):
    accuracy = train(Classifier(layer, 64))
    print(f"{type(layer).__name__:8} names the first symbol of {LENGTH} steps: {accuracy:.1%}")
