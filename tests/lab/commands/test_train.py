"""`plait train` and `plait runs`, as a person types them."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys

import pytest
import torch

import plait
from plait.lab.cli import main
from plait.lab.runs.folder import Journal, locked
from plait.lab.runs.reading import find_run
from plait.models import MODELS

SMALL = [
    "--hidden",
    "4",
    "--delay",
    "2",
    "--updates",
    "6",
    "--batch-size",
    "4",
    "--evaluate-on",
    "4",
    "--evaluate-every",
    "3",
    "--device",
    "cpu",
]


def train(out, *more, task="copy", model="lstm"):
    return main(["train", task, "--model", model, *SMALL, "--out", str(out), *more])


def only(out):
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    return folder


def mistake(capsys, arguments, *words):
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = captured.err.splitlines()[-1]
    assert errors.startswith("plait: error: ")
    for word in words:
        assert word in errors
    assert "Traceback" not in captured.err


def test_train_then_look(tmp_path, capsys):
    assert train(tmp_path, "--json", "--gradients-every", "3") == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert (summary["status"], summary["updates"]) == ("complete", 6)
    assert "update 3/6" in captured.err
    folder = only(tmp_path)
    assert summary["folder"] == str(folder)
    names = {"config.json", "environment.json", "metrics.jsonl", "gradients.jsonl", "checkpoint.safetensors"}
    assert {path.name for path in folder.iterdir()} == names | {"summary.json", "SHA256SUMS", "lock"}

    assert main(["runs", str(tmp_path)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["id", "task", "model", "length", "best", "score", "status", "began", "(UTC)"]
    assert table[1].split()[0] == folder.name
    assert "6 updates" in table[1]
    assert table[1].split()[-3] == "complete", "before day and time"

    assert main(["runs", "show", folder.name[:9], "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "complete, 6 of 6 updates" in shown
    assert "hidden_size 4" in shown
    assert main(["runs", "show", str(folder), "--json"]) == 0
    assert [line["update"] for line in json.loads(capsys.readouterr().out)["held_out"]] == [3, 6]


OPTIONS = {
    "exprnn": ["--orthogonal-lr", "1e-4", "--initialiser", "cayley"],
    "goru": ["--orthogonal-lr", "1e-4"],
    "transformer": ["--heads", "2", "--layers", "2"],
    "unirnn": ["--window", "3", "--capacity", "2", "--every", "2"],
    "unilstm": ["--every", "2"],
    "sab": ["--every", "3", "--top-k", "2"],
}


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_stops_resumes_and_loads(model, timeless, tmp_path, capsys):
    more = [*OPTIONS.get(model, []), "--quiet", "--gradients-every", "3"]
    assert train(tmp_path / "whole", *more, model=model) == 0
    assert train(tmp_path / "cut", *more, "--max-minutes", "1e-9", model=model) == 0
    whole, cut = only(tmp_path / "whole"), only(tmp_path / "cut")
    assert whole.name == cut.name
    assert whole.name.startswith(f"copy-{model}-")
    assert main(["train", "--resume", str(cut), "--quiet"]) == 0
    for name in ("metrics.jsonl", "gradients.jsonl"):
        one, two = (timeless(Journal.read(folder / name)) for folder in (whole, cut))
        assert one
        assert one == two
    one, two = plait.load(whole), plait.load(cut)
    x = torch.randn(5, 2, 10)
    assert torch.equal(one(x)[0], two(x)[0])
    capsys.readouterr()


def test_the_help_names_every_model(capsys):
    main(["train", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    listed = re.search(r"--model \S+ ([a-z, ]+)\. Or ", said).group(1)
    assert listed.strip(" .").split(", ") == list(MODELS)


def test_quiet_is_quiet(tmp_path, capsys):
    assert train(tmp_path, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_a_complete_run_is_not_trained_again(tmp_path, capsys):
    assert train(tmp_path, "--quiet", "--json") == 0
    first = capsys.readouterr().out
    stamp = (only(tmp_path) / "checkpoint.safetensors").stat().st_mtime_ns
    assert train(tmp_path, "--json") == 0
    again = capsys.readouterr()
    assert again.out == first
    assert "is complete already" in again.err
    assert main(["train", "--resume", str(only(tmp_path)), "--json"]) == 0
    assert capsys.readouterr().out == first
    assert (only(tmp_path) / "checkpoint.safetensors").stat().st_mtime_ns == stamp


def test_load_gives_the_trained_module(tmp_path, monkeypatch):
    assert train(tmp_path / "runs", "--quiet", model="relrnn") == 0
    folder = only(tmp_path / "runs")
    network = plait.load(folder)
    assert not network.training
    logits, _ = network(torch.zeros(5, 2, 10))
    assert logits.shape == (5, 2, 9)
    monkeypatch.chdir(tmp_path)
    assert torch.equal(plait.load(folder.name)(torch.zeros(5, 2, 10))[0], logits)
    reference = plait.load(folder.name, backend="reference")
    torch.testing.assert_close(reference(torch.zeros(5, 2, 10))[0], logits)
    fitted = plait.fit(
        plait.RelRNN(10, 4), plait.lab.tasks.CopyTask(2), updates=1, batch_size=2, evaluate_on=2, device="cpu"
    )
    assert not torch.equal(fitted.network.decoder.weight, network.decoder.weight)


def test_max_minutes_then_resume(tmp_path, capsys):
    assert train(tmp_path, "--max-minutes", "1e-9") == 0
    captured = capsys.readouterr()
    folder = only(tmp_path)
    assert f"continue: plait train --resume {folder}" in captured.out
    mistake(
        capsys,
        ["train", "copy", "--model", "lstm", *SMALL, "--out", tmp_path],
        f"continue: plait train --resume {folder}",
    )
    mistake(
        capsys, ["train", "--resume", folder, "--lr", "3", "--hidden", "9"], "--hidden, --lr cannot be given"
    )
    assert main(["train", "--resume", folder.name, "--out", str(tmp_path), "--quiet", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert train(tmp_path / "whole", "--quiet", "--json") == 0
    whole = json.loads(capsys.readouterr().out)
    assert resumed["held_out"] == whole["held_out"]
    sessions = json.loads((folder / "environment.json").read_text())["sessions"]
    assert [session["from_update"] for session in sessions] == [0, 1]


def test_pack_and_unpack(tmp_path, capsys):
    assert train(tmp_path / "runs", "--quiet") == 0
    archive = tmp_path / "runs.tar.gz"
    assert main(["runs", "pack", str(tmp_path / "runs"), "-o", str(archive)]) == 0
    assert main(["runs", "unpack", str(archive), "--out", str(tmp_path / "there")]) == 0
    assert f"unpacked into {tmp_path / 'there'}: copy-lstm-" in capsys.readouterr().out
    assert plait.load(only(tmp_path / "there")) is not None
    assert main(["runs", "unpack", str(archive), "--out", str(tmp_path / "there")]) == 0
    assert "left unchanged, as they exist already: copy-lstm-" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "cpy"], ["unknown task 'cpy': did you mean 'copy'?"]),
        (["train", "copy", "--model", "lstm", "--orthogonal-lr", "1"], ["orthogonal_lr: expected a model"]),
        (["train", "copy", "--orthogonal-lr", "-1"], ["orthogonal_lr: expected at least 0, got -1"]),
        (["train", "copy", "--orthogonal-lr", "0"], ["orthogonal_lr: expected a finite number above 0"]),
        (["train", "copy", "--model", "transformer", "--heads", "3"], ["heads: expected a divisor"]),
        (["train", "copy", "--model", "lstm", "--heads", "4"], ["unknown option of lstm 'heads'"]),
        (["train", "copy", "--model", "relrn"], ["unknown model 'relrn': did you mean 'relrnn'"]),
        (["train", "copy", "--hidden", "-1"], ["hidden_size: expected at least 1, got -1"]),
        (["train", "copy", "--delay", "0"], ["delay: expected at least 1, got 0"]),
        (["train", "copy", "--batch-size", "0", "--lr", "-1"], ["batch_size: expected", "lr: expected"]),
        (["train", "copy", "--window", "0"], ["window: expected at least 1, got 0"]),
        (["train", "copy", "--model", "lstm", "--window", "3"], ["unknown option of lstm 'window'"]),
        (["train", "copy", "--nonlinearity", "tan"], ["unknown nonlinearity 'tan': did you mean 'tanh'"]),
        (["train", "copy", "--initialiser", "henaf"], ["did you mean 'henaff'"]),
        (["train", "copy", "--backend", "cuda"], ["unknown backend 'cuda'"]),
        (["train", "copy", "--precision", "fp16"], ["unknown precision 'fp16'"]),
        (["train", "copy", "--dropout", "2"], ["dropout: expected a probability between 0 and 1"]),
        (["train", "copy", "--threads", "0"], ["threads: expected at least 1"]),
        (["train", "copy", "--updates", "many"], ["--updates"]),
        (["train", "copy", "--modle", "lstm"], ["--modle", "--model"]),
        (["train"], ["expected one of: a task (plait train copy), a run to repeat", "a run to continue"]),
        (["train", "copy", "--resume", "x"], ["expected one of: a task"]),
        (["train", "--config", "x", "--resume", "x"], ["expected one of: a task"]),
        (["train", "--resume", "nowhere"], ["no run 'nowhere'"]),
        (["runs", "show", "nowhere"], ["no run 'nowhere'"]),
        (["runs", "nowhere"], ["no folder nowhere"]),
        (["runs", "pack"], ["expected at least one run"]),
        (["runs", "unpack", "none.tar.gz"], ["No such file"]),
        (["runs", "shw", "x"], ["x"]),
    ],
)
def test_mistakes_are_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mistake(capsys, arguments, *words)
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_device_that_is_not_there(tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    mistake(capsys, ["train", "copy", "--device", "cuda", "--out", tmp_path], "found 0 CUDA devices")


def test_unwritable_output(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    mistake(capsys, ["train", "copy", *SMALL, "--out", tmp_path / "file"], "cannot make the folder")
    if os.geteuid() != 0:
        (tmp_path / "shut").mkdir(mode=0o500)
        mistake(capsys, ["train", "copy", *SMALL, "--out", tmp_path / "shut"], "Permission denied")


def test_a_second_process_is_refused(tmp_path, capsys):
    assert train(tmp_path, "--quiet", "--max-minutes", "1e-9") == 0
    folder = only(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with locked(folder):
        mistake(capsys, ["train", "--resume", folder], "is in use by another process")
        assert main(["runs", str(tmp_path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["status"] == "running"
        script = (
            "import sys; from plait.lab.cli import main; "
            f"sys.exit(main(['train', '--resume', {str(folder)!r}]))"
        )
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert other.returncode == 2
    assert other.stderr.count("\n") == 1
    assert "is in use by another process" in other.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_folders_that_are_something_else(tmp_path, capsys, small_fit):
    from plait.errors import CheckpointError, OutputError

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("words")
    with pytest.raises(OutputError, match="not a run and not empty"):
        small_fit(tmp_path / "full")
    small_fit(tmp_path / "run", updates=2)
    with pytest.raises(CheckpointError, match="holds the run copy-rnn-"):
        small_fit(tmp_path / "run", updates=3)
    (tmp_path / "run" / "config.json").write_text("{")
    mistake(capsys, ["train", "--resume", tmp_path / "run"], "config.json is cut short or not JSON")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "damaged"
    (tmp_path / "run" / "config.json").write_text('{"task": {"name": "copy"}}')
    mistake(capsys, ["train", "--resume", tmp_path / "run"], "config.json does not match SHA256SUMS")
    mistake(capsys, ["runs", "show", tmp_path / "run"], "config.json does not match SHA256SUMS")


def test_a_journal_cut_short_is_refused(tmp_path, capsys):
    assert train(tmp_path, "--quiet", "--max-minutes", "1e-9", "--record-every", "1") == 0
    folder = only(tmp_path)
    (folder / "metrics.jsonl").write_text("")
    mistake(capsys, ["train", "--resume", folder], "metrics.jsonl does not match SHA256SUMS")


def test_find_run(tmp_path):
    from plait.errors import ConfigError

    for name in ("copy-lstm-1", "copy-lstm-2", "denoise-gru-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert find_run("denoise", tmp_path).name == "denoise-gru-1"
    assert find_run(tmp_path / "copy-lstm-2").name == "copy-lstm-2"
    with pytest.raises(ConfigError, match="not one run but 2: copy-lstm-1, copy-lstm-2"):
        find_run("copy", tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'denoise-gru-1'"):
        find_run("denoise-gri-1", tmp_path)


def test_help_needs_no_torch():
    script = (
        "import sys; from plait.lab.cli import main; main(['train', '--help']); "
        "main(['runs', 'show', '--help']);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--until-accuracy" in done.stdout


def test_fit_and_load_need_torch_numpy_and_safetensors_alone(tmp_path):
    """What a machine without the command line's libraries can do."""
    script = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "tyro", "rich", "jinja2", "tensorboard"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import plait
run = plait.fit(plait.RelRNN(10, 4), plait.lab.tasks.CopyTask(2), updates=3, batch_size=2, evaluate_on=2,
                device="cpu", folder={str(tmp_path / "run")!r}, progress=True)
again = plait.load(run.folder)
assert (again.decoder.weight == run.network.decoder.weight).all()
from plait.lab.runs.archive import pack
pack([run.folder], run.folder.parent / "a.tgz")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.tgz").exists()


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("recall", ["--length", "9", "--at", "3", "--forget-bias", "1"]),
        ("mqar", ["--length", "16", "--pairs", "2", "--vocab", "32", "--embedding", "5", "--chrono", "20"]),
        ("copy", ["--delay", "2", "--lead-in", "4"]),
    ],
)
def test_tasks_and_gates_by_their_options(task, options, tmp_path, capsys):
    without_delay = [word for word in SMALL if word not in ("--delay", "2")]
    arguments = ["train", task, "--model", "rellstm", *without_delay, *options, "--out", str(tmp_path)]
    assert main(arguments) == 0
    written = json.loads((only(tmp_path) / "config.json").read_text())
    told = {**written["task"], **written["model"]}
    for name, value in itertools.pairwise(options):
        if name.startswith("--"):
            assert told[name[2:].replace("-", "_")] == float(value)
    assert main(["train", "--resume", str(only(tmp_path)), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copy", "--lead-in", "-4"], ["lead_in: expected at least 0, got -4"]),
        (["copy", "--lead-in", "1000000000"], ["GB are free here; take fewer sequences", "or shorter ones"]),
        (["copy", "--relevance", "lerned"], ["unknown relevance 'lerned': did you mean 'learned'"]),
        (["copy", "--relevance", "learned", "--noise=-1"], ["noise: expected at least 0, got -1.0"]),
        (["denoise", "--lead-in", "4"], ["unknown option of denoise 'lead_in'"]),
        (["recall", "--length", "5", "--at", "5"], ["at: expected a step before the last, 5, got 5"]),
        (["mqar", "--length", "14"], ["length: expected an even number of at least 4"]),
        (["copy", "--model", "relrnn", "--chrono", "9"], ["unknown option of relrnn 'chrono'"]),
        (["copy", "--model", "lstm", "--chrono", "2"], ["chrono: expected at least 3, got 2"]),
        (["copy", "--model", "gru", "--chrono", "9", "--forget-bias", "1"], ["or chrono, got both"]),
        (["copy", "--model", "gru", "--forget-bias", "nan"], ["forget_bias: expected a finite number"]),
    ],
)
def test_what_a_task_or_gate_cannot_be(arguments, words, tmp_path, capsys):
    mistake(capsys, ["train", *arguments, "--hidden", "4", "--out", tmp_path], *words)
    assert not list(tmp_path.iterdir())
