"""The page: complete, self-contained, true to the runs."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import jinja2
import pytest

from plait.lab.cli import main
from plait.lab.report.attention import read_sample
from plait.lab.report.demo_page import demo_exhibit
from plait.lab.report.gather import gather
from plait.lab.report.page import origin, render, write_page
from plait.lab.report.report_page import report_page
from plait.provenance import commit

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Opens and closes every element, and collects ids, addresses and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.labels: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.addresses.append(value)
            if name == "aria-label":
                self.labels.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(trained, small_plan, tmp_path_factory):
    found, out = trained
    path = tmp_path_factory.mktemp("page") / "index.html"
    page = report_page(gather([out]), "plait demo", demo_exhibit(small_plan, found))
    return write_page(path, page).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser


def loads(page: str) -> list[str]:
    """Everything in a page that would be fetched: addresses that are neither data nor a place in the page."""
    parser = Outline()
    parser.feed(page)
    styles = re.findall(r"url\(\s*['\"]?([^)'\"]+)", page) + re.findall(r"@import\s+['\"]?([^'\";]+)", page)
    return [a for a in (*parser.addresses, *styles) if not a.startswith(("#", "data:"))]


def test_the_page_loads_nothing(page):
    assert loads(page) == []
    assert not re.search(r"https?://", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    scripts = re.findall(r"<script.*?</script>", page, flags=re.DOTALL)
    assert not [
        word for word in ("fetch(", "XMLHttpRequest", "import(", " src=") for s in scripts if word in s
    ]


@pytest.mark.parametrize(
    "bad",
    [
        '<script src="https://example.org/x.js"></script>',
        '<img src="beside.png">',
        '<link rel="stylesheet" href="http://example.org/x.css">',
        "<style>@import 'more.css';</style>",
        "<p style=\"background: url('//example.org/x.png')\"></p>",
    ],
)
def test_a_page_that_loads_something_is_caught(bad):
    assert loads(bad)


def test_ids_are_unique_and_every_place_named_exists(page, outline):
    assert len(outline.ids) == len(set(outline.ids))
    places = set(re.findall(r"url\(#([^)]+)\)", page)) | {a[1:] for a in outline.addresses if a[0] == "#"}
    assert places
    assert places <= set(outline.ids)


def test_every_figure_says_what_is_seen(page, outline):
    """Two pictures of the demonstration, and the curves of its runs."""
    assert page.count("<figure") == page.count("<figcaption>") == page.count("<svg") == 4
    assert len(outline.labels) == 4
    assert all(len(label) > 80 for label in outline.labels)


def test_the_page_reads_on_light_dark_and_on_a_phone(page):
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    svg = page[page.index("<svg") : page.rindex("</svg>")]
    assert "#000000" not in svg, "black ink would vanish on a dark page"
    assert 'fill: #ffffff"' not in svg, "a white ground would shine on a dark page"
    assert not re.search(r'<svg [^>]*\b(width|height)="', page), "a size of its own would not scale"


def test_the_page_holds_the_numbers_and_where_they_come_from(outline, trained, small_plan):
    text = " ".join(" ".join(outline.text).split())
    found, _ = trained
    for run in found.values():
        assert f"{run.accuracy:.1%}" in text
        assert run.name in text
    for run in found.values():
        assert f"plait train --config {run.folder}" in text
    for value in origin("plait demo").values():
        if "UTC" not in value:
            assert value in text


def test_the_sample_is_what_the_network_read(trained, small_plan):
    found, _ = trained
    sample = read_sample(found["rellstm"].folder, 10)
    steps = small_plan.delay + 20
    assert sample.weights.shape == (steps, steps)
    read = sample.weights[-1]
    assert abs(read[read == read].sum() - 1) < 1e-5
    assert (read == read).sum() == small_plan.window + small_plan.capacity
    assert set(range(steps - small_plan.window + 1, steps + 1)) <= set(sample.kept_at(steps))
    assert 0 <= sample.share_on(10, 10) <= 1
    assert sample.share_on(steps, 10) == pytest.approx(1)


def test_missing_values_are_errors():
    with pytest.raises(jinja2.UndefinedError):
        render("report.html", headline="")


def test_values_are_escaped(trained, small_plan, tmp_path):
    found, out = trained
    hostile = "<script>alert(1)</script>"
    named = {**found, "lstm": dataclasses.replace(found["lstm"], name=hostile)}
    lead = dataclasses.replace(demo_exhibit(small_plan, named), title=hostile)
    text = report_page(gather([out]), hostile, lead)
    assert hostile not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3  # headline, table and command


def test_the_commit_is_that_of_this_source():
    found = commit()
    if found is None:
        pytest.skip("this source is not a git checkout")
    assert re.fullmatch(r"[0-9a-f]{12}\+?", found)


def test_without_matplotlib_the_command_says_which_extra(tmp_path, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path), "--quiet"]) == 2
    assert "pip install 'plait[lab]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists(), "missed before the training"
