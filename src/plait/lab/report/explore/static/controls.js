// Input controls; each passes a new value to `change`, and `set` changes the value from outside.
import { el } from "./dom.js";

export function slider(name, { low, high, step = 1, value, shown = String, long = false }, change) {
  const output = el("output", null, shown(value));
  const input = el("input", { type: "range", min: low, max: high, step, value, "aria-label": name });
  const write = () => { output.textContent = shown(+input.value); input.setAttribute("aria-valuetext", output.textContent); };
  input.addEventListener("input", () => { write(); change(+input.value); });
  const node = el("label", { className: long ? "slider long" : "slider" }, el("span", null, `${name} `, output), input);
  return { node, input, set: (next) => { input.value = next; write(); } };
}

export function choice(name, options, value, change) {
  const input = el("select", { "aria-label": name }, options.map(([key, words]) => el("option", { value: key }, words)));
  input.value = value;
  input.addEventListener("change", () => change(input.value));
  return { node: el("label", null, name, input), input, set: (next) => { input.value = next; } };
}

export function field(name, { type = "text", value = "", ...more }, change) {
  const input = el("input", { type, value, ...more });
  input.addEventListener("change", () => change(input.value.trim()));
  return { node: el("label", null, name, input), input, set: (next) => { input.value = next; } };
}
