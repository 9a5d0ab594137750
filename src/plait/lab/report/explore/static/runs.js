// Runs: results with published values, and curves.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { beside } from "./beside.js";
import { choice } from "./controls.js";
import { el, failure, folded, part } from "./dom.js";
import { figure, legend } from "./figure.js";
import { chartOf } from "./lines.js";

let view = null; // of the panel; built again when the folder has other runs

export async function show(panel) {
  try {
    const overview = await ask("runs");
    if (!view || view.names !== JSON.stringify([overview.groups, overview.runs])) view = build(panel, overview);
    view.summarise(overview);
    await view.load();
  } catch (error) {
    view = null;
    panel.replaceChildren(failure(error));
  }
}

function build(panel, { groups, runs }) {
  const pair = beside(runs), self = { names: JSON.stringify([groups, runs]), group: null };
  const head = el("h2"), standing = el("p"), trouble = el("div"), about = el("div"), tables = el("div"), views = el("div", { className: "bar views" }), names = el("div");
  const drawing = figure("runs-curves", "Curves");
  const change = (changes) => { address.set(changes); self.load(); };
  const group = choice("group", groups.map((title, i) => [i, title]), "0", (value) => change({ group: value, plot: null, view: null, hide: null }));
  const plot = choice("curves", [], "0", (value) => change({ plot: value, view: null }));
  panel.replaceChildren(head, standing, el("div", { className: "controls" }, group.node, plot.node), trouble, about, views, drawing.node, names, tables, pair.node);

  self.summarise = (overview) => {
    head.replaceChildren(overview.headline);
    standing.replaceChildren(overview.standing);
    trouble.replaceChildren(...overview.damaged.map((line) => failure({ message: line })));
  };
  self.load = latest(async () => {
    try {
      const index = address.get("group", "0");
      self.group = await ask("group", { group: index });
      group.set(index);
      about.replaceChildren(...describe(self.group));
      tables.replaceChildren(...(self.group.grid ? [grid(self.group.grid)] : []), ...self.group.tables.map((table, i) => i ? folded(table) : part(table)));
      plot.input.replaceChildren(...self.group.plots.map(({ title }, i) => el("option", { value: i }, title)));
      plot.set(address.get("plot", "0"));
      plot.node.hidden = drawing.node.hidden = !self.group.plots.length;
      views.replaceChildren();
      names.replaceChildren();
      if (self.group.plots.length) self.draw(await ask("plot", { group: index, plot: address.get("plot", "0") }));
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
    await pair.load();
  });
  self.draw = (data) => {
    const at = Math.min(data.views.length - 1, Math.max(0, +address.get("view", "0") || 0)), chosen = data.views[at];
    const hidden = new Set(address.get("hide").split("|").filter(Boolean));
    const each = address.get("each") === "1", hasSeeds = data.views.some(({ together }) => together?.length);
    const curves = charts.curvesOf(data, chosen, each), shown = curves.filter(({ label }) => !hidden.has(label));
    const toggle = (name) => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); address.set({ hide: [...hidden].join("|") }); self.draw(data); };
    views.replaceChildren(...data.views.map(({ name }, i) => el("button", { type: "button", "aria-pressed": String(i === at), onclick: () => { address.set({ view: i }); self.draw(data); } }, name)),
      ...(hasSeeds ? [el("button", { type: "button", "aria-pressed": String(each), onclick: () => { address.set({ each: each ? null : 1 }); self.draw(data); } }, "each seed")] : []));
    names.replaceChildren(legend(curves, toggle, hidden));
    drawing.title(data.title);
    drawing.caption(data.caption + (Object.keys(data.published).length ? " Thin level lines: published." : ""));
    drawing.showChart(() => chartOf(chosen, shown, data.published),
      () => [["name", "seed", chosen.x_label, chosen.y_label], ...charts.curvesOf(data, chosen, true).flatMap((curve) => curve.x.map((x, i) => [curve.label, curve.seed, x, curve.y[i]]))],
      { height: 340 });
  };
  return self;
}

function describe(group) {
  const lines = [group.claim ? `Claim: ${group.claim}` : null, group.source || null].filter(Boolean).map((text) => el("p", { className: "note" }, text));
  const notes = group.notes.map((text) => el("p", { className: "note" }, text));
  return notes.length ? [...lines, el("details", null, el("summary", null, `Notes (${notes.length})`), notes)] : lines;
}

function grid({ columns, rows }) {
  const outcome = (cell) => cell === null ? [] : [cell.ours, cell.published ? el("small", null, `published: ${cell.published}`) : null,
    cell.verdict ? el("small", { className: cell.verdict.split(" ")[0] }, `${cell.mark} ${cell.verdict}`) : null, el("small", null, cell.states)];
  return el("div", { className: "wide", tabindex: 0, role: "region", "aria-label": "ours beside published" }, el("table", { className: "grid" },
    el("caption", null, "Ours beside published"),
    el("thead", null, el("tr", null, el("th"), columns.map((name) => el("th", null, name)))),
    el("tbody", null, rows.map((row) => el("tr", null, el("th", null, row.name), row.cells.map((cell) => el("td", null, outcome(cell))))))));
}
