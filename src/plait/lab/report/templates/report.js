// Draws the plots of a report from the JSON in the page. A figure is built when it scrolls into view.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const element = (tag, className, textContent = "") => Object.assign(document.createElement(tag), { className, textContent });
  const HEIGHT = 280, STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]; // steps of a sequence are whole numbers

  function button(bar, text, pressed, onClick) {
    const node = element("button", "", text);
    node.type = "button";
    if (pressed !== null) node.setAttribute("aria-pressed", pressed);
    node.addEventListener("click", () => onClick(node));
    bar.append(node);
    return node;
  }

  function zoomButtons(figure, bar, redraw) {
    button(bar, "+", null, () => charts.zoom(figure.plot, 0.5)).ariaLabel = "zoom in";
    button(bar, "−", null, () => charts.zoom(figure.plot, 2)).ariaLabel = "zoom out";
    button(bar, "whole", null, redraw);
  }

  const parts = (figure) => [".views", ".plot", ".legend"].map((name) => figure.querySelector(name));

  function drawCurves(figure, plot) {
    const [views, box, legend] = parts(figure);
    const hidden = new Set(), under = element("p", "value under");
    let view = plot.views[0], each = false, curves, entries;

    // The x of the point under the pointer, and the value of every curve there.
    function read(x) {
      const visible = curves.filter((curve) => !hidden.has(curve.label));
      const { at, values } = x === null ? { at: null, values: [] } : charts.valuesNear(visible, x, kind());
      under.textContent = values.length ? `${charts.short(at)} ${view.x_label}` : "";
      for (const [name, { value }] of entries) value.textContent = values.filter(({ label }) => label === name).map(({ text }) => text).join(", ");
      return at;
    }
    const kind = () => view.log ? "log" : view.percent ? "percent" : "linear";

    function build() {
      figure.plot?.destroy();
      curves = charts.curvesOf(plot, view, each);
      writeLegend();
      const axes = { x: { label: view.x_label, kind: "linear" }, y: { label: view.y_label, kind: kind() } };
      figure.plot = charts.draw(box, { ...axes, curves, bands: charts.bandsOf(curves) }, { width: box.clientWidth, height: HEIGHT, read, hidden });
    }

    function writeLegend() {
      legend.replaceChildren();
      under.textContent = "";
      entries = new Map();
      for (const { label, color } of curves) {
        if (entries.has(label)) continue;
        const node = button(legend, "", !hidden.has(label), () => toggle(label));
        const swatch = element("span", "swatch"), value = element("span", "value");
        swatch.style.backgroundColor = charts.hue(color);
        if (color >= 10) swatch.classList.add("dashed");
        const seeds = curves.filter((other) => other.label === label).reduce((sum, other) => sum + other.seeds, 0);
        node.append(swatch, element("span", "name", label), seeds > 1 ? ` ×${seeds}` : "", value);
        entries.set(label, { node, value });
      }
    }

    function toggle(name) {
      hidden.has(name) ? hidden.delete(name) : hidden.add(name);
      figure.plot.series.forEach((series, index) => {
        if (index && series.label === name) figure.plot.setSeries(index, { show: !hidden.has(name) });
      });
      entries.get(name).node.setAttribute("aria-pressed", !hidden.has(name));
    }

    for (const choice of plot.views) {
      button(views, choice.name, choice === view, (pressed) => {
        view = choice;
        views.querySelectorAll("[data-view]").forEach((other) => other.setAttribute("aria-pressed", other === pressed));
        build();
      }).dataset.view = choice.name;
    }
    if (plot.views.some((choice) => choice.together?.length)) {
      button(views, "each seed", each, (pressed) => {
        each = !each;
        pressed.setAttribute("aria-pressed", each);
        build();
      });
    }
    zoomButtons(figure, views, build);
    legend.before(under);
    build();
    return build;
  }

  // A matrix of blocks over time: row by row [column, thousandths, column, thousandths, …], blank where there is no state.
  function drawMap(figure, map) {
    const [views, box, legend] = parts(figure);
    const weights = map.rows.map((row) => row.filter((_, i) => i % 2)), side = map.rows.length;
    const largest = Math.max(1, ...weights.map((row) => Math.max(0, ...row)));
    const readout = element("span", "value", "");

    function paint(u) {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const edge = (key, block) => Math.round(u.valToPos(block * map.block + 0.5, key, true));
      map.rows.forEach((row, t) => {
        const top = edge("y", t), height = Math.max(1, edge("y", t + 1) - top);
        for (let i = 0; i < row.length; i += 2) {
          const left = edge("x", row[i]), width = Math.max(1, edge("x", row[i] + 1) - left);
          ctx.fillStyle = `rgb(${charts.ramp(row[i + 1] / largest)})`;
          ctx.fillRect(left, top, width, height);
        }
      });
      ctx.restore();
    }

    function read(u) {
      const block = (key, at) => Math.floor((u.posToVal(at, key) - 0.5) / map.block);
      const t = block("y", u.cursor.top), j = block("x", u.cursor.left), row = map.rows[t] ?? [];
      const index = row.findIndex((value, i) => i % 2 === 0 && value === j);
      const last = (n) => Math.min(map.steps, (n + 1) * map.block);
      const steps = (n) => map.block > 1 ? `${n * map.block + 1}–${last(n)}` : n + 1;
      const there = u.cursor.left >= 0 && index >= 0;
      readout.textContent = there ? `step ${steps(t)} gives state ${steps(j)} ${row[index + 1] / 1000}` : "";
    }

    function build() {
      figure.plot?.destroy();
      const whole = { min: 0.5, max: side * map.block + 0.5 };
      const bare = (axis) => ({ ...axis, grid: { show: false }, incrs: STEPS });
      const options = {
        width: box.clientWidth, height: Math.min(box.clientWidth, 420), legend: { show: false },
        scales: { x: { time: false }, y: { dir: -1 } },
        axes: [bare(charts.axis("attended state (step of its creation)", 30)), bare(charts.axis("attending step", 50))],
        cursor: { drag: { x: true, y: true, uni: 30 }, points: { show: false } },
        series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
        hooks: { drawAxes: [paint], setCursor: [read] },
      };
      const steps = Array.from({ length: side }, (_, n) => n * map.block + 1);
      figure.plot = new uPlot(options, [steps, steps], box);
      for (const key of ["x", "y"]) figure.plot.setScale(key, whole);
      charts.touch(figure.plot);
    }

    zoomButtons(figure, views, build);
    const ramp = element("div", "ramp"), ends = element("div", "ends");
    ends.append(element("span", "", "weight 0"), element("span", "", largest / 1000));
    legend.before(ramp, ends);
    legend.append(readout);
    build();
    return build;
  }

  const built = new Map();
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting || built.has(target)) continue;
      target.dataset.drawn = ""; // hides the still picture
      const draw = target.dataset.kind === "map" ? drawMap : drawCurves;
      built.set(target, draw(target, data[target.id]));
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll("figure[data-kind]").forEach((figure) => sight.observe(figure));
  const again = () => built.forEach((build) => build());
  dark.addEventListener("change", again);
  let wait, width = innerWidth;
  addEventListener("resize", () => { // a phone's address bar that slides away changes only the height
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(wait);
    wait = setTimeout(again, 150);
  });
})();
