"""Experiments so small that a run takes a fraction of a second."""

import pytest
import torch

from plait.lab.experiments import Experiment, PlannedRun
from plait.lab.experiments.untangling import SMOKE


def planned(column="LSTM", delay=3, model=None, trace=False, **training):
    return PlannedRun(
        row=f"T = {delay}",
        column=column,
        task={"name": "copy", "delay": delay},
        model={"hidden_size": 8, **(model or {"name": column.lower()})},
        recipe={**SMOKE.training(lr=1e-2), "updates": 12, **training},
        trace=trace,
    )


def experiment(*runs, seeds=(0,), name="tiny"):
    return Experiment(
        name=name,
        title="Tiny",
        source="here",
        claim="",
        kind="table",
        metric="accuracy",
        updates_to=0.99,
        needs="",
        seeds=seeds,
        runs=runs,
        notes=(),
    )


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
