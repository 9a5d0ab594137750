// The pictures of a trace: one step over its axis of states, all steps as a map, and the attended image.
import { color, el, ramp, svg } from "./dom.js";

const LEFT = 44, RIGHT = 8, FONT = 12, BAR = 52; // BAR: width reserved for a map's colour bar

// Pixels of a linear axis, and back.
function scale({ low, high }, from, to) {
  const unit = (to - from) / (high - low);
  return { at: (value) => from + (value - low) * unit, back: (pixel) => low + (pixel - from) / unit };
}

// Round whole numbers from 1 to `last`, about `count` of them.
function steps(last, count) {
  const step = Math.max(1, [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(last / count))).find((n) => n >= last / count * 0.999));
  return Array.from({ length: Math.floor(last / step) }, (_, i) => (i + 1) * step);
}

export const setOf = (trace, state, step) => trace.window !== null && state > step - trace.window ? "window" : "kept";
const shade = (trace, state, step) => color(setOf(trace, state, step) === "window" ? "c0" : "c1");

// The symbols (or pixels, or letters) of every step, in cells along the axis.
function strip(drawn, trace, X, cell, top, height) {
  const most = trace.codes ? Math.max(...trace.codes) : 255;
  trace.inputs.forEach((input, i) => {
    const x = X.at(i + 1) - cell / 2, blank = trace.kind === "symbols" && input === "·";
    const gray = trace.kind === "rows" ? "none" : trace.kind === "pixels" ? `rgb(${input},${input},${input})` : `rgb(${ramp(trace.codes[i] / most)})`;
    if (!blank && trace.kind !== "text" && trace.kind !== "rows") drawn.append(svg("rect", { x, y: top, width: cell, height, fill: gray, opacity: trace.kind === "pixels" ? 1 : 0.45 }));
    if (trace.kind !== "pixels" && trace.kind !== "rows" && cell >= 6) {
      drawn.append(svg("text", { x: X.at(i + 1), y: top + height - 4, "text-anchor": "middle", "font-size": Math.min(13, 1.6 * cell), fill: color(blank ? "quiet" : "ink") }, input === "\n" ? "¶" : input));
    }
  });
}

export function drawMoment(trace, here, step, width) {
  const top = 26, middle = 190, below = 214, bottom = 280, height = 322, cell = (width - LEFT - RIGHT) / trace.steps;
  const X = scale({ low: 0.5, high: trace.steps + 0.5 }, LEFT, width - RIGHT);
  const largest = Math.max(1e-9, ...here.states.map(([, weight]) => weight)), relevant = Math.max(1e-9, ...here.states.map(([, , r]) => r));
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `weights and relevance of the states that step ${step} can read` });
  const text = (x, y, words, more) => drawn.append(svg("text", { x, y, "font-size": FONT, fill: color("quiet"), ...more }, words));
  const line = (y) => drawn.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y, stroke: color("line") }));
  const soon = X.at(step) + cell / 2;
  drawn.append(svg("rect", { x: soon, y: top, width: Math.max(0, width - RIGHT - soon), height: bottom - top, fill: color("wash"), "data-future": true }));
  [top, middle, below, bottom].forEach(line);
  strip(drawn, trace, X, cell, middle, below - middle);
  for (const [state, weight, relevance] of here.states) {
    const x = X.at(state) - Math.max(1, cell * 0.8) / 2, wide = Math.max(1, cell * 0.8), fill = shade(trace, state, step);
    const tall = (middle - top) * weight / largest, deep = (bottom - below) * relevance / relevant;
    drawn.append(svg("rect", { x, y: middle - tall, width: wide, height: tall, fill, "data-state": state }, svg("title", null, `state ${state}: weight ${weight}, relevance ${relevance}`)));
    drawn.append(svg("rect", { x, y: below, width: wide, height: deep, fill, opacity: 0.55 }));
    drawn.append(svg("rect", { x, y: middle - 2, width: wide, height: 2, fill })); // marks a readable state even if its weight is 0
  }
  for (const [states, sign, tone] of [[here.added, "▼", "c2"], [here.retained, "◆", "c1"], [here.evicted, "✕", "bad"]]) {
    states.forEach((state) => text(X.at(state), top - 8, sign, { fill: color(tone), "text-anchor": "middle", "data-sign": sign }));
  }
  text(LEFT - 5, top + 9, +largest.toPrecision(2), { "text-anchor": "end" });
  text(LEFT - 5, middle - 4, "α 0", { "text-anchor": "end" });
  text(LEFT - 5, below + 10, "β 0", { "text-anchor": "end" });
  text(LEFT - 5, bottom, +relevant.toPrecision(2), { "text-anchor": "end" });
  for (const t of steps(trace.steps, Math.max(2, width / 110))) text(X.at(t), bottom + 16, t, { "text-anchor": "middle" });
  text((LEFT + width) / 2, height - 6, "state (step of its creation)", { "text-anchor": "middle" });
  [["window", "c0"], ["kept", "c1"]].slice(trace.window === null ? 1 : 0).forEach(([words, tone], i) => {
    drawn.append(svg("rect", { x: width - RIGHT - 70, y: top + 6 + 16 * i, width: 10, height: 10, fill: color(tone) }));
    text(width - RIGHT - 56, top + 15 + 16 * i, words);
  });
  return drawn;
}

// The colour bar: the ramp from 0 to the largest weight, vertical.
function colorBar(drawn, x, top, height, largest) {
  const stops = Array.from({ length: 9 }, (_, i) => svg("stop", { offset: i / 8, "stop-color": `rgb(${ramp(i / 8)})` }));
  const fill = svg("linearGradient", { id: "weights", x1: 0, y1: 1, x2: 0, y2: 0 });
  fill.append(...stops);
  drawn.append(fill, svg("rect", { x, y: top, width: 9, height, fill: "url(#weights)", "data-bar": true }));
  const text = (y, words, more) => drawn.append(svg("text", { x: x + 12, y, "font-size": FONT - 1, fill: color("quiet"), ...more }, words));
  text(top + 9, +largest.toPrecision(2));
  text(top + height, 0);
  text(0, "weight", { x: 0, transform: `translate(${x + 22} ${top + height / 2}) rotate(-90)`, "text-anchor": "middle" });
}

// All steps at once, painted cell by cell and embedded into the drawing as one image.
export function drawMap(trace, timeline, step, width, read, pick) {
  const side = Math.min(width, 460), size = trace.steps, from = LEFT, to = side - BAR, top = 8, low = side - 36;
  const block = Math.ceil(size / 600), blocks = Math.ceil(size / block);
  const canvas = el("canvas", { width: blocks, height: blocks }), brush = canvas.getContext("2d"), image = brush.createImageData(blocks, blocks);
  const largest = Math.max(1e-9, ...timeline.flatMap((here) => here.states.map(([, weight]) => weight)));
  const peak = new Map();
  timeline.forEach((here, t) => here.states.forEach(([state, weight]) => {
    const index = Math.floor(t / block) * blocks + Math.floor((state - 1) / block);
    peak.set(index, Math.max(weight, peak.get(index) ?? 0));
  }));
  peak.forEach((weight, index) => image.data.set([...ramp(weight / largest), 255], 4 * index));
  brush.putImageData(image, 0, 0);
  const X = scale({ low: 0.5, high: blocks * block + 0.5 }, from, to), Y = scale({ low: 0.5, high: blocks * block + 0.5 }, top, low);
  const drawn = svg("svg", { width: side, height: side, viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": "attention weights, step against state" });
  drawn.append(svg("image", { href: canvas.toDataURL(), x: from, y: top, width: to - from, height: low - top, preserveAspectRatio: "none", style: "image-rendering:pixelated" }));
  drawn.append(svg("rect", { x: from, y: top, width: to - from, height: low - top, fill: "none", stroke: color("line") }));
  drawn.append(svg("rect", { "data-now": true, x: from, width: to - from, y: Y.at(step) - Math.max(2, (low - top) / size) / 2, height: Math.max(2, (low - top) / size), fill: "none", stroke: color("bad"), "stroke-width": 1.5 }));
  for (const t of steps(size, 5)) {
    drawn.append(svg("text", { x: X.at(t), y: low + 14, "text-anchor": "middle", "font-size": FONT, fill: color("quiet") }, t));
    drawn.append(svg("text", { x: from - 5, y: Y.at(t) + 4, "text-anchor": "end", "font-size": FONT, fill: color("quiet") }, t));
  }
  drawn.append(svg("text", { x: (from + to) / 2, y: side - 4, "text-anchor": "middle", "font-size": FONT, fill: color("quiet") }, "attended state"));
  drawn.append(svg("text", { transform: `translate(11 ${side / 2}) rotate(-90)`, "text-anchor": "middle", "font-size": FONT, fill: color("quiet") }, "attending step"));
  colorBar(drawn, to + 8, top, low - top, largest);
  drawn.rowOf = (step) => Y.at(step) - Math.max(2, (low - top) / size) / 2;
  const where = (event) => {
    const box = drawn.getBoundingClientRect();
    return [Math.round(Y.back(event.clientY - box.top)), Math.round(X.back(event.clientX - box.left))];
  };
  drawn.addEventListener("pointermove", (event) => {
    const [t, j] = where(event), state = timeline[t - 1]?.states.find(([birth]) => birth === j);
    read(state ? `step ${t} gives state ${j} the weight ${state[1]}` : "");
  });
  drawn.addEventListener("click", (event) => { const [t] = where(event); if (t >= 1 && t <= size) pick(t); });
  return drawn;
}

export function drawImage(trace, here, step, width) {
  const { shades, steps: when } = trace.image, cell = width / shades[0].length, there = new Map(here.states.map((state) => [state[0], state]));
  const height = cell * shades.length;
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `the picture, with what step ${step} can read` });
  shades.forEach((row, y) => row.forEach((value, x) => {
    const state = there.get(when[y][x]), past = when[y][x] <= step;
    drawn.append(svg("rect", { x: x * cell, y: y * cell, width: cell + 0.3, height: cell + 0.3, fill: `rgb(${value},${value},${value})`, opacity: past ? 1 : 0.35 }));
    if (state) drawn.append(svg("rect", { x: x * cell + 1, y: y * cell + 1, width: cell - 2, height: cell - 2, fill: "none", stroke: shade(trace, state[0], step), "stroke-width": 2, "data-state": state[0] }));
  }));
  return drawn;
}
