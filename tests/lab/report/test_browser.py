"""The page as a person meets it: opened from the disk, legends clicked, on a phone, in the dark."""

from __future__ import annotations

import pytest

from plait.lab.report.write import write_report

SCORES = {("relrnn", 0): (0.2, 0.6, 1.0), ("relrnn", 1): (0.1, 0.5, 0.9), ("lstm", 0): (0.12, 0.13, 0.3)}
NORMS = [{"update": 0, "norms": [[0.1, 0.2, 0.3]]}, {"update": 300, "norms": [[1e-6, 1e-3, 1.0]]}]
LAYER = {"born": [[0, -1], [0, 1], [1, 2]], "weights": [[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]]}
FIGURE = "#g0-table5-0-score"


@pytest.fixture(scope="module")
def address(bench_at, tmp_path_factory):
    bench = bench_at(tmp_path_factory.mktemp("page"))
    plan = [("T = 100", "RelRNN", "relrnn", 100, 1.0, ""), ("T = 100", "LSTM", "lstm", 100, 0.12, "")]
    folder = bench.experiment("table5", plan)
    for (model, seed), scores in SCORES.items():
        trace = {"inputs": [], "targets": [], "layers": [LAYER]} if model == "relrnn" else None
        bench.run("table5", model, seed=seed, scores=scores, gradients=NORMS, trace=trace)
    (path,) = write_report(folder, bench.root / "report.html").files
    return path.as_uri()


@pytest.fixture
def open_page(browser, address):
    """Opens the page; at the end, nothing may have been complained of or asked for."""
    complaints, requests, contexts = [], [], []

    def opened(width=1200, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        # Reading pixels back, as these tests do, is warned of: only errors count.
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        for figure in page.locator("figure[data-kind]").all():
            figure.scroll_into_view_if_needed()
            page.wait_for_function("element => element.plot", arg=figure.element_handle())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(requests) == {address}, "nothing but the page itself is asked for"


def shown(page, figure=FIGURE):
    """Names of the series that are shown, as uPlot itself has them."""
    series = f"document.querySelector('{figure}').plot.series"
    return page.evaluate(f"{series}.slice(1).filter(s => s.show).map(s => s.label)")


def drawn(page, figure=FIGURE):
    """Every series' points as uPlot itself has them: [x, y] where y is."""
    return page.evaluate(f"""() => {{
      const plot = document.querySelector('{figure}').plot, [xs, ...lines] = plot.data;
      return lines.map(ys => xs.map((x, i) => [x, ys[i]]).filter(([, y]) => y != null));
    }}""")


def inked(page, figure=FIGURE):
    """How many pixels of the plot have the colour of each legend entry."""
    return page.evaluate(f"""() => {{
      const figure = document.querySelector('{figure}'), canvas = figure.querySelector('canvas');
      const {{ left, top, width, height }} = figure.plot.bbox;
      const pixels = canvas.getContext('2d').getImageData(left, top, width, height).data;
      return Object.fromEntries([...figure.querySelectorAll('.legend button')].map(button => {{
        const color = getComputedStyle(button.querySelector('.swatch')).backgroundColor.match(/\\d+/g).map(Number);
        let count = 0;
        for (let i = 0; i < pixels.length; i += 4)
          if (pixels[i + 3] > 200 && color.every((part, k) => Math.abs(part - pixels[i + k]) < 12)) count++;
        return [button.querySelector('.name').textContent, count];
      }}));
    }}""")  # noqa: E501


def point_at(page, update, figure=FIGURE):
    """Move the pointer to an update, and read what the legend says of it."""
    box = page.locator(f"{figure} .u-over").bounding_box()
    left = page.evaluate(f"document.querySelector('{figure}').plot.valToPos({update}, 'x')")
    page.mouse.move(box["x"] + left, box["y"] + box["height"] / 2)
    page.wait_for_timeout(50)
    entries = page.locator(f"{figure} .legend button").all()
    return {e.locator(".name").inner_text(): e.locator(".value").inner_text() for e in entries}


def test_what_is_drawn_is_what_was_measured(open_page):
    page = open_page()
    mean, high, low = (0.15, 0.55, 0.95), (0.2, 0.6, 1.0), (0.1, 0.5, 0.9)
    assert shown(page) == ["RelRNN", "RelRNN", "RelRNN", "LSTM"], "a band and its mean, and a single seed"
    together = [[[100 * (i + 1), y] for i, y in enumerate(ys)] for ys in (high, low, mean)]
    assert drawn(page)[:3] == together
    page.click(f"{FIGURE} .views >> text=each seed")
    assert shown(page) == ["RelRNN", "RelRNN", "LSTM"]
    assert drawn(page) == [[[100 * (i + 1), y] for i, y in enumerate(ys)] for ys in SCORES.values()]
    page.click(f"{FIGURE} .views >> text=seconds")
    assert page.locator(f"{FIGURE} .views >> text=each seed").get_attribute("aria-pressed") == "true"
    assert drawn(page) == [[[2 * (i + 1), y] for i, y in enumerate(ys)] for ys in SCORES.values()]


def test_a_legend_entry_hides_and_shows_its_lines(open_page):
    page = open_page()
    before = inked(page)
    assert min(before.values()) > 100
    button = page.locator(f"{FIGURE} .legend button", has_text="RelRNN")
    button.click()
    page.wait_for_timeout(100)
    assert shown(page) == ["LSTM"]
    assert button.get_attribute("aria-pressed") == "false"
    after = inked(page)
    assert after["RelRNN"] == 0
    assert after["LSTM"] > 100
    page.click(f"{FIGURE} .views >> text=seconds")
    assert shown(page) == ["LSTM"], "another view of the same lines"
    page.locator(f"{FIGURE} .legend button", has_text="RelRNN").click()
    assert shown(page) == ["RelRNN", "RelRNN", "RelRNN", "LSTM"]


def test_the_pointer_reads_the_curves(open_page):
    page = open_page()
    page.locator(FIGURE).scroll_into_view_if_needed()
    under, frame = page.locator(f"{FIGURE} .under"), page.locator(f"{FIGURE} .u-over")
    before = frame.bounding_box()
    assert point_at(page, 203) == {"RelRNN": "55% (50%–60%)", "LSTM": "13%"}
    assert under.inner_text() == "200 updates", "what is told is of this update, wherever the pointer is"
    assert point_at(page, 290) == {"RelRNN": "95% (90%–100%)", "LSTM": "30%"}
    assert under.inner_text() == "300 updates"
    assert frame.bounding_box() == before, "nothing moves under the pointer"
    page.click(f"{FIGURE} .views >> text=each seed")
    assert point_at(page, 203) == {"RelRNN": "60%, 50%", "LSTM": "13%"}
    gradients = FIGURE.replace("score", "gradients")
    page.locator(gradients).scroll_into_view_if_needed()
    assert point_at(page, 1.9, gradients) == {"RelRNN": "1e-6 (1e-6–1e-6)", "LSTM": "1e-6"}
    assert page.locator(f"{gradients} .under").inner_text() == "2 steps before the last"


def test_a_drag_zooms_and_a_button_shows_all_again(open_page):
    page = open_page()
    page.locator(FIGURE).scroll_into_view_if_needed()
    scale = f"(({{min, max}}) => [min, max])(document.querySelector('{FIGURE}').plot.scales.x)"
    assert page.evaluate(scale) == [100, 300]
    box = page.locator(f"{FIGURE} .u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 3 / 4, middle, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert page.evaluate(scale) == pytest.approx([150, 250], abs=2)
    page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    page.wait_for_timeout(100)
    assert page.evaluate(scale) == [100, 300]
    page.click(f"{FIGURE} [aria-label='zoom in']")
    assert page.evaluate(scale) == [150, 250]
    page.click(f"{FIGURE} .views >> text=whole")
    assert page.evaluate(scale) == [100, 300]


def test_the_heat_map_shows_the_trace(open_page):
    page = open_page()
    figure = "#g0-table5-0-0-attention"
    page.locator(figure).scroll_into_view_if_needed()
    spot = f"(([x, y]) => {{ const u = document.querySelector('{figure}').plot; return [u.valToPos(x, 'x'), u.valToPos(y, 'y')]; }})"  # noqa: E501
    box = page.locator(f"{figure} .u-over").bounding_box()
    for (state, step), words in {
        (1, 2): "step 2 gives state 1 0.25",
        (2, 2): "step 2 gives state 2 0.75",
        (1, 3): "",
        (3, 3): "step 3 gives state 3 0.5",
    }.items():
        left, top = page.evaluate(f"{spot}([{state}, {step}])")
        page.mouse.move(box["x"] + left, box["y"] + top)
        page.wait_for_timeout(50)
        assert page.locator(f"{figure} .legend .value").inner_text() == words
    color = f"""([x, y]) => {{
      const u = document.querySelector('{figure}').plot;
      return [...u.ctx.getImageData(u.valToPos(x, 'x', true), u.valToPos(y, 'y', true), 1, 1).data];
    }}"""
    assert page.evaluate(color, [1, 1])[:3] == pytest.approx([253, 231, 37], abs=3), "weight 1: full yellow"
    assert page.evaluate(color, [1, 2])[:3] == pytest.approx([59, 82, 139], abs=3), "a quarter of the way"
    assert page.evaluate(color, [3, 1])[3] == 0, "a state that is not there is blank"


def test_a_phone_scrolls_up_and_down_only(open_page):
    page = open_page(width=400, has_touch=True, is_mobile=True)
    for details in page.locator("details summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    for canvas in page.locator("figure canvas").all():
        box = canvas.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 400
    for button in page.locator(f"{FIGURE} button").all():
        assert button.bounding_box()["height"] >= 28


def test_two_fingers_zoom_on_a_phone(open_page):
    page = open_page(width=400, has_touch=True, is_mobile=True)
    page.locator(FIGURE).scroll_into_view_if_needed()
    page.evaluate(f"""async () => {{
      const over = document.querySelector('{FIGURE} .u-over');
      const width = over.clientWidth, box = over.getBoundingClientRect();
      const moves = [
        ['pointerdown', 1, 0.4], ['pointerdown', 2, 0.6], ['pointermove', 1, 0.3], ['pointermove', 2, 0.7],
        ['pointerup', 1, 0.3], ['pointerup', 2, 0.7],
      ];
      for (const [type, pointerId, share] of moves) {{
        const at = {{ clientX: box.left + share * width, clientY: box.top + 50, bubbles: true }};
        over.dispatchEvent(new PointerEvent(type, {{ pointerType: 'touch', pointerId, ...at }}));
        await new Promise(requestAnimationFrame);
      }}
    }}""")
    page.wait_for_timeout(100)
    low, high = page.evaluate(f"(s => [s.min, s.max])(document.querySelector('{FIGURE}').plot.scales.x)")
    assert high - low == pytest.approx(100, rel=0.1)
    assert (low + high) / 2 == pytest.approx(200, abs=12)


def pictures(page):
    """For every figure whether its picture is seen, and whether its plot is."""
    return page.eval_on_selector_all(
        "figure[data-kind]",
        """all => all.map(figure => ['.still svg', '.live'].map(part => {
          const found = figure.querySelector(part);
          return found.checkVisibility() && found.getBoundingClientRect().height > 100;
        }))""",
    )


def test_without_a_script_every_chart_is_a_picture(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 900})
    page = context.new_page()
    page.goto(address)
    assert page.locator("figure[data-kind] .still svg path[stroke^='var(--c']").count() >= 6
    assert page.locator("figure[data-kind] .still svg image").count() == 1, "the map"
    boxes = [figure.bounding_box() for figure in page.locator(".still svg").all()]
    assert len(boxes) == page.locator("figure[data-kind]").count() == 4
    assert all(box["width"] > 300 and box["height"] > 150 for box in boxes)
    assert page.locator("text=Drag to zoom").is_hidden(), "there is nothing to drag"
    assert "RelRNN ×2" in page.locator(f"{FIGURE} .still").inner_text()
    context.close()


def test_on_paper_every_chart_is_a_picture_and_no_table_is_cut(open_page):
    page = open_page(color_scheme="dark")
    assert pictures(page) == [[False, True]] * 4, "on the screen the plots are alive"
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 with its margins
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(300)
    assert pictures(page) == [[True, False]] * 4
    page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
    wide = page.eval_on_selector_all(
        ".wide", "all => all.map(e => [e.scrollWidth, e.clientWidth]).filter(([all, seen]) => all > seen)"
    )
    assert wide == []
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 32, 36)", "ink is dark"
    stroke = page.locator(f"{FIGURE} .still path[stroke^='var(--c0']").first
    assert stroke.evaluate("e => getComputedStyle(e).stroke") == "rgb(31, 119, 180)", (
        "the tone for light paper"
    )


def test_a_chart_out_of_sight_is_its_picture_until_it_is_drawn(browser, address):
    context = browser.new_context(viewport={"width": 1200, "height": 200})
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(200)
    assert pictures(page)[-1] == [True, False]
    context.close()


def test_dark_is_dark_and_changes_with_the_system(open_page):
    page = open_page(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    stroke = f"document.querySelector('{FIGURE}').plot.series[3].stroke()"
    dark = page.evaluate(ground), page.evaluate(stroke)
    assert dark[0] == "rgb(17, 17, 19)"
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(200)
    light = page.evaluate(ground), page.evaluate(stroke)
    assert light[0] == "rgb(252, 252, 253)"
    assert dark[1] != light[1]
    assert min(inked(page).values()) > 100
