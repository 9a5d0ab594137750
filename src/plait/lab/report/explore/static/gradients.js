// Gradients: the law of uniform attention, a window with kept states, paths in a small example, records of runs.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { choice, slider } from "./controls.js";
import { color, el, failure, part, svg } from "./dom.js";
import { figure, legend } from "./figure.js";

const DEFAULT = "0.25,-0.5", MOST = 4;
let view = null; // of the panel

export async function show(panel) {
  view ??= build(panel);
  view.controls();
  await Promise.all([view.all(), view.runs()]);
}

// "0.3+0.4j" and back
function pair(text) {
  const [, real = "0", imaginary = "0"] = text.match(/^([+-]?[\d.]+)?(?:([+-][\d.]+)j)?$/) ?? [];
  return [+real, +imaginary];
}
const written = ([real, imaginary]) => imaginary ? `${real}${imaginary < 0 ? "" : "+"}${imaginary}j` : String(real);
const eigenvalues = () => address.get("eigenvalues", DEFAULT).split(",").map(pair);

function build(panel) {
  const self = {}, bar = el("div", { className: "controls" }), common = el("div", { className: "controls" });
  const trouble = el("div"), words = el("div"), names = el("div"), reachWords = el("p"), pathWords = el("p"), recorded = el("div", { className: "controls" }), recordTrouble = el("div");
  const law = figure("gradients-law", "Uniform attention to the whole past", "Dots: measured |p(λ)|, which is ds_T/dh₁ along an eigenvector. Lines: the sharp law; dashed: the bound as printed, drawn from the same starting point.");
  const reach = figure("gradients-reach", "A window, and the first states kept", "The norm of ds_T/dh_t for a normal V with these eigenvalues and uniform weights; the bound of Theorem 2 for the largest positive one; and the same V without attention.");
  const path = figure("gradients-path", "Attention hops against recurrent steps", "Below h, above s; thin: attention, and the recurrence; bold: the path from h_t to s_T with the fewest recurrent steps.");
  const record = figure("gradients-run", "Gradients recorded by a run", "‖∂L/∂hₜ‖ of the loss of the last steps, by distance from the last step; one line per record.");
  const example = el("div", { className: "controls" });
  panel.replaceChildren(el("h2", null, "How far a gradient travels"), bar, common, trouble,
    el("div", { className: "pair" }, el("div", null, law.node, names), el("div", null, reach.node, reachWords)), words,
    el("h2", null, "A small example"), example, path.node, pathWords,
    el("h2", null, "A run’s own gradients"), recorded, recordTrouble, record.node);

  const setting = (key, name, low, high, initial, step = 1) =>
    [key, slider(name, { low, high, step, value: initial }, (value) => { address.set({ [key]: value }); self.all(); }), initial];
  const length = slider("length T", { low: 2, high: 6, step: 0.25, value: 4, shown: (e) => Math.round(10 ** e).toLocaleString("en") },
    (e) => { address.set({ length: Math.round(10 ** e) }); self.all(); });
  const sliders = [setting("window", "window", 1, 50, 10), setting("capacity", "capacity", 0, 50, 10), setting("steps", "steps with a window", 10, 1000, 200, 10)];
  const small = [setting("small", "example steps", 3, 24, 16), setting("start", "from h_t, t", 1, 24, 4), setting("near", "example window", 1, 12, 3), setting("far", "example capacity", 0, 12, 2)];
  example.append(...small.map(([, control]) => control.node));
  const mix = choice("mix in s = mix·(h + c)", [["1", "1, the theorem"], ["0.5", "0.5, published code"]], "1", (value) => { address.set({ mix: value }); self.all(); });
  common.append(length.node, ...sliders.map(([, control]) => control.node), mix.node);

  self.controls = () => {
    const values = eigenvalues();
    const change = (next) => { address.set({ eigenvalues: next.map(written).join(",") }); self.all(); };
    const both = (index) => ["Re", "Im"].map((which, i) => slider(`${which} λ${index + 1}`, { low: -0.95, high: 0.95, step: 0.05, value: values[index][i], shown: (v) => v.toFixed(2) },
      (value) => { values[index][i] = value; change(values); }).node);
    const add = el("button", { type: "button", onclick: () => { change([...values, [0.5, 0]]); self.controls(); } }, "add an eigenvalue");
    const drop = el("button", { type: "button", onclick: () => { change(values.slice(0, -1)); self.controls(); } }, "remove one");
    bar.replaceChildren(...values.flatMap((_, index) => both(index)), ...(values.length < MOST ? [add] : []), ...(values.length > 1 ? [drop] : []));
    length.set(Math.log10(+address.get("length", 10000)));
    mix.set(address.get("mix", "1"));
    [...sliders, ...small].forEach(([name, control, initial]) => control.set(address.get(name, initial)));
  };

  self.all = latest(async () => {
    const shared = address.values("eigenvalues", "mix", "window", "capacity");
    const [count, start, window, capacity] = small.map(([name, , initial]) => +address.get(name, initial));
    try {
      const [first, second, third] = await Promise.all([
        ask("law", { ...address.values("eigenvalues", "mix", "length") }),
        ask("reach", { ...shared, ...address.values("steps") }),
        ask("paths", { window, capacity, small: count, start: Math.min(count, start) })]);
      trouble.replaceChildren();
      drawLaw(law, first.laws, names);
      words.replaceChildren(...first.parts.map(part));
      drawReach(reach, second);
      reachWords.replaceChildren(second.summary);
      path.show((width) => drawPaths(third, width), () => [["step", "reads"], ...third.sets.map((set, m) => [m + 1, set.join(" ")])]);
      pathWords.replaceChildren(third.summary);
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  });

  self.runs = async () => {
    try {
      const runs = await ask("norms/runs");
      if (!runs.length) {
        record.node.hidden = true;
        recordTrouble.replaceChildren(el("p", { className: "note" }, "No run here recorded its gradients; plait train copy --gradients-every 100 does."));
        return;
      }
      const run = choice("run", runs.map(({ key, name }) => [key, name]), address.get("run", runs[0].key), (key) => { address.set({ run: key }); self.record(key); });
      recorded.replaceChildren(run.node);
      await self.record(address.get("run", runs[0].key));
    } catch (error) {
      record.node.hidden = true;
      recordTrouble.replaceChildren(failure(error));
    }
  };
  self.record = async (key) => {
    try {
      const norms = await ask("norms", { run: key });
      const curves = norms.lines.map((line, i) => ({ label: line.name, x: line.back, y: line.norms, color: i }));
      record.node.hidden = false;
      recordTrouble.replaceChildren();
      record.title(norms.run);
      record.node.querySelector(".legend")?.remove();
      record.read.before(legend(curves));
      record.showChart(() => ({ x: { label: "steps before the last", kind: "linear" }, y: { label: "‖∂L/∂hₜ‖", kind: "power" }, curves }),
        () => [["record", "steps before the last", "log10 norm"], ...curves.flatMap((curve) => curve.x.map((x, i) => [curve.label, x, curve.y[i]]))]);
    } catch (error) {
      record.node.hidden = true;
      recordTrouble.replaceChildren(failure(error));
    }
  };
  return self;
}

function drawLaw(figure, laws, names) {
  const curves = laws.flatMap((law, color) => [
    { label: `λ = ${law.eigenvalue}, measured`, x: law.lengths, y: law.measured, color, style: "dots" },
    ...(law.sharp ? [{ label: `λ = ${law.eigenvalue}, law`, x: law.lengths, y: law.sharp, color, style: "solid" }] : []),
    ...(law.printed ? [{ label: `λ = ${law.eigenvalue}, printed`, x: law.lengths, y: law.printed, color, style: "dashed" }] : [])]);
  const { lengths } = laws[0];
  figure.showChart(() => ({ x: { label: "length T", kind: "log", range: [lengths[0], lengths[lengths.length - 1]] }, y: { label: "|p(λ)|", kind: "power" }, curves }),
    () => [["eigenvalue", "T", "log10 measured", "log10 law", "log10 printed"],
      ...laws.flatMap((law) => law.lengths.map((t, i) => [law.eigenvalue, t, law.measured[i], law.sharp?.[i], law.printed?.[i]]))]);
  names.replaceChildren(legend(curves.filter(({ style }) => style === "dots")));
}

function drawReach(figure, reach) {
  const ascending = (values) => [...values].reverse(), x = ascending(reach.back);
  const curves = [
    { label: "measured norm", x, y: ascending(reach.measured), color: 0, style: "solid" },
    ...(reach.bound ? [{ label: "bound of Theorem 2", x, y: ascending(reach.bound), color: 1, style: "dashed" }] : []),
    { label: "recurrence alone", x, y: ascending(reach.alone), color: 7, style: "dotted" }];
  // Recurrence alone falls out of the chart: the curves with memory set the range of its axis.
  const values = [...reach.measured, ...(reach.bound ?? [])].filter((value) => value !== null);
  const range = [Math.min(...values) - 2, Math.max(...values, 0) + 0.5];
  figure.node.querySelector(".legend")?.remove();
  figure.read.before(legend(curves));
  figure.showChart(() => ({ x: { label: "steps before the last", kind: "linear" }, y: { label: "‖ds_T/dh_t‖", kind: "power", range }, curves }),
    () => [["steps before the last", "log10 measured", "log10 bound", "log10 recurrence alone", "recurrent steps needed"],
      ...reach.back.map((b, i) => [b, reach.measured[i], reach.bound?.[i], reach.alone[i], reach.depth[i]])], { height: 240 });
}

// Two rows: h below, s above. s_m attends to h_i (thin), h_m becomes s_m, s_m continues into h_{m+1}.
function drawPaths({ sets, path }, width) {
  const height = 170, low = 125, high = 45, count = sets.length, cell = (width - 40) / count;
  const x = (m) => 30 + (m - 0.5) * cell, r = Math.min(10, cell * 0.38);
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "attended states in a small example" });
  const line = (x1, y1, x2, y2, bold, read) => drawn.append(svg("line", { x1, y1, x2, y2, stroke: color(bold ? (read ? "c1" : "c0") : "line"), "stroke-width": bold ? 3 : 1, "data-way": bold ? (read ? "hop" : "step") : null }));
  sets.forEach((set, m) => set.forEach((i) => line(x(i), low, x(m + 1), high, false)));
  sets.forEach((_, m) => { line(x(m + 1), low, x(m + 1), high, false); if (m) line(x(m), high, x(m + 1), low, false); });
  const [start, ...times] = path;
  let from = start;
  times.forEach((m, i) => {
    line(x(from), low, x(m), high, true, m !== from);
    if (i < times.length - 1) { line(x(m), high, x(m + 1), low, true, false); from = m + 1; }
  });
  for (let m = 1; m <= count; m++) {
    for (const [y, name] of [[low, "h"], [high, "s"]]) {
      const end = (name === "h" && m === start) || (name === "s" && m === count);
      drawn.append(svg("circle", { cx: x(m), cy: y, r, fill: color(end ? "c0" : "wash"), stroke: color("quiet") }));
    }
    if (cell > 16 || m % 5 === 0 || m === 1) drawn.append(svg("text", { x: x(m), y: low + r + 16, "text-anchor": "middle", "font-size": 11, fill: color("quiet") }, m));
  }
  for (const [y, name] of [[low, "h"], [high, "s"]]) drawn.append(svg("text", { x: 8, y: y + 4, "font-size": 13, fill: color("quiet") }, name));
  drawn.append(svg("text", { x: 30, y: 16, "font-size": 12, fill: color("c1") }, "attention hop"), svg("text", { x: 130, y: 16, "font-size": 12, fill: color("c0") }, "recurrent step"));
  return drawn;
}
