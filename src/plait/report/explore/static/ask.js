// Questions to the machine that served the page. An error is one line of JSON, and becomes the message of an Error.
export async function ask(path, query = {}, options = {}) {
  const text = new URLSearchParams(query).toString();
  let response;
  try {
    response = await fetch(`/api/${path}${text ? `?${text}` : ""}`, options);
  } catch {
    throw new Error("plait explore does not answer: it may have been ended; start it again");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// The same function, one call at a time: of those that come meanwhile only the last is made. A slider sends many.
export function latest(work) {
  let busy = false, waiting = null;
  return async function run(...args) {
    if (busy) { waiting = args; return; }
    busy = true;
    try { await work(...args); } finally { busy = false; }
    if (waiting) { const next = waiting; waiting = null; await run(...next); }
  };
}
