// What the panel knows of its slot, and how it asks. Python puts this in front of the others: one module,
// because anywidget loads one.
//
// The page asks the Jupyter server (a fetch is answered while a cell runs; the kernel answers nothing
// then). All panels on a page share one stream of changes, and a hidden page has none. Where there is no
// such server, the same questions go to the kernel.

const FIRST_DELAY = 500; // ms between attempts, doubled up to the longest
const LONGEST_DELAY = 10_000;
const POLL = 2_000; // ms between looks where there is no stream
const SILENCE = 40_000; // ms; the server writes at least every 15 s
const PROOF = 5_000; // ms for the first line; a proxy that holds it back holds back all of them

const SIGNED_OUT =
  "The Jupyter server did not accept the request. Reload the page, and sign in if it asks you to.";
const SERVER_AWAY = "The Jupyter server does not answer at the moment. The panel keeps trying.";
const KERNEL_BUSY =
  "The kernel is busy. Without a Jupyter server on this page, it answers when the running cell ends.";

// ---- asking --------------------------------------------------------------------------------------

/** What was answered instead of the slot: {status, code, detail, best_offer?, current?}. */
class Problem extends Error {
  constructor(said) {
    super(said.detail);
    Object.assign(this, said);
  }
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}

/** Resolve when the page is visible. */
function visible(signal) {
  return new Promise((done) => {
    if (!document.hidden) return done();
    document.addEventListener("visibilitychange", () => done(), { once: true, signal });
    signal.addEventListener("abort", () => done(), { once: true });
  });
}

/** Return the address of the server extension, or null where the page is not a Jupyter server's. */
function serverAddress() {
  const base = pageConfig().baseUrl ?? document.body.dataset.baseUrl;
  if (!base) return null;
  const address = new URL("gaia/api/slot", new URL(base.replace(/\/*$/, "/"), location.origin));
  return address.origin === location.origin ? address.href : null;
}

function pageConfig() {
  try {
    return JSON.parse(document.getElementById("jupyter-config-data").textContent);
  } catch {
    return {};
  }
}

/** Ask the Jupyter server extension. */
class Server {
  // each panel loads this module anew, so a shared object is known by what it has, never by its class
  ofPage = true;

  constructor(address) {
    this.address = address;
  }

  async get(signal) {
    const response = await this.fetch("", { signal });
    const allow = response.headers.get("Allow");
    return { slot: await response.json(), writable: allow === null || allow.includes("PATCH") };
  }

  async patch(wish, generation) {
    const headers = { "Content-Type": "application/json", "If-Match": `"${generation}"` };
    return (await this.fetch("", { method: "PATCH", headers, body: JSON.stringify(wish) })).json();
  }

  /** Call `heard(name, value)` for each event until the stream ends. Return whether any came. */
  async stream(signal, heard) {
    const connection = new AbortController();
    const leave = () => connection.abort();
    const hidden = () => document.hidden && leave();
    let watchdog = setTimeout(leave, PROOF);
    let came = false;
    signal.addEventListener("abort", leave);
    document.addEventListener("visibilitychange", hidden);
    try {
      const response = await this.fetch("/events", { signal: connection.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) return came;
        clearTimeout(watchdog);
        watchdog = setTimeout(leave, SILENCE);
        came = true;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const found = /^event: (\w+)\ndata: (.*)$/.exec(block);
          if (found) heard(found[1], JSON.parse(found[2]));
        }
      }
    } catch (error) {
      if (error.name === "AbortError") return came || signal.aborted || document.hidden;
      throw error;
    } finally {
      leave();
      clearTimeout(watchdog);
      signal.removeEventListener("abort", leave);
      document.removeEventListener("visibilitychange", hidden);
    }
  }

  async fetch(path, options) {
    const headers = { ...options.headers };
    const xsrf = /(?:^|; )_xsrf=([^;]*)/.exec(document.cookie);
    const { token } = pageConfig();
    if (xsrf) headers["X-XSRFToken"] = xsrf[1];
    if (token) headers.Authorization = `token ${token}`;
    let response;
    try {
      response = await fetch(this.address + path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem({ status: 0, code: "server_away", detail: SERVER_AWAY });
    }
    if (response.ok) return response;
    throw await this.problem(response);
  }

  async problem(response) {
    const { status } = response;
    try {
      const said = JSON.parse(await response.text());
      if (said.code === "forbidden") said.detail = SIGNED_OUT;
      if (said.code) return new Problem({ ...said, status });
    } catch {
      // a page of a proxy or of the hub, not an answer of the extension
    }
    if (status === 404) return new Problem({ status, code: "no_extension", detail: "" });
    if (status === 401 || status === 403)
      return new Problem({ status, code: "forbidden", detail: SIGNED_OUT });
    return new Problem({ status, code: "server_away", detail: SERVER_AWAY });
  }
}

/** Ask the kernel, one question at a time so that none pile up behind a running cell. */
class Kernel {
  constructor(model) {
    this.model = model;
    this.pending = new Map();
    this.asked = 0;
    model.on("msg:custom", (answer) => {
      const done = this.pending.get(answer.id);
      this.pending.delete(answer.id);
      done?.(answer);
    });
  }

  async get() {
    return { slot: await this.ask({ method: "GET" }), writable: true };
  }

  patch(wish, generation) {
    return this.ask({ method: "PATCH", wish, generation });
  }

  async ask(question) {
    const id = ++this.asked;
    const answer = await new Promise((done) => {
      this.pending.set(id, done);
      this.model.send({ id, ...question });
    });
    if (answer.status >= 400) throw new Problem({ ...answer.body, status: answer.status });
    return answer.body;
  }
}

// ---- following -----------------------------------------------------------------------------------

/** What is known of the slot, for every panel that listens. Asks only while one does. */
class Source {
  constructor(transport) {
    this.transport = transport;
    this.listeners = new Set();
    this.known = { slot: null, problem: null, writable: true };
  }

  listen(listener) {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.start();
    else listener(this.known);
    return () => {
      if (this.listeners.delete(listener) && this.listeners.size === 0) this.stop.abort();
    };
  }

  start() {
    this.stop = new AbortController();
    this.tell({ problem: null });
    this.follow(this.stop.signal);
  }

  tell(news) {
    this.known = { ...this.known, ...news };
    for (const listener of [...this.listeners]) listener(this.known);
  }

  async resize(wish, generation) {
    const answer = await this.transport.patch(wish, generation);
    this.tell({ slot: answer.slot, problem: null });
    return answer;
  }

  async look(signal) {
    const busy = () => this.tell({ problem: new Problem({ code: "busy", detail: KERNEL_BUSY }) });
    const timer = this.transport.ofPage ? 0 : setTimeout(busy, PROOF);
    try {
      const { slot, writable } = await this.transport.get(signal);
      if (!signal?.aborted) this.tell({ slot, writable, problem: null });
    } finally {
      clearTimeout(timer);
    }
  }

  hear(name, value) {
    if (name === "slot") return this.tell({ slot: value, problem: null });
    if (value.status === 404) throw new Problem(value);
    this.tell({ problem: new Problem(value) });
  }

  async follow(signal) {
    let streams = "stream" in this.transport;
    let delay = FIRST_DELAY;
    while (!signal.aborted) {
      await visible(signal);
      try {
        await this.look(signal).catch((problem) => {
          // the stream tells when the agent is back
          if (!streams || problem.code !== "unavailable") throw problem;
          this.tell({ problem });
        });
        if (streams) streams = await this.transport.stream(signal, (name, value) => this.hear(name, value));
        delay = streams ? FIRST_DELAY : POLL;
      } catch (error) {
        if (signal.aborted) return;
        const said = typeof error.code === "string";
        if (!said) console.debug("Gaia panel:", error);
        this.tell({ problem: said ? error : new Problem({ code: "server_away", detail: SERVER_AWAY }) });
        // no slot: a running server never gets one, so asking again would be idle work
        if (error.status === 404) return;
        delay = Math.min(delay * 2, LONGEST_DELAY);
      }
      await pause(delay, signal);
    }
  }
}

/** The page's one source per address. The symbol finds it again when the module is loaded twice. */
function pageSource(address) {
  const sources = (globalThis[Symbol.for("gaia_hub.panel/1")] ??= new Map());
  if (!sources.has(address)) sources.set(address, new Source(new Server(address)));
  return sources.get(address);
}

const kernelSources = new WeakMap();

function kernelSource(model) {
  if (!kernelSources.has(model)) kernelSources.set(model, new Source(new Kernel(model)));
  return kernelSources.get(model);
}
