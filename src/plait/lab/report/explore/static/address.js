// The current view as the URL's fragment: `memory?run=…&sample=0&step=17`. Every change of the page goes through here.
const kept = new Map(); // last view of each tab
let now = { tab: "", values: new URLSearchParams() };

export function read() {
  const [tab, query = ""] = location.hash.slice(1).split("?");
  now = { tab, values: new URLSearchParams(query) };
  return now;
}

function write(push) {
  const query = String(now.values);
  const hash = `#${now.tab}${query ? `?${query}` : ""}`;
  if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
}

export const get = (name, usual = "") => now.values.get(name) ?? usual;
export const values = (...names) => Object.fromEntries(names.map((name) => [name, get(name)]).filter(([, value]) => value !== ""));

export function set(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") now.values.delete(name);
    else now.values.set(name, value);
  }
  write(false);
}

export function go(tab) {
  kept.set(now.tab, now.values);
  now = { tab, values: kept.get(tab) ?? new URLSearchParams() };
  write(true);
}
