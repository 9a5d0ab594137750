// A figure: a title, a drawing that adapts to width and colour scheme, and three ways to save it.
import { color, el } from "./dom.js";

const figures = new Set();
const again = () => figures.forEach((one) => one.redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The drawing as a file of its own: colours are resolved already, background and fonts are added.
function alone(drawn) {
  const copy = drawn.cloneNode(true);
  copy.setAttribute("style", `background:${color("paper")};font-family:system-ui,sans-serif`);
  copy.querySelectorAll("[data-passing]").forEach((one) => one.remove());
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

async function picture(drawn) {
  const image = new Image(), link = URL.createObjectURL(alone(drawn));
  await new Promise((done, failed) => Object.assign(image, { onload: done, onerror: failed, src: link }));
  const canvas = el("canvas", { width: 2 * drawn.width.baseVal.value, height: 2 * drawn.height.baseVal.value });
  const brush = canvas.getContext("2d");
  brush.fillStyle = color("paper");
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(link);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const cell = (value) => /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
export const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";

// `draw(width, read)` gives an SVG element; `rows()` its numbers, with a header row first.
export function figure(name, title, caption = "") {
  const head = el("h3", null, title), box = el("div", { className: "box" }), read = el("p", { className: "read" });
  const save = (ending, make) => el("button", {
    type: "button", "aria-label": `save “${title}” as ${ending.toUpperCase()}`,
    onclick: async () => box.firstChild && download(`${name}.${ending}`, await make()),
  }, ending.toUpperCase());
  const note = el("figcaption", null, caption);
  const one = { draw: null, rows: null, width: 0 };
  const buttons = el("div", { className: "save bar" },
    save("png", () => picture(box.firstChild)),
    save("svg", () => alone(box.firstChild)),
    save("csv", () => new Blob([csv(one.rows())], { type: "text/csv" })));
  one.node = el("figure", { id: name }, el("div", { className: "head" }, head, buttons), box, read, note);
  one.box = box;
  one.read = read;
  one.title = (text) => head.replaceChildren(text);
  one.caption = (text) => note.replaceChildren(text);
  one.redraw = () => {
    if (!one.draw || !box.clientWidth) return;
    one.width = box.clientWidth;
    box.replaceChildren(one.draw(box.clientWidth, (text) => read.replaceChildren(text)));
  };
  one.show = (draw, rows) => { Object.assign(one, { draw, rows }); one.redraw(); };
  new ResizeObserver(() => { if (box.clientWidth !== one.width) one.redraw(); }).observe(box);
  figures.add(one);
  return one;
}
