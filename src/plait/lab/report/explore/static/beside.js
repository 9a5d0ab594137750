// One run, or two compared: curves over common axes, their difference, and the command that repeats each.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { choice } from "./controls.js";
import { el, failure, part } from "./dom.js";
import { figure, legend } from "./figure.js";
import { chartOf } from "./lines.js";

const NO_COMMAND = "trained from Python on a network or data of its own: no command repeats it";

export function beside(runs) {
  const self = { figures: [] }, trouble = el("div"), tables = el("div"), plots = el("div", { className: "pair" });
  const options = runs.map(({ key, name }) => [key, name]);
  const change = (changes) => { address.set(changes); self.load(); };
  const first = choice("run", options, "", (key) => change({ first: key }));
  const second = choice("beside", [["-", "no other"], ...options], "", (key) => change({ second: key }));
  self.node = el("section", { id: "beside" }, el("h2", null, "One run beside another"), el("div", { className: "controls" }, first.node, second.node), trouble, tables, plots);

  self.load = latest(async () => {
    const query = { first: address.get("first", runs[0].key), second: address.get("second", runs[1]?.key ?? "-") };
    first.set(query.first);
    second.set(query.second);
    try {
      const comparison = await ask("beside", query.second === "-" ? { first: query.first } : query);
      trouble.replaceChildren();
      tables.replaceChildren(...comparison.tables.map(part), ...comparison.commands.flatMap(({ name, command }) => [
        el("p", { className: "note" }, `How to repeat ${name}:`), el("pre", { className: "commands" }, command ?? NO_COMMAND)]));
      self.draw(comparison.plots);
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  });

  self.draw = (data) => {
    while (self.figures.length < data.length) self.figures.push(figure(`beside-${self.figures.length}`, ""));
    plots.replaceChildren(...data.map((plot, i) => {
      const drawing = self.figures[i], view = plot.views[0], curves = charts.curvesOf(plot, view, true);
      drawing.title(plot.title);
      drawing.caption(plot.caption);
      drawing.showChart(() => chartOf(view, curves),
        () => [["name", view.x_label, view.y_label], ...curves.flatMap((curve) => curve.x.map((x, k) => [curve.label, x, curve.y[k]]))], { height: 260 });
      return el("div", null, drawing.node, legend(curves));
    }));
    self.figures.forEach((drawing) => drawing.redraw());
  };
  return self;
}
