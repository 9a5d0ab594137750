"""Tables of sequences in CSV files, and a person who has one."""

import csv
import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import plait
from plait.errors import ConfigError, DataError, PlaitError
from plait.lab.cli import main
from plait.lab.tasks import IGNORE, CsvTask, task_named
from plait.lab.training.description import network_for

TABLE = """who,when,u,v,place,outcome
a,2,0.5,1,north,up
b,1,1.5,2,south,down
a,1,2.5,3,north,up
b,2,3.5,4,south,down
c,1,4.5,5,north,up
"""


@pytest.fixture
def table(tmp_path):
    def written(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return written


def everything(task):
    """Inputs and targets of all sequences, those to train on first."""
    split = task.split()
    return [
        (part.inputs[begin : begin + length].tolist(), part.targets[place].tolist())
        for part in (split.train, split.held_out)
        for place, (begin, length) in enumerate(zip(part.begins.tolist(), part.lengths.tolist(), strict=True))
    ]


def test_rows_become_sequences_in_their_order(table):
    options = {"file": table(TABLE), "target": "outcome", "sequence": "who", "order": "when"}
    task = CsvTask(**options)
    assert (task.features, task.left_out, task.classes) == (("u", "v", "place"), (), ("down", "up"))
    assert (task.answer, task.asks, task.input_size, task.num_classes) == ("class", "last", 4, 2)
    numbers = CsvTask(**{**options, "features": ("u", "v")})
    assert sorted(everything(numbers)) == [
        ([[1.5, 2.0], [3.5, 4.0]], 0),
        ([[2.5, 3.0], [0.5, 1.0]], 1),
        ([[4.5, 5.0]], 1),
    ]
    as_it_stands = CsvTask(file=table(TABLE), target="outcome", sequence="who", features=("u",))
    assert ([[0.5], [2.5]], 1) in everything(as_it_stands)
    assert "from u, v, place (2 words)" in task.facts()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (TABLE.replace(",", ";"), {}),
        (TABLE.replace(",", "\t"), {}),
        ("\ufeff" + TABLE.replace("\n", "\r\n"), {}),
        (TABLE.partition("\n")[2], {"header": False, "target": "6", "sequence": "1", "order": "2"}),
    ],
)
def test_other_spellings_of_the_same_table(table, text, options):
    wanted = everything(CsvTask(file=table(TABLE), target="outcome", sequence="who", order="when"))
    given = {"target": "outcome", "sequence": "who", "order": "when", **options}
    assert sorted(everything(CsvTask(file=table(text, "other.csv"), **given))) == sorted(wanted)


def test_gzip_is_unpacked(table):
    packed = table(gzip.compress(TABLE.encode()), "table.csv.gz")
    assert CsvTask(file=packed, target="outcome", sequence="who").classes == ("down", "up")


def test_a_target_of_every_row_and_rows_without_one(table):
    rows = "who,x,y\n" + "".join(
        f"{who},{step},{'' if step == 1 else 10.5 * step}\n" for who in "abc" for step in range(4)
    )
    task = CsvTask(file=table(rows), target="y", sequence="who")
    assert (task.answer, task.asks, task.num_classes, task.score_name) == ("number", "every", 1, "R²")
    batch = task.batch(2, torch.Generator().manual_seed(0))
    assert batch.targets[:, 0, 0].isnan().tolist() == [False, True, False, False]
    named = rows.replace("10.5", "mid").replace("21.0", "high").replace("0.0", "low").replace("31.5", "high")
    task = CsvTask(file=table(named, "named.csv"), target="y", sequence="who")
    assert (task.answer, task.classes) == ("class", ("high", "low"))
    assert task.batch(1, torch.Generator())[1][:, 0].tolist() == [1, IGNORE, 0, 0]


def test_whole_numbers_are_classes_if_they_are_few(table):
    def answers(values, **options):
        text = "who,x,y\n" + "".join(f"{place},{place},{value}\n" for place, value in enumerate(values))
        return CsvTask(file=table(text), target="y", sequence="who", **options)

    assert answers([0, 1, 2, 10] * 5).classes == ("0", "1", "2", "10")
    assert answers(range(40)).answer == "number"
    assert answers([0.5, 1] * 5).answer == "number"
    assert answers([0, 1] * 5, answer="number").score_name == "R²"


def test_missing_values_are_refused_or_filled(table):
    text = "who,x,y\na,,up\na,2,up\na,,up\nb,4,down\nb,NA,down\nc,6,up\nd,,up\n"
    given = {"file": table(text), "target": "y", "sequence": "who"}
    with pytest.raises(
        DataError, match=r"column 'x' misses 4 of 7 values, the first in line 2; say --missing mean"
    ):
        CsvTask(**given)
    mean = sorted(everything(CsvTask(**given, missing="mean")))
    assert mean == [([[4.0]], 1), ([[4.0], [2.0], [4.0]], 1), ([[4.0], [4.0]], 0), ([[6.0]], 1)]
    previous = sorted(everything(CsvTask(**given, missing="previous")))
    assert previous == [([[4.0]], 1), ([[4.0], [2.0], [2.0]], 1), ([[4.0], [4.0]], 0), ([[6.0]], 1)]


def test_held_out_sequences_do_not_depend_on_the_order(table):
    rows = [f"s{who},{step},{who}.5\n" for who in range(20) for step in range(3)]
    one = CsvTask(file=table("who,x,y\n" + "".join(rows)), target="y", sequence="who", share=0.25)
    two = CsvTask(
        file=table("who,x,y\n" + "".join(reversed(rows)), "b.csv"), target="y", sequence="who", share=0.25
    )
    held = [sorted(set(task.split().held_out.targets.flatten().tolist())) for task in (one, two)]
    assert len(held[0]) == 5
    assert held[0] == held[1]
    assert not set(held[0]) & set(one.split().train.targets.flatten().tolist())


def test_one_long_series_is_cut_and_its_end_held_out(table):
    text = "x,y\n" + "".join(f"{step},{step + 0.5}\n" for step in range(25))
    with pytest.raises(ConfigError, match=r"expected --sequence COLUMN, .* or --length N"):
        CsvTask(file=table(text), target="y")
    task = CsvTask(file=table(text), target="y", length=4, share=0.3)
    split = task.split()
    assert (split.train.lengths.tolist(), split.held_out.lengths.tolist()) == ([4] * 5, [4, 1])
    assert split.held_out.inputs[:, 0].tolist() == [20, 21, 22, 23, 24]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TABLE, {"target": "outcom"}, "unknown column for --target in .*'outcom': did you mean 'outcome'"),
        (TABLE, {"sequence": "whom"}, "column for --sequence .* did you mean 'who'"),
        (TABLE, {"order": "wen"}, "column for --order .* did you mean 'when'"),
        (TABLE, {"features": ("u", "w")}, "column for --features"),
        (TABLE, {"answer": "number"}, "column 'outcome' holds words; they are classes: --answer class"),
        (TABLE, {"missing": "guess"}, "unknown missing 'guess'"),
        (TABLE, {"answer": "guess"}, "unknown answer 'guess'"),
        (TABLE, {"asks": "guess"}, "unknown asks 'guess'"),
        (TABLE, {"features": ("u", "v", "u")}, "features: expected every column once, got 'u' again"),
        (TABLE.replace("1.5", "1e39"), {}, r"line 3: expected numbers up to 1e\+37 in column 'u', got 1e39"),
        (TABLE, {"target": "place", "answer": "number"}, r"\(the first, 'north', is in line 2\)"),
        (TABLE.replace("up", "1e308").replace("down", "2.5"), {}, r"line 2: .* column 'outcome', got"),
        (TABLE.replace("a,2,", "NA,2,"), {}, "line 2: 'who' is missing: NA stands for a missing value"),
        (TABLE, {"share": 1.5}, "held_out: expected a share between 0 and 1, got 1.5"),
        (TABLE, {"target": ""}, "target: expected the column that is asked"),
        (TABLE.replace("b,2,3.5,4,", "b,2,3.5,"), {}, "line 5: expected 6 columns, got 5"),
        (TABLE.replace("u,v", "u,u"), {}, "a name of its own for every column, got 'u' twice"),
        (TABLE.replace("a,2,", ",2,"), {}, "line 2: 'who' is missing"),
        (TABLE.replace("b,1,", "b,,"), {"order": "when"}, "line 3: 'when' is missing"),
        ("1,2\n3,4\n", {}, "expected names of columns in the first line, got numbers; say --no-header"),
        ("who,outcome\na,up\nb,down\n", {}, "expected a column beside the target to predict it from"),
        ("who,x,outcome\na,1,up\na,2,up\n", {}, "expected at least two sequences with a target"),
        ("who,x,outcome\n", {}, "expected rows of data, got none"),
        (b"who,x\xff\n", {}, "is not text in UTF-8"),
        ('who,x,outcome\n"a,1,up\n', {}, "is not a CSV file"),
    ],
)
def test_mistakes_are_one_line(table, text, options, message):
    given = {"target": "outcome", "sequence": "who", **options}
    with pytest.raises(PlaitError, match=message) as caught:
        CsvTask(file=table(text), **given)
    assert "\n" not in str(caught.value)


def test_what_a_run_read_is_drawn_and_a_backward_direction_is_not(table, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"s{who},{step},{who * step}\n" for who in range(12) for step in range(3 + who % 3)]
    path = table("who,x,y\n" + "".join(rows))
    words = [
        "train",
        "csv",
        path,
        "--target",
        "y",
        "--sequence",
        "who",
        "--hidden",
        "4",
        "--epochs",
        "1",
        "--quiet",
    ]
    assert main([*words, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["folder"]
    assert main(["runs", "attention", run, "-o", "read.png"]) == 0
    assert Path("read.png").stat().st_size
    assert main(["gradients", "probe", run]) == 0
    capsys.readouterr()
    assert main([*words, "--bidirectional", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)["folder"]
    assert json.loads((Path(both) / "config.json").read_text())["model"]["bidirectional"] is True
    capsys.readouterr()
    assert main(["runs", "attention", both, "-o", "both.png"]) == 2
    assert "drawn of one direction; it reads both ways" in capsys.readouterr().err


def test_a_file_that_changed_is_refused_and_one_that_is_gone_is_not_needed_to_load(table):
    path = table(TABLE)
    task = CsvTask(file=path, target="outcome", sequence="who")
    table(TABLE.replace("4.5", "4.75"))
    again = task_named("csv", **task.options())
    assert again.num_classes == 2
    with pytest.raises(DataError, match="it was changed since"):
        again.prepare()


def visits(path, count, seed=0):
    """Patients who had a fever for two days, or none; asked at the end, which only who remembers can tell."""
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "day", "pulse", "temperature", "outcome"])
        for patient in range(count):
            ill, start = draw.random() < 0.5, draw.randrange(2, 9)
            for day in range(draw.randrange(10, 25)):
                fever = 39.5 if ill and start <= day < start + 2 else 36.8
                values = round(draw.gauss(70, 8)), round(draw.gauss(fever, 0.3), 1)
                rows.writerow([f"p{patient:03}", day, *values, "ill" if ill else "well"])


def test_a_person_with_a_csv_file_gets_a_model_a_score_and_a_page(tmp_path, capsys, monkeypatch):
    """Three commands in under five minutes on two cores (here in seconds: fewer patients)."""
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv", 80)
    began = time.monotonic()
    command = "train csv visits.csv --target outcome --sequence patient --order day --model rellstm"
    options = "--hidden 16 --epochs 30 --lr 0.02 --features pulse temperature --device cpu --quiet --json"
    assert main([*command.split(), *options.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held_out"]["held out"]["predicted"] == 16
    assert found["held_out"]["held out"]["score"] > 0.9
    assert "64 sequences to train on, 16 held out; outcome (2 classes, at the last step)" in found["read"]
    assert main(["report", "runs", "-o", "page.html"]) == 0
    assert "held-out accuracy" in (tmp_path / "page.html").read_text()
    network = plait.load(found["folder"])
    fever, none = torch.tensor([[70.0, 36.8]]).repeat(12, 1), torch.tensor([[70.0, 36.8]]).repeat(12, 1)
    fever[4:6, 1] = 39.5
    answers = network(torch.stack([fever, none], dim=1))[0][-1].argmax(-1).tolist()
    assert answers == [0, 1], "ill, well: the network takes what the file holds"
    assert time.monotonic() - began < 120
    capsys.readouterr()
    assert main(["train", "--resume", found["folder"], "--updates", "244"]) == 0
    assert "244 updates" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_page_of_ones_own_data_takes_under_five_minutes(tmp_path):
    """The block that makes the table and the two commands below it, as the page has them."""
    page = (Path(__file__).parents[3] / "docs/howto/own-data.md").read_text()
    made, commands = re.search(
        r"```python\n(import csv.*?)```\n```console\n(.*?)```", page, re.DOTALL
    ).groups()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, check=True)
    for command in commands.splitlines():
        words = [sys.executable, "-m", *command.split()]
        subprocess.run(
            words, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
    assert time.monotonic() - began < 300
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "summary.json").read_text())["held_out"]["held out"]["score"] > 0.9
    assert "held-out accuracy" in (tmp_path / "page.html").read_text()


def test_the_command_says_mistakes_before_a_folder_is_made(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv", 6)
    for words, message in (
        ("nothing.csv --target outcome", "cannot read nothing.csv: No such file or directory"),
        ("visits.csv --target outcom --sequence patient", "did you mean 'outcome'"),
        ("visits.csv --target outcome", "expected --sequence COLUMN"),
        ("visits.csv --target outcome --sequence patient --held-out 2", "share between 0 and 1, got 2.0"),
        (
            "visits.csv --target outcome --sequence patient --epochs 2 --updates 3",
            "expected --epochs or --updates",
        ),
        (
            "visits.csv --target outcome --sequence patient --batch-size 50",
            "at most the 5 training sequences",
        ),
        ("visits.csv --target outcome --sequence patient --model lstmm", "did you mean 'lstm'"),
    ):
        assert main(["train", "csv", *words.split()]) == 2, words
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
    assert main(["train", "data"]) == 2
    assert "these are passed in Python: plait.fit(model, (X, y), held_out=0.2)" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("word", ["none", "NA", "N/A", "null", "nan", "?"])
def test_a_class_may_be_called_as_a_missing_value_is(table, word):
    """Where the target holds words; an empty cell is no class."""
    text = "who,x,y\n" + "".join(f"{n},{n},{('mild', word, 'severe', '')[n % 4]}\n" for n in range(40))
    task = CsvTask(file=table(text), target="y", sequence="who")
    assert set(task.classes) == {"mild", word, "severe"}
    assert sum(len(part.lengths) for part in (task.split().train, task.split().held_out)) == 30
    assert "10 of 40 rows have no target" in task.facts()
    assert f"{word} is a class: among words only an empty cell is a missing value" in task.facts()


def test_among_numbers_such_a_word_is_missing_and_counted(table):
    text = "who,x,y\n" + "".join(f"{n},{(n, 'NA')[n % 5 == 0]},{(0, 1, 'NA')[n % 3]}\n" for n in range(30))
    task = CsvTask(file=table(text), target="y", sequence="who", missing="mean")
    assert task.classes == ("0", "1")
    assert "; 10 of 30 rows have no target; 6 missing values filled (mean)" in task.facts()
    assert (
        CsvTask(file=table(text), target="y", sequence="who", missing="mean", answer="number").asks == "last"
    )


def test_a_target_of_nothing_but_such_words_is_one_of_classes(table):
    text = "who,x,y\n" + "".join(f"{n},{n},{('none', 'NA')[n % 2]}\n" for n in range(10))
    assert set(CsvTask(file=table(text), target="y", sequence="who").classes) == {"none", "NA"}


def test_runs_from_before_keep_the_classes_they_have(table):
    """A description that lists no class `none` leaves such rows without a target, as it did when written."""
    text = "who,x,y\n" + "".join(f"{n},{n},{('mild', 'none', 'severe')[n % 3]}\n" for n in range(30))
    now = CsvTask(file=table(text), target="y", sequence="who")
    before = task_named("csv", **{**now.options(), "classes": ("mild", "severe")})
    assert sum(len(part.lengths) for part in (before.split().train, before.split().held_out)) == 20


def test_names_with_an_underscore_are_not_numbers(table):
    task = CsvTask(
        file=table(TABLE.replace("north", "1_0").replace("south", "2_0")), target="place", sequence="who"
    )
    assert task.classes == ("1_0", "2_0")


def test_many_columns(table):
    """100,000 are read in a moment, where each was once compared with every other; more are refused."""
    began = time.process_time()
    for count, mistake in ((20_000, "unknown column for --target"), (100_001, "at most 100,000 columns")):
        names = [f"c{number}" for number in range(count)]
        text = "\n".join(map(",".join, (names, ["1"] * count, ["2"] * count)))
        with pytest.raises(PlaitError, match=mistake) as caught:
            CsvTask(file=table(text), target="missing", length=1)
        assert len(str(caught.value)) < 2000
    names = ["y", *(f"c{number}" for number in range(20_000))]
    text = "\n".join(map(",".join, (names, ["p", *["1"] * 20_000], ["q", *["2"] * 20_000])))
    assert CsvTask(file=table(text), target="y", length=1).split().train.inputs.shape == (1, 20_000)
    assert time.process_time() - began < 5


def test_a_regression_is_reported_as_one(table, tmp_path, capsys):
    """The loss is a mean squared error of standardised targets and the score R², wherever either stands."""
    text = "who,x,y\n" + "".join(f"{n},{n % 7},{1.5 * n}\n" for n in range(40))
    given = [table(text), "--target", "y", "--sequence", "who", "--hidden", "4", "--epochs", "2", "--out"]
    assert main(["train", "csv", *given, str(tmp_path / "runs")]) == 0
    out, progress = capsys.readouterr()
    assert re.search(r"held out: mse \(standardised\) [0-9.]+  rmse [0-9.]+  R² -?[0-9.]+\n", progress)
    (run,) = (tmp_path / "runs").iterdir()
    sample = json.loads((run / "summary.json").read_text())["sample"]
    assert sorted(sample["target"]) == sorted(plait.load(run).task.split().held_out.targets[:, 0].tolist())
    found = plait.load(run).predict({"who": sample["target"], "x": [y / 1.5 % 7 for y in sample["target"]]})
    assert sample["predicted"] == pytest.approx(found["prediction"], rel=1e-4)
    assert main(["runs", "show", str(run)]) == 0
    shown = capsys.readouterr().out
    for table_of in (out, shown):
        assert "MSE, standardised" in table_of
        assert "R²" in table_of
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "training loss (MSE, standardised)" in page
    assert "predicted against true" in page
    assert page.count("<use") >= len(sample["target"])
    assert re.search(r"Of all: R² -?[0-9.]+, root mean squared error [0-9.]+", page)
    assert "Mean squared error of standardised targets, of an update" in page
    assert not re.search(r"cross-entropy|nats", page)
    assert main(["runs", "curves", str(run), "-o", str(tmp_path / "curves.svg")]) == 0
    assert "validation R²" in (tmp_path / "curves.svg").read_text()


def test_a_horizon_asks_for_later_rows(table):
    """Pieces overlap by half, and every row counts once; what is held out is no target of training."""
    text = "t,x,y\n" + "".join(f"{t},{10 * t},{100 + t}\n" for t in range(20))
    task = CsvTask(file=table(text), target="y", order="t", length=4, horizon=3, answer="number", share=0.4)
    assert (task.features, task.asks, task.anchor) == (("x", "y"), "every", 1)
    train, held_out = task.split().train, task.split().held_out
    assert train.lengths.tolist() == [4, 4, 4, 4]
    assert counted(train) == [(100.0 + t, 103.0 + t) for t in range(9)]
    assert counted(held_out) == [(100.0 + t, 103.0 + t) for t in range(12, 17)]
    assert held_out.inputs[:, 1].min() == 110, "rows before the first one held out are context"
    assert train.targets.nan_to_num(0).max() < 112
    assert "the latest value as the prediction: RMSE 3, " in task.facts()


def counted(part):
    """Pairs of a row's own value and its target, where it has one."""
    there = ~part.targets[:, 0].isnan()
    return list(zip(part.inputs[there, 1].tolist(), part.targets[there, 0].tolist(), strict=True))


def test_several_series_are_each_held_out_at_their_end(table):
    rows = [(shop, day) for day in range(30) for shop in "ab"]
    text = "shop,day,y\n" + "".join(f"{shop},{day},{day + 100 * (shop == 'b')}\n" for shop, day in rows)
    task = CsvTask(
        file=table(text),
        target="y",
        sequence="shop",
        order="day",
        features=("day", "y"),
        horizon=2,
        answer="number",
    )
    assert task.length == 10
    train, held_out = task.split().train, task.split().held_out
    assert sorted(counted(train)) == [(b + t, b + t + 2.0) for b in (0.0, 100.0) for t in range(22)]
    assert sorted(counted(held_out)) == [(b + t, b + t + 2.0) for b in (0.0, 100.0) for t in range(24, 28)]


def test_a_forecast_is_a_change_from_the_latest_value(table):
    """So a network that says nothing repeats the latest value and the mean change, at any level."""
    text = "y\n" + "".join(f"{3 * t}\n" for t in range(60))
    task = CsvTask(file=table(text), target="y", horizon=2)
    network = network_for(plait.LSTM(1, 4), task, seed=0)
    torch.nn.init.zeros_(network.decoder.weight)
    x = torch.tensor([5.0, 1e4]).reshape(2, 1, 1)
    assert network(x)[0].flatten().tolist() == [11.0, 1e4 + 6]
    part = task.split().held_out
    batch = part.rows(slice(None))
    assert task.loss(network(batch.inputs)[0], batch.targets).item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "v", "features": ("u", "v")},
            "'v' is the target; leave it out, or predict it --horizon N",
        ),
        ({"target": "v", "horizon": 1, "asks": "last"}, "expected every with a horizon, got last"),
        ({"target": "v", "horizon": -1}, "horizon: expected at least 0, got -1"),
        ({"target": "v", "horizon": 9, "answer": "number"}, "on both sides of the first row held out"),
        (
            {"target": "v", "horizon": 3, "answer": "number", "sequence": "", "length": 1},
            "take a smaller --horizon",
        ),
    ],
)
def test_a_horizon_that_cannot_be(table, options, message):
    with pytest.raises(PlaitError, match=re.escape(message)):
        CsvTask(**{"file": table(TABLE), "sequence": "who", "order": "when", **options})


def test_a_forecast_is_predicted_and_scored(table, tmp_path, capsys):
    values = [10 + 5 * math.sin(t / 3) for t in range(240)]
    path = table("y\n" + "".join(f"{value}\n" for value in values))
    line = ["train", "csv", path, "--target", "y", "--horizon", "4", "--length", "24", "--model", "gru"]
    small = [
        "--hidden",
        "16",
        "--epochs",
        "60",
        "--lr",
        "0.02",
        "--batch-size",
        "8",
        "--device",
        "cpu",
        "--quiet",
    ]
    assert main([*line, *small, "--out", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    new = [10 + 5 * math.sin(t / 3) for t in range(240, 290)]
    found = plait.predict(run, {"y": new})
    assert list(found) == ["y", "prediction"]
    later = [10 + 5 * math.sin((t + 4) / 3) for t in range(240, 290)]
    errors = [abs(a - b) for a, b in list(zip(found["prediction"], later, strict=True))[8:24]]
    assert sum(errors) / 16 < 1.5  # the latest value is off by 4 on average
