// Runs: what came, ours beside published, and curves.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { chart, legend } from "./chart.js";
import { choice } from "./controls.js";
import { color, el, failure, folded, part } from "./dom.js";
import { figure } from "./figure.js";

let made = null;

export async function show(panel) {
  try {
    const found = await ask("runs");
    if (!made || made.names !== JSON.stringify(found.groups)) made = build(panel, found);
    made.says(found);
    await made.load();
  } catch (error) {
    made = null;
    panel.replaceChildren(failure(error));
  }
}

function build(panel, { groups }) {
  const self = { names: JSON.stringify(groups), group: null, asked: "" };
  const head = el("h2"), standing = el("p"), trouble = el("div"), about = el("div"), tables = el("div"), views = el("div", { className: "bar views" }), names = el("div");
  const curves = figure("runs-curves", "Curves");
  const change = (changes) => { address.set(changes); self.load(); };
  const group = choice("group", groups.map((title, i) => [i, title]), "0", (value) => change({ group: value, plot: null, view: null, hide: null }));
  const plot = choice("curves", [], "0", (value) => change({ plot: value, view: null }));
  panel.replaceChildren(head, standing, el("div", { className: "controls" }, group.node, plot.node), trouble, about, views, curves.node, names, tables);

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
    curves.show((width, read) => draw(view, shown(), found.published, width, read),
      () => [["name", "seed", view.x_label, view.y_label], ...drawnLines(found, view, true).flatMap((line) => line.x.map((x, i) => [line.name, line.seed, x, line.y[i]]))]);
  };
  return self;
}

// A line a seed; or of a name with several seeds their mean, with `low` and `high` around it.
function drawnLines(found, view, each) {
  const together = new Map(each ? [] : (view.together ?? []).map((one) => [one.name, one])), drawn = [];
  for (const line of found.lines.filter((one) => one.columns[view.x] && one.columns[view.y])) {
    const look = { name: line.name, color: color(`c${line.color % 10}`), dash: line.color >= 10 ? "6 3" : null }, mine = together.get(line.name);
    if (!mine) drawn.push({ ...look, seed: line.seed, ...points(line, view) });
    else if (!drawn.some((one) => one.name === line.name)) drawn.push({ ...look, x: mine.x, y: mine.mean, low: mine.low, high: mine.high });
  }
  return drawn;
}

function points(line, view) {
  const x = line.columns[view.x], y = line.columns[view.y], there = x.map((_, i) => i).filter((i) => x[i] !== null && (y[i] ?? null) !== null);
  return { x: there.map((i) => x[i]), y: there.map((i) => y[i]) };
}

function draw(view, lines, published, width, read) {
  const kind = view.log ? "log" : view.percent ? "percent" : "linear";
  const range = view.percent ? { low: 0, high: 1 } : lines.length ? {} : { low: 1, high: 10 };
  const last = Math.max(1, ...lines.flatMap((line) => line.x)), first = Math.min(last - 1, ...lines.flatMap((line) => line.x));
  const level = Object.entries(published).filter(([name]) => lines.some((line) => line.name === name)).map(([name, value]) => ({
    x: [first, last], y: [value, value], color: lines.find((line) => line.name === name).color, dash: "1 4", width: 1 }));
  const says = (value) => `${value.toLocaleString("en")} ${view.x_label}`, bands = lines.filter((line) => line.low).map(({ x, low, high, color }) => ({ x, low, high, color }));
  return chart({ width, height: 340, read, x: { label: view.x_label, low: first, high: last, says }, y: { label: view.y_label, kind, ...range }, bands, series: [...lines, ...level] });
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
