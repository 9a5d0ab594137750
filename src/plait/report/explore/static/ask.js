// Questions to the machine that served the page. An error is one line of JSON, and becomes the message of an Error.
let open = 0; // questions without an answer yet; who cannot see the page is told that it is busy
const busy = (change) => document.querySelector("main").setAttribute("aria-busy", (open += change) > 0);

export async function ask(path, query = {}, options = {}) {
  const text = new URLSearchParams(query).toString();
  busy(1);
  try {
    const response = await fetch(`/api/${path}${text ? `?${text}` : ""}`, options);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // what fetch says where nobody answers
    throw new Error("plait explore does not answer: it may have been ended; start it again");
  } finally {
    busy(-1);
  }
}

// The same function, one call at a time: of those that come meanwhile only the last is made. A slider sends many.
export function latest(work) {
  let working = false, waiting = null;
  return async function run(...args) {
    if (working) { waiting = args; return; }
    working = true;
    try { await work(...args); } finally { working = false; }
    if (waiting) { const next = waiting; waiting = null; await run(...next); }
  };
}
