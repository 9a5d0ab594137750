"""The recorded pair that separates the rules: what its record holds, and what is said of it."""

import math

import pytest

from plait.lab.experiments.late_information import CONTESTANTS
from plait.lab.report.slot_example import draw_kept, kept_caption, record_kept, recorded
from plait.lab.tasks import CopyTask
from plait.lab.training.fit import fit
from plait.models import RelRNN


def test_the_recorded_pair_separates_the_rules():
    found = recorded()
    slots, lead = found["slots"], found["task"]["lead_in"]
    assert (slots, lead, found["task"]["delay"]) == (
        CONTESTANTS["RelRNN learned"].options["capacity"],
        60,
        100,
    )
    earned, learned = (found["rules"][rule] for rule in ("earned", "learned"))
    for one in (earned, learned):  # a full memory, of steps before the window
        assert len(one["shares"]) == lead + 100 + 10
        assert math.isclose(sum(one["shares"]), slots, abs_tol=0.05)
    assert sum(earned["shares"][:lead]) > 8 > sum(learned["shares"][:lead])
    assert earned["score"] < 0.6 < 0.99 <= learned["score"]


def test_the_caption_says_what_the_record_holds():
    found = recorded()
    words = kept_caption(found)
    for rule in ("earned", "learned"):
        assert f"{found['rules'][rule]['updates']:,}" in words
        assert f"{sum(found['rules'][rule]['shares'][:60]):.1f}" in words


def test_a_pair_is_recorded_from_its_folders(tmp_path):
    for rule in ("earned", "learned"):
        model = RelRNN(10, 8, window=3, capacity=4, relevance=rule)
        fit(
            model,
            CopyTask(9, lead_in=5),
            updates=2,
            batch_size=4,
            evaluate_on=4,
            device="cpu",
            folder=tmp_path / rule,
        )
    found = record_kept({rule: tmp_path / rule for rule in ("earned", "learned")})
    assert (found["slots"], found["task"]) == (4, {"delay": 9, "lead_in": 5})
    for one in found["rules"].values():
        assert len(one["shares"]) == 24
        assert sum(one["shares"]) == pytest.approx(4, abs=0.01)
        assert not any(one["shares"][-3:])  # the window's own
    labels = [line.get_label() for line in draw_kept(found, (4, 3)).axes[0].lines]
    assert [label.partition(":")[0] for label in labels] == ["earned", "learned", "the symbols"]
