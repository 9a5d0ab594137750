"""The plane as a picture."""

import numpy as np
from matplotlib.image import imread

from plait.files import save_figure
from plait.lab.figures.plane import Guide, Point, draw_plane

GUIDE = Guide([1, 50, 100], [200, 2000, 20000], [180, 1800, 18000], [220, 2200, 22000], (6, 48))


def drawn(path, *points):
    return save_figure(draw_plane(GUIDE, points, ([1, 5], [3, 243]), "Title"), path)


def test_what_is_drawn_can_be_read(tmp_path):
    text = drawn(tmp_path / "plane.svg", Point("a shape", 12, 768, highlight=True)).read_text()
    for words in ("Title", "depth (layers)", "width (features)", "one standard error", "a shape"):
        assert words in text


def test_a_point_is_where_it_says(tmp_path):
    """The picture with a point differs from the one without in one place, which moves with the point."""
    pictures = [drawn(tmp_path / "none.png")]
    pictures += [
        drawn(tmp_path / f"{depth}.png", Point("", depth, 2000, highlight=True)) for depth in (20, 80)
    ]
    none, left, right = (imread(path) for path in pictures)
    columns = [np.argwhere((one != none).any(-1))[:, 1] for one in (left, right)]
    assert 0 < columns[0].size < none.shape[0] * none.shape[1] / 100
    assert columns[0].max() < none.shape[1] / 2 < columns[1].min()
