"""The tables say what the runs say, and leave none out."""

from __future__ import annotations

import json

import pytest

from plait.lab.report.gather import gather
from plait.lab.report.markdown import report_text
from plait.lab.report.tables import cost_table, outcome, result_table, run_table, transfer_table

PLAN = [
    ("T = 100", "RelRNN", "relrnn", 100, 1.0, ""),
    ("T = 100", "LSTM", "lstm", 100, 0.12, ""),
    ("T = 100", "GRU", "gru", 100, None, "out of memory"),
    ("T = 100", "RNN", "rnn", 100, 1.0, ""),
]


@pytest.fixture
def group(bench):
    folder = bench.experiment("table5", PLAN)
    for seed, scores in enumerate([(0.5, 1.0, 1.0), (0.2, 0.5, 0.995), (0.1, 0.1, 0.4)]):
        bench.run("table5", seed=seed, scores=scores)
    bench.run("table5", "lstm", scores=(0.125, 0.125), status="stopped")
    bench.run("table5", "lstm", seed=1, scores=(0.1, 0.121), status="diverged")
    (found,) = gather([folder])
    return found


def by_model(table, model):
    (record,) = [record for record in table.records() if record["model"] == model]
    return record


def test_ours_stand_beside_published_with_what_it_took(group):
    found = by_model(result_table(group), "RelRNN")
    assert (found["ours"], found["best"]) == ("99.5% (40.0% – 100.0%)", "99.5%")
    assert (found["n"], found["published"], found["difference"]) == (3, "100.0%", "agrees")
    assert found["updates to 99%"] == "300 (200 – not reached)"
    assert found["seconds to 99%"] == "6.0 (4.0 – not reached)"


def test_runs_of_no_paper_have_their_score_by_name(bench):
    """Nothing of ours and theirs, and no best evaluation beside the last one."""
    folder = bench.run(scores=(1.0, 0.5)).parent
    (loose,) = gather([folder])
    table = result_table(loose)
    assert not {"ours", "best", "published"} & set(table.columns)
    assert [row["held-out accuracy"] for row in table.records()] == ["50.0%"]
    assert not any("best" in note or "agrees" in note for note in table.notes)
    assert report_text([loose], "plait report").splitlines()[:4] == [
        "# 1 run: 1 complete",
        "",
        "## Runs",  # the folder is runs/
        "",
    ]


def test_runs_that_stopped_or_diverged_are_counted_and_named(group):
    found = by_model(result_table(group), "LSTM")
    assert found["runs"] == "1 stopped, 1 diverged, 1 not run"
    assert found["ours"] == "12.3% (12.1% – 12.5%)"
    assert (found["n"], found["difference"], found["updates to 99%"]) == (2, "agrees", "not reached")


def test_what_has_no_published_score_or_no_run_says_so(group):
    table = result_table(group)
    assert by_model(table, "GRU")["published"] == "out of memory"
    assert by_model(table, "GRU")["difference"] is None
    assert (by_model(table, "RNN")["difference"], by_model(table, "RNN")["runs"]) == ("not run", "3 not run")


def test_a_damaged_run_is_named_and_not_counted(bench):
    folder = bench.run(scores=(0.5,))
    bench.run(seed=1, scores=(1.0,))
    (folder / "summary.json").write_text("{")
    (group,) = gather([folder.parent])
    found = outcome(group.cells[0], 0.99)
    assert (found.ours.n, found.ours.median, found.states) == (1, 1.0, "1 damaged, 1 complete")
    assert "summary.json is cut short" in run_table(group).rows[0][-1]


def test_a_cell_of_damaged_runs_has_no_score(bench):
    folder = bench.experiment("table5", PLAN[:2])
    bench.run("table5", "lstm")
    (bench.run("table5") / "summary.json").write_text("{")
    (group,) = gather([folder])
    assert [outcome(cell, 0.99).verdict for cell in group.cells] == ["no score", "higher"]


def test_transfer_has_a_column_for_each_held_out_set(bench, group):
    assert transfer_table(group) is None
    for seed in (0, 1):
        bench.run("transfer", seed=seed, scores=(1.0 - 0.2 * seed,), held_out={"delay 200": 0.5})
    folder = bench.run("transfer", "lstm").parent
    (transfer,) = gather([folder])
    table = transfer_table(transfer)
    assert table.columns == ["setting", "model", "n", "copy", "delay 200"]
    assert table.rows == [["copy, delay 100", "relrnn", 2, "90.0% (80.0% – 100.0%)", "45.0% (40.0% – 50.0%)"]]


def test_cost_and_machine(group):
    found = by_model(cost_table(group), "RelRNN")
    assert found["parameters"] == "12,345"
    assert found["ms per update"] == "23.3"
    assert (found["peak memory (MiB)"], found["machine"]) == ("300", "A Processor")
    assert by_model(cost_table(group), "RNN")["machine"] is None


def test_every_run_has_its_line(group):
    records = run_table(group).records()
    assert len(records) == 5
    assert {record["status"] for record in records} == {"complete", "stopped", "diverged"}
    assert {record["commit"] for record in records} == {"abcdef012345"}


def test_a_run_that_failed_is_counted_and_has_no_pace(bench):
    """Its worker says why, and knows no clock."""
    folder = bench.experiment("table5", PLAN[:1], seeds=(0, 1))
    bench.run("table5")
    failed = {"run": "x", "updates": 100, "best_score": None, "status": "failed", "reason": "out of luck"}
    broken = bench.run("table5", seed=1)
    (broken / "summary.json").write_text(json.dumps(failed))
    bench.seal(broken)
    (group,) = gather([folder])
    assert outcome(group.cells[0], 0.99).states == "1 complete, 1 failed"
    assert by_model(cost_table(group), "RelRNN")["ms per update"] == "23.3"
    assert "out of luck" in [row[-1] for row in run_table(group).rows]


def test_states_read_stand_beside_the_score_of_a_bounded_transformer(bench):
    folder = bench.run(scores=(0.5, 0.9))
    bench.run(folder.parent.name, "lstm", scores=(0.5,))
    assert "states read" not in result_table(gather([folder.parent])[0]).columns
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    evaluations = [next(iter(line["held_out"].values())) for line in lines if "held_out" in line]
    for states, evaluation in zip((25, 24), evaluations, strict=True):
        evaluation["states_read"] = states
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bench.seal(folder)
    table = result_table(gather([folder.parent])[0])
    assert sorted(record["states read"] or 0 for record in table.records()) == [0, 25]
    assert "the most that a head read" in table.notes[-1]
