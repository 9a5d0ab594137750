"""Lines that `plait runs show` leaves out."""

from plait.commands.runs import _thinned


def test_lines_are_thinned_evenly_to_the_last():
    assert _thinned([*range(12)]) == [*range(12)]
    assert _thinned([*range(24)]) == [*range(1, 24, 2)]
    assert _thinned([*range(100)], 3) == [32, 65, 99]
