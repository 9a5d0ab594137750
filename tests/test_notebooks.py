"""The notebooks run from the first cell to the last: shortened by default, in full in the slow tier."""

import json
import os
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    """Return the source of the notebook's cells of code."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def run(notebook: Path, monkeypatch, tmp_path, short: bool) -> dict:
    """Run the cells one after the other, and return the names they leave."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    if any("transformers" in cell for cell in cells(notebook)):
        pytest.importorskip("transformers")
    pyplot.switch_backend("agg")
    pyplot.close("all")  # of a notebook that failed
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "notebook"}
    for number, code in enumerate(cells(notebook), start=1):
        if short:
            code = re.sub(r"^UPDATES = \d+$", "UPDATES = 3", code, flags=re.MULTILINE)
            code = re.sub(r"^STEPS, WIDTH = .*$", "STEPS, WIDTH = 60, 16", code, flags=re.MULTILINE)
        exec(compile(code, f"{notebook.name}, cell {number}", "exec"), names)
    pyplot.close("all")
    return names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(notebook, monkeypatch, tmp_path):
    run(notebook, monkeypatch, tmp_path, short=True)
    assert not os.listdir(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_shows_what_its_text_says(notebook, monkeypatch, tmp_path, capsys):
    names = run(notebook, monkeypatch, tmp_path, short=False)
    shown = capsys.readouterr().out
    if notebook.stem == "replace-an-lstm":
        late = {name: sum(curve[-50:]) / 50 for name, curve in names["curves"].items()}
        assert late["plait.RelLSTM"] > 0.9 > 0.5 > late["nn.LSTM"]
    elif notebook.stem == "why-does-it-forget":
        for verdict in ("input: vanishes", "input: reaches", "input: ends", "input: has a hole"):
            assert verdict in shown
    else:
        losses = {name: loss for name, (loss, _) in names["results"].items()}
        assert all(abs(loss - losses["full cache"]) < 0.1 for loss in losses.values())


def test_there_are_three_with_their_results_in_them():
    assert [path.stem for path in NOTEBOOKS] == ["bound-a-cache", "replace-an-lstm", "why-does-it-forget"]
    for path in NOTEBOOKS:
        code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])
        assert path.stat().st_size < 500_000
