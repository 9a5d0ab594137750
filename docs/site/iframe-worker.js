// A browser starts no Worker for a page from disk, and the search needs one: there its script runs in a hidden
// frame, which takes and sends messages as a Worker would. Pages from a server keep the browser's own.
if (location.protocol === "file:") {
  // A copy, as between threads: each side writes into what it was sent.
  const message = (data) => new MessageEvent("message", { data: structuredClone(data) });
  window.Worker = class {
    onmessage = null;
    onerror = null;
    #frame = Object.assign(document.createElement("iframe"), { hidden: true });

    constructor(url) {
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow, script = inside.document.createElement("script");
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.(message(data)));
      this.ready = new Promise((loaded) => { script.onload = loaded; });
      script.onerror = (event) => this.onerror?.(event);
      script.src = new URL(url, location.href);
      inside.document.body.append(script);
    }

    async postMessage(data) {
      await this.ready;
      this.#frame.contentWindow?.dispatchEvent(message(data));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
