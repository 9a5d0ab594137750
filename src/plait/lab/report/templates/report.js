// Draws the plots of a report from the JSON in the page. A figure is built when it scrolls into view.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (tag, className, textContent = "") => Object.assign(document.createElement(tag), { className, textContent });
  const shortNumber = (value) => {
    const size = Math.abs(value);
    if (size === 0 || (size >= 1e-3 && size < 1e6)) return String(+value.toPrecision(4));
    return value.toExponential(+value.toPrecision(1) === value ? 0 : 1);
  };
  const percent = (value) => `${+(100 * value).toFixed(1)}%`;
  const ticks = (show) => (u, values) => values.map((value) => value === null ? "" : show(value));
  const HEIGHT = 280, STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]; // steps of a sequence are whole numbers

  function button(bar, text, pressed, onClick) {
    const made = element("button", "", text);
    made.type = "button";
    if (pressed !== null) made.setAttribute("aria-pressed", pressed);
    made.addEventListener("click", () => onClick(made));
    bar.append(made);
    return made;
  }

  // An axis in the page's colours, `size` pixels wide or high without its label.
  function axis(label, size, values) {
    const grid = { stroke: style("--line"), width: 1 }, font = "12px system-ui, sans-serif";
    return { label, values, size, stroke: style("--quiet"), grid, ticks: grid, labelSize: 20, font, labelFont: font };
  }

  // Zoom and pan by touch: uPlot itself knows only the mouse. Vertical moves scroll the page.
  function touch(u) {
    const fingers = new Map();
    const span = () => {
      const xs = [...fingers.values()];
      const middle = xs.reduce((a, b) => a + b) / xs.length;
      return { middle, width: Math.max(30, Math.max(...xs) - Math.min(...xs)), many: xs.length > 1 };
    };
    const forget = (event) => fingers.delete(event.pointerId);
    u.over.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") fingers.set(event.pointerId, event.offsetX);
    });
    u.over.addEventListener("pointerup", forget);
    u.over.addEventListener("pointercancel", forget);
    u.over.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = span();
      fingers.set(event.pointerId, event.offsetX);
      const after = span(), { min, max } = u.scales.x, width = u.over.clientWidth;
      const factor = before.many ? before.width / after.width : 1;
      const anchor = min + (max - min) * before.middle / width;
      const low = anchor - (max - min) * factor * after.middle / width;
      u.setScale("x", { min: low, max: low + (max - min) * factor });
    });
  }

  function zoomButtons(figure, bar, whole) {
    const zoom = (factor) => {
      const { min, max } = figure.plot.scales.x, middle = (min + max) / 2, half = (max - min) * factor / 2;
      figure.plot.setScale("x", { min: middle - half, max: middle + half });
    };
    button(bar, "+", null, () => zoom(0.5)).ariaLabel = "zoom in";
    button(bar, "−", null, () => zoom(2)).ariaLabel = "zoom out";
    button(bar, "whole", null, whole);
  }

  // The index of a line's point nearest to x; -1 before its first and after its last.
  function nearest(xs, x) {
    const slack = (xs[xs.length - 1] - xs[0]) / 100;
    if (!xs.length || x < xs[0] - slack || x > xs[xs.length - 1] + slack) return -1;
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return x - xs[low] <= xs[high] - x ? low : high;
  }

  // The points of every line in one view, without missing values: one line per name, with `low` and `high`
  // around the mean of its seeds, or one line per seed.
  function points(plot, view, each) {
    const found = [], together = new Map(each ? [] : (view.together ?? []).map((one) => [one.name, one]));
    for (const line of plot.lines) {
      const { name, color } = line, mine = together.get(name);
      if (mine) {
        if (!found.some((one) => one.name === name)) found.push({ name, color, seeds: mine.count, xs: mine.x, ys: mine.mean, low: mine.low, high: mine.high });
        continue;
      }
      const x = line.columns[view.x] ?? [], y = line.columns[view.y] ?? [];
      const there = x.map((_, i) => i).filter((i) => x[i] !== null && (y[i] ?? null) !== null);
      if (there.length) found.push({ name, color, seeds: 1, xs: there.map((i) => x[i]), ys: there.map((i) => y[i]) });
    }
    return found;
  }

  const parts = (figure) => [".views", ".plot", ".legend"].map((name) => figure.querySelector(name));

  function drawCurves(figure, plot) {
    const [views, box, legend] = parts(figure);
    const hidden = new Set(), under = element("p", "value under");
    let view = plot.views[0], each = false, lines, entries;

    // The x of the point under the pointer, and the value of every line there.
    function show(values, x) {
      const seen = x === null ? [] : lines.filter((line) => !hidden.has(line.name)).map((line) => [line, nearest(line.xs, x)]).filter(([, i]) => i >= 0);
      const at = seen.map(([line, i]) => line.xs[i]).reduce((best, one) => Math.abs(one - x) < Math.abs(best - x) ? one : best, Infinity);
      under.textContent = seen.length ? `${shortNumber(at)} ${view.x_label}` : "";
      for (const [name, entry] of entries) {
        const words = seen.filter(([line]) => line.name === name).map(([line]) => {
          const i = nearest(line.xs, at), range = line.low ? ` (${values(line.low[i])}–${values(line.high[i])})` : "";
          return i < 0 ? "" : values(line.ys[i]) + range + (line.xs[i] === at ? "" : ` at ${shortNumber(line.xs[i])}`);
        });
        entry.value.textContent = words.filter(Boolean).join(", ");
      }
    }

    function build() {
      figure.plot?.destroy();
      lines = points(plot, view, each);
      const values = view.percent ? percent : shortNumber;
      const series = [], bands = [], columns = [];
      const put = (line, ys, look) => {
        columns.push([line.xs, ys]);
        return series.push({ label: line.name, spanGaps: true, show: !hidden.has(line.name), points: { show: false }, ...look });
      };
      for (const line of lines) {
        const stroke = style(`--c${line.color % 10}`);
        put(line, line.ys, { stroke, width: 1.6, dash: line.color >= 10 ? [6, 3] : undefined, points: { show: line.xs.length < 3 } });
        if (line.low) bands.push({ series: [put(line, line.high, { edge: true }), put(line, line.low, { edge: true })], fill: `${stroke}33` });
      }
      const shares = { range: { min: { soft: 0, mode: 1 }, max: { pad: 0.02, soft: 1, mode: 1 } } }; // always show 0 to 1
      const y = view.log ? { distr: 3 } : view.percent ? shares : {};
      const options = {
        width: box.clientWidth, height: HEIGHT, legend: { show: false },
        scales: { x: { time: false }, y },
        axes: [axis(view.x_label, 30, ticks(shortNumber)), axis(view.y_label, view.log ? 60 : 50, ticks(values))],
        cursor: { drag: { x: true, y: true, uni: 30 }, points: { show: false } },
        series: [{}, ...series], bands,
        hooks: { setCursor: [(u) => show(values, u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] },
      };
      figure.plot = new uPlot(options, uPlot.join(columns), box);
      touch(figure.plot);
      names();
    }

    function names() {
      legend.replaceChildren();
      under.textContent = "";
      entries = new Map();
      for (const line of lines) {
        if (entries.has(line.name)) continue;
        const made = button(legend, "", !hidden.has(line.name), () => toggle(line.name));
        const swatch = element("span", "swatch"), value = element("span", "value");
        swatch.style.backgroundColor = style(`--c${line.color % 10}`);
        if (line.color >= 10) swatch.classList.add("dashed");
        const seeds = lines.filter((other) => other.name === line.name).reduce((sum, other) => sum + other.seeds, 0);
        made.append(swatch, element("span", "name", line.name), seeds > 1 ? ` ×${seeds}` : "", value);
        entries.set(line.name, { made, value });
      }
    }

    function toggle(name) {
      hidden.has(name) ? hidden.delete(name) : hidden.add(name);
      figure.plot.series.forEach((one, place) => {
        if (place && one.label === name) figure.plot.setSeries(place, { show: !hidden.has(name) });
      });
      entries.get(name).made.setAttribute("aria-pressed", !hidden.has(name));
    }

    for (const one of plot.views) {
      button(views, one.name, one === view, (pressed) => {
        view = one;
        views.querySelectorAll("[data-view]").forEach((other) => other.setAttribute("aria-pressed", other === pressed));
        build();
      }).dataset.view = one.name;
    }
    if (plot.views.some((one) => one.together?.length)) {
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

  const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
  function rampColor(share) {
    const at = Math.min(0.999, Math.max(0, share)) * (RAMP.length - 1), low = Math.floor(at), part = at - low;
    return `rgb(${RAMP[low].map((value, i) => Math.round(value + part * (RAMP[low + 1][i] - value))).join(",")})`;
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
          ctx.fillStyle = rampColor(row[i + 1] / largest);
          ctx.fillRect(left, top, width, height);
        }
      });
      ctx.restore();
    }

    function read(u) {
      const block = (key, at) => Math.floor((u.posToVal(at, key) - 0.5) / map.block);
      const t = block("y", u.cursor.top), j = block("x", u.cursor.left), row = map.rows[t] ?? [];
      const place = row.findIndex((value, i) => i % 2 === 0 && value === j);
      const last = (n) => Math.min(map.steps, (n + 1) * map.block);
      const steps = (n) => map.block > 1 ? `${n * map.block + 1}–${last(n)}` : n + 1;
      const there = u.cursor.left >= 0 && place >= 0;
      readout.textContent = there ? `step ${steps(t)} gives state ${steps(j)} ${row[place + 1] / 1000}` : "";
    }

    function build() {
      figure.plot?.destroy();
      const whole = { min: 0.5, max: side * map.block + 0.5 };
      const bare = (one) => ({ ...one, grid: { show: false }, incrs: STEPS });
      const options = {
        width: box.clientWidth, height: Math.min(box.clientWidth, 420), legend: { show: false },
        scales: { x: { time: false }, y: { dir: -1 } },
        axes: [bare(axis("attended state (step of its creation)", 30)), bare(axis("attending step", 50))],
        cursor: { drag: { x: true, y: true, uni: 30 }, points: { show: false } },
        series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
        hooks: { drawAxes: [paint], setCursor: [read] },
      };
      const steps = Array.from({ length: side }, (_, n) => n * map.block + 1);
      figure.plot = new uPlot(options, [steps, steps], box);
      for (const key of ["x", "y"]) figure.plot.setScale(key, whole);
      touch(figure.plot);
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
  const sight = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
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
