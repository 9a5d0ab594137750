"""Filters: which models and delays, other seeds, fewer updates."""

import pytest

from plait.errors import ConfigError, UnknownNameError
from plait.lab.experiments.catalogue import experiment_named
from plait.lab.experiments.selection import Selection

TABLE = experiment_named("table5")
TABLE_4 = experiment_named("table4")


def test_models_and_delays():
    part = Selection.read("relrnn,LSTM", "100, 2000").of(TABLE)
    assert [run.cell for run in part.runs] == [
        ("T = 100", "LSTM"),
        ("T = 100", "RelRNN"),
        ("T = 2000", "LSTM"),
        ("T = 2000", "RelRNN"),
    ]
    assert part.seeds == TABLE.seeds


def test_seeds_and_updates():
    part = Selection.read("relrnn", "100", seeds="7,8", updates=50).of(TABLE)
    assert part.seeds == (7, 8)
    assert [run.recipe["updates"] for run in part.runs] == [50]


def test_rows_steps_and_backend_of_environments():
    part = Selection.read("rellstm", rows="Memory, doorkey", steps=1e6, backend="envpool").of(TABLE_4)
    rows = ("MemoryS7, trained", "MemoryS13, tested", "DoorKey-5x5, trained", "DoorKey-16x16, tested")
    columns = ("RelLSTM", "RelLSTM learned")  # one name for both
    assert [run.cell for run in part.runs] == [(row, column) for row in rows for column in columns]
    assert {run.recipe["total_timesteps"] for run in part.runs} == {1e6}
    assert {run.task["backend"] for run in part.runs} == {"envpool"}
    assert part.lengths == "Here: 1,000,000 steps at most."


def test_columns():
    part = Selection.read(rows="lead-in 60", columns="Learned").of(experiment_named("keeping"))
    assert {run.column for run in part.runs} == {"RelRNN learned", "RelLSTM learned"}


def test_nothing_selected_is_everything():
    assert Selection().of(TABLE) == TABLE


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"models": "relrn"}, UnknownNameError, "unknown model of table5 'relrn': did you mean 'relrnn'"),
        ({"delays": "150"}, UnknownNameError, "unknown delay of table5 '150'"),
        ({"delays": "1e3"}, ConfigError, "delays: expected whole numbers"),
        ({"seeds": "a"}, ConfigError, "seeds: expected whole numbers"),
        ({"rows": "T = 150"}, UnknownNameError, "unknown row of table5 't = 150'"),
        ({"columns": "lstn"}, UnknownNameError, "unknown column of table5 'lstn'"),
        ({"rows": "T = 100", "delays": "200"}, ConfigError, "no run with all of what was asked for"),
        ({"steps": 100}, ConfigError, "--steps does not apply: .* counted in updates"),
        ({"backend": "envpool"}, ConfigError, "--backend does not apply"),
        ({"updates": 0}, ConfigError, "updates: expected at least 1"),
    ],
)
def test_errors(words, error, message):
    with pytest.raises(error, match=message):
        Selection.read(**words).of(TABLE)
