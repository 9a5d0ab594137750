"""The table of docs/theory/ranks.md: python docs/theory/trained_ranks.py (a minute or two on one core).

Trains the linear networks of the depth-width experiment on this documentation's own pages, then measures the
exact separation rank of the analysed network with the trained weights, with two primes each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from plait.depthwidth.rank.exact import Weights, rank_of_weights
from plait.depthwidth.rank.field import PRIMES
from plait.lab.tasks.text import read_text
from plait.lab.training.character_learner import CharacterLearner, DeviceText
from plait.lab.training.characters import CharacterModel, CharacterRecipe, CharacterSpec, CharacterTask
from plait.lab.training.stop import Stop
from plait.models import LinearAttentionNetwork

SHAPES = [(2, 4, 1), (2, 4, 2), (2, 4, 4), (2, 8, 1), (2, 8, 2), (3, 2, 1), (3, 2, 2)]
LOOKS = (0, 1, 30, 300)  # updates after which ranks are measured


def weights_of(network: LinearAttentionNetwork, prime: int) -> Weights:
    """Return the four matrices of every layer and head, exactly, mod p."""
    heads, width = network.heads, network.width
    joint = torch.stack([layer.weight for layer in network.into_heads]).detach().double()
    query, key, value = joint.view(network.depth, 3, heads, width // heads, width).unbind(1)
    out = torch.stack([layer.weight for layer in network.out_of_heads]).detach().double()
    output = out.view(network.depth, width, heads, width // heads).transpose(1, 2)
    return Weights.of_floats(prime, *(x.numpy() for x in (query, key, value, output)))


def ranks(learner: CharacterLearner, residual: bool) -> list[int]:
    return [
        rank_of_weights(weights_of(learner.network, prime), prime, residual=residual, seed=seed)
        for seed, prime in enumerate(PRIMES[:2])
    ]


def begin_special(network: LinearAttentionNetwork) -> None:
    """All matrices the identity: a beginning inside the exceptional set."""
    with torch.no_grad():
        for into, out in zip(network.into_heads, network.out_of_heads, strict=True):
            into.weight.copy_(torch.eye(network.width).repeat(3, 1))
            out.weight.copy_(torch.eye(network.width))


def row(text: DeviceText, depth: int, width: int, heads: int, special: bool) -> None:
    recipe = CharacterRecipe(updates=max(LOOKS), warmup=20, batch=16, context=64, peak=0.024, held_out=2000)
    task, model = CharacterTask(symbols=text.vocab), CharacterModel("linear", depth, width, heads)
    learner, stop, made = CharacterLearner(CharacterSpec(task, model, recipe), text), Stop(signals=False), 0
    if special:
        begin_special(learner.network)
    cells = []
    for updates in LOOKS:
        while made < updates:
            made += 1
            learner.advance(made, stop)
        found = {residual: ranks(learner, residual) for residual in (False, True)}
        cells.append(" / ".join(" ".join(map(str, sorted(set(found[key])))) for key in found))
    name = f"{depth}, {width}, {heads}" + (", from the identity" if special else "")
    losses = f"{float(learner.losses[0]):.2f} → {float(learner.losses[max(LOOKS) - 1]):.2f}"
    sys.stdout.write(f"| {name} | " + " | ".join([*cells, losses]) + " |\n")
    sys.stdout.flush()


def main() -> None:
    torch.set_num_threads(1)
    pages = sorted(Path(__file__).parent.parent.glob("*.md"))
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "pages.txt"
        joined.write_text("\n".join(page.read_text() for page in pages))
        text = DeviceText.of(read_text([joined]), torch.device("cpu"))
    for shape in SHAPES:
        row(text, *shape, special=False)
    for depth, width in ((2, 4), (3, 2)):
        row(text, depth, width, 1, special=True)


if __name__ == "__main__":
    main()
