// The lines of a plot as in the report: seeds together or separately, over the axes of one of its views.
import { chart } from "./chart.js";
import { color } from "./dom.js";

// One line per seed; or for a name with several seeds their mean, with `low` and `high` around it.
export function drawnLines(found, view, each) {
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

// Lines over the axes of a view; `published` are levels by name.
export function drawLines(view, lines, published, width, read, height = 340) {
  const kind = view.log ? "log" : view.percent ? "percent" : "linear";
  const range = view.percent ? { low: 0, high: 1 } : lines.length ? {} : { low: 1, high: 10 };
  const last = Math.max(1, ...lines.flatMap((line) => line.x)), first = Math.min(last - 1, ...lines.flatMap((line) => line.x));
  const level = Object.entries(published).filter(([name]) => lines.some((line) => line.name === name)).map(([name, value]) => ({
    x: [first, last], y: [value, value], color: lines.find((line) => line.name === name).color, dash: "1 4", width: 1 }));
  const says = (value) => `${value.toLocaleString("en")} ${view.x_label}`, bands = lines.filter((line) => line.low).map(({ x, low, high, color }) => ({ x, low, high, color }));
  return chart({ width, height, read, x: { label: view.x_label, low: first, high: last, says }, y: { label: view.y_label, kind, ...range }, bands, series: [...lines, ...level] });
}
