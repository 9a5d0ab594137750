"""Lines that `plait runs show` leaves out."""

from plait.lab.commands.runs import _subsample


def test_lines_are_subsample_evenly_to_the_last():
    assert _subsample([*range(12)]) == [*range(12)]
    assert _subsample([*range(24)]) == [*range(1, 24, 2)]
    assert _subsample([*range(100)], 3) == [32, 65, 99]
