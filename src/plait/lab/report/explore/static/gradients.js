// Gradients: the law of uniform attention, a window with kept states, paths in a small example, records of runs.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { chart, legend } from "./chart.js";
import { choice, slider } from "./controls.js";
import { color, el, failure, part, svg } from "./dom.js";
import { figure } from "./figure.js";

const USUAL = "0.25,-0.5", MOST = 4;
let made = null;

export async function show(panel) {
  made ??= build(panel);
  made.controls();
  await Promise.all([made.all(), made.runs()]);
}

// "0.3+0.4j" and back
function pair(text) {
  const [, real = "0", imaginary = "0"] = text.match(/^([+-]?[\d.]+)?(?:([+-][\d.]+)j)?$/) ?? [];
  return [+real, +imaginary];
}
const written = ([real, imaginary]) => imaginary ? `${real}${imaginary < 0 ? "" : "+"}${imaginary}j` : String(real);
const eigenvalues = () => address.get("eigenvalues", USUAL).split(",").map(pair);

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

  const setting = (key, name, low, high, usual, step = 1) =>
    [key, slider(name, { low, high, step, value: usual }, (value) => { address.set({ [key]: value }); self.all(); }), usual];
  const length = slider("length T", { low: 2, high: 6, step: 0.25, value: 4, shown: (e) => Math.round(10 ** e).toLocaleString("en") },
    (e) => { address.set({ length: Math.round(10 ** e) }); self.all(); });
  const sliders = [setting("window", "window", 1, 50, 10), setting("capacity", "capacity", 0, 50, 10), setting("steps", "steps with a window", 10, 1000, 200, 10)];
  const small = [setting("small", "example steps", 3, 24, 16), setting("start", "from h_t, t", 1, 24, 4), setting("near", "example window", 1, 12, 3), setting("far", "example capacity", 0, 12, 2)];
  example.append(...small.map(([, one]) => one.node));
  const mix = choice("mix in s = mix·(h + c)", [["1", "1, the theorem"], ["0.5", "0.5, published code"]], "1", (value) => { address.set({ mix: value }); self.all(); });
  common.append(length.node, ...sliders.map(([, one]) => one.node), mix.node);

  self.controls = () => {
    const values = eigenvalues();
    const change = (next) => { address.set({ eigenvalues: next.map(written).join(",") }); self.all(); };
    const both = (place) => ["Re", "Im"].map((which, i) => slider(`${which} λ${place + 1}`, { low: -0.95, high: 0.95, step: 0.05, value: values[place][i], shown: (v) => v.toFixed(2) },
      (value) => { values[place][i] = value; change(values); }).node);
    const add = el("button", { type: "button", onclick: () => { change([...values, [0.5, 0]]); self.controls(); } }, "add an eigenvalue");
    const drop = el("button", { type: "button", onclick: () => { change(values.slice(0, -1)); self.controls(); } }, "remove one");
    bar.replaceChildren(...values.flatMap((_, place) => both(place)), ...(values.length < MOST ? [add] : []), ...(values.length > 1 ? [drop] : []));
    length.set(Math.log10(+address.get("length", 10000)));
    mix.set(address.get("mix", "1"));
    [...sliders, ...small].forEach(([name, one, usual]) => one.set(address.get(name, usual)));
  };

  self.all = latest(async () => {
    const shared = address.values("eigenvalues", "mix", "window", "capacity");
    const [count, start, window, capacity] = small.map(([name, , usual]) => +address.get(name, usual));
    try {
      const [first, second, third] = await Promise.all([
        ask("law", { ...address.values("eigenvalues", "mix", "length") }),
        ask("reach", { ...shared, ...address.values("steps") }),
        ask("paths", { window, capacity, small: count, start: Math.min(count, start) })]);
      trouble.replaceChildren();
      drawLaw(law, first.laws, names);
      words.replaceChildren(...first.parts.map(part));
      drawReach(reach, second);
      reachWords.replaceChildren(second.says);
      path.show((width) => drawPaths(third, width), () => [["step", "reads"], ...third.sets.map((set, m) => [m + 1, set.join(" ")])]);
      pathWords.replaceChildren(third.says);
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  });

  self.runs = async () => {
    try {
      const found = await ask("norms/runs");
      if (!found.length) {
        record.node.hidden = true;
        recordTrouble.replaceChildren(el("p", { className: "note" }, "No run here recorded its gradients; plait train copy --gradients-every 100 does."));
        return;
      }
      const run = choice("run", found.map(({ key, name }) => [key, name]), address.get("run", found[0].key), (key) => { address.set({ run: key }); self.record(key); });
      recorded.replaceChildren(run.node);
      await self.record(address.get("run", found[0].key));
    } catch (error) {
      record.node.hidden = true;
      recordTrouble.replaceChildren(failure(error));
    }
  };
  self.record = async (key) => {
    try {
      const found = await ask("norms", { run: key });
      const lines = () => found.lines.map((line, i) => ({ name: line.name, x: line.back, y: line.norms, color: color(`c${i % 10}`), dash: i >= 10 ? "6 3" : null }));
      record.node.hidden = false;
      recordTrouble.replaceChildren();
      record.title(found.run);
      record.node.querySelector(".legend")?.remove();
      record.read.before(legend(lines(), el));
      record.show((width, read) => chart({ width, read, x: { label: "steps before the last" }, y: { label: "‖∂L/∂hₜ‖", kind: "power" }, series: lines() }),
        () => [["record", "steps before the last", "log10 norm"], ...found.lines.flatMap((line) => line.back.map((b, i) => [line.name, b, line.norms[i]]))]);
    } catch (error) {
      record.node.hidden = true;
      recordTrouble.replaceChildren(failure(error));
    }
  };
  return self;
}

function drawLaw(law, laws, names) {
  const series = () => laws.flatMap((one, i) => [
    { name: `λ = ${one.eigenvalue}, measured`, x: one.lengths, y: one.measured, color: color(`c${i}`), dots: true },
    ...["sharp", "printed"].filter((kind) => one[kind]).map((kind) => ({
      name: `${kind === "sharp" ? "law" : "printed"}`, x: one.lengths, y: one[kind], color: color(`c${i}`), dash: kind === "printed" ? "6 4" : null,
    }))]);
  law.show((width, read) => chart({ width, read, x: { label: "length T", kind: "log" }, y: { label: "|p(λ)|", kind: "power" }, series: series() }),
    () => [["eigenvalue", "T", "log10 measured", "log10 law", "log10 printed"],
      ...laws.flatMap((one) => one.lengths.map((t, i) => [one.eigenvalue, t, one.measured[i], one.sharp?.[i], one.printed?.[i]]))]);
  names.replaceChildren(legend(series().filter((one) => one.dots), el));
}

function drawReach(reach, found) {
  const series = () => [
    { name: "measured norm", x: found.back, y: found.measured, color: color("c0"), width: 2 },
    ...(found.bound ? [{ name: "bound of Theorem 2", x: found.back, y: found.bound, color: color("c1"), dash: "6 4" }] : []),
    { name: "recurrence alone", x: found.back, y: found.alone, color: color("c7"), dash: "2 3" }];
  // Recurrence alone falls off the picture: the curves with memory set the range of its axis.
  const there = [...found.measured, ...(found.bound ?? [])].filter((value) => value !== null);
  const low = Math.min(...there) - 2, high = Math.max(...there, 0) + 0.5;
  reach.node.querySelector(".legend")?.remove();
  reach.read.before(legend(series(), el));
  reach.show((width, read) => chart({ width, height: 240, read, x: { label: "steps before the last" }, y: { label: "‖ds_T/dh_t‖", kind: "power", low, high }, series: series() }),
    () => [["steps before the last", "log10 measured", "log10 bound", "log10 recurrence alone", "recurrent steps needed"],
      ...found.back.map((b, i) => [b, found.measured[i], found.bound?.[i], found.alone[i], found.depth[i]])]);
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
