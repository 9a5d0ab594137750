"""Predictions for new data: the same numbers as the network's own, by the names of columns and classes."""

import csv
import json
import random

import numpy as np
import pytest
import torch

import plait
from plait.errors import ConfigError, DataError, ShapeError
from plait.lab.cli import main
from plait.lab.training.description import Network, describe
from plait.lab.training.prediction import predict_table
from plait.lab.training.recipe import Recipe

FIELDS = ("who", "when", "u", "v", "outcome")
SMALL = ["--hidden", "8", "--epochs", "4", "--batch-size", "8", "--device", "cpu", "--quiet"]


def rows(count, seed, outcome=lambda us: "up" if us[0] > 0 else "down"):
    """Sequences of odd lengths, their rows mixed; the outcome follows from all u of a sequence."""
    draw, made = random.Random(seed), []
    for who in range(count):
        us = [round(draw.uniform(-1, 1), 3) for _ in range(draw.randrange(3, 7))]
        for when, u in enumerate(us):
            made.append((f"p{who}", when, u, draw.randrange(100), outcome(us)))
    draw.shuffle(made)
    return made


def written(path, made, fields=FIELDS):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([fields, *made])
    return path


def read(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def trained(folder, made, *options):
    table = written(folder / "train.csv", made)
    line = ["train", "csv", str(table), "--target", "outcome", "--sequence", "who", "--order", "when"]
    assert main([*line, *SMALL, "--out", str(folder / "runs"), *options]) == 0
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("classes"), rows(40, 0), "--model", "rellstm")


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory):
    made = [(who, when, u, v, 100 + 5 * u) for who, when, u, v, _ in rows(40, 0)]
    return trained(tmp_path_factory.mktemp("numbers"), made, "--model", "gru", "--lr", "0.02")


def by_hand(run, made, who):
    """Return the logits of one sequence, read alone and in its order."""
    steps = sorted((when, [u, v]) for name, when, u, v, *_ in made if name == who)
    x = torch.tensor([values for _, values in steps], dtype=torch.float32).unsqueeze(1)
    with torch.no_grad():
        return plait.load(run)(x)[0][:, 0]


def test_a_table_of_sequences_gets_a_class_each(of_classes, tmp_path, capsys):
    made = rows(70, 1)
    new = written(tmp_path / "new.csv", [row[:4] for row in made], FIELDS[:4])
    assert main(["predict", str(of_classes), str(new), "-o", str(tmp_path / "found.csv")]) == 0
    assert "70 predictions" in capsys.readouterr().out
    found = read(tmp_path / "found.csv")
    assert list(found[0]) == ["who", "steps", "prediction", "probability"]
    assert sorted(row["who"] for row in found) == sorted({row[0] for row in made})
    for row in found:
        shares = by_hand(of_classes, made, row["who"])[-1].softmax(-1)
        assert row["prediction"] == ("down", "up")[int(shares.argmax())]
        assert float(row["probability"]) == pytest.approx(float(shares.max()), abs=1e-5)
        assert int(row["steps"]) == sum(one[0] == row["who"] for one in made)
    assert {row["prediction"] for row in found} == {"down", "up"}


def test_the_table_is_not_replaced_by_its_predictions(of_classes, tmp_path, capsys):
    new = written(tmp_path / "new.csv", [row[:4] for row in rows(3, 1)], FIELDS[:4])
    content = new.read_bytes()
    (tmp_path / "link.csv").symlink_to(new)
    for output in (new, tmp_path / "link.csv", tmp_path / "sub" / ".." / "new.csv"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        assert main(["predict", str(of_classes), str(new), "-o", str(output)]) == 2
        assert "--output: expected another file than the table" in capsys.readouterr().err
        assert new.read_bytes() == content


def test_a_table_of_numbers_keeps_its_rows(of_numbers, tmp_path, capsys):
    made = [(*row[:4], 100 + 5 * row[2]) for row in rows(30, 2)]
    made[3] = (*made[3][:4], "")
    new = written(tmp_path / "new.csv", made)
    assert main(["predict", str(of_numbers), str(new), "-o", str(tmp_path / "found.csv"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    found = read(tmp_path / "found.csv")
    assert [tuple(row[name] for name in FIELDS) for row in found] == [tuple(map(str, row)) for row in made]
    predicted = [float(row["prediction"]) for row in found]
    for row, value in zip(found[:20], predicted, strict=False):
        assert value == pytest.approx(
            float(by_hand(of_numbers, made, row["who"])[int(row["when"])]), abs=1e-3
        )
    pairs = [(value, row[4]) for value, row in zip(predicted, made, strict=True) if row[4] != ""]
    error = np.mean([(value - target) ** 2 for value, target in pairs])
    assert scores["targets"] == len(made) - 1
    assert scores["rmse"] == pytest.approx(error**0.5, rel=1e-6)
    assert 0.5 < scores["R²"] < 1


def test_known_classes_are_scored(of_classes):
    made = rows(30, 3)
    columns = dict(zip(FIELDS, map(list, zip(*made, strict=True)), strict=True))
    true = {row[0]: row[4] for row in made}
    columns["outcome"] = ["unheard of" if who == "p0" else true[who] for who in columns["who"]]
    true["p0"] = "unheard of"
    found = predict_table(of_classes, columns)
    right = [true[who] == name for who, name in zip(*list(found.columns.values())[::2], strict=True)]
    assert found.scores == {"targets": 30, "accuracy": sum(right) / 30}
    assert plait.predict(of_classes, columns) == found.columns


def test_arrays_are_batch_first_by_default(of_classes, of_numbers):
    x = torch.randn(70, 5, 2)
    found = plait.predict(of_classes, x.numpy())
    with torch.no_grad():
        logits = plait.load(of_classes)(x.transpose(0, 1))[0][-1]
    assert found["prediction"] == [("down", "up")[index] for index in logits.argmax(-1).tolist()]
    assert found["probability"] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-5)
    again = plait.predict(of_classes, x.transpose(0, 1), batch_first=False)
    assert again["prediction"] == found["prediction"]
    odd = plait.predict(of_numbers, [x[0], x[1, :3]])["prediction"]
    assert [len(part) for part in odd] == [5, 3]
    assert odd[1] == pytest.approx(plait.predict(of_numbers, x[1:2])["prediction"][0][:3], rel=1e-5)


def test_data_of_fit_keep_their_names(tmp_path):
    x, y = torch.randn(40, 6, 2), ["good" if index % 2 else "bad" for index in range(40)]
    model = plait.GRU(2, 4, batch_first=True)
    plait.fit(model, (x, y), held_out=0.2, epochs=1, device="cpu", folder=tmp_path / "run")
    assert set(plait.predict(tmp_path / "run", x)["prediction"]) <= {"good", "bad"}
    with pytest.raises(ConfigError, match="got one on arrays; pass an array"):
        plait.predict(tmp_path / "run", {"a": [1.0]})


def test_gaps_are_filled_from_the_training_data(of_classes, tmp_path):
    made = [[*row[:4]] for row in rows(5, 4)]
    mean = float(plait.load(of_classes).input_scale.mean[1])
    filled = [[*row[:3], mean] for row in made]
    gaps = [[*row[:3], ""] for row in made]
    for name, some in (("gaps", gaps), ("filled", filled)):
        written(tmp_path / f"{name}.csv", some, FIELDS[:4])
    with pytest.raises(DataError, match=r"misses \d+ of \d+ values.*--missing previous$"):
        plait.predict(of_classes, tmp_path / "gaps.csv")
    found = plait.predict(of_classes, tmp_path / "gaps.csv", missing="mean")
    assert found == plait.predict(of_classes, tmp_path / "filled.csv")


def test_the_network_itself_predicts(of_classes, of_numbers, tmp_path):
    """Loaded or just trained, without a word about the order of its axes."""
    made = rows(6, 5)
    columns = dict(zip(FIELDS[:4], list(zip(*made, strict=True))[:4], strict=True))
    x = torch.randn(7, 5, 2)
    for run in (of_classes, of_numbers):
        network = plait.load(run)
        assert network.predict(columns) == plait.predict(run, columns)
        assert network.predict(x) == plait.predict(run, x)
    fitted = plait.fit(plait.GRU(2, 4), (x, x[:, -1, :1]), held_out=0.2, batch_first=True, updates=2)
    assert len(fitted.network.predict(x)["prediction"]) == 7
    with pytest.raises(ConfigError, match=r"a network that plait.load or plait.fit returns"):
        Network(plait.GRU(2, 4), 2).predict(x)


def test_a_loaded_network_is_described_as_before(of_numbers):
    """What it was trained on is no part of what it computes."""
    network = plait.load(of_numbers)
    assert describe(network, network.task, Recipe())["model"]["name"] == "gru"


def test_words_and_dates_are_read_as_in_training(tmp_path, capsys):
    draw, lines = random.Random(0), []
    for who in range(30):
        mode = draw.choice(["bus", "car"])
        for day in range(1, 4):
            lines.append((f"p{who}", f"2026-03-{7 * day + who % 5:02}", mode, {"bus": 5.5, "car": 9.5}[mode]))
    fields = ("who", "day", "mode", "fare")
    table = written(tmp_path / "train.csv", lines, fields)
    line = ["train", "csv", str(table), "--target", "fare", "--sequence", "who", "--order", "day"]
    assert main([*line, *SMALL, "--lr", "0.05", "--out", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    capsys.readouterr()
    days = np.array(["2026-04-01", "2026-04-02", "2026-04-03"], dtype="datetime64[ns]")
    new = {"who": ["a", "b", "c"], "day": days, "mode": ["bus", "car", "tram"]}
    bus, car, tram = plait.predict(run, new)["prediction"]
    assert bus < tram < car
    written(tmp_path / "new.csv", [("c", "2026-04-03", "tram"), ("c", "2026-04-04", "")], fields[:3])
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "column 'mode' misses 1 of 2 values" in capsys.readouterr().err
    words = ["predict", str(run), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")]
    assert main([*words, "--missing", "mean"]) == 0
    assert "1 of 2 rows have a word in mode that training did not show" in capsys.readouterr().out


def test_a_forecast_reads_a_table_as_in_training(tmp_path):
    """Dates included, whose distance is that to the row before, be it in another piece."""
    draw, day, lines = random.Random(0), np.datetime64("2026-01-01"), []
    for n in range(60):
        day += draw.choice([1, 2, 9])
        lines.append((day, n + draw.random()))
    table = written(tmp_path / "train.csv", lines, ("day", "y"))
    line = ["train", "csv", str(table), "--target", "y", "--horizon", "2", "--length", "8", "--epochs", "1"]
    assert main([*line, *SMALL[:2], *SMALL[4:], "--out", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    network = plait.load(run)
    assert network.task.encodings == (("date", "week", "gap"), ("number",))
    part, predicted = network.task.split().train, network.predict(table)["prediction"]
    batch = part.rows(slice(None))
    with torch.no_grad():
        outputs = network(batch.inputs, lengths=batch.lengths)[0][..., 0].T.flatten()
    there = ~batch.targets[..., 0].T.flatten().isnan()
    assert int(there.sum()) == 46
    assert outputs[there].tolist() == pytest.approx(predicted[:46], rel=1e-5)


def test_one_long_series_is_cut_as_in_training(tmp_path):
    values = np.sin(np.arange(120) / 5)
    table = written(tmp_path / "train.csv", [(v, 2 * v + 1) for v in values], ("x", "y"))
    line = ["train", "csv", str(table), "--target", "y", "--length", "12", "--model", "gru"]
    assert main([*line, *SMALL, "--out", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    found = predict_table(run, {"x": values[:31]}).columns
    assert list(found) == ["x", "prediction"]
    assert len(found["prediction"]) == 31
    alone = plait.predict(run, [values[24:31, None]])["prediction"][0]
    assert found["prediction"][24:] == pytest.approx(alone, rel=1e-5)


class Frame:
    """As much of a DataFrame as is read: columns by name, and iteration over their names."""

    def __init__(self, columns):
        self._columns, self.columns = columns, list(columns)

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        return np.array(self._columns[name])


def test_a_data_frame(of_classes):
    columns = {"who": ["a", "a", "b"], "when": [0, 1, 0], "u": [0.5, 0.25, -1.0], "v": [1, 2, 3]}
    found = plait.predict(of_classes, Frame(columns))
    assert found["who"] == ["a", "b"]
    assert found == plait.predict(of_classes, columns)


def test_a_column_of_the_result_is_not_overwritten(of_numbers):
    columns = {"who": ["a"], "when": [0], "u": [0.5], "v": [1], "prediction": [3]}
    with pytest.raises(ConfigError, match="it has a column 'prediction'"):
        plait.predict(of_numbers, columns)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"who": ["a"], "u": [1.0]}, DataError, "expected the columns u, v, who, when.*there is no v, when"),
        ({"who": ["a"], "when": [0], "u": ["x"], "v": [1]}, DataError, "'u' holds words; it held numbers"),
        (
            {"who": ["a", "b"], "when": [0], "u": [1, 2], "v": [1, 1]},
            DataError,
            "one value for every row",
        ),
        ("nowhere.csv", DataError, "nowhere.csv"),
        (torch.zeros(3, 4, 5), ShapeError, r"data\[0\]: expected \(T, 2\) as in training, got \(4, 5\)"),
        (torch.full((1, 4, 2), torch.nan), DataError, "expected finite numbers"),
        ([], DataError, "expected at least one sequence"),
        (3.0, DataError, r"expected \(N, T, F\)"),
    ],
)
def test_mistakes_are_one_line(of_classes, data, error, message):
    with pytest.raises(error, match=message) as found:
        plait.predict(of_classes, data)
    assert "\n" not in str(found.value)


def test_a_run_of_another_kind(tmp_path, capsys):
    line = ["train", "copy", "--delay", "3", "--updates", "1", "--hidden", "4", "--device", "cpu", "--quiet"]
    assert main([*line, "--out", str(tmp_path)]) == 0
    (run,) = tmp_path.iterdir()
    capsys.readouterr()
    assert main(["predict", str(run), "new.csv"]) == 2
    assert "expected one of plait train csv, or of plait.fit on data, got copy" in capsys.readouterr().err
