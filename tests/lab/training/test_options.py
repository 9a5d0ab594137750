"""Published settings: the tables as data, and as what `plait train` begins with."""

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.experiments.late_information import HELD
from plait.lab.tasks import CopyTask, PennTreebank, PermutedMNIST, RecallTask, TextTask
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import PUBLISHED, published_for, recommended, settings_for
from plait.lab.training.recipe import Recipe
from plait.models.options import model_defaults


def described(*options):
    """What is recommended, as parts of a description."""
    return dict(zip(("model", "recipe"), recommended(*options), strict=True))


# lr, (lr of orthogonal parameters), optimizer, non-linearity, ν, ρ; a dash where the table is blank
TABLES = """
mnist     orthrnn  0.0001  –        adam  modrelu  –   –
mnist     exprnn   0.0001  0.00001  adam  modrelu  –   –
mnist     lstm     0.0002  –        –     –        –   –
mnist     goru     –       –        –     –        –   –
mnist     relrnn   0.0003  –        adam  modrelu  10  10
treebank  orthrnn  0.001   –        adam  tanh     –   –
treebank  exprnn   0.003   0.0003   adam  tanh     –   –
treebank  lstm     0.0002  –        –     –        –   –
treebank  goru     –       –        –     –        –   –
treebank  relrnn   0.0003  –        adam  tanh     10  5
"""


@pytest.mark.parametrize("line", TABLES.strip().splitlines(), ids=lambda line: "-".join(line.split()[:2]))
def test_the_tables_are_as_printed(line):
    table, model, lr, orthogonal, optimizer, nonlinearity, window, capacity = line.split()
    row, rel = PUBLISHED[table][model], PUBLISHED[table]["relrnn"]
    for name, printed in (("lr", lr), ("optimizer", optimizer)):
        wanted = getattr(rel, name) if printed == "–" else type(getattr(row, name))(printed)
        assert getattr(row, name) == wanted
        assert (name in row.ours) == (printed == "–")
    assert row.orthogonal_lr == (None if orthogonal == "–" else float(orthogonal))
    if nonlinearity != "–":
        assert row.nonlinearity == nonlinearity
    if window != "–":
        assert (row.window, row.capacity) == (int(window), int(capacity))
    assert (row.hidden_size, row.batch_size, row.epochs) == (
        (100, 100, 200) if table == "mnist" else (1024, 128, 100)
    )


def test_a_run_begins_with_what_is_published():
    found = described(PermutedMNIST(), {"name": "relrnn"}, {}, None)
    assert found["model"] == {
        "name": "relrnn",
        "hidden_size": 100,
        "nonlinearity": "modrelu",
        "window": 10,
        "capacity": 10,
        "initialiser": "henaff",
    }
    recipe = found["recipe"]
    assert (recipe["lr"], recipe["optimizer"], recipe["clip"], recipe["batch_size"]) == (3e-4, "adam", 0, 100)
    assert (recipe["updates"], recipe["evaluate_every"], recipe["evaluate_on"]) == (100_000, 500, None)
    found = described(PennTreebank(), {"name": "lstm"}, {}, 2)
    assert found["model"] == {"name": "lstm", "hidden_size": 1024}
    assert (found["recipe"]["lr"], found["recipe"]["schedule"], found["recipe"]["updates"]) == (
        2e-4,
        "halve",
        2 * 261,
    )


def test_explicit_options_override_recommended_ones():
    said = {"lr": 1e-3, "batch_size": 50, "evaluate_on": 256}
    recipe = described(PermutedMNIST(), {"name": "relrnn", "window": 3}, said, 3)["recipe"]
    assert {name: recipe[name] for name in said} == said
    assert recipe["updates"] == 3000
    model = described(PermutedMNIST(), {"name": "relrnn", "window": 3}, said, 3)["model"]
    assert (model["window"], model["capacity"]) == (3, 10)


def test_copy_has_the_defaults_that_stay_learned_for_20000_updates():
    assert published_for("copy", "relrnn") is None
    held = {one.name: one for column, one in HELD.items() if column.endswith("plait train")}
    for name in ("relrnn", "rellstm"):
        found = described(CopyTask(), {"name": name}, {}, None)
        usual = {key: model_defaults(name)[key] for key in held[name].options}
        assert {**usual, **found["model"]} == {"name": name, "hidden_size": 128, **held[name].options}
        assert found["recipe"] == {**Recipe().values(), **held[name].training}
        assert (found["recipe"]["updates"], found["recipe"]["evaluate_on"]) == (3000, 256)


@pytest.mark.parametrize(("task", "name"), [(CopyTask(), "lstm"), (RecallTask(), "rellstm")])
def test_others_begin_as_ever_and_settle(task, name):
    found = described(task, {"name": name}, {}, None)
    assert found["model"] == {"name": name, "hidden_size": 128}
    assert found["recipe"] == {**Recipe().values(), "schedule": "settle", "relative_clip": 1e6}


def test_explicit_options_come_before_defaults():
    found = described(
        CopyTask(), {"name": "rellstm", "chrono": 100, "relevance": "earned"}, {"lr": 1e-3}, None
    )
    assert "forget_bias" not in found["model"]
    assert (found["model"]["relevance"], found["recipe"]["lr"]) == ("earned", 1e-3)


def test_epochs_and_updates_are_two_words_for_one_thing():
    with pytest.raises(ConfigError, match="--epochs or --updates, got both"):
        described(PermutedMNIST(), {"name": "rnn"}, {"updates": 5}, 1)
    with pytest.raises(ConfigError, match="copy draws new sequences for ever"):
        described(CopyTask(), {"name": "rnn"}, {}, 1)
    with pytest.raises(ConfigError, match="epochs: expected at least 1, got 0"):
        described(PermutedMNIST(), {"name": "rnn"}, {}, 0)


def test_a_text_of_ones_own_has_sizes_that_suit_the_device(tmp_path, capsys, monkeypatch):
    """Published ones on a GPU, small ones on a CPU, told so; what was said stands."""
    (tmp_path / "book.txt").write_text("a quick brown fox jumps over a lazy dog\n" * 200)
    text = TextTask(text=(str(tmp_path / "book.txt"),), span=5)
    small, paper = (described(text, {"name": "rellstm"}, {}, None, on_cpu) for on_cpu in (True, False))
    assert (small["model"]["hidden_size"], small["recipe"]["batch_size"]) == (128, 32)
    assert (paper["model"]["hidden_size"], paper["recipe"]["batch_size"]) == (1024, 128)
    assert settings_for("ptb", "rellstm", on_cpu=True) == published_for("ptb", "rellstm")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert defaults_for(["text"])["hidden_size"] == 1024
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert (
        defaults_for(["text"])["hidden_size"]
        == defaults_for(["text", "--device", "cpu"])["hidden_size"]
        == 128
    )
    line = ["train", "text", "--text", text.text[0], "--span", "5", "--max-minutes", "1e-9"]
    assert main([*line, "--out", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().err.startswith(
        "on a CPU, so hidden 128, batches of 32, 5 epochs; published sizes, for a GPU: --hidden 1024"
    )
    assert main([*line, "--hidden", "4", "--out", str(tmp_path / "said")]) == 0
    assert "on a CPU" not in capsys.readouterr().err
