"""The experiment's folder: what was asked for is joined, something else is refused, runs are taken over."""

import dataclasses
import json

import pytest

from plait.errors import BusyError, ConfigError, OutputError
from plait.lab.experiments import Experiment
from plait.lab.experiments.folder import DESCRIPTION, import_runs, lock_folder
from plait.lab.experiments.plan import jobs_of, status_of
from plait.lab.experiments.worker import execute, stop_file
from plait.lab.strict import parse

from .conftest import experiment, planned


def described(folder):
    return parse(Experiment, json.loads((folder / DESCRIPTION).read_text()))


def test_a_second_part_joins_the_first(tmp_path):
    with lock_folder(tmp_path, experiment(planned(), planned("RNN"))):
        pass
    newer = planned("RNN", updates=99)
    with lock_folder(tmp_path, experiment(newer, planned(delay=5), seeds=(4,))):
        pass
    found = described(tmp_path)
    assert [run.cell for run in found.runs] == [("T = 3", "LSTM"), ("T = 3", "RNN"), ("T = 5", "LSTM")]
    assert found.runs[1] == newer, "the newer plan of a cell stands"
    assert found.seeds == (0, 4)


def test_cells_of_one_row_stand_beside_each_other_and_notes_are_kept(tmp_path):
    for column, note in (("LSTM", "as published"), ("RNN", "as we do it"), ("RNN", "as we do it")):
        both = experiment(planned(column), planned(column, delay=5))
        with lock_folder(tmp_path, dataclasses.replace(both, notes=(note,))):
            pass
    found = described(tmp_path)
    assert [run.column for run in found.runs] == ["LSTM", "RNN", "LSTM", "RNN"]
    assert [run.row for run in found.runs] == ["T = 3", "T = 3", "T = 5", "T = 5"]
    assert found.notes == ("as published", "as we do it")


def test_another_experiment_is_refused_and_nothing_changes(tmp_path):
    with lock_folder(tmp_path, experiment(planned())):
        pass
    before = (tmp_path / DESCRIPTION).read_bytes()
    with (
        pytest.raises(OutputError, match="holds the experiment 'tiny', not 'other'"),
        lock_folder(tmp_path, experiment(planned(), name="other")),
    ):
        pass
    assert (tmp_path / DESCRIPTION).read_bytes() == before
    (tmp_path / DESCRIPTION).write_text('{"name": "tiny"}')
    with (
        pytest.raises(OutputError, match="not written by this version"),
        lock_folder(tmp_path, experiment(planned())),
    ):
        pass


def test_smoke_runs_and_full_ones_do_not_share_a_folder(tmp_path):
    with lock_folder(tmp_path, dataclasses.replace(experiment(planned()), smoke=True)):
        pass
    with (
        pytest.raises(OutputError, match="holds 'tiny' at smoke size; choose another --out"),
        lock_folder(tmp_path, experiment(planned())),
    ):
        pass
    plan = json.loads((tmp_path / DESCRIPTION).read_text())
    del plan["smoke"]
    (tmp_path / DESCRIPTION).write_text(json.dumps(plan))
    with (
        pytest.raises(OutputError, match="was not written by this version; choose another --out"),
        lock_folder(tmp_path, experiment(planned())),
    ):
        pass


def test_two_runners_in_one_folder(tmp_path):
    with (
        lock_folder(tmp_path, experiment(planned())),
        pytest.raises(BusyError, match="in use by another"),
        lock_folder(tmp_path, experiment(planned())),
    ):
        pass


def test_a_stop_left_by_a_killed_runner_is_forgotten(tmp_path):
    stop_file(tmp_path).touch()
    with lock_folder(tmp_path, experiment(planned())):
        assert not stop_file(tmp_path).exists()


def test_settled_runs_are_taken_over_and_no_other(tmp_path):
    tiny = experiment(planned(), planned("RNN"))
    done, half = jobs_of(tiny, tmp_path / "source", "cpu")
    execute(done, lambda message: None)
    execute(half, lambda message: stop_file(tmp_path / "source").touch())
    (tmp_path / "out").mkdir()
    jobs = jobs_of(tiny, tmp_path / "out", "cpu")
    assert import_runs(jobs, tmp_path / "source") == [done.id]
    assert [status_of(job) for job in jobs] == ["complete", "missing"]
    assert not (tmp_path / "out" / half.id).exists()
    assert not (tmp_path / "out" / done.id / "lock").exists()
    assert import_runs(jobs, tmp_path / "source") == [], "what is there stays"
    with pytest.raises(ConfigError, match="no folder"):
        import_runs(jobs, tmp_path / "absent")


def test_a_description_survives_the_disk(tmp_path):
    tiny = experiment(dataclasses.replace(planned(), published=0.5, published_note="x"), seeds=(2, 5))
    with lock_folder(tmp_path, tiny):
        assert described(tmp_path) == tiny
