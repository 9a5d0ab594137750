"""The explorer as a person meets it: each tab, by pointer and by keyboard, on a phone, in the dark."""

from __future__ import annotations

import csv
import json
from urllib.parse import urlsplit

import pytest

TABS = ("memory", "gradients", "plane", "runs")
UNNAMED = "Value"  # uPlot's label of a curve without one
GPT2 = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257}


@pytest.fixture
def open_page(browser, address):
    """Opens the page at a state; at the end nothing may have been complained of, and no other host asked."""
    complaints, requests, contexts = [], [], []

    def opened(state="", width=1100, at=address, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        # A browser logs an answer of 400 itself; the page shows its line, and tests look at that.
        page.on(
            "console",
            lambda m: m.type == "error" and "status of 400" not in m.text and complaints.append(m.text),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(at + state)
        settled(page)
        assert page.evaluate("scrollY") == 0, "an address leads to the top of the page"
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    hosts = {urlsplit(url).netloc.split(":")[0] for url in requests if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}


def state(page):
    return page.evaluate("location.hash")


def slide(page, name, value):
    """Move a slider as a keyboard would: its value changes, and it says so."""
    slider = page.get_by_label(name, exact=True)
    slider.evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }", value)


def settled(page):
    """All questions are answered, and what they gave is drawn."""
    page.wait_for_timeout(30)
    page.wait_for_selector("main[aria-busy=false]")
    page.wait_for_timeout(60)


def bars(page):
    """The states that the moment's drawing has a bar for, and their heights."""
    found = page.eval_on_selector_all(
        "#memory-moment rect[data-state]",
        "all => all.map(e => [+e.dataset.state, +e.getAttribute('height')])",
    )
    return dict(found)


def curves(page, figure):
    """The curves that a figure shows, as uPlot itself has them: name and [x, y] where y is."""
    return page.evaluate(f"""() => {{
      const plot = document.querySelector('{figure}').plot, [xs, ...lines] = plot.data;
      return lines.map((ys, i) => [plot.series[i + 1], xs.map((x, k) => [x, ys[k]]).filter(([, y]) => y !== undefined)])
        .filter(([series]) => !series.edge).map(([series, points]) => [series.label, points]);
    }}""")  # noqa: E501


def names(page, figure):
    return [label for label, _ in curves(page, figure) if label != UNNAMED]


def test_memory_scrubs_through_time(open_page, ask, relrnn):
    page = open_page(f"#memory?run={relrnn}&step=20")
    trace = ask("memory", run=relrnn)
    for step in (20, 21):
        states = trace["layers"][0][step - 1]["states"]
        drawn = bars(page)
        assert sorted(drawn) == [state for state, _, _ in states]
        largest = max(weight for _, weight, _ in states)
        heights = {state: 164 * weight / largest for state, weight, _ in states}
        assert drawn == pytest.approx(heights, abs=0.1), "bars are as high as weights are large"
        assert f"Step {step}:" in page.locator("#panel-memory").inner_text()
        page.get_by_label("step", exact=True).focus()
        page.keyboard.press("ArrowRight")
        settled(page)
    assert "step=22" in state(page)
    signs = page.locator("#memory-moment [data-sign='▼']").count()
    assert signs == 1, "one state arrives"
    fills = page.eval_on_selector_all(
        "#memory-moment rect[data-state]", "all => all.map(e => e.getAttribute('fill'))"
    )
    window = trace["window"]
    here = trace["layers"][0][21]["states"]
    assert len(set(fills[-window:])) == 1
    assert fills[0] != fills[-1] or here[0][0] > 22 - window


def test_a_click_on_the_map_goes_to_its_step(open_page, relrnn):
    page = open_page(f"#memory?run={relrnn}&step=5")
    assert page.locator("#memory-map svg [data-bar]").count() == 1, "what a colour means is shown"
    words = page.eval_on_selector_all("#memory-map svg text", "all => all.map(e => e.textContent)")
    assert {"weight", "0"} <= set(words)
    box = page.locator("#memory-map svg").bounding_box()
    page.locator("#memory-map svg").click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    settled(page)
    step = int(state(page).split("step=")[1])
    assert 12 <= step <= 20
    mark = page.locator("#memory-map [data-now]").get_attribute("y")
    assert float(mark) == pytest.approx(box["height"] / 2, abs=20)


def test_sliders_redraw_the_laws(open_page, ask):
    page = open_page("#gradients")
    before = dict(curves(page, "#gradients-law"))["λ = 0.25, law"]
    slide(page, "Re λ1", 0.6)
    slide(page, "window", 4)
    settled(page)
    assert "eigenvalues=0.6%2C-0.5" in state(page)
    assert "window=4" in state(page)
    assert dict(curves(page, "#gradients-law"))["λ = 0.6, law"] != before
    says = ask("reach", eigenvalues="0.6,-0.5", window=4)["summary"]
    assert says in page.locator("#panel-gradients").inner_text()
    slide(page, "from h_t, t", 16)
    settled(page)
    assert "From h_16 to s_16: 0 recurrent steps" in page.locator("#panel-gradients").inner_text()
    page.get_by_role("button", name="add an eigenvalue").click()
    settled(page)
    assert page.get_by_label("Im λ3", exact=True).count() == 1
    assert sum(name.endswith(", law") for name in names(page, "#gradients-law")) == 3


def test_the_small_example_shows_hops_and_steps(open_page):
    page = open_page("#gradients?small=16&start=4&near=3&far=2")
    assert page.locator("#gradients-path [data-way='step']").count() == 5, "h₄ → s₄, and four s → h"
    assert page.locator("#gradients-path [data-way='hop']").count() == 4


def test_a_run_shows_its_norms(open_page, ask):
    key = next(run["key"] for run in ask("norms/runs") if run["key"].startswith("table5"))
    page = open_page("#gradients")
    page.locator("#panel-gradients select").last.select_option(key)
    settled(page)
    assert names(page, "#gradients-run") == ["update 0", "update 300"]
    points = dict(curves(page, "#gradients-run"))["update 0"]
    assert [y is None for _, y in points] == [False, True, False], "a norm of zero leaves a gap"


def test_a_budget_and_a_config_give_advice(open_page, tmp_path):
    page = open_page("#plane")
    assert page.locator("#plane-figure").get_attribute("data-shape") == "42x1600"
    page.get_by_label("budget (parameters)").fill("125M")
    page.keyboard.press("Enter")
    settled(page)
    assert "budget=125M" in state(page)
    assert page.locator("#plane-figure").get_attribute("data-shape") != "42x1600"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2))
    page.get_by_label("a config.json", exact=True).set_input_files(path)
    settled(page)
    assert page.locator("#plane-figure").get_attribute("data-shape") == "48x1600"
    assert "too deep" in page.locator("#panel-plane").inner_text()
    assert "Counted from the file (gpt2)" in page.locator("#panel-plane").inner_text()
    again = open_page(state(page))
    assert again.locator("#plane-figure").get_attribute("data-shape") == "48x1600", "the address has it"


def test_an_invalid_config_is_reported_on_the_page(open_page, tmp_path):
    page = open_page("#plane")
    path = tmp_path / "config.json"
    path.write_text("nothing")
    page.get_by_label("a config.json", exact=True).set_input_files(path)
    settled(page)
    assert "config.json: is not JSON" in page.locator("#panel-plane .error").inner_text()
    assert page.locator("#plane-figure").get_attribute("data-shape") == ""


def test_runs_stand_beside_what_was_published(open_page):
    page = open_page("#runs")
    assert "published: 100.0%" in page.locator("#panel-runs").inner_text()
    assert names(page, "#runs-curves") == ["RelRNN", "LSTM"]
    levels = [points for label, points in curves(page, "#runs-curves") if label == UNNAMED]
    assert [ys for _, ys in levels[0]] == [1.0, 1.0], "the published value of the first"
    page.locator("#panel-runs .legend button", has_text="LSTM").click()
    assert names(page, "#runs-curves") == ["RelRNN"]
    assert "hide=LSTM" in state(page)
    page.locator("#panel-runs .views >> text=seconds").click()
    assert names(page, "#runs-curves") == ["RelRNN"]
    again = open_page(state(page))
    assert names(again, "#runs-curves") == ["RelRNN"]
    assert again.locator("#panel-runs .views [aria-pressed=true]").inner_text() == "seconds"


FIGURES = [
    ("memory", "memory-moment"),
    ("memory", "memory-map"),
    ("gradients", "gradients-law"),
    ("gradients", "gradients-reach"),
    ("gradients", "gradients-path"),
    ("gradients", "gradients-run"),
    ("plane", "plane-figure"),
    ("runs", "runs-curves"),
    ("runs", "beside-1"),
]


@pytest.mark.parametrize(("tab", "name"), FIGURES)
def test_every_figure_can_be_kept(open_page, tab, name):
    page = open_page(f"#{tab}")
    shown = page.locator(f"#panel-{tab} figure").evaluate_all(
        "all => all.filter(e => !e.hidden).map(e => e.id)"
    )
    shown = [one for one in shown if not one.startswith("beside-") or one == "beside-1"]  # these are alike
    assert shown == [figure for home, figure in FIGURES if home == tab], "none is left out here"
    for kind, begins in (("png", b"\x89PNG"), ("svg", (b"<svg", b"<?xml")), ("csv", b"")):
        with page.expect_download() as waiting:
            page.locator(f"#{name}").get_by_role("button", name=f"as {kind.upper()}").click()
        content = waiting.value.path().read_bytes()
        assert waiting.value.suggested_filename == f"{name}.{kind}"
        assert content.startswith(begins)
        if kind == "csv":
            rows = list(csv.reader(content.decode().splitlines()))
            assert len(rows) > 2
            assert len({len(row) for row in rows if row[0] != rows[-1][0]}) <= 2
        if kind == "svg":
            assert b"var(" not in content
            assert b'xmlns="http://www.w3.org/2000/svg"' in content
            assert b"<text" in content, "letters stay letters"


@pytest.mark.parametrize(("tab", "name"), [("plane", "plane-figure"), ("memory", "memory-moment")])
def test_a_saved_picture_has_ink(open_page, tab, name):
    page = open_page(f"#{tab}")
    with page.expect_download() as waiting:
        page.locator(f"#{name}").get_by_role("button", name="as PNG").click()
    image = pytest.importorskip("matplotlib.image").imread(waiting.value.path())
    assert image.shape[1] > 900
    assert image[..., :3].std() > 0.03


def test_a_saved_chart_shows_what_the_page_shows(open_page):
    page = open_page("#runs?hide=LSTM")
    with page.expect_download() as waiting:
        page.locator("#runs-curves").get_by_role("button", name="as SVG").click()
    picture = waiting.value.path().read_text()
    assert ">RelRNN<" in picture
    assert ">LSTM<" not in picture, "its legend entry is off"
    assert ">held-out accuracy (%)<" in picture


def test_charts_fit_paper_and_are_dark_on_light(open_page):
    page = open_page("#runs", color_scheme="dark")
    ink = "document.querySelector('#runs-curves').plot.axes[0].stroke()"
    assert page.evaluate(ink) == "#b0b4ba"
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 with its margins
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(300)
    assert page.evaluate(ink) == "#60646c"
    widths = page.eval_on_selector_all(".uplot", "all => all.map(e => e.getBoundingClientRect().right)")
    assert len(widths) >= 3
    assert max(widths) <= 718


def test_tabs_by_keyboard(open_page):
    page = open_page()
    assert state(page).startswith("#memory")
    page.locator("#tab-memory").focus()
    for tab in ("gradients", "plane", "runs", "memory"):
        page.keyboard.press("ArrowRight")
        settled(page)
        assert state(page).startswith(f"#{tab}")
        assert page.locator(f"#tab-{tab}").get_attribute("aria-selected") == "true"
        assert page.evaluate("document.activeElement.id") == f"tab-{tab}"
        assert [one for one in TABS if page.locator(f"[role=tabpanel]#panel-{one}").is_visible()] == [tab]
    page.go_back()
    settled(page)
    assert state(page).startswith("#runs")
    assert page.locator("[role=tabpanel]#panel-runs").is_visible()


def test_every_control_has_a_name(open_page):
    page = open_page()
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        settled(page)
        for control in page.locator(f"#panel-{tab} :is(input, select, button)").all():
            named = control.evaluate(
                "e => (e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || '').trim()"
            )
            assert named, control.evaluate("e => e.outerHTML")


def test_a_phone_scrolls_up_and_down_only(open_page):
    page = open_page("#runs", width=400, has_touch=True, is_mobile=True)
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        settled(page)
        page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        boxes = page.eval_on_selector_all(
            f"#panel-{tab} :is(svg, canvas, input, select, button)",
            """all => all.filter(e => e.checkVisibility() && !e.closest('.wide')).map(e => {
              const { left, right } = e.getBoundingClientRect();
              return [left, right, e.outerHTML.slice(0, 80)];
            })""",
        )
        assert len(boxes) > 4
        assert [box for box in boxes if box[0] < 0 or box[1] > 400] == []


def test_dark_is_dark_and_drawings_follow(open_page):
    page = open_page("#plane", color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    letters = "document.querySelector('#plane-figure').plot.axes[0].stroke()"
    dark = page.evaluate(ground), page.evaluate(letters)
    assert dark[0] == "rgb(17, 17, 19)"
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(200)
    light = page.evaluate(ground), page.evaluate(letters)
    assert light[0] == "rgb(252, 252, 253)"
    assert dark[1] != light[1]


def test_without_runs_memory_opens_on_an_example(open_page, serve_folder, tmp_path):
    with serve_folder(tmp_path) as empty:
        page = open_page("", at=empty)
        assert page.locator("#memory-moment svg").count() == page.locator("#memory-map svg").count() == 1
        said = page.locator("#panel-memory").inner_text()
        assert "An example: relrnn on copy delay 20" in said
        assert "plait train copy --delay 20" in said
        assert page.locator("#panel-memory .error").count() == 0
        assert page.get_by_label("step", exact=True).input_value() == "35"


def test_something_is_seen_before_anything_is_answered(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.route("**/api/**", lambda route: None)  # nobody answers
    page.goto(address)
    page.wait_for_timeout(200)
    assert page.locator("h2:visible").all_inner_texts() == ["Contents of a trained memory"]
    assert "The past states" in page.locator("#panel-memory").inner_text()
    context.close()


def test_a_run_that_cannot_be_shown_gives_way(open_page, serve_folder, tmp_path, bench_at):
    folder = bench_at(tmp_path).run("runs", "relrnn")
    (folder / "checkpoint.safetensors").write_bytes(b"no weights")
    with serve_folder(tmp_path / "runs") as here:
        page = open_page("#memory", at=here)
        assert page.locator("#memory-moment svg").count() == 1
        assert "An example" in page.locator("#panel-memory").inner_text()


def test_the_pointer_names_the_update_it_shows(open_page, ask):
    page = open_page("#runs")
    box = page.locator("#runs-curves .u-over").bounding_box()
    at = "update => document.querySelector('#runs-curves').plot.valToPos(update, 'x')"
    page.mouse.move(box["x"] + page.evaluate(at, 188), box["y"] + 100)
    assert page.locator("#runs-curves .read").inner_text() == "200 updates: RelRNN 60%; LSTM 13%"
    rule = page.locator("#runs-curves .rule").bounding_box()
    assert rule["x"] - box["x"] == pytest.approx(page.evaluate(at, 200), abs=1), "the line stands there"
    page.mouse.move(box["x"] + 100, box["y"] - 100)
    assert page.locator("#runs-curves .read").inner_text() == ""
    assert page.locator("#runs-curves .rule").is_hidden()


def test_the_pointer_names_a_model(open_page):
    page = open_page("#plane")
    box = page.locator("#plane-figure .u-over").bounding_box()
    at = "(plot => [plot.valToPos(96, 'x'), plot.valToPos(12288, 'y')])(document.querySelector('#plane-figure').plot)"  # noqa: E501
    left, top = page.evaluate(at)
    page.mouse.move(box["x"] + left + 3, box["y"] + top - 3)
    said = page.locator("#plane-figure .read").inner_text()
    assert said == "GPT-3 175B: 96 layers, width 12,288"


def test_seeds_are_a_band_or_a_line_each(open_page, serve_folder, tmp_path, bench_at):
    bench = bench_at(tmp_path)
    for seed, scores in enumerate([(0.2, 0.6, 1.0), (0.1, 0.5, 0.9)]):
        bench.run("runs", "relrnn", seed=seed, scores=scores)
    with serve_folder(tmp_path / "runs") as here:
        page = open_page("#runs", at=here)
        assert names(page, "#runs-curves") == ["relrnn"]
        assert page.evaluate("document.querySelector('#runs-curves').plot.bands.length") == 1
        box = page.locator("#runs-curves .u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
        assert page.locator("#runs-curves .read").inner_text() == "200 updates: relrnn 55% (50%–60%)"
        page.get_by_role("button", name="each seed").click()
        assert names(page, "#runs-curves") == ["relrnn", "relrnn"]
        assert "each=1" in state(page)


def test_two_runs_are_compared(open_page, ask):
    lstm, relrnn = sorted(run["key"] for run in ask("runs")["runs"] if run["key"].startswith("table5"))
    page = open_page("#runs")
    page.get_by_label("run", exact=True).select_option(lstm)
    page.get_by_label("beside", exact=True).select_option(relrnn)
    settled(page)
    assert f"first={lstm.replace('/', '%2F')}" in state(page)
    assert names(page, "#beside-0") == ["lstm", "relrnn"]
    assert names(page, "#beside-1") == ["relrnn − lstm"]
    said = page.locator("#beside").inner_text()
    assert said.count("plait train --config ") == 2
    again = open_page(state(page))
    assert names(again, "#beside-1") == ["relrnn − lstm"]
    again.get_by_label("beside", exact=True).select_option("-")
    settled(again)
    assert names(again, "#beside-0") == ["lstm"], "a run alone has its page too"
    assert again.locator("#beside pre").count() == 1


def test_the_tabs_stay_in_a_row_on_a_phone(open_page):
    page = open_page("#memory", width=400)
    boxes = [tab.bounding_box() for tab in page.locator("[role=tab]").all()]
    assert len({box["y"] for box in boxes}) == 1
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 400


def test_without_runs_two_tabs_work_and_one_says_why(open_page, serve_folder, tmp_path):
    with serve_folder(tmp_path) as empty:
        page = open_page("#memory", at=empty)
        page.locator("#tab-runs").click()
        settled(page)
        assert "no runs in" in page.locator("#panel-runs .error").inner_text()
        page.locator("#tab-gradients").click()
        settled(page)
        assert page.locator("#gradients-law canvas").count() == 1
        page.locator("#tab-plane").click()
        settled(page)
        assert page.locator("#plane-figure").get_attribute("data-shape") == "42x1600"


def test_an_address_with_a_fault_is_answered_on_the_page(open_page):
    page = open_page("#memory?run=nothing&sample=1")
    assert "no run 'nothing'" in page.locator("#panel-memory .error").inner_text()
    page = open_page("#gradients?eigenvalues=0.25&window=0")
    assert "window: expected a number from 1" in page.locator("#panel-gradients .error").first.inner_text()
