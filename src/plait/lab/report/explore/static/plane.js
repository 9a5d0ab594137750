// Depth and width: the plane with its guideline and known models; advice for a budget, a shape, a config.json.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { field } from "./controls.js";
import { color, el, failure, part } from "./dom.js";
import { figure } from "./figure.js";

const DEFAULT = "1.3B";
let view = null; // of the panel

export async function show(panel) {
  try {
    view ??= await build(panel);
  } catch (error) {
    panel.replaceChildren(failure(error));
    return;
  }
  await view.load();
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
  const read = async (chosen) => {
    let text = await chosen.text();
    try { text = JSON.stringify(JSON.parse(text)); } catch { /* the server's response names the fault */ }
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
    const config = address.get("config"), query = address.values("budget", "depth", "width");
    const none = !config && !Object.keys(query).length;
    [[budget, "budget", none ? DEFAULT : ""], [depth, "depth", ""], [width, "width", ""]].forEach(([control, name, initial]) => control.set(address.get(name, initial)));
    let shape = null;
    try {
      shape = config ? await ask("config", {}, { method: "POST", body: config }) : await ask("plan", none ? { budget: DEFAULT } : query);
      trouble.replaceChildren();
      advice.replaceChildren(...shape.parts.map(part));
    } catch (error) {
      trouble.replaceChildren(failure(error));
      advice.replaceChildren();
    }
    draw(drawing, plane, shape);
  });
  return self;
}

function draw(figure, plane, shape) {
  const [first, last] = plane.fitted, depths = plane.depths, inside = depths.map((depth) => depth >= first && depth <= last);
  const deepest = Math.max(depths[depths.length - 1], (shape?.depth ?? 0) + 4), widest = Math.max(40000, (shape?.width ?? 0) * 1.5), least = Math.min(100, (shape?.width ?? 100) / 1.5);
  const fitted = (values) => values.filter((_, i) => inside[i]);
  const data = () => ({
    x: { label: "depth (layers)", kind: "linear", range: [0, deepest] },
    y: { label: "width (features)", kind: "log", range: [least, widest], splits: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768].filter((n) => n > least) },
    bands: [
      { x: depths, low: depths.map(() => least), high: plane.widths, color: 1, opacity: 0.12 },
      { x: depths, low: plane.widths, high: depths.map(() => Math.max(widest, 1e6)), color: 0, opacity: 0.1 },
      { x: depths, low: plane.low, high: plane.high, color: 3, opacity: 0.25 }],
    curves: [
      { x: depths, y: plane.widths, color: 3, style: "dashed" },
      { x: fitted(depths), y: fitted(plane.widths), color: 3 },
      { x: plane.theory.depths, y: plane.theory.widths, color: 7, style: "dotted" }],
  });
  // The model whose point is nearest to the pointer, if it is near.
  const read = (x, u, say) => {
    const distance = (model) => Math.hypot(u.valToPos(model.depth, "x") - u.cursor.left, u.valToPos(model.width, "y") - u.cursor.top);
    const near = x === null ? [] : plane.models.filter((model) => distance(model) < 12).sort((a, b) => distance(a) - distance(b));
    say(near.length ? `${near[0].names.join(", ")}: ${near[0].depth} layers, width ${near[0].width.toLocaleString("en")}` : "");
    return null;
  };
  figure.node.dataset.shape = shape ? `${shape.depth}x${shape.width}` : "";
  const mark = shape ? { depth: shape.depth, width: shape.width } : {};
  figure.showChart(data, () => [["name", "depth", "width", "low", "high"],
    ...depths.map((d, i) => ["guideline", d, plane.widths[i], plane.low[i], plane.high[i]]),
    ...plane.models.map((model) => [model.names.join(", "), model.depth, model.width]), ...(shape ? [["this shape", shape.depth, shape.width]] : [])],
  { height: (width) => Math.min(460, Math.max(320, width * 0.55)), label: "depth-width plane", over: (u) => drawModels(u, plane, shape), read, picture: ["plane/picture", mark] });
}

// Points with their names, where they overlap neither points nor other names.
function drawModels(u, plane, shape) {
  const { ctx, bbox } = u, unit = devicePixelRatio, taken = [];
  const X = (depth) => u.valToPos(depth, "x", true), Y = (width) => u.valToPos(width, "y", true);
  const letters = (bbox.width / unit > 480 ? 10.5 : 9) * unit;
  const write = (text, x, y, tone, size = 12 * unit, weight = "") => {
    ctx.font = `${weight} ${size}px system-ui, sans-serif`;
    ctx.fillStyle = color(tone);
    ctx.fillText(text, x, y);
  };
  const free = ([left, top, right, bottom]) => left > bbox.left && right < bbox.left + bbox.width
    && !taken.some((other) => left < other[2] && other[0] < right && top < other[3] && other[1] < bottom);
  ctx.save();
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "left";
  write("could use more depth", X(2), bbox.top + 16 * unit, "c0");
  ctx.textAlign = "right";
  write("too deep for its width", bbox.left + bbox.width - 4 * unit, bbox.top + bbox.height - 10 * unit, "c1");
  ctx.textAlign = "left";
  const points = plane.models.map((model) => ({ name: model.names.join(", "), x: X(model.depth), y: Y(model.width) }));
  for (const { x, y } of points) taken.push([x - 4 * unit, y - 4 * unit, x + 4 * unit, y + 4 * unit]);
  if (shape) taken.push([X(shape.depth) - 9 * unit, Y(shape.width) - 9 * unit, X(shape.depth) + 80 * unit, Y(shape.width) + 22 * unit]);
  for (const { name, x, y } of points) {
    ctx.beginPath();
    ctx.arc(x, y, 3.5 * unit, 0, 2 * Math.PI);
    ctx.fillStyle = color("ink");
    ctx.fill();
    ctx.font = ` ${letters}px system-ui, sans-serif`;
    const wide = ctx.measureText(name).width, gap = 6 * unit;
    const spots = [[x + gap, y + 4 * unit], [x - gap - wide, y + 4 * unit], [x - wide / 2, y - 7 * unit], [x - wide / 2, y + 15 * unit]];
    const spot = spots.find(([left, bottom]) => free([left, bottom - letters, left + wide, bottom + 2 * unit]));
    if (!spot) continue;
    taken.push([spot[0], spot[1] - letters, spot[0] + wide, spot[1] + 2 * unit]);
    write(name, spot[0], spot[1], "quiet", letters);
  }
  if (shape) {
    const x = X(shape.depth), y = Y(shape.width), right = x > bbox.left + bbox.width - 80 * unit;
    ctx.beginPath();
    for (let i = 0; i < 10; i++) {
      const r = (i % 2 ? 4 : 9) * unit, turn = Math.PI * (i / 5 - 0.5);
      ctx.lineTo(x + r * Math.cos(turn), y + r * Math.sin(turn));
    }
    ctx.closePath();
    ctx.fillStyle = color("warm");
    ctx.fill();
    ctx.textAlign = right ? "right" : "left";
    write("this shape", x + (right ? -10 : 8) * unit, y + 18 * unit, "warm", 12 * unit, "600");
  }
  ctx.restore();
}
