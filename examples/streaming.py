"""A stream without end, one step at a time: the state is a value of fixed size, whatever came before.

python examples/streaming.py [--smoke]
"""

import sys
import time

import torch

import plait
from plait.models import State

STEPS = 50 if "--smoke" in sys.argv else 2000


def numbers_in(state: State) -> int:
    """How many numbers the state holds: hidden, cell state, and each layer's memory."""
    tensors = [state.hidden, *([] if state.cell_state is None else [state.cell_state])]
    tensors += [tensor for memory in state.memory for tensor in memory]
    return sum(tensor.numel() for tensor in tensors)


torch.manual_seed(0)
model = plait.RelLSTM(6, 64, window=10, capacity=10).eval()
stream = torch.randn(STEPS, 1, 6)  # (T, one row, F); in life it arrives step by step

state, pieces, sizes = None, [], []
start = time.perf_counter()
with torch.no_grad():
    for x in stream:
        output, state = model(x.unsqueeze(0), state)
        pieces.append(output)
        sizes.append(numbers_in(state))
seconds = time.perf_counter() - start

with torch.no_grad():
    whole, _ = model(stream)
torch.testing.assert_close(torch.cat(pieces), whole)
assert set(sizes) == {sizes[0]}
print(f"{STEPS} steps, {1e6 * seconds / STEPS:.0f} µs each; the state holds {sizes[0]} numbers throughout")
kept = state.memory[0].born[0].tolist()
print("steps in memory now:", sorted(step for step in kept if step >= 0))
