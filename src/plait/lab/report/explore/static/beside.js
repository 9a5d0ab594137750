// One run, or two compared: curves over common axes, their difference, and the command that repeats each.
import * as address from "./address.js";
import { ask, latest } from "./ask.js";
import { legend } from "./chart.js";
import { choice } from "./controls.js";
import { el, failure, part } from "./dom.js";
import { figure } from "./figure.js";
import { drawLines, drawnLines } from "./lines.js";

const NO_COMMAND = "trained from Python on a network or data of its own: no command repeats it";

export function beside(runs) {
  const self = { figures: [] }, trouble = el("div"), told = el("div"), shown = el("div", { className: "pair" });
  const options = runs.map(({ key, name }) => [key, name]);
  const change = (changes) => { address.set(changes); self.load(); };
  const first = choice("run", options, "", (key) => change({ first: key }));
  const second = choice("beside", [["-", "no other"], ...options], "", (key) => change({ second: key }));
  self.node = el("section", { id: "beside" }, el("h2", null, "One run beside another"), el("div", { className: "controls" }, first.node, second.node), trouble, told, shown);

  self.load = latest(async () => {
    const asked = { first: address.get("first", runs[0].key), second: address.get("second", runs[1]?.key ?? "-") };
    first.set(asked.first);
    second.set(asked.second);
    try {
      const found = await ask("beside", asked.second === "-" ? { first: asked.first } : asked);
      trouble.replaceChildren();
      told.replaceChildren(...found.tables.map(part), ...found.commands.flatMap(({ name, command }) => [
        el("p", { className: "note" }, `How to repeat ${name}:`), el("pre", { className: "commands" }, command ?? NO_COMMAND)]));
      self.draw(found.plots);
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  });

  self.draw = (plots) => {
    while (self.figures.length < plots.length) self.figures.push(figure(`beside-${self.figures.length}`, ""));
    shown.replaceChildren(...plots.map((plot, i) => {
      const one = self.figures[i], view = plot.views[0], lines = () => drawnLines(plot, view, true);
      one.title(plot.title);
      one.caption(plot.caption);
      one.show((width, read) => drawLines(view, lines(), {}, width, read, 260),
        () => [["name", view.x_label, view.y_label], ...lines().flatMap((line) => line.x.map((x, k) => [line.name, x, line.y[k]]))]);
      return el("div", null, one.node, legend(lines(), el));
    }));
    self.figures.forEach((one) => one.redraw());
  };
  return self;
}
