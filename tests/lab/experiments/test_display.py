"""What a person sees while runs are at work."""

import io

from plait.lab.experiments.catalogue import experiments
from plait.lab.experiments.display import Lines, LiveTable, display, left
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.pool import Event
from plait.lab.experiments.runner import Progress

from .conftest import experiment, planned


def heard(tmp_path, on_progress, *events):
    jobs = jobs_of(experiment(planned()), tmp_path, "cpu")
    progress = Progress(jobs[0])
    for kind, data in events:
        event = Event(jobs[0].id, kind, data)
        progress.apply(event)
        on_progress(progress, event)
    return progress


BEGAN = ("began", {"pid": 1})
HALFWAY = ("progress", {"update": 6, "speed": 2.0, "score": 0.5})
ENDED = ("ended", {"status": "complete", "updates": 12, "best_score": 1.0, "reason": "12 updates made"})


def test_lines(tmp_path):
    stream = io.StringIO()
    heard(tmp_path, Lines(3, stream, seconds=0).on_progress, BEGAN, HALFWAY, ENDED)
    first, second = stream.getvalue().splitlines()
    assert "T = 3  LSTM  seed 0  update 6/12  50.0%  2.0/s  0:00:03 left" in first
    assert second.startswith("  1/3")
    assert second.endswith("update 12/12  100.0%  complete (12 updates made)")


def test_a_line_is_there_as_soon_as_it_is_written(tmp_path):
    with (tmp_path / "progress.txt").open("w") as stream:
        heard(tmp_path, Lines(3, stream, seconds=0).on_progress, BEGAN, HALFWAY)
        assert "update 6/12" in (tmp_path / "progress.txt").read_text(), "a pipe would hold it back"


def test_a_policy_is_counted_in_steps_and_scored_by_its_return(tmp_path):
    stream = io.StringIO()
    job = jobs_of(experiments(smoke=True)["table4"], tmp_path, "cpu")[0]
    progress = Progress(job)
    progress.apply(Event(job.id, *HALFWAY))
    Lines(1, stream, seconds=0).on_progress(progress, Event(job.id, *HALFWAY))
    assert "step 6/256  0.500" in stream.getvalue()


def test_lines_of_a_run_that_died(tmp_path):
    stream = io.StringIO()
    lines = Lines(1, stream)
    progress = heard(tmp_path, lines.on_progress, BEGAN)
    progress.status, progress.reason = "waiting", "signal 9"
    lines.on_progress(progress, Event(progress.job.id, "died", {"reason": "signal 9"}))
    assert "waiting: signal 9" in stream.getvalue()


def test_the_live_table(tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with LiveTable(3, stream) as table:
        table.console.width = 100
        heard(tmp_path, table.on_progress, BEGAN, HALFWAY)
        table.console.print(table.table())
        text = stream.getvalue()
        for words in ("T = 3", "LSTM", "running", "6/12", "50.0%", "0:00:03", "1 running of 3"):
            assert words in text
    with display([], stream) as on_progress:
        assert on_progress.__self__.__class__ is LiveTable
    with display([], io.StringIO()) as on_progress:
        assert on_progress.__self__.__class__ is Lines


def test_time_left_is_unknown_before_it_runs(tmp_path):
    (job,) = jobs_of(experiment(planned()), tmp_path, "cpu")
    assert left(Progress(job)) == "?"
