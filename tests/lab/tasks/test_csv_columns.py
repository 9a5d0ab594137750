"""Columns of words and dates as features."""

import math

import numpy as np
import pytest

from plait.errors import PlaitError
from plait.lab.tasks import CsvTask
from plait.lab.tasks.csv_columns import encode, encoding_of, standardised, width
from plait.lab.tasks.csv_file import as_dates, grouped, table_of


def of(columns, name="day", rows=None):
    """The encoding and the features of a column, every row of one series."""
    table = table_of(columns)
    series = [np.arange(len(table.lines))] if rows is None else rows
    encoding = encoding_of(table, name, series)
    return encoding, encode(table, name, encoding, series, "refuse") if encoding else None


def days(count, step=1, first="2026-01-01"):
    return [str(np.datetime64(first) + step * index) for index in range(count)]


def test_cycles_of_the_calendar():
    encoding, values = of({"day": days(800)})
    assert encoding == ("date", "year", "week")
    assert width(encoding) == values.shape[1] == 4
    assert values[0, 2:] == pytest.approx(values[7, 2:])
    assert values[:365, :2].mean() == pytest.approx(0, abs=0.01)
    angle = np.arctan2(values[:, 2], values[:, 3])
    steps = np.diff(np.unwrap(angle))
    assert steps == pytest.approx(np.full(799, 2 * math.pi / 7))


@pytest.mark.parametrize(
    ("column", "encoding"),
    [
        (days(20), ("date", "week")),
        (days(10), None),
        (days(60, step=30), ("date", "year")),
        ([f"2026-{month:02}" for month in range(1, 13)], None),
        ([f"{1950 + n // 12}-{n % 12 + 1:02}-01" for n in range(60)], ("date", "year")),
        ([f"2026-01-{1 + n // 24:02} {n % 24:02}:00" for n in range(100)], ("date", "day")),
        (["2026-01-01"] * 30, None),
        (["2026-01-01", "2026-01-02", "2026-01-12", "2026-01-13"], ("date", "gap")),
        (["31.01.2026", "01.02.2026"] * 9, ("word", "01.02.2026", "31.01.2026")),
        ([f"name {n}" for n in range(60)], None),
        (["a", "b"], None),
        (["yes", "no", "yes", "no"], ("word", "no", "yes")),
        (["1", "NA", "2"], ("number",)),
    ],
)
def test_what_a_column_is_read_as(column, encoding):
    table, series = table_of({"day": column}), [np.arange(len(column))]
    assert encoding_of(table, "day", series) == encoding
    if encoding:
        values = encode(table, "day", encoding, series, "mean")
        assert values.shape == (len(column), width(encoding))
        assert np.isfinite(values).all()


def test_the_time_since_the_previous_row_of_the_sequence():
    table = {"day": ["2026-01-01", "2026-01-02", "2026-01-05", "2026-03-01", "2026-03-09", "2026-03-10"]}
    encoding, values = of(table, rows=[np.arange(3), np.arange(3, 6)])
    assert encoding[-1] == "gap"
    assert values[:, -1] == pytest.approx(np.log1p([0, 1, 3, 0, 8, 1]))
    assert standardised(encoding)[-1] is True


def test_words_are_one_hot_and_unknown_ones_are_zeros():
    table = table_of({"mode": ["bus", "car", "tram", "", "car"]})
    encoding = ("word", "bus", "car")
    wanted = [[1, 0], [0, 1], [0, 0], [0, 0], [0, 1]]
    assert encode(table, "mode", encoding, [], "mean").tolist() == wanted
    wanted[3] = [0, 0]
    series = [np.array([0, 3]), np.array([1, 2, 4])]
    assert encode(table, "mode", encoding, series, "previous").tolist()[3] == [1, 0]
    assert standardised(encoding) == [False, False]


def test_dates_are_dates_alone():
    assert as_dates(["2026-02-30"]) is None
    assert as_dates(["2026-02-03", "soon"]) is None
    assert as_dates(["", ""]) is None
    (zone,) = as_dates(["2026-02-03T04:05:06.123456789+02:00"])
    assert (zone.hour, zone.microsecond) == (4, 123456)


def test_rows_are_ordered_by_their_dates_and_other_dates_are_refused():
    table = table_of({"day": ["2026-2-1", "2026-01-31", "2026-10-01"]})
    assert grouped(table, "", "day", 3)[1][0].tolist() == [1, 0, 2]
    table = table_of({"day": ["31.01.2026", "01.02.2026"]})
    with pytest.raises(PlaitError, match=r"expected numbers or dates as 2026-01-31 .*, got 31.01.2026"):
        grouped(table, "", "day", 3)


@pytest.fixture
def sales(tmp_path):
    path = tmp_path / "sales.csv"
    rows = [f"{day},{('Mon', 'Tue', 'Wed')[n % 3]},item {n},{n + 0.5}" for n, day in enumerate(days(120))]
    path.write_text("day,weekday,note,value\n" + "\n".join(rows))
    return path


def test_a_table_says_what_it_reads_and_what_not(sales):
    task = CsvTask(file=str(sales), target="value", horizon=3)
    assert task.features == ("day", "weekday", "value")
    assert (task.input_size, task.anchor) == (2 + 3 + 1, 5)
    facts = task.facts()
    assert "from day (week), weekday (3 words), value; left out: note (120 different words)" in facts
    assert "not in the order" not in facts
    again = CsvTask(**task.options())
    assert again == task
    scale, _ = task.scales()
    assert scale.mean[:5].tolist() == [0] * 5
    assert scale.deviation[:5].tolist() == [1] * 5
    assert scale.mean[5] > 1 < scale.deviation[5]
    ordered = CsvTask(file=str(sales), target="value", horizon=3, order="day")
    assert ordered.split().train.inputs.tolist() == task.split().train.inputs.tolist()


def test_rows_out_of_order_are_pointed_out(sales):
    head, *rows = sales.read_text().splitlines()
    sales.write_text("\n".join([head, *rows[::-1]]))
    facts = CsvTask(file=str(sales), target="value", horizon=3).facts()
    assert "rows are read as they stand, not in the order of day: --order day?" in facts


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("note",), "'note' holds 120 different words; expected numbers, dates as 2026-01-31, or at most 50"),
        (("nothing",), "column for --features"),
    ],
)
def test_features_that_cannot_be(sales, features, message):
    with pytest.raises(PlaitError, match=message) as caught:
        CsvTask(file=str(sales), target="value", horizon=3, features=features)
    assert "\n" not in str(caught.value)


def test_a_column_of_one_date_is_refused_as_a_feature(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("day,x,y\n" + "".join(f"2026-01-01,{n},{n}.5\n" for n in range(20)))
    with pytest.raises(PlaitError, match="'day': expected dates that span two weeks or more"):
        CsvTask(file=str(path), target="y", length=5, features=("day",))
    assert CsvTask(file=str(path), target="y", length=5).left_out == ("day",)
