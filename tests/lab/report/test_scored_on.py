"""Two cells of one run: each shows the held-out set it is about."""

import dataclasses
import json

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.plan import jobs_of
from plait.lab.report.gather import gather
from plait.lab.report.report_page import headline
from plait.lab.report.tables import result_table, run_table
from plait.lab.runs.folder import write_summary


def two_environments():
    """Return a run scored 0.9 in its training environment and 0.4 in a larger one."""
    parts = {
        "task": {"name": "minigrid", "env": "MemoryS7", "test_env": "MemoryS13", "backend": "minigrid"},
        "model": {"name": "lstm", "hidden_size": 4},
        "recipe": {"total_timesteps": 64, "n_envs": 4, "n_minibatches": 4},
    }
    runs = [
        PlannedRun(f"{env}, {how}", "LSTM", **parts, published=published, scored_on=env)
        for env, how, published in (("MemoryS7", "trained", 0.9), ("MemoryS13", "tested", 0.6))
    ]
    return Experiment("two", "", "", "", "table", "average reward", 0.5, "", (0,), tuple(runs), ())


def test_one_run_two_cells(tmp_path):
    experiment = two_environments()
    (job,) = jobs_of(experiment, tmp_path)
    folder = tmp_path / job.id
    folder.mkdir()
    evaluations = [
        {"update": 1, "seconds": 1.0, "held_out": {"MemoryS7": {"score": 0.3}}},
        {"update": 2, "seconds": 2.0, "held_out": {"MemoryS7": {"score": 0.9}}},
        {
            "update": 2,
            "seconds": 3.0,
            "held_out": {"MemoryS7": {"score": 0.9}, "MemoryS13": {"score": 0.4}},
        },
    ]
    (folder / "config.json").write_text(json.dumps(job.spec.to_json()))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evaluations))
    write_summary(folder, {"status": "complete", "updates": 2, "seconds": 3.0})
    (tmp_path / "experiment.json").write_text(json.dumps(dataclasses.asdict(experiment)))
    (group,) = gather([tmp_path])
    assert headline([group]) == "1 run: 1 complete"
    shown = {row["setting"]: row for row in result_table(group).records()}
    assert shown["MemoryS7, trained"]["ours"] == "0.900"
    assert shown["MemoryS13, tested"]["ours"] == "0.400"
    assert shown["MemoryS13, tested"]["published"] == "0.600"
    assert shown["MemoryS7, trained"]["updates to 0.500"] == "2"
    assert shown["MemoryS13, tested"]["updates to 0.500"] == "not reached"
    assert [row["score"] for row in run_table(group).records()] == ["0.900", "0.400"]
