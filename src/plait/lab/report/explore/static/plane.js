// Depth and width: the plane with its guideline and known models; advice for a budget, a shape, a config.json.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { chart } from "./chart.js";
import { field } from "./controls.js";
import { color, el, failure, part, svg } from "./dom.js";
import { figure } from "./figure.js";

const USUAL = "1.3B";
let made = null;

export async function show(panel) {
  try {
    made ??= await build(panel);
  } catch (error) {
    panel.replaceChildren(failure(error));
    return;
  }
  await made.load();
}

async function build(panel) {
  const plane = await ask("plane"), self = {};
  const trouble = el("div"), advice = el("div");
  const drawing = figure("plane-figure", "Depth against width", "Above the line a shape could use more depth, below it is too deep for its width. Band: one standard error; dashed: outside the fitted 6 to 48 layers; dotted: where the theory’s two regimes meet.");
  const budget = field("budget (parameters)", { placeholder: "1.3B", size: 8 }, (value) => choose({ budget: value, depth: null, width: null, config: null }));
  const depth = field("or depth", { type: "number", min: 1 }, () => shape());
  const width = field("and width", { type: "number", min: 1 }, () => shape());
  const file = el("input", { type: "file", accept: ".json,application/json", "aria-label": "a config.json", onchange: () => file.files[0] && read(file.files[0]) });
  const drop = el("div", { className: "drop" }, el("label", null, "or drop a config.json here ", file));
  const choose = (changes) => { address.set(changes); self.load(); };
  const shape = () => choose({ budget: null, config: null, depth: depth.input.value, width: width.input.value });
  const read = async (one) => {
    let text = await one.text();
    try { text = JSON.stringify(JSON.parse(text)); } catch { /* the answer will say so */ }
    choose({ budget: null, depth: null, width: null, config: text });
  };
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
  });
  panel.replaceChildren(el("h2", null, "How deep, how wide"), el("div", { className: "controls" }, budget.node, depth.node, width.node, drop), trouble, drawing.node, advice);

  self.load = latest(async () => {
    const config = address.get("config"), wanted = address.values("budget", "depth", "width");
    const none = !config && !Object.keys(wanted).length;
    [[budget, "budget", none ? USUAL : ""], [depth, "depth", ""], [width, "width", ""]].forEach(([one, name, usual]) => one.set(address.get(name, usual)));
    let found = null;
    try {
      found = config ? await ask("config", {}, { method: "POST", body: config }) : await ask("plan", none ? { budget: USUAL } : wanted);
      trouble.replaceChildren();
      advice.replaceChildren(...found.parts.map(part));
    } catch (error) {
      trouble.replaceChildren(failure(error));
      advice.replaceChildren();
    }
    drawing.show((wide, say) => draw(plane, found, wide, say), () => [["name", "depth", "width", "low", "high"],
      ...plane.depths.map((d, i) => ["guideline", d, plane.widths[i], plane.low[i], plane.high[i]]),
      ...plane.models.map((one) => [one.names.join(", "), one.depth, one.width]), ...(found ? [["this shape", found.depth, found.width]] : [])]);
  });
  return self;
}

function draw(plane, found, width, read) {
  const [first, last] = plane.fitted, inside = (i) => plane.depths[i] >= first && plane.depths[i] <= last;
  const deepest = Math.max(plane.depths[plane.depths.length - 1], (found?.depth ?? 0) + 4), widest = Math.max(40000, (found?.width ?? 0) * 1.5), least = Math.min(100, (found?.width ?? 100) / 1.5);
  const among = (values, keep) => values.filter((_, i) => keep(i)), line = color("c3"), all = plane.depths;
  return chart({
    width, height: Math.min(460, Math.max(320, width * 0.55)), label: "depth-width plane",
    x: { label: "depth (layers)", low: 0, high: deepest },
    y: { label: "width (features)", kind: "log", low: least, high: widest, ticks: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768].filter((n) => n > least) },
    bands: [
      { x: all, low: all.map(() => least), high: plane.widths, color: color("c1"), opacity: 0.12 },
      { x: all, low: plane.widths, high: all.map(() => Math.max(widest, 1e6)), color: color("c0"), opacity: 0.1 },
      { x: all, low: plane.low, high: plane.high, color: line, opacity: 0.25 }],
    series: [
      { x: all, y: plane.widths, color: line, dash: "6 4", width: 1.2 },
      { x: among(all, inside), y: among(plane.widths, inside), color: line, width: 2.4 },
      { x: plane.theory.depths, y: plane.theory.widths, color: color("quiet"), dash: "2 3" }],
    over: (drawn, X, Y) => place(drawn, X, Y, plane, found, width, read),
  });
}

// Points with their names, placed so that they overlap neither points nor other names.
function place(drawn, X, Y, plane, found, width, read) {
  const taken = [], letters = width > 560 ? 10.5 : 9, points = plane.models.map((one) => ({ name: one.names.join(", "), x: X.at(one.depth), y: Y.at(one.width), depth: one.depth, wide: one.width }));
  const label = (at, words, tone) => drawn.append(svg("text", { ...at, "font-size": 12, fill: color(tone) }, words));
  const free = (box) => box[0] > 60 && box[2] < width - 12 && !taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
  label({ x: X.at(2), y: Y.at(30000) }, "could use more depth", "c0");
  label({ x: width - 14, y: Y.at(130), "text-anchor": "end" }, "too deep for its width", "c1");
  points.forEach(({ x, y }) => taken.push([x - 4, y - 4, x + 4, y + 4]));
  if (found) taken.push([X.at(found.depth) - 9, Y.at(found.width) - 9, X.at(found.depth) + 80, Y.at(found.width) + 22]);
  for (const one of points) {
    const dot = svg("circle", { cx: one.x, cy: one.y, r: 3.5, fill: color("ink"), "data-model": one.name }, svg("title", null, one.name));
    dot.addEventListener("pointerenter", () => read(`${one.name}: ${one.depth} layers, width ${one.wide.toLocaleString("en")}`));
    drawn.append(dot);
    const wide = one.name.length * letters * 0.6;
    const spots = [[one.x + 6, one.y + 4], [one.x - 6 - wide, one.y + 4], [one.x - wide / 2, one.y - 7], [one.x - wide / 2, one.y + 15]];
    const spot = spots.find(([x, y]) => free([x, y - letters, x + wide, y + 2]));
    if (!spot) continue;
    taken.push([spot[0], spot[1] - letters, spot[0] + wide, spot[1] + 2]);
    drawn.append(svg("text", { x: spot[0], y: spot[1], "font-size": letters, fill: color("quiet") }, one.name));
  }
  if (!found) return;
  const x = X.at(found.depth), y = Y.at(found.width), star = Array.from({ length: 10 }, (_, i) => {
    const r = i % 2 ? 4 : 9, turn = Math.PI * (i / 5 - 0.5);
    return `${(x + r * Math.cos(turn)).toFixed(1)},${(y + r * Math.sin(turn)).toFixed(1)}`;
  });
  drawn.append(svg("polygon", { points: star.join(" "), fill: color("warm"), stroke: color("paper"), "data-shape": `${found.depth}x${found.width}` }));
  label({ x: x > width - 90 ? x - 10 : x + 8, y: y + 18, "font-weight": 600, "text-anchor": x > width - 90 ? "end" : "start" }, "this shape", "warm");
}
