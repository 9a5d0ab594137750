// Charts of every page, drawn by uPlot. Reports hold this file inside them, the explorer loads it before its modules,
// so it is a plain script with one global name. A chart's curves and bands have the fields of plait.lab.figures.Curve
// and Band: the explorer's server draws the same data to a file.
"use strict";
const charts = (() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const hue = (index) => color(`c${index % 10}`); // indices from ten on repeat the colours with dashed lines
  const DASHES = { dashed: [6, 3], dotted: [2, 3] };

  function short(value) {
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e6) return String(value);
    if (size >= 1e-3 && size < 1e6) return String(+value.toPrecision(4));
    return value.toExponential(+value.toPrecision(1) === value ? 0 : 1);
  }
  const percent = (value) => `${+(100 * value).toFixed(1)}%`;
  const RAISED = { "-": "⁻", ".": "·", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const power = (value) => `10${[...String(+value.toFixed(1))].map((digit) => RAISED[digit]).join("")}`;
  // A `power` axis shows values that are base-10 logarithms already.
  const FORMATS = { linear: short, log: short, power, percent };
  const formatOf = (kind) => FORMATS[kind];
  const ticks = (show) => (u, values) => values.map((value) => value === null ? "" : show(value));

  const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
  function ramp(share) {
    const at = Math.min(0.999, Math.max(0, share)) * (RAMP.length - 1), low = Math.floor(at), part = at - low;
    return RAMP[low].map((value, i) => Math.round(value + part * (RAMP[low + 1][i] - value)));
  }

  // An axis in the page's colours, `size` pixels wide or high without its label.
  function axis(label, size, values) {
    const grid = { stroke: color("line"), width: 1 }, font = "12px system-ui, sans-serif";
    return { label, values, size, stroke: color("quiet"), grid, ticks: grid, labelSize: 20, font, labelFont: font };
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
      const after = span(), width = u.over.clientWidth;
      const factor = before.many ? before.width / after.width : 1;
      const end = (pixel) => u.posToVal(before.middle + (pixel - after.middle) * factor, "x");
      u.setScale("x", { min: end(0), max: end(width) });
    });
  }

  function zoom(u, factor) {
    const width = u.over.clientWidth, end = (side) => u.posToVal(width / 2 * (1 + side * factor), "x");
    u.setScale("x", { min: end(-1), max: end(1) });
  }

  // The index of the value of an ascending list that is nearest to x.
  function nearest(xs, x) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return x - xs[low] <= xs[high] - x ? low : high;
  }

  function reaches(xs, x) {
    const slack = (xs[xs.length - 1] - xs[0]) / 100;
    return xs.length > 0 && x >= xs[0] - slack && x <= xs[xs.length - 1] + slack;
  }

  // The values of curves near x: those of the nearest x that any of them has. A curve without a point there gives its
  // nearest one with its own x; a curve that has ended, or not begun, gives none.
  function valuesNear(curves, x, kind) {
    const show = formatOf(kind), alive = curves.filter((curve) => reaches(curve.x, x));
    const at = alive.map((curve) => curve.x[nearest(curve.x, x)]).reduce((best, value) => Math.abs(value - x) < Math.abs(best - x) ? value : best, Infinity);
    const values = alive.map((curve) => {
      const i = nearest(curve.x, at);
      if (curve.y[i] === null || !reaches(curve.x, at)) return null;
      const range = curve.low ? ` (${show(curve.low[i])}–${show(curve.high[i])})` : "";
      return { label: curve.label, text: show(curve.y[i]) + range + (curve.x[i] === at ? "" : ` at ${short(curve.x[i])}`) };
    });
    return { at, values: values.filter(Boolean) };
  }

  // The curves of a plot of runs in one of its views, without missing values: one per name, with `low` and `high` around
  // the mean of its seeds, or one per seed.
  function curvesOf(plot, view, each) {
    const together = new Map(each ? [] : (view.together ?? []).map((mean) => [mean.name, mean])), curves = [];
    for (const { name, color, seed, columns } of plot.lines) {
      const mean = together.get(name), style = "solid";
      if (mean) {
        if (!curves.some((curve) => curve.label === name)) curves.push({ label: name, color, style, seeds: mean.count, x: mean.x, y: mean.mean, low: mean.low, high: mean.high });
        continue;
      }
      const x = columns[view.x] ?? [], y = columns[view.y] ?? [];
      const there = x.map((_, i) => i).filter((i) => x[i] !== null && (y[i] ?? null) !== null);
      if (there.length) curves.push({ label: name, color, style, seeds: 1, seed, x: there.map((i) => x[i]), y: there.map((i) => y[i]) });
    }
    return curves;
  }
  const bandsOf = (curves) => curves.filter((curve) => curve.low).map(({ x, low, high, color, label }) => ({ x, low, high, color, label }));

  const whole = (low, high) => high - low >= 3 ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : null;
  function scaleOf({ kind, range }, vertical) {
    if (range) return { distr: kind === "log" ? 3 : 1, range };
    if (kind === "log") return { distr: 3 };
    if (kind === "percent") return { range: { min: { soft: 0, mode: 1 }, max: { pad: 0.02, soft: 1, mode: 1 } } }; // always show 0 to 1
    if (kind !== "power" || !vertical) return {};
    return { range: (u, low, high) => { const room = Math.max(0.5 * (high - low < 1), 0.04 * (high - low)); return low === null ? [0, 1] : [low - room, high + room]; } };
  }

  // Draw `{x, y, curves, bands}` into a box. An axis is {label, kind, range, splits}; `read` gets the x under the pointer, or
  // null, and returns the x at which a rule stands; `over` draws more, on the canvas; curves named in `hidden` are not shown.
  function draw(box, { x, y, curves, bands = [] }, { width, height, label = "", read = () => null, over = null, hidden = new Set() }) {
    const columns = [], series = [], areas = [];
    const add = (xs, ys, more) => { columns.push([xs, ys]); return series.push({ spanGaps: false, points: { show: false }, show: !hidden.has(more.label), ...more }); };
    for (const { x: xs, low, high, color, label, opacity = 0.2 } of bands) {
      const edges = [add(xs, high, { label, edge: true }), add(xs, low, { label, edge: true })];
      areas.push({ series: edges, fill: hue(color) + Math.round(255 * opacity).toString(16).padStart(2, "0") });
    }
    for (const { x: xs, y: ys, label, color: index, style = "solid" } of curves) {
      const stroke = hue(index), dash = style === "solid" && index >= 10 ? DASHES.dashed : DASHES[style];
      const dots = { paths: () => null, points: { show: true, size: 5, fill: stroke } };
      add(xs, ys, { label, stroke, width: style === "solid" ? 1.7 : 1.3, dash, ...(style === "dots" ? dots : { points: { show: xs.length < 3 } }) });
    }
    const rule = Object.assign(document.createElement("div"), { className: "rule", hidden: true });
    const point = (u) => {
      const at = read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null, u);
      rule.hidden = at === null || !Number.isFinite(at);
      if (!rule.hidden) rule.style.left = `${u.valToPos(at, "x")}px`;
    };
    const fixedTicks = ({ splits }) => splits ? { splits: () => splits, filter: (u, values) => values } : {};
    const u = new uPlot({
      width, height, legend: { show: false },
      scales: { x: { time: false, ...scaleOf(x, false) }, y: scaleOf(y, true) },
      axes: [
        { ...axis(x.label, 30, ticks(formatOf(x.kind))), space: 64, ...fixedTicks(x) },
        { ...axis(y.label, y.kind === "linear" || y.kind === "percent" ? 50 : 60, ticks(formatOf(y.kind))), ...fixedTicks(y),
          ...(y.kind === "power" ? { incrs: (u, i, low, high) => whole(low, high) ?? [0.1, 0.2, 0.5, 1] } : {}) },
      ],
      cursor: { drag: { x: true, y: true, uni: 30 }, points: { show: false } },
      series: [{}, ...series], bands: areas,
      hooks: { setCursor: [point], draw: over ? [over] : [] },
    }, columns.length ? uPlot.join(columns) : [[]], box);
    u.over.append(rule);
    u.root.setAttribute("role", "img");
    u.root.setAttribute("aria-label", label || `${y.label} against ${x.label}`);
    touch(u);
    return u;
  }

  return { axis, bandsOf, color, curvesOf, draw, formatOf, hue, percent, power, ramp, short, ticks, touch, valuesNear, zoom };
})();
