"""A model has one colour on every page, and it can be told from the paper, light or dark."""

import re
from pathlib import Path

import pytest

import plait
from plait.lab.figures import DARK, LIGHT, Curve, draw_curves, inline_svg, model_places
from plait.models import MODELS

LOOK = (Path(plait.__file__).parent / "lab" / "report" / "templates" / "look.css").read_text()


def tones(sheet):
    return tuple(re.findall(r"--c\d: (#[0-9a-f]{6})", sheet))


def luminance(color):
    shares = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_pages_and_figures_share_the_palette():
    light, _, dark = LOOK.partition("prefers-color-scheme: dark")
    assert tones(light) == LIGHT
    assert tones(dark) == DARK


def test_every_colour_contrasts_with_its_background():
    """3 to 1 is what lines in a graphic need (WCAG 2.2, 1.4.11)."""
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", LOOK)
    assert len(papers) == 2
    for paper, palette in zip(papers, (LIGHT, DARK), strict=True):
        assert all(contrast(paper, color) >= 3 for color in palette)


def test_a_figure_in_a_page_takes_the_tone_of_the_page():
    drawn = inline_svg(
        draw_curves([Curve([0, 1], [0, 1], "LSTM", "solid", 1)], x_label="x", y_label="y"), "a", ""
    )
    assert f"stroke: var(--c1, {LIGHT[1]})" in drawn
    assert not re.search(rf"(?<!, ){LIGHT[1]}", drawn)


def test_a_model_has_its_colour_in_any_company():
    alone = {name: model_places([name])[name] for name in MODELS}
    assert len(set(alone.values())) == len(MODELS)
    assert model_places(list(MODELS)) == alone
    assert model_places(["RelRNN", "LSTM"]) == {"RelRNN": alone["relrnn"], "LSTM": alone["lstm"]}
    strangers = model_places(["mine", "LSTM", "yours"])
    assert strangers["LSTM"] == alone["lstm"]
    assert len(set(strangers.values())) == 3


def test_a_variant_has_the_hue_of_its_model_and_of_no_other():
    found = model_places(["RelLSTM learned", "RelLSTM earned", "RelRNN", "RelRNN, plait", "LSTM"])
    assert found == {
        "RelLSTM learned": 2,
        "RelLSTM earned": 12,
        "RelRNN": 0,
        "RelRNN, plait": 10,
        "LSTM": 1,
    }


@pytest.mark.parametrize("names", [["relrnn, seed 0", "relrnn, seed 1", "lstm"], ["orth-RNN", "expRNN"]])
def test_names_in_a_picture_are_distinguishable(names):
    assert len(set(model_places(names).values())) == len(names)
