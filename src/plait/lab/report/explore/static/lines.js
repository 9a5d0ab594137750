// The chart of a plot of runs: its curves over the axes of one of its views, seeds together or separately.

// `published` are levels by name.
export function chartOf(view, curves, published = {}) {
  const kind = view.log ? "log" : view.percent ? "percent" : "linear";
  const xs = curves.flatMap((curve) => curve.x), last = Math.max(1, ...xs), first = Math.min(last - 1, ...xs);
  const levels = curves.filter((curve, i) => curve.label in published && curves.findIndex(({ label }) => label === curve.label) === i)
    .map(({ label, color }) => ({ label: "", x: [first, last], y: [published[label], published[label]], color, style: "dotted" }));
  const says = (value) => `${value.toLocaleString("en")} ${view.x_label}`;
  return { x: { label: view.x_label, kind: "linear", says }, y: { label: view.y_label, kind }, curves: [...curves, ...levels], bands: charts.bandsOf(curves) };
}
