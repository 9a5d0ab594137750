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
  const current = address.read();
  const tab = names.includes(current.tab) ? current.tab : names[0];
  if (tab !== current.tab) address.go(tab);
  tabs.forEach((button, index) => {
    const chosen = names[index] === tab;
    button.setAttribute("aria-selected", chosen);
    button.tabIndex = chosen ? 0 : -1;
    panel(names[index]).hidden = !chosen;
  });
  document.title = `plait: ${tabs[names.indexOf(tab)].textContent}`;
  return TABS[tab].show(panel(tab));
}

function choose(index) {
  const at = (index + tabs.length) % tabs.length;
  address.go(names[at]);
  tabs[at].focus();
  open();
}

tabs.forEach((button, index) => {
  button.addEventListener("click", () => choose(index));
  button.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 };
    if (event.key in moves) { event.preventDefault(); choose(moves[event.key]); }
  });
});
addEventListener("popstate", open); // back, forward, and pasted URLs
open();
