// Elements of the page, and its colours.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "fill" && node.tagName === "text") node.style.fill = value; // overrides the page's own rule
    else if (name === "className") node.setAttribute("class", value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const { color, ramp } = charts; // of /shared/charts.js

// A long table is collapsed under its title.
export function folded(table) {
  return el("details", null, el("summary", null, `${table.title} (${table.rows.length})`), part({ ...table, title: "" }));
}

// A part of a response, as the command line prints it: a sentence, or a table with its notes.
export function part(table) {
  if (table.text !== undefined) return el("p", null, table.text);
  const head = el("tr", null, table.columns.map((name) => el("th", null, name)));
  const body = table.rows.map((row) => el("tr", null, row.map((cell) => el("td", null, cell))));
  const node = el("table", null, table.title ? el("caption", null, table.title) : null, el("thead", null, head), el("tbody", null, body));
  // A table wider than the page scrolls in its box, also by keyboard.
  const box = el("div", { className: "wide", tabindex: 0, role: "region", "aria-label": table.title || "table" }, node);
  return el("div", null, box, (table.notes ?? []).map((note) => el("p", { className: "note" }, note)));
}

export const failure = (error) => el("p", { className: "error", role: "alert" }, error.message);
