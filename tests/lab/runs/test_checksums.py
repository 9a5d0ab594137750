"""What a run folder holds against damage: no altered file is believed, in whatever state the run is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from plait.errors import CheckpointError
from plait.lab.cli import main
from plait.lab.experiments.worker import record_failure
from plait.lab.runs.archive import pack, unpack
from plait.lab.runs.checksums import SUMS, folder_sums, read_header
from plait.lab.runs.folder import Run, read_json, read_plain, run_id
from plait.lab.runs.reading import all_runs, read_run
from plait.lab.training.session import load, train_run


class Death(BaseException):
    pass


@pytest.fixture
def ended(small_fit, tmp_path):
    small_fit(tmp_path / "runs" / "run", model="relrnn")
    return tmp_path / "runs" / "run"


@pytest.fixture
def killed(small_fit, tmp_path, monkeypatch):
    """Dead after update 11 of 12; its checkpoint is that of update 8."""
    folder, save = tmp_path / "runs" / "run", Run.save

    def dying(self, learner, counters):
        if counters["update"] == 12:
            raise Death
        save(self, learner, counters)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", dying)
        with pytest.raises(Death):
            small_fit(folder, model="relrnn")
    return folder


def other_digit(path, of=b'"score": 0.'):
    """The damage that is hardest to see."""
    content = path.read_bytes()
    place = content.index(of) + len(of)
    path.write_bytes(
        content[:place] + (b"7" if content[place : place + 1] != b"7" else b"3") + content[place + 1 :]
    )


def listed(folder):
    (record,) = all_runs(folder.parent)
    return record


def test_an_ended_run_can_be_checked_by_anyone(ended):
    checked = subprocess.run(["sha256sum", "-c", SUMS], cwd=ended, capture_output=True, text=True, check=True)
    assert {line.split(":")[0] for line in checked.stdout.splitlines()} == {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "gradients.jsonl",
        "checkpoint.safetensors",
        "summary.json",
    }


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("metrics.jsonl", b'"score": 0.'),
        ("summary.json", b'"seconds": '),
        ("config.json", b'"seed": '),
        ("environment.json", b'"threads": '),
        ("gradients.jsonl", b"0."),
        (SUMS, b""),
    ],
)
def test_another_digit_in_an_ended_run(ended, name, of, capsys):
    other_digit(ended / name, of)
    record = listed(ended)
    assert record.status == "damaged"
    assert SUMS in record.reason
    for words in (["train", "--resume"], ["runs", "show"], ["gradients", "probe"]):
        assert main([*words, str(ended)]) == 2
        assert SUMS in capsys.readouterr().err


def test_what_does_not_match_is_not_shown(ended):
    true = listed(ended)
    other_digit(ended / "metrics.jsonl")
    record = listed(ended)
    assert (list(record.marks), list(record.losses)) == ([], [])
    assert record.best_score == true.best_score, "the summary is as it was"


def test_the_checkpoint_of_an_earlier_moment_is_not_the_one_it_ended_with(killed, small_fit, tmp_path):
    shutil.copy(killed / "checkpoint.safetensors", tmp_path / "earlier")
    small_fit(killed, model="relrnn", resume=True)
    load(killed)
    shutil.copy(tmp_path / "earlier", killed / "checkpoint.safetensors")
    with pytest.raises(CheckpointError, match="the run did not end with it"):
        load(killed)


def test_sums_that_are_gone_are_missed(ended):
    (ended / SUMS).unlink()
    assert listed(ended).reason == f"{SUMS} is missing, which is written before summary.json"


@pytest.mark.parametrize("name", ["metrics.jsonl", "environment.json"])
def test_a_file_that_is_gone_is_missed(ended, name):
    (ended / name).unlink()
    assert f"{name} is missing" in listed(ended).reason


def test_a_run_without_its_config_is_listed(ended):
    (ended / "config.json").unlink()
    assert "config.json is missing" in listed(ended).reason


def test_a_run_whose_summary_was_lost_says_so_and_ends_again(ended, small_fit):
    """It may also have died between the sums and the summary."""
    before = json.loads((ended / "summary.json").read_text())
    (ended / "summary.json").unlink()
    assert listed(ended).status == "interrupted"
    assert "resume it to end it again" in listed(ended).reason
    again = small_fit(ended, model="relrnn", resume=True)
    assert [again.summary[k] for k in ("status", "score")] == [before[k] for k in ("status", "score")]
    assert listed(ended).status == "complete"


def test_a_killed_run_is_shown_up_to_its_checkpoint(killed, small_fit):
    assert read_run(killed).updates == 8
    assert b'"update": 10' in (killed / "metrics.jsonl").read_bytes()
    small_fit(killed, model="relrnn", resume=True)
    assert read_run(killed).updates == 12


@pytest.mark.parametrize(
    ("name", "of", "word"),
    [
        ("metrics.jsonl", b'"score": 0.', "metrics.jsonl is not what it was at the last checkpoint"),
        ("config.json", b'"seed": ', "is of the run"),
        ("environment.json", b'"threads": ', "environment.json is damaged"),
        ("checkpoint.safetensors", b'{"', "checkpoint.safetensors is cut short or not a checkpoint"),
    ],
)
def test_another_digit_in_a_killed_run(killed, name, of, word, capsys):
    other_digit(killed / name, of)
    assert word in listed(killed).reason
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    assert main(["train", "--resume", str(killed)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in killed.iterdir()} == before


def test_garbage_after_the_last_checkpoint_is_done_again(killed, small_fit, tmp_path, timeless):
    """A power cut may leave zeroes at the end of a curve."""
    with (killed / "metrics.jsonl").open("ab") as file:
        file.write(bytes(100))
    assert listed(killed).status == "interrupted"
    assert main(["train", "--resume", str(killed), "--quiet", "--checkpoint-every", "4"]) == 0
    whole = small_fit(tmp_path / "whole", model="relrnn")
    again = small_fit(killed, model="relrnn")
    assert timeless(again.metrics) == timeless(whole.metrics)


def test_an_extended_run_that_is_not_extended_as_it_was(killed):
    description = json.loads((killed / "config.json").read_text())
    longer = {
        **description,
        "recipe": {**description["recipe"], "updates": 20},
        "extended": {"updates": [12]},
    }
    assert run_id(longer) == run_id(description), "its id does not tell"
    (killed / "config.json").write_text(json.dumps(longer))
    assert listed(killed).reason == "config.json is not as it was when the run was trained"


def test_a_run_killed_during_an_extension_resumes(ended, monkeypatch, capsys):
    """Before its config is written, and after."""
    from plait.lab.runs import folder as module

    for moment in (1, 2):
        count = [0]

        def dying(path, value, write=module.write_json, moment=moment, count=count):
            count[0] += 1
            if count[0] == moment:
                raise Death
            write(path, value)

        with monkeypatch.context() as patch:
            patch.setattr(module, "write_json", dying)
            with pytest.raises(Death):
                main(["train", "--resume", str(ended), "--updates", "14", "--quiet", "--debug"])
        assert read_run(ended).status == "interrupted"
    assert main(["train", "--resume", str(ended), "--updates", "14", "--quiet"]) == 0
    assert listed(ended).status == "complete"


def test_a_failure_is_sealed_too(killed):
    record_failure(killed, "the worker was ended")
    assert listed(killed).status == "failed"
    other_digit(killed / "metrics.jsonl")
    assert "does not match" in listed(killed).reason


def test_a_trace_is_sealed_with_its_run(ended, tmp_path, capsys):
    assert main(["runs", "attention", str(ended), "-o", str(tmp_path / "a.png")]) == 0
    assert "trace.json" in folder_sums(ended)
    other_digit(ended / "trace.json", b"0.")
    assert "trace.json does not match" in listed(ended).reason


@pytest.mark.parametrize("light", [False, True])
def test_sums_travel(ended, tmp_path, light):
    pack([ended], tmp_path / "a.tar.gz", light=light)
    unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    assert listed(tmp_path / "there" / "run").status == "complete"


def test_a_curve_that_is_a_link_is_not_written_through(killed, ended_elsewhere):
    """Nothing was saved of it yet, so nothing tells that the curve is another's."""
    before = (ended_elsewhere / "metrics.jsonl").read_bytes()
    for path in killed.iterdir():
        path.unlink() if path.name not in ("config.json", "lock") else None
    (killed / "metrics.jsonl").symlink_to(ended_elsewhere / "metrics.jsonl")
    assert main(["train", "--resume", str(killed)]) == 2
    assert (ended_elsewhere / "metrics.jsonl").read_bytes() == before


@pytest.fixture
def ended_elsewhere(small_fit, tmp_path):
    small_fit(tmp_path / "elsewhere", updates=4)
    return tmp_path / "elsewhere"


def test_without_a_checkpoint_nothing_vouches_for_curves(killed):
    (killed / "checkpoint.safetensors").unlink()
    record = listed(killed)
    assert "nothing vouches for the curves" in record.reason
    assert not record.losses


@pytest.mark.parametrize(
    "others", [("environment.json",), ("metrics.jsonl", "gradients.jsonl"), ("config.json",)], ids="+".join
)
def test_a_checkpoint_that_was_deleted_with_other_files_is_missed(killed, others, capsys):
    """It would be taken for a run that has only just begun."""
    for name in ("checkpoint.safetensors", *others):
        (killed / name).unlink()
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    record = listed(killed)
    assert record.status == "damaged"
    assert "missing" in record.reason
    assert main(["train", "--resume", str(killed), "--quiet"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    if "config.json" not in others:  # whoever asks in Python
        with pytest.raises(CheckpointError, match="no checkpoint to resume from; nothing was changed"):
            train_run(json.loads(before["config.json"]), folder=killed, resume=True)
    assert {path.name: path.read_bytes() for path in killed.iterdir()} == before


def test_a_run_killed_before_its_first_checkpoint_starts_over(small_fit, tmp_path, monkeypatch):
    def dying(*given):
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", dying)
        with pytest.raises(Death):
            small_fit(tmp_path / "runs" / "run")
    assert (tmp_path / "runs" / "run" / "environment.json").exists()
    assert (listed(tmp_path / "runs" / "run").status, listed(tmp_path / "runs" / "run").reason) == (
        "interrupted",
        "",
    )
    assert small_fit(tmp_path / "runs" / "run", resume=True).status == "complete"


def test_a_light_archive_vouches_for_the_curves_of_a_killed_run(killed, tmp_path):
    pack([killed], tmp_path / "a.tar.gz", light=True)
    unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    there = tmp_path / "there" / "run"
    assert listed(there).status == "interrupted"
    assert listed(there).losses
    assert "cannot be resumed" in listed(there).reason
    other_digit(there / "metrics.jsonl", b'"loss": ')
    assert "does not match" in listed(there).reason


def test_a_curve_that_was_emptied_is_missed(ended):
    (ended / "metrics.jsonl").write_bytes(b"")
    assert "metrics.jsonl does not match" in listed(ended).reason


def test_show_tells_no_more_of_a_killed_run_than_its_checkpoint(killed, capsys):
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"update": 9, "seconds": 1.0, "held_out": {"copy": {"score": 1.0}}}\n')
    assert main(["runs", "show", str(killed), "--json"]) == 0
    assert [line["update"] for line in json.loads(capsys.readouterr().out)["held_out"]] == [6]


def test_two_damages_do_not_hide_each_other(killed_elsewhere, ended):
    shutil.copy(ended / "config.json", ended / "summary.json")
    (ended / SUMS).unlink()
    assert "summary.json does not say how the run ended" in listed(ended).reason
    (killed_elsewhere / "checkpoint.safetensors").unlink()
    (killed_elsewhere / "environment.json").write_text("{")
    assert not listed(killed_elsewhere).losses
    assert not listed(killed_elsewhere).gradients


@pytest.fixture
def killed_elsewhere(killed, tmp_path):
    (tmp_path / "others").mkdir()
    return shutil.move(killed, tmp_path / "others" / "run")


def test_where_the_sums_are_damaged_nothing_vouches_for_the_curves(ended):
    assert listed(ended).gradients or listed(ended).losses
    other_digit(ended / "metrics.jsonl")
    (ended / SUMS).write_bytes(b"\xff no sums")
    found = listed(ended)
    assert found.status == "damaged"
    assert not found.losses
    assert not found.gradients


@pytest.mark.parametrize("sums", ["of the other", "none"])
def test_a_summary_of_another_run_is_not_shown(ended, small_fit, tmp_path, sums):
    """With the sums of that run, or with none, nothing else says that it is another's."""
    other = tmp_path / "others" / "run"
    small_fit(other, model="relrnn", seed=7, updates=2)
    shutil.copy(other / "summary.json", ended)
    if sums == "none":
        (ended / SUMS).unlink()
    else:
        shutil.copy(other / SUMS, ended)
    found = listed(ended)
    assert (found.status, found.summary) == ("damaged", {})


def test_a_header_that_claims_to_be_longer_than_any_is_not_read(tmp_path):
    """Who reads as many bytes as a file says it has runs out of memory."""
    path = tmp_path / "checkpoint.safetensors"
    told = json.dumps({"run": "mine"})
    content = json.dumps({"__metadata__": {"plait": told}}).encode()
    path.write_bytes((100 * 2**20).to_bytes(8, "little") + content)
    assert read_header(path) == {"run": "mine"}
    path.write_bytes((100 * 2**20 + 1).to_bytes(8, "little") + content)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        read_header(path)


def test_a_file_of_more_than_a_gigabyte_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 2**30 + 1)
    with pytest.raises(OSError, match="more than 1,073,741,824 bytes"):
        read_plain(path)


def test_json_is_nested_sixty_four_levels_at_most(tmp_path):
    """Lists and dicts are a level each; the innermost one is, whether it is empty or holds a number."""
    path = tmp_path / "config.json"
    for text in ("[" * 64 + "]" * 64, "[" * 64 + "0" + "]" * 64, '[{"a": ' * 32 + "0" + "}]" * 32):
        path.write_text(text)
        read_json(path)
        path.write_text(f"[{text}]")
        with pytest.raises(CheckpointError, match="nested deeper than 64 levels"):
            read_json(path)
