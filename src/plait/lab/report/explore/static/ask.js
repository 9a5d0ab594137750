// Requests to the local server. An error response is one line of JSON, and becomes the message of an Error.
let open = 0; // pending requests; while there are any, the page is marked as busy for screen readers
const busy = (change) => document.querySelector("main").setAttribute("aria-busy", (open += change) > 0);

async function request(path, query, options, parse) {
  const text = new URLSearchParams(query).toString();
  busy(1);
  try {
    const response = await fetch(`/api/${path}${text ? `?${text}` : ""}`, options);
    if (!response.ok) throw new Error((await response.json()).error);
    return await parse(response);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // fetch rejects with a TypeError if there is no server
    throw new Error("plait explore does not answer: it may have been ended; start it again");
  } finally {
    busy(-1);
  }
}

export const ask = (path, query = {}, options = {}) => request(path, query, options, (response) => response.json());
export const file = (path, query = {}, options = {}) => request(path, query, options, (response) => response.blob());

// Run one call at a time, and of the calls made meanwhile only the last: a slider sends many.
export function latest(work) {
  let working = false, waiting = null;
  return async function run(...args) {
    if (working) { waiting = args; return; }
    working = true;
    try { await work(...args); } finally { working = false; }
    if (waiting) { const next = waiting; waiting = null; await run(...next); }
  };
}
