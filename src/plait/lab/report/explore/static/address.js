// The current view as the URL's fragment: `memory?run=…&sample=0&step=17`. Every change of the page goes through here.
const lastViews = new Map(); // by tab
let current = { tab: "", values: new URLSearchParams() };

export function read() {
  const [tab, query = ""] = location.hash.slice(1).split("?");
  current = { tab, values: new URLSearchParams(query) };
  return current;
}

function write(push) {
  const query = String(current.values);
  const hash = `#${current.tab}${query ? `?${query}` : ""}`;
  if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
}

export const get = (name, fallback = "") => current.values.get(name) ?? fallback;
export const values = (...names) => Object.fromEntries(names.map((name) => [name, get(name)]).filter(([, value]) => value !== ""));

export function set(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") current.values.delete(name);
    else current.values.set(name, value);
  }
  write(false);
}

export function go(tab) {
  lastViews.set(current.tab, current.values);
  current = { tab, values: lastViews.get(tab) ?? new URLSearchParams() };
  write(true);
}
