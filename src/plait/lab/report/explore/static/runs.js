// Runs: results with published values, and curves.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { beside } from "./beside.js";
import { legend } from "./chart.js";
import { choice } from "./controls.js";
import { el, failure, folded, part } from "./dom.js";
import { figure } from "./figure.js";
import { drawLines, drawnLines } from "./lines.js";

let made = null;

export async function show(panel) {
  try {
    const found = await ask("runs");
    if (!made || made.names !== JSON.stringify([found.groups, found.runs])) made = build(panel, found);
    made.says(found);
    await made.load();
  } catch (error) {
    made = null;
    panel.replaceChildren(failure(error));
  }
}

function build(panel, { groups, runs }) {
  const pair = beside(runs), self = { names: JSON.stringify([groups, runs]), group: null, asked: "" };
  const head = el("h2"), standing = el("p"), trouble = el("div"), about = el("div"), tables = el("div"), views = el("div", { className: "bar views" }), names = el("div");
  const curves = figure("runs-curves", "Curves");
  const change = (changes) => { address.set(changes); self.load(); };
  const group = choice("group", groups.map((title, i) => [i, title]), "0", (value) => change({ group: value, plot: null, view: null, hide: null }));
  const plot = choice("curves", [], "0", (value) => change({ plot: value, view: null }));
  panel.replaceChildren(head, standing, el("div", { className: "controls" }, group.node, plot.node), trouble, about, views, curves.node, names, tables, pair.node);

  self.says = (found) => {
    head.replaceChildren(found.headline);
    standing.replaceChildren(found.standing);
    trouble.replaceChildren(...found.damaged.map((line) => failure({ message: line })));
  };
  self.load = latest(async () => {
    try {
      const asked = address.get("group", "0");
      self.group = await ask("group", { group: asked });
      group.set(asked);
      about.replaceChildren(...describe(self.group));
      tables.replaceChildren(...(self.group.grid ? [grid(self.group.grid)] : []), ...self.group.tables.map((one, i) => i ? folded(one) : part(one)));
      plot.input.replaceChildren(...self.group.plots.map((one, i) => el("option", { value: i }, one.title)));
      plot.set(address.get("plot", "0"));
      plot.node.hidden = curves.node.hidden = !self.group.plots.length;
      views.replaceChildren();
      names.replaceChildren();
      if (self.group.plots.length) self.draw(await ask("plot", { group: asked, plot: address.get("plot", "0") }));
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
    await pair.load();
  });
  self.draw = (found) => {
    const at = Math.min(found.views.length - 1, Math.max(0, +address.get("view", "0") || 0)), view = found.views[at];
    const hidden = new Set(address.get("hide").split("|").filter(Boolean));
    const each = address.get("each") === "1", several = found.views.some((one) => one.together?.length);
    const lines = () => drawnLines(found, view, each);
    const shown = () => lines().filter((line) => !hidden.has(line.name));
    const toggle = (name) => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); address.set({ hide: [...hidden].join("|") }); self.draw(found); };
    views.replaceChildren(...found.views.map((one, i) => el("button", { type: "button", "aria-pressed": String(i === at), onclick: () => { address.set({ view: i }); self.draw(found); } }, one.name)),
      ...(several ? [el("button", { type: "button", "aria-pressed": String(each), onclick: () => { address.set({ each: each ? null : 1 }); self.draw(found); } }, "each seed")] : []));
    names.replaceChildren(legend(lines(), el, toggle, hidden));
    curves.title(found.title);
    const beside = Object.keys(found.published).length ? " Thin level lines: published." : "";
    curves.caption(found.caption + beside);
    curves.show((width, read) => drawLines(view, shown(), found.published, width, read),
      () => [["name", "seed", view.x_label, view.y_label], ...drawnLines(found, view, true).flatMap((line) => line.x.map((x, i) => [line.name, line.seed, x, line.y[i]]))]);
  };
  return self;
}

function describe(group) {
  const said = [group.claim ? `Claim: ${group.claim}` : null, group.source || null].filter(Boolean).map((text) => el("p", { className: "note" }, text));
  const notes = group.notes.map((text) => el("p", { className: "note" }, text));
  return notes.length ? [...said, el("details", null, el("summary", null, `Notes (${notes.length})`), notes)] : said;
}

function grid({ columns, rows }) {
  const one = (found) => found === null ? [] : [found.ours, found.published ? el("small", null, `published: ${found.published}`) : null,
    found.verdict ? el("small", { className: found.verdict.split(" ")[0] }, `${found.mark} ${found.verdict}`) : null, el("small", null, found.states)];
  return el("div", { className: "wide", tabindex: 0, role: "region", "aria-label": "ours beside published" }, el("table", { className: "grid" },
    el("caption", null, "Ours beside published"),
    el("thead", null, el("tr", null, el("th"), columns.map((name) => el("th", null, name)))),
    el("tbody", null, rows.map((row) => el("tr", null, el("th", null, row.name), row.cells.map((cell) => el("td", null, one(cell))))))));
}
