"""How far back is a loss on the last step felt, in an untrained Transformer and an untrained LSTM?

python examples/probe_transformer.py [--smoke]
"""

import sys

import torch
from torch import nn

from plait.gradients import GradientProfile, probe

STEPS, WIDTH = (24, 16) if "--smoke" in sys.argv else (400, 64)


class Causal(nn.Module):
    """torch's own encoder with a causal mask; any module that maps a sequence to a sequence will do."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, norm_first=True, batch_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(len(x))
        return self.encoder(x, mask=mask, is_causal=True)


def show(name: str, profile: GradientProfile) -> None:
    print(f"{name}, a loss of {profile.loss:.3g} on the last of {STEPS} steps")
    for layer in profile.layers:
        first, middle, last = layer.norms[0], layer.norms[STEPS // 2], layer.norms[-1]
        print(f"  {layer.name:20} first {first:8.2e}  middle {middle:8.2e}  last {last:8.2e}")
    print(f"  {profile.summary()}")


torch.manual_seed(0)
x = torch.randn(STEPS, 2, WIDTH)
show("Transformer", probe(Causal(), x, lambda output: output[-1].square().mean()))
show("LSTM", probe(nn.LSTM(WIDTH, WIDTH), x, lambda output: output[0][-1].square().mean()))
