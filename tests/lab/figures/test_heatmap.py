"""Heat maps: every weight in its place, nothing where there is nothing."""

import numpy as np
import pytest
import torch

import plait
from plait.errors import ShapeError
from plait.lab.figures import Curve, attention_matrix, draw_curves, draw_heatmap, inline_svg


def test_a_trace_becomes_the_matrix_the_model_read():
    model = plait.RelRNN(3, 5, window=3, capacity=2, dtype=torch.float64)
    x = torch.randn(9, 1, 3, dtype=torch.float64)
    output, _, (trace,) = model(x, need_trace=True)
    matrix = attention_matrix(trace.born[:, 0], trace.weights[:, 0])
    assert np.isnan(np.triu(matrix, 1)[np.triu_indices(9, 1)]).all()
    np.testing.assert_allclose(np.nansum(matrix, axis=1), 1)
    assert (~np.isnan(matrix)).sum(axis=1).tolist() == [1, 2, 3, 4, 5, 5, 5, 5, 5]
    # the context of the first steps, where everything is remembered, from the definition
    h, layer = output[:, 0].detach(), model.layers[0]
    s = torch.zeros(5, dtype=torch.float64)
    for t in range(5):
        energies = torch.tanh(layer.scorer.query @ s + h[: t + 1] @ layer.scorer.key.T) @ layer.scorer.energy
        weights = torch.softmax(energies, 0).detach()
        np.testing.assert_allclose(matrix[t, : t + 1], weights)
        s = 0.5 * (h[t] + weights @ h[: t + 1])


@pytest.mark.parametrize(
    ("born", "weights"), [([0], [1.0]), ([[0]], [[0.5, 0.5]]), ([[5]], [[1.0]])], ids=["1d", "shapes", "late"]
)
def test_traces_that_are_none_are_refused(born, weights):
    with pytest.raises(ShapeError, match="trace: expected"):
        attention_matrix(born, weights)


def test_rows_run_downwards_from_one_and_nan_is_blank():
    figure = draw_heatmap(
        [[1.0, np.nan], [0.25, 0.75]],
        x_label="read",
        y_label="reader",
        value_label="weight",
        y_marks=[(2, "here")],
    )
    axes, bar = figure.axes
    image = axes.images[0]
    assert image.get_array().mask.tolist() == [[False, True], [False, False]]
    assert axes.get_ylim() == (2.5, 0.5)
    part = draw_heatmap([[1.0]], x_label="", y_label="", value_label="", first_row=7)
    assert part.axes[0].get_ylim() == (7.5, 6.5)
    assert [text.get_text() for text in axes.texts] == ["here"]
    assert bar.get_ylabel() == "weight"
    with pytest.raises(ShapeError, match="matrix: expected"):
        draw_heatmap([1.0], x_label="", y_label="", value_label="")


def test_inline_figures_can_stand_side_by_side():
    def drawn(name):
        figure = draw_curves([Curve([1, 2], [3, 4], "a & b", "dots")], x_label="x", y_label="y")
        return inline_svg(figure, name, 'it "rises" & <stays>')

    one, two = drawn("one"), drawn("two")
    assert one == drawn("one"), "the same figure is the same text"
    assert one.replace("one-", "two-").split(">", 1)[0] == two.split(">", 1)[0]
    assert 'aria-label="it &quot;rises&quot; &amp; &lt;stays&gt;"' in one
    assert "<style" not in one
    assert "metadata" not in one
    assert "http" not in one
    assert one.count("<svg") == one.count("</svg>") == 1


def test_the_weights_of_slots_that_hold_one_state_are_added():
    """The heads of a Transformer may keep the same states."""
    matrix = attention_matrix([[0, -1, 0, -1], [0, 1, 0, 1]], [[0.5, 0.0, 0.5, 0.0], [0.1, 0.4, 0.2, 0.3]])
    np.testing.assert_allclose(matrix, [[1.0, np.nan], [0.3, 0.7]])
