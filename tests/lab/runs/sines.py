"""A kind of run of its own, as somebody else would write it: a network that learns a sine, and a script.

`python sines.py FOLDER` trains it there, or goes on with what was killed.
"""

import sys
from pathlib import Path

import torch

from plait.lab.runs.kinds import Kind
from plait.lab.training.learner import Learner, Schedule, Step, generator_for, gradient_norm
from plait.lab.training.registry import register
from plait.lab.training.session import train_run

FORMAT = "sines 1"


class SineLearner(Learner):
    score = "fit"

    def __init__(self, spec, device, group, backend):
        self.recipe, self.device, self.group = spec.recipe, device, group
        torch.manual_seed(self.recipe["seed"])
        width = spec.model["width"]
        self.network = torch.nn.Sequential(
            torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
        ).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        updates = self.recipe["updates"]
        self.schedule = Schedule(updates, evaluate_at=range(0, updates + 1, 50), record_every=10)

    def _loss(self, purpose, number):
        generator = generator_for(self.recipe["seed"], purpose, number, self.device)
        x = 6 * torch.rand(64, 1, generator=generator, device=self.device) - 3
        return (self.network(x) - x.sin()).square().mean()

    def advance(self, number, stop):
        self.optimizer.zero_grad()
        loss = self._loss("train", number)
        loss.backward()
        norm = gradient_norm([p.grad for p in self.network.parameters()])
        self.optimizer.step()
        return Step({"loss": loss.item(), "score": -loss.item(), "gradient_norm": norm.item()})

    @torch.no_grad()
    def evaluate(self, final):
        return {} if final else {"sine": {"score": 1 - self._loss("held-out", 0).item()}}


register(Kind(FORMAT, score="fit"), SineLearner)

if __name__ == "__main__":
    torch.set_num_threads(1)
    recipe = {"updates": int(sys.argv[2]), "seed": 0}
    description = {"format": FORMAT, "task": {"name": "sine"}, "model": {"name": "mlp", "width": 16}}
    folder = Path(sys.argv[1])
    train_run({**description, "recipe": recipe}, device="cpu", folder=folder, resume=folder.exists())
