// Elements, colours, and formatting of numbers.
const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "fill" && made.tagName === "text") made.style.fill = value; // overrides the page's own rule
    else if (name === "className") made.setAttribute("class", value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function short(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size === 0 || (size >= 1e-3 && size < 1e6)) return String(+value.toPrecision(4));
  return value.toExponential(+value.toPrecision(1) === value ? 0 : 1);
}
const RAISED = { "-": "⁻", ".": "·", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
export const power = (value) => `10${[...String(+value.toFixed(1))].map((c) => RAISED[c]).join("")}`;
export const percent = (value) => `${+(100 * value).toFixed(1)}%`;

const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
export function ramp(share) {
  const at = Math.min(0.999, Math.max(0, share)) * (RAMP.length - 1), low = Math.floor(at), part = at - low;
  return RAMP[low].map((value, i) => Math.round(value + part * (RAMP[low + 1][i] - value)));
}

// A long table is collapsed under its title.
export function folded(one) {
  return el("details", null, el("summary", null, `${one.title} (${one.rows.length})`), part({ ...one, title: "" }));
}

// A part of a response, as the command line prints it: a sentence, or a table with its notes.
export function part(one) {
  if (one.text !== undefined) return el("p", null, one.text);
  const head = el("tr", null, one.columns.map((name) => el("th", null, name)));
  const body = one.rows.map((row) => el("tr", null, row.map((cell) => el("td", null, cell))));
  const table = el("table", null, one.title ? el("caption", null, one.title) : null, el("thead", null, head), el("tbody", null, body));
  // A table wider than the page scrolls in its box, also by keyboard.
  const box = el("div", { className: "wide", tabindex: 0, role: "region", "aria-label": one.title || "table" }, table);
  return el("div", null, box, (one.notes ?? []).map((note) => el("p", { className: "note" }, note)));
}

export const failure = (error) => el("p", { className: "error", role: "alert" }, error.message);
