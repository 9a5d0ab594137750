"""Filters: which models and delays, other seeds, fewer updates."""

import pytest

from plait.errors import ConfigError, UnknownNameError
from plait.experiments import experiment_named
from plait.experiments.selection import Selection

TABLE = experiment_named("table5")


def test_models_and_delays():
    part = Selection.read("relrnn,LSTM", "100, 2000").of(TABLE)
    assert [run.cell for run in part.runs] == [
        ("T = 100", "LSTM"), ("T = 100", "RelRNN"), ("T = 2000", "LSTM"), ("T = 2000", "RelRNN"),
    ]  # fmt: skip
    assert part.seeds == TABLE.seeds


def test_seeds_and_updates():
    part = Selection.read("relrnn", "100", "7,8", 50).of(TABLE)
    assert part.seeds == (7, 8)
    assert [run.recipe["updates"] for run in part.runs] == [50]


def test_nothing_selected_is_everything():
    assert Selection().of(TABLE) == TABLE


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"models": "relrn"}, UnknownNameError, "unknown model of table5 'relrn': did you mean 'relrnn'"),
        ({"delays": "150"}, UnknownNameError, "unknown delay of table5 '150'"),
        ({"delays": "1e3"}, ConfigError, "delays: expected whole numbers"),
        ({"seeds": "a"}, ConfigError, "seeds: expected whole numbers"),
        ({"updates": 0}, ConfigError, "updates: expected at least 1"),
    ],
)
def test_errors(words, error, message):
    with pytest.raises(error, match=message):
        Selection.read(**words).of(TABLE)
