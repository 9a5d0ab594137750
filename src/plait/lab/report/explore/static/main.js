// The tabs: one is open, as given by the URL; arrow keys move between them.
import * as address from "./address.js";
import * as gradients from "./gradients.js";
import * as memory from "./memory.js";
import * as plane from "./plane.js";
import * as runs from "./runs.js";

const TABS = { memory, gradients, plane, runs };
const tabs = [...document.querySelectorAll('[role="tab"]')], names = Object.keys(TABS);
const panel = (name) => document.getElementById(`panel-${name}`);

function open() {
  const found = address.read();
  const tab = names.includes(found.tab) ? found.tab : names[0];
  if (tab !== found.tab) address.go(tab);
  tabs.forEach((button, place) => {
    const chosen = names[place] === tab;
    button.setAttribute("aria-selected", chosen);
    button.tabIndex = chosen ? 0 : -1;
    panel(names[place]).hidden = !chosen;
  });
  document.title = `plait: ${tabs[names.indexOf(tab)].textContent}`;
  return TABS[tab].show(panel(tab));
}

function choose(place) {
  const at = (place + tabs.length) % tabs.length;
  address.go(names[at]);
  tabs[at].focus();
  open();
}

tabs.forEach((button, place) => {
  button.addEventListener("click", () => choose(place));
  button.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 };
    if (event.key in moves) { event.preventDefault(); choose(moves[event.key]); }
  });
});
addEventListener("popstate", open); // back, forward, and pasted URLs
open();
