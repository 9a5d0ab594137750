// Lines, dots and bands over two axes, as SVG. An axis is `linear`, `log` (values are drawn at their logarithm),
// `power` (values are logarithms to base ten already) or `percent`.
import { color, percent, power, short, svg } from "./dom.js";

const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 44, FONT = 12;
let drawings = 0; // clip paths need ids that are unique in the page
const WORDS = { linear: short, log: short, power, percent };

// Round numbers from low to high, about `count` of them.
export function steps(low, high, count) {
  const raw = (high - low) / Math.max(1, count), base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= raw * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(+(n * step).toPrecision(12));
  return found;
}

function logSteps(low, high, count) {
  const tens = steps(Math.log10(low), Math.log10(high), count).filter(Number.isInteger).map((n) => 10 ** n);
  return tens.length > 1 ? tens : steps(low, high, count).filter((value) => value > 0); // less than a decade or two
}

export function scale(axis, from, to) {
  const place = axis.kind === "log" ? Math.log10 : (value) => value;
  const low = place(axis.low), span = place(axis.high) - low || 1;
  const at = (value) => from + (place(value) - low) / span * (to - from);
  const back = (pixel) => { const v = low + (pixel - from) / (to - from) * span; return axis.kind === "log" ? 10 ** v : v; };
  return { at, back };
}

function whole(axis, lists) {
  const found = lists.flat().filter((value) => value !== null && value !== undefined);
  let low = axis.low ?? Math.min(...found), high = axis.high ?? Math.max(...found);
  if (!(high > low)) { high = low + 1; low -= axis.kind === "log" ? 0 : 1; }
  const room = axis.kind === "power" ? (high - low) * 0.04 : 0;
  return { kind: "linear", ...axis, low: axis.low ?? low - room, high: axis.high ?? high + room };
}

function frame(drawn, x, y, X, Y, width, height) {
  const line = color("line"), quiet = color("quiet");
  const text = (at, words, more) => drawn.append(svg("text", { fill: quiet, "font-size": FONT, ...at, ...more }, words));
  const ticks = (axis, count) => axis.ticks ?? (axis.kind === "log" ? logSteps : steps)(axis.low, axis.high, count);
  for (const value of ticks(x, Math.max(3, (width - LEFT) / 90))) {
    const at = X.at(value);
    drawn.append(svg("line", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM, stroke: line }));
    text({ x: at, y: height - BOTTOM + 16 }, WORDS[x.kind](value), { "text-anchor": "middle" });
  }
  for (const value of ticks(y, 5)) {
    const at = Y.at(value);
    drawn.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, stroke: line }));
    text({ x: LEFT - 6, y: at + 4 }, WORDS[y.kind](value), { "text-anchor": "end" });
  }
  text({ x: (LEFT + width) / 2, y: height - 6 }, x.label, { "text-anchor": "middle" });
  text({ transform: `translate(13 ${(TOP + height - BOTTOM) / 2}) rotate(-90)` }, y.label, { "text-anchor": "middle" });
}

// The points as one path; a missing value leaves a gap.
function path(X, Y, xs, ys) {
  let drawn = "", pen = "M";
  xs.forEach((value, i) => {
    if (ys[i] === null || ys[i] === undefined) { pen = "M"; return; }
    drawn += `${pen}${X.at(value).toFixed(1)} ${Y.at(ys[i]).toFixed(1)}`;
    pen = "L";
  });
  return drawn;
}

// The index of the value nearest to a pixel.
function nearest(xs, X, pixel) {
  let best = 0;
  xs.forEach((x, i) => { if (Math.abs(X.at(x) - pixel) < Math.abs(X.at(xs[best]) - pixel)) best = i; });
  return best;
}

// `series`: {name, color, x, y, dash, dots, width}; `bands`: {x, low, high, color, opacity}; `over(drawn, X, Y)` adds more.
export function chart({ width, height = 300, x, y, series, bands = [], over = null, read = null, label = "" }) {
  x = whole(x, [...series, ...bands].map((one) => one.x));
  y = whole(y, [...series.map((one) => one.y), ...bands.flatMap((one) => [one.low, one.high])]);
  if (y.kind === "power" && y.high - y.low < 1) { y.low -= 0.5; y.high += 0.5; }
  const X = scale(x, LEFT, width - RIGHT), Y = scale(y, height - BOTTOM, TOP);
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label || `${y.label} against ${x.label}` });
  const cut = `inside-${++drawings}`, inside = svg("g", { "clip-path": `url(#${cut})` });
  drawn.append(svg("defs", null, svg("clipPath", { id: cut },
    svg("rect", { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM }))));
  frame(drawn, x, y, X, Y, width, height);
  drawn.append(inside);
  for (const { x: xs, low, high, color: fill, opacity = 0.2 } of bands) {
    const there = path(X, Y, xs, high) + path(X, Y, [...xs].reverse(), [...low].reverse()).replace("M", "L") + "Z";
    inside.append(svg("path", { d: there, fill, opacity }));
  }
  for (const one of series) {
    if (one.dots) one.x.forEach((value, i) => one.y[i] !== null && inside.append(svg("circle", { cx: X.at(value), cy: Y.at(one.y[i]), r: 2.2, fill: one.color })));
    else inside.append(svg("path", { d: path(X, Y, one.x, one.y), fill: "none", stroke: one.color, "stroke-width": one.width ?? 1.7, "stroke-dasharray": one.dash, "data-line": one.name }));
  }
  over?.(inside, X, Y);
  if (read) follow(drawn, inside, series, x, y, X, height, read);
  return drawn;
}

// The values of the lines under the pointer, at the x of the nearest drawn point. For a line without a point there,
// its nearest point is given with its own x; a line that has ended, or not begun, is left out.
function follow(drawn, inside, series, x, y, X, height, read) {
  const rule = svg("line", { "data-passing": true, y1: TOP, y2: height - BOTTOM, stroke: color("quiet"), "stroke-dasharray": "2 3", visibility: "hidden" });
  inside.append(rule);
  const named = series.filter((one) => one.name && one.x.length), show = WORDS[y.kind];
  const place = x.says ?? ((value) => `${x.label} ${short(value)}`);
  const worth = (one, at) => {
    const i = nearest(one.x, X, X.at(at));
    if (at < one.x[0] || at > one.x[one.x.length - 1] || (one.y[i] ?? null) === null) return null;
    const range = one.low ? ` (${show(one.low[i])}–${show(one.high[i])})` : "";
    return `${one.name} ${show(one.y[i])}${range}${one.x[i] === at ? "" : ` at ${short(one.x[i])}`}`;
  };
  drawn.addEventListener("pointermove", (event) => {
    const pixel = event.clientX - drawn.getBoundingClientRect().left, value = X.back(pixel);
    if (value < x.low || value > x.high || !named.length) return;
    const places = named.map((one) => one.x[nearest(one.x, X, pixel)]), at = places[nearest(places, X, pixel)];
    rule.setAttribute("x1", X.at(at));
    rule.setAttribute("x2", X.at(at));
    rule.setAttribute("visibility", "visible");
    read(`${place(at)}: ${named.map((one) => worth(one, at)).filter(Boolean).slice(0, 8).join("; ")}`);
  });
  drawn.addEventListener("pointerleave", () => { rule.setAttribute("visibility", "hidden"); read(""); });
}

// The legend; with `toggle` a click on a name hides or shows its line.
export function legend(series, make, toggle = null, hidden = new Set()) {
  const seen = new Map(series.filter((one) => one.name).map((one) => [one.name, one]));
  return make("div", { className: "bar legend" }, [...seen.values()].map((one) => {
    const swatch = make("span", { className: one.dash ? "swatch dashed" : "swatch", style: `background-color:${one.color}` });
    if (!toggle) return make("span", { className: "value" }, swatch, one.name);
    return make("button", { type: "button", "aria-pressed": String(!hidden.has(one.name)), onclick: () => toggle(one.name) }, swatch, one.name);
  }));
}
