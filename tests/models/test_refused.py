"""Arguments of models that are refused, each in one line of plait's own."""

from __future__ import annotations

import pytest
import torch

import plait
from plait.errors import ConfigError

BAD = {
    "input_size": (2.5, "4", 0),
    "hidden_size": (2.5, "8", None, True, float("nan"), 2**31),
    "num_layers": (1.5, "1", 2**31),
    "dropout": ("x", None, float("nan")),
    "mix": ("x", None, [0.5], float("nan"), float("inf"), 1e39),
    "truncate": (2.5, "x"),
    "window": (1.5, "x", None),
    "capacity": (2.5, -1),
    "grad_limit": ("x", 1e39),
    "relevance": (3, "x"),
}
TRANSFORMERS = {"input_size", "hidden_size", "num_layers", "dropout"}


@pytest.mark.parametrize(("option", "value"), [(name, one) for name, values in BAD.items() for one in values])
def test_every_bad_value_is_named(option, value):
    for model in (plait.RelLSTM, plait.RelRNN, *([plait.Transformer] if option in TRANSFORMERS else [])):
        with pytest.raises(ConfigError, match=option):
            model(**{"input_size": 4, "hidden_size": 8, option: value})


@pytest.mark.parametrize(
    "options", [{"window": 10**9}, {"capacity": 10**9}, {"window": 10**8, "capacity": 10**8}]
)
def test_slots_that_cannot_fit_are_refused_before_they_are_allocated(monkeypatch, options):
    monkeypatch.setattr("plait.estimates.available_bytes", lambda device=None: 2**31)
    with pytest.raises(ConfigError, match="take a smaller memory"):
        plait.RelLSTM(1, 4, **options)
    plait.RelLSTM(1, 4, device="meta", **options)  # nothing to fit


def test_slots_of_a_batch_that_cannot_fit_are_refused(monkeypatch):
    model = plait.RelLSTM(1, 4, window=10**6)
    monkeypatch.setattr("plait.estimates.available_bytes", lambda device=None: 2**31)
    with pytest.raises(ConfigError, match=r"take a smaller memory \(window, capacity\) or fewer rows"):
        model(torch.zeros(3, 100, 1))
