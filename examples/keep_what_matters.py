"""A Transformer that may read 25 states learns which to keep: ten symbols, blanks before and after them.

python examples/keep_what_matters.py [--lead-in 60] [--seed 1]    # two or three minutes on one core
python examples/keep_what_matters.py --smoke                      # seconds; its numbers mean nothing
"""

import argparse

import torch
from torch import nn

import plait

parser = argparse.ArgumentParser()
parser.add_argument("--lead-in", type=int, default=0, help="blanks before the ten symbols")
parser.add_argument("--delay", type=int, default=100, help="blanks after them")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--smoke", action="store_true")
args = parser.parse_args()
SYMBOLS, COUNT, HIDDEN = 8, 10, 64
BLANK, MARKER = SYMBOLS, SYMBOLS + 1
LENGTH = args.lead_in + COUNT + args.delay + COUNT


def batch(generator: torch.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one-hot inputs (T, B, 10) and the ten symbols (10, B), to be named after the marker."""
    symbols = torch.randint(SYMBOLS, (COUNT, size), generator=generator)
    x = torch.full((LENGTH, size), BLANK)
    x[args.lead_in : args.lead_in + COUNT] = symbols
    x[-COUNT - 1] = MARKER
    return nn.functional.one_hot(x, SYMBOLS + 2).float(), symbols


def accuracy_after(updates: int, layer: nn.Module, rate: float) -> float:
    """Train the layer below a linear readout; return the accuracy on 128 new sequences."""
    model, generator = nn.ModuleList([layer, nn.Linear(HIDDEN, SYMBOLS)]), torch.Generator()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    generator.manual_seed(args.seed)
    for _ in range(updates):
        x, symbols = batch(generator, 32)
        logits = model[1](layer(x)[0][-COUNT:])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), symbols.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    x, symbols = batch(generator, 128)
    with torch.no_grad():
        logits = model[1](layer.eval()(x)[0][-COUNT:])
    return (logits.argmax(dim=-1) == symbols).float().mean().item()


sizes = {"input_size": SYMBOLS + 2, "hidden_size": HIDDEN}
torch.manual_seed(args.seed)
lstm = plait.LSTM(**sizes, chrono=LENGTH)  # its forget gates begin open
print(f"LSTM, 1,000 updates: {accuracy_after(2 if args.smoke else 1000, lstm, 4e-3):.1%}")
window = plait.WindowMemory(25)
learned = plait.RelevancyMemory(window=10, capacity=15, relevance="learned")
for name, memory in {"the latest 25 states": window, "25 states it chooses": learned}.items():
    torch.manual_seed(args.seed)
    transformer = plait.Transformer(**sizes, num_layers=2, heads=4, memory=memory)
    accuracy = accuracy_after(2 if args.smoke else 400, transformer, 1e-3)
    print(f"Transformer that reads {name}, 400 updates: {accuracy:.1%}")
