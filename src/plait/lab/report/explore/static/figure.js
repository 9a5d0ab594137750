// A figure: a title, a chart or a diagram that adapts to width and colour scheme, and three ways to save it.
import { file } from "./ask.js";
import { color, el } from "./dom.js";

const figures = new Set();
const again = () => figures.forEach((figure) => figure.redraw());
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", again);

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A diagram as a file of its own: colours are resolved already, background and fonts are added.
function diagramFile(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("style", `background:${color("paper")};font-family:system-ui,sans-serif`);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

async function diagramPixels(svg) {
  const image = new Image(), link = URL.createObjectURL(diagramFile(svg));
  await new Promise((onload, onerror) => Object.assign(image, { onload, onerror, src: link }));
  const canvas = el("canvas", { width: 2 * svg.width.baseVal.value, height: 2 * svg.height.baseVal.value });
  const context = canvas.getContext("2d");
  context.fillStyle = color("paper");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(link);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

const cell = (value) => /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
export const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";

// `show(draw, rows, picture)`: `draw(width, read, box)` returns an SVG element, or draws into the box and returns nothing;
// `rows()` returns its numbers, with a header row first. A chart is a canvas, so the server draws its files: `picture`
// is a function that returns the chart as data, or the path and the query of a picture that the server knows.
export function figure(name, title, caption = "") {
  const head = el("h3", null, title), box = el("div", { className: "box" }), note = el("figcaption", null, caption);
  const readout = el("p", { className: "read" }), read = (text) => readout.replaceChildren(text);
  const self = { draw: null, rows: null, picture: null, width: 0, box, read: readout };
  const pictureFile = (format) => Array.isArray(self.picture)
    ? file(self.picture[0], { format, ...self.picture[1] })
    : file("picture", { format }, { method: "POST", body: JSON.stringify({ title: head.textContent, ...self.picture() }) });
  const save = (format, make) => el("button", {
    type: "button", "aria-label": `save “${title}” as ${format.toUpperCase()}`,
    onclick: async () => {
      if (!box.firstChild) return;
      try {
        download(`${name}.${format}`, await make());
      } catch (error) {
        read(error.message);
      }
    },
  }, format.toUpperCase());
  const buttons = el("div", { className: "save bar" },
    save("png", () => self.picture ? pictureFile("png") : diagramPixels(box.firstChild)),
    save("svg", () => self.picture ? pictureFile("svg") : diagramFile(box.firstChild)),
    save("csv", () => new Blob([csv(self.rows())], { type: "text/csv" })));
  self.node = el("figure", { id: name }, el("div", { className: "head" }, head, buttons), box, readout, note);
  self.title = (text) => head.replaceChildren(text);
  self.caption = (text) => note.replaceChildren(text);
  self.redraw = () => {
    if (!self.draw || !box.clientWidth) return;
    self.width = box.clientWidth;
    self.node.plot?.destroy();
    self.node.plot = null;
    read("");
    const svg = self.draw(box.clientWidth, read, box);
    if (svg) box.replaceChildren(svg);
  };
  self.show = (draw, rows, picture = null) => { Object.assign(self, { draw, rows, picture }); self.redraw(); };
  // A chart of /shared/charts.js; its values are read at the pointer. `data()` resolves colours anew at every drawing.
  self.showChart = (data, rows, { height = 300, over = null, label = "", read: readPointer = null, picture = data } = {}) =>
    self.show((width) => {
      const chart = data(), named = chart.curves.filter((curve) => curve.label);
      const readValues = (x) => {
        const { at, values } = x === null ? { at: null, values: [] } : charts.valuesNear(named, x, chart.y.kind);
        const where = chart.x.says ?? ((value) => `${chart.x.label} ${charts.short(value)}`);
        read(values.length ? `${where(at)}: ${values.slice(0, 8).map((value) => `${value.label} ${value.text}`).join("; ")}` : "");
        return at;
      };
      self.node.plot = charts.draw(box, chart, { width, height: typeof height === "function" ? height(width) : height, label, over, read: readPointer ? (x, u) => readPointer(x, u, read) : readValues });
    }, rows, picture);
  new ResizeObserver(() => { if (box.clientWidth !== self.width) self.redraw(); }).observe(box);
  figures.add(self);
  return self;
}

// The names of curves in their colours; with `toggle` a click on a name hides or shows its curves.
export function legend(curves, toggle = null, hidden = new Set()) {
  const byName = new Map(curves.filter((curve) => curve.label).map((curve) => [curve.label, curve]));
  return el("div", { className: "bar legend" }, [...byName.values()].map(({ label, color: index, style }) => {
    const dashed = style === "dashed" || style === "dotted" || index >= 10;
    const swatch = el("span", { className: dashed ? "swatch dashed" : "swatch", style: `background-color:${charts.hue(index)}` });
    if (!toggle) return el("span", { className: "value" }, swatch, label);
    return el("button", { type: "button", "aria-pressed": String(!hidden.has(label)), onclick: () => toggle(label) }, swatch, label);
  }));
}
