// The last minute of a slice as two small graphs: what is used, under the line of what may be used.
// Stands between source.js and panel.js in one module.

const MINUTE = 60_000; // ms
const REDRAW = 1_000; // ms between two drawings while nothing changes
const [WIDE, HIGH] = [300, 44]; // the graphs' own units; the page stretches them

/** What was told in the last minute. Values hold until the next; null means that nothing is known. */
class History {
  points = [];

  /** Take in what a slot says; the same slot again is no news. */
  take(slot, at) {
    if (slot === this.slot && !this.paused) return;
    this.slot = slot;
    this.paused = false;
    const { used, granted, time } = slot;
    const shares = time ? { used: time.used / 10, limit: time.limit / 10 } : null;
    this.points.push({ at, memory: { used, limit: granted.memory }, cores: shares });
    // one point before the minute says what held at its beginning
    while (this.points.length > 2 && this.points[1].at < at - MINUTE) this.points.shift();
  }

  /** From here on nothing is known: the page is hidden, or nobody answers. */
  pause(at) {
    if (this.paused || this.points.length === 0) return;
    this.paused = true;
    this.points.push({ at, memory: null, cores: null });
  }

  /** Return the stretches of one amount that are known: lists of {from, to, used, limit}, in ms of age. */
  stretches(name, now) {
    const found = [];
    let open = null;
    this.points.forEach((point, index) => {
      const to = now - (this.points[index + 1]?.at ?? now);
      const value = point[name];
      if (!value || to > MINUTE) return (open = null);
      if (!open) found.push((open = []));
      open.push({ from: Math.min(MINUTE, now - point.at), to, ...value });
    });
    return found;
  }
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** One graph. `words(least, most, limit)` says the same for who does not see it. */
class Graph {
  constructor(title, name, text) {
    Object.assign(this, { title, name, text });
    this.area = svg("path", { class: "used" });
    this.line = svg("path", { class: "limit" });
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" },
      this.area,
      this.line,
    );
    this.caption = document.createElement("figcaption");
    this.element = document.createElement("figure");
    this.element.append(this.caption, this.drawing);
  }

  draw(history, now, least) {
    const stretches = history.stretches(this.name, now);
    const all = stretches.flat();
    this.element.hidden = all.length === 0;
    if (all.length === 0) return;
    // a little above the highest, so that the line of the limit is never the frame's edge
    const full = 1.12 * Math.max(least, ...all.map(({ used, limit }) => Math.max(used, limit)));
    const x = (age) => (WIDE * (1 - age / MINUTE)).toFixed(1);
    const y = (value) => (HIGH * (1 - value / full)).toFixed(1);
    const steps = (values, key) => values.map((v) => `${x(v.from)},${y(v[key])} ${x(v.to)},${y(v[key])}`);
    this.area.setAttribute(
      "d",
      stretches
        .map((s) => `M${x(s[0].from)},${HIGH} L${steps(s, "used").join(" ")} L${x(s.at(-1).to)},${HIGH}Z`)
        .join(""),
    );
    this.line.setAttribute("d", stretches.map((s) => `M${steps(s, "limit").join(" L")}`).join(""));
    const uses = all.map(({ used }) => used);
    const words = this.text(Math.min(...uses), Math.max(...uses), all.at(-1).limit);
    this.caption.textContent = `${this.title}, last minute`;
    if (words !== this.words) this.drawing.setAttribute("aria-label", `${this.title} in the last minute: ${words}`);
    this.words = words;
  }
}

/** Both graphs, drawn only while they can be seen. */
class Minute {
  constructor(memoryText) {
    const percent = (value) => `${Math.round(value)} %`;
    const words = (text) => (least, most, limit) =>
      `${text(least) === text(most) ? text(most) : `${text(least)} to ${text(most)}`} used, ${text(limit)} allowed`;
    this.graphs = [
      new Graph("Memory", "memory", words(memoryText)),
      new Graph("Compute", "cores", words(percent)),
    ];
    this.element = document.createElement("div");
    this.element.className = "gaia-minute";
    this.element.append(...this.graphs.map((graph) => graph.element));
    this.seen = true;
    this.hidden = () => {
      if (document.hidden) this.history?.pause(performance.now());
      this.wake();
    };
    document.addEventListener("visibilitychange", this.hidden);
    this.observer = new IntersectionObserver(([entry]) => {
      this.seen = entry.isIntersecting;
      this.wake();
    });
    this.observer.observe(this.element);
  }

  /** Show the history of a source, with what is known of the slot now. */
  show(history, slot, known) {
    this.history = history;
    const now = performance.now();
    if (slot && known && !document.hidden) history.take(slot, now);
    else history.pause(now);
    this.cores = slot ? slot.granted.cores : 0;
    this.draw();
    this.wake();
  }

  draw() {
    if (document.hidden || !this.seen || !this.history) return;
    const now = performance.now();
    for (const graph of this.graphs) graph.draw(this.history, now, graph.name === "cores" ? this.cores : 0);
  }

  /** Have the graphs move on by themselves while they can be seen and something is known. */
  wake() {
    const wanted = !document.hidden && this.seen && this.history && this.history.points.length > 0;
    if (wanted && !this.timer) {
      this.draw();
      this.timer = setInterval(() => this.draw(), REDRAW);
    } else if (!wanted && this.timer) {
      clearInterval(this.timer);
      this.timer = 0;
    }
  }

  dispose() {
    clearInterval(this.timer);
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.hidden);
  }
}
