"""The plane is drawn, and what cannot be is refused."""

import pytest

from plait.errors import ConfigError, OutputError
from plait.figures.plane import Guide, Point, draw_plane

GUIDE = Guide([1, 50, 100], [200, 2000, 20000], [180, 1800, 18000], [220, 2200, 22000], (6, 48))


@pytest.mark.parametrize("name", ["plane.png", "plane.svg"])
def test_drawn(tmp_path, name):
    path = draw_plane(
        tmp_path / name, GUIDE, [Point("one", 12, 768, highlight=True)], ([1, 5], [3, 243]), "Title"
    )
    assert path.stat().st_size > 5000
    if name.endswith("svg"):
        text = path.read_text()
        assert "depth (layers)" in text
        assert "one standard error" in text


def test_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"expected a name ending in \.png"):
        draw_plane(tmp_path / "plane.xyz", GUIDE, [], ([1], [3]))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        draw_plane(tmp_path / "file" / "plane.png", GUIDE, [], ([1], [3]))
