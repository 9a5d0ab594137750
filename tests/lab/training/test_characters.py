"""The description of a run on characters: strict, complete, and with the text's identity."""

import pytest

from plait.errors import ConfigError, PlaitError
from plait.lab.strict import parse
from plait.lab.training.characters import CharacterModel, CharacterRecipe
from plait.lab.training.registry import build_network, parse_spec

MODEL = {"name": "softmax", "depth": 2, "width": 32, "heads": 2}
DESCRIPTION = {"task": {"name": "characters"}, "model": MODEL, "recipe": {"seed": 1}}


def test_round_trip():
    spec = parse_spec(DESCRIPTION)
    assert parse_spec(spec.to_json()) == spec
    assert spec.id.startswith("characters-softmax-")
    assert spec.kind.unit == "update"


def test_every_mistake_is_named():
    wrong = {
        "task": {"name": "characters", "colour": "blue"},
        "model": {**MODEL, "name": "sofmax"},
        "recipe": {"learning_rate": 0.1, "updates": 2.5},
    }
    with pytest.raises(ConfigError) as caught:
        parse_spec(wrong)
    for word in ("task.colour", "model.name", "recipe.learning_rate", "recipe.updates"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"updates": 0}, "updates: expected at least 1"),
        ({"peak": 0.0}, "peak: expected a number above 0"),
        ({"held_out": 256}, "held_out: expected at least 257"),
        ({"batch": 2.5}, "batch"),
        ({"seed": -1}, "seed"),
    ],
)
def test_values_out_of_range(wrong, words):
    with pytest.raises(PlaitError, match=words):
        parse(CharacterRecipe, wrong)


def test_heads_divide_the_width():
    with pytest.raises(ConfigError, match="heads: expected a divisor of width 32, got 3"):
        CharacterModel("linear", depth=1, width=32, heads=3)


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_parameters_are_those_of_the_network(kind):
    spec = parse_spec({**DESCRIPTION, "model": {**MODEL, "name": kind}})
    assert build_network(spec).num_block_params == spec.model.parameters


def test_learning_rate_rises_and_falls():
    recipe = CharacterRecipe(updates=200, warmup=20)
    rates = [recipe.rate(update, 64) for update in range(200)]
    assert max(rates) == rates[19] == rates[20] == recipe.peak / 8
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[-1] == pytest.approx(recipe.peak / 80, rel=0.01)
    assert recipe.rate(50, 256) == pytest.approx(rates[50] / 2)


def test_a_run_cannot_be_extended():
    """Its learning rate ends with its last update."""
    with pytest.raises(ConfigError, match="cannot be extended"):
        parse_spec({**parse_spec(DESCRIPTION).to_json(), "extended": {"updates": [100]}})
