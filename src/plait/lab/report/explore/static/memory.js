// Memory: the past states that a step can attend to, their weights, and which states are added and evicted.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { choice, field, slider } from "./controls.js";
import { el, failure } from "./dom.js";
import { figure } from "./figure.js";
import { drawImage, drawMap, drawMoment, setOf } from "./memory_drawings.js";

let view = null; // of the panel; built again when the folder has other runs

export async function show(panel) {
  try {
    const runs = await ask("memory/runs");
    if (!view || view.names !== JSON.stringify(runs)) view = build(panel, runs);
    await view.load();
  } catch (error) {
    view = null;
    panel.replaceChildren(failure(error));
  }
}

function build(panel, runs) {
  const self = { names: JSON.stringify(runs), trace: null };
  const trouble = el("div"), about = el("p", null, "Loading the weights; the first time this takes some seconds."), origin = el("p", { className: "note" }), weights = el("div"), controls = el("div", { className: "controls" });
  const moment = figure("memory-moment", "Attention of this step",
    "Bars: the weight α of each state that can be read; below the line: the relevance β it has earned. ▼ was added at this step, ◆ left the window and is kept, ✕ was evicted.");
  const map = figure("memory-map", "All steps", "Row t: attention weights of step t; blank where a state is not in the memory. Click a row to go to its step.");
  const image = figure("memory-image", "Attended pixels", "Pixels whose states this step can read are framed.");
  const load = latest(() => self.load());
  const change = (changes) => { address.set(changes); load(); };
  const run = choice("run", runs.map(({ key, name }) => [key, name]), "", (key) => change({ run: key, step: null }));
  const sample = field("held-out sample", { type: "number", min: 0, max: 99, step: 1 }, (value) => change({ sample: value }));
  const layer = choice("layer", [["1", "1"]], "1", (value) => { address.set({ layer: value }); self.draw(); });
  const time = slider("step", { low: 1, high: 2, value: 1, long: true, shown: (t) => `${t} of ${self.trace?.steps ?? "–"}` },
    (t) => { address.set({ step: t }); self.draw(false); });
  controls.append(run.node, sample.node, layer.node, time.node);
  panel.replaceChildren(el("h2", null, "Contents of a trained memory"), controls, trouble, about, origin, moment.node, weights,
    el("div", { className: "pair" }, map.node, image.node));

  // The run named by the URL; otherwise the first that can be shown, of which there is always the example.
  self.load = async () => {
    const named = address.get("run"), keys = named ? [named] : [...new Set([...runs.slice(0, 3), runs.at(-1)])].map(({ key }) => key);
    let trace = null;
    for (const key of keys) {
      const query = { run: key, sample: address.get("sample", "0") };
      run.set(query.run);
      sample.set(query.sample);
      try {
        trace = await ask("memory", query);
        trouble.replaceChildren();
        break;
      } catch (error) {
        trouble.replaceChildren(failure(error));
      }
    }
    if (!trace) {
      if (!self.trace) about.replaceChildren();
      return;
    }
    self.trace = trace;
    sample.node.hidden = Boolean(trace.command);
    origin.replaceChildren(...(trace.command ? ["This example is shipped with plait; ", el("code", null, trace.command), " trained it. Ten symbols are shown, then blanks and a marker (▮), then the network must name the ten symbols, one a step. At each of these steps the network reads the state of the step that showed the symbol, or of one just after it. Move the step to see it. Your own runs with a checkpoint and a memory are shown here instead."] : []));
    layer.input.replaceChildren(...self.trace.layers.map((_, i) => el("option", { value: i + 1 }, i + 1)));
    layer.node.hidden = self.trace.layers.length < 2;
    time.input.max = self.trace.steps;
    self.draw();
  };

  self.draw = (whole = true) => {
    const trace = self.trace;
    if (!trace) return;
    const at = Math.min(trace.layers.length, Math.max(1, +address.get("layer", "1") || 1));
    const step = Math.min(trace.steps, Math.max(1, Math.round(+address.get("step", trace.step ?? trace.steps)) || 1));
    self.step = step;
    const timeline = trace.layers[at - 1], here = timeline[step - 1];
    layer.set(at);
    time.set(step);
    about.replaceChildren(sentence(trace, here, step));
    weights.replaceChildren(table(trace, here, step));
    moment.title(`Attention of step ${step}`);
    moment.show((width) => drawMoment(trace, here, step, width), () => rows(trace, [here], step));
    if (whole) {
      map.show((width, read) => drawMap(trace, timeline, self.step, width, read, (t) => { address.set({ step: t }); self.draw(false); }),
        () => [["step", ...rows(trace, [], 1)[0]], ...timeline.flatMap((here, t) => rows(trace, [here], t + 1).slice(1).map((row) => [t + 1, ...row]))]);
    }
    map.box.querySelector("[data-now]")?.setAttribute("y", map.box.querySelector("svg").rowOf(step));
    image.node.hidden = !trace.image;
    if (trace.image) image.show((width) => drawImage(trace, here, step, Math.min(width, 360)), () => rows(trace, [here], step));
  };
  return self;
}

const list = (states) => states.length ? states.join(", ") : "none";

function sentence(trace, here, step) {
  const window = trace.window === null ? [] : here.states.map(([state]) => state).filter((state) => setOf(trace, state, step) === "window");
  const parts = [
    `${trace.title}. Step ${step}: ${here.count} states can be read`,
    trace.window === null ? null : `window ${window.length ? `${window[0]}–${window[window.length - 1]}` : "empty"}`,
    `kept ${list(here.kept)}`, `added ${list(here.added)}`,
    here.retained.length ? `left the window and is kept: ${list(here.retained)}` : null,
    here.evicted.length ? `evicted ${list(here.evicted)}` : "nothing evicted",
    here.count > here.states.length ? `the ${trace.most} largest weights are shown` : null,
  ];
  const target = trace.targets[step - 1], prediction = trace.predictions[step - 1];
  if (target !== null && prediction !== null) parts.push(`target “${target}”, prediction “${prediction}”`);
  return `${parts.filter(Boolean).join("; ")}.`;
}

function rows(trace, timeline, step) {
  const lines = timeline.flatMap((here) => here.states.map(([state, weight, relevance]) =>
    [state, trace.inputs[state - 1], setOf(trace, state, step), weight, relevance]));
  return [["state", "input", "set", "weight", "relevance"], ...lines];
}

function table(trace, here, step) {
  const [head, ...lines] = rows(trace, [here], step);
  const body = [...lines].sort((a, b) => b[3] - a[3]).slice(0, 10);
  const numbers = (column) => column > 2 ? "number" : null;
  return el("details", null, el("summary", null, "Largest weights, as a table"), el("div", { className: "wide" }, el("table", null,
    el("thead", null, el("tr", null, head.map((name, i) => el("th", { className: numbers(i) }, name)))),
    el("tbody", null, body.map((row) => el("tr", null, row.map((value, i) => el("td", { className: numbers(i) }, String(value)))))))));
}
