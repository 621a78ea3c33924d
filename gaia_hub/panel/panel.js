// The panel of a slice: what it shows and what its controls do. Stands behind source.js and history.js in one module.

const GIB = 2 ** 30;
const STEP = 0.25; // GiB; one unit of memory

const READ_ONLY = "You may look at this slice but not change it: your access to this server is read-only.";
const STALE =
  "The slice was changed elsewhere in the meantime. The fields show its values now; nothing was applied.";

// ---- words ---------------------------------------------------------------------------------------

/** Write bytes as gaia_plugin.units.format_memory does. */
function memoryText(bytes) {
  if (bytes < GIB) return `${Math.round(bytes / 2 ** 20)} MiB`;
  const quarters = (bytes * 4) / GIB;
  return `${Number.isInteger(quarters) ? quarters / 4 : Math.round((bytes * 10) / GIB) / 10} GiB`;
}

const amountsText = (amounts) => `${memoryText(amounts.memory)} and ${amounts.cores} %`;
const same = (one, other) => one.memory === other.memory && one.cores === other.cores;
const missing = (slot) => Math.max(0, slot.used - slot.granted.memory);

function drainingText(slot) {
  return (
    `The slice is ${memoryText(slot.granted.memory)} now, and ${memoryText(slot.used)} are still in use. ` +
    `Free ${memoryText(missing(slot))}; until then nothing new can be allocated.`
  );
}

// ---- showing -------------------------------------------------------------------------------------

/** Make an element; text is only ever set as text, never as markup. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

let made = 0;

/** One amount: a bar, a slider below it on the same scale, a number field (the primary control). */
class Dial {
  constructor(title, unit, scale, changed) {
    const id = `gaia-dial-${++made}`;
    this.scale = scale; // how many of the API's units (bytes, percent) are one of the field's
    this.parts = Object.fromEntries(
      ["taken", "lent", "granted", "used", "over", "wish"].map((name) => [name, h("i", { class: name })]),
    );
    this.bar = h("div", { class: "gaia-bar", role: "img" }, ...Object.values(this.parts));
    // Lab and Notebook take keys for their own shortcuts from whatever lacks this attribute
    const shared = { "data-lm-suppress-shortcuts": "true" };
    this.number = h("input", { ...shared, id, type: "number", inputmode: "decimal", autocomplete: "off" });
    this.slider = h("input", { ...shared, type: "range", "aria-label": `${title}, slider` });
    this.note = h("span", { class: "gaia-mode" });
    this.figures = h("p", { class: "gaia-figures" });
    this.element = h(
      "div",
      { class: "gaia-dial" },
      h("label", { for: id }, title, this.note),
      h("div", { class: "gaia-scale" }, this.bar, this.slider),
      h("span", { class: "gaia-number" }, this.number, h("span", {}, unit)),
      this.figures,
    );
    this.number.addEventListener("input", () => this.follow(this.slider, this.number, changed));
    // in a notebook's output Enter does not submit a form by itself
    this.number.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      this.number.form.requestSubmit();
    });
    this.slider.addEventListener("input", () => this.follow(this.number, this.slider, changed));
  }

  follow(other, moved, changed) {
    other.value = moved.value;
    if (moved === this.slider && Number(moved.value) === 0) moved.value = other.value = moved.step;
    this.number.removeAttribute("aria-invalid");
    changed();
  }

  /** The amount in the field, in the API's units, or null when it is none. */
  get value() {
    const value = Math.round(Number(this.number.value) * this.scale);
    return this.number.value !== "" && Number.isFinite(value) && value > 0 ? value : null;
  }

  set value(amount) {
    this.number.value = this.slider.value = String(amount / this.scale);
    this.number.removeAttribute("aria-invalid");
  }

  /** Set the smallest step and the largest amount, in the field's units. */
  limit(step, most) {
    Object.assign(this.number, { min: step, step, max: most });
    // from 0, so that the thumb stands under the bar's value
    Object.assign(this.slider, { min: 0, step, max: most });
  }

  /**
   * Draw the bar; all in the API's units. What lies beyond `reach` is not to be had now; `limit` is what
   * may be used now, where that is more than granted.
   */
  draw({ used, granted, limit = granted, reach, most }, words, figures) {
    const full = Math.max(most, granted, used);
    const place = (name, from, to) => {
      this.parts[name].style.left = `${(100 * from) / full}%`;
      this.parts[name].style.width = `${(100 * Math.max(0, to - from)) / full}%`;
    };
    place("taken", Math.max(reach, granted), full);
    place("granted", 0, granted);
    place("lent", granted, limit);
    place("used", 0, Math.min(used, limit));
    place("over", limit, used);
    const wish = this.value ?? granted;
    place("wish", Math.min(wish, full), Math.min(wish, full));
    this.parts.wish.hidden = wish === granted;
    this.bar.setAttribute("aria-label", words);
    this.figures.replaceChildren(...figures.map(([kind, text]) => h("span", { class: kind }, text)));
  }
}

const HELP = [
  "PyTorch, CuPy and Numba see a new size at their next allocation.",
  "TensorFlow and JAX (XLA) fix their size when they first use the GPU: they do not take more after the slice " +
    "grows and do not give memory back when it shrinks. Resize first, then start them; to change it later, restart the kernel.",
  "A slice smaller than what is in use breaks nothing: what is allocated stays, and new allocations fail with " +
    "CUDA's out-of-memory error until enough is freed.",
];

class View {
  constructor(model, element) {
    this.model = model;
    this.slot = null;
    this.basis = null; // what the fields were filled from
    this.touched = this.inFlight = false;
    this.memory = new Dial("Memory", "GiB", GIB, () => this.edited());
    this.cores = new Dial("Compute share", "%", 1, () => this.edited());
    this.cards = h("span", { class: "gaia-cards" });
    this.state = h("span", { class: "gaia-state" });
    this.apply = h("button", { type: "submit", class: "gaia-apply" }, "Apply");
    this.offer = h("button", { type: "button", class: "gaia-offer", hidden: true });
    this.said = h("p", { class: "gaia-said", role: "status", "aria-live": "polite" });
    this.processes = h("tbody");
    this.running = h("summary");
    const row = h("tr", {}, h("th", {}, "Process"), h("th", {}, "Name"), h("th", {}, "GPU memory"));
    this.more = h(
      "div",
      { class: "gaia-more" },
      h("details", {}, this.running, h("table", {}, h("thead", {}, row), this.processes)),
      h(
        "details",
        {},
        h("summary", {}, "When do programs see a new size?"),
        ...HELP.map((text) => h("p", {}, text)),
      ),
    );
    this.form = h("form", { noValidate: true }, this.memory.element, this.cores.element);
    this.answer = h("div", { class: "gaia-answer" }, this.said, this.offer, this.apply);
    this.minute = new Minute(memoryText);
    this.form.append(this.answer, this.minute.element);
    this.form.addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    const head = h("div", { class: "gaia-head" }, h("strong", {}, "GPU slice"), this.cards, this.state);
    this.root = h("section", { class: "gaia-panel", "aria-label": "GPU slice" }, head, this.form, this.more);
    element.append(this.root);
    const address = serverAddress();
    this.use(address ? pageSource(address) : kernelSource(model));
  }

  use(source) {
    this.leave?.();
    this.source = source;
    this.leave = source.listen((known) => this.show(known));
  }

  dispose() {
    this.disposed = true;
    this.minute.dispose();
    this.leave();
  }

  show({ slot, problem, writable }) {
    if (this.source.transport.ofPage && this.isElsewhere(problem)) {
      // not while the source is still telling its listeners
      queueMicrotask(() => this.disposed || this.use(kernelSource(this.model)));
      return;
    }
    const gone = problem?.status === 404;
    this.writable = writable;
    this.form.classList.toggle("gaia-empty", gone || !slot);
    this.more.hidden = this.cards.hidden = gone || !slot;
    if (slot && !gone) this.showSlot(slot);
    this.source.history ??= new History();
    this.minute.show(this.source.history, slot, slot && !problem);
    this.showState(slot, problem);
    if (problem?.detail !== this.problem) {
      if (problem) this.say(problem.detail, gone ? "info" : "bad");
      else if (this.problem) this.say(slot ? "Connected again." : "", "good");
      this.problem = problem?.detail;
    }
    if (!writable && !problem) this.say(READ_ONLY, "info");
    this.refresh();
  }

  /** Tell whether the kernel's slot is not behind this page's server: VS Code, or a remote kernel. */
  isElsewhere(problem) {
    if (problem?.code === "no_extension") return true;
    return problem?.code === "no_such_slot" && this.model.get("_has_slot");
  }

  showSlot(slot) {
    const before = this.slot;
    this.slot = slot;
    const stillTrue = this.basis && same(slot.granted, this.basis.granted);
    if (!this.touched || stillTrue) this.basis = slot;
    if (!this.touched) this.fill();
    if (before && !this.inFlight) {
      if (!same(before.granted, slot.granted))
        this.say(`The slice is ${amountsText(slot.granted)} now.`, "good");
      else if (before.state === "draining" && slot.state === "applied")
        this.say(`Done: the memory is free, and the slice is ${memoryText(slot.granted.memory)}.`, "good");
    } else if (!before && slot.state === "draining") this.say(slot.message || drainingText(slot), "warn");
    this.cards.replaceChildren(
      ...slot.cards.map(({ uuid, index, name }) =>
        h("span", { title: `${uuid.slice(0, 12)}…` }, `${name}, card ${index}`),
      ),
    );
    this.running.textContent =
      slot.processes.length === 1 ? "1 process" : `${slot.processes.length} processes`;
    this.processes.replaceChildren(
      ...slot.processes.map(({ pid, name, memory }) =>
        h("tr", {}, h("td", {}, String(pid)), h("td", {}, name), h("td", {}, memoryText(memory))),
      ),
    );
    this.draw();
  }

  draw() {
    const { used, granted, could_reach: reach, maximum, cards } = this.slot;
    const count = Math.max(1, cards.length);
    this.memory.limit(STEP * count, Math.max(maximum.memory, granted.memory) / GIB);
    this.cores.limit(count, Math.max(maximum.cores, granted.cores));
    const [inUse, now, most] = [used, granted.memory, maximum.memory].map(memoryText);
    const could = memoryText(Math.max(reach.memory, granted.memory));
    const figures = [
      ["used", `${inUse} used`],
      ["granted", `${now} granted`],
      ["reach", `${could} possible now`],
      ["most", `${most} at most`],
    ];
    this.memory.draw(
      { used, granted: granted.memory, reach: reach.memory, most: maximum.memory },
      `Memory: ${figures.map(([, text]) => text).join(", ")}`,
      figures,
    );
    this.drawCores();
  }

  /** Compute shares move all the time; an agent that does not measure tells of none. */
  drawCores() {
    const { granted, could_reach: reach, maximum, compute, time } = this.slot;
    const percent = (permille) => `${Math.round(permille / 10)} %`;
    const shares = [["granted", `${granted.cores} % granted`]];
    if (time) shares.unshift(["used", `${percent(time.used)} used`]);
    const limit = time ? Math.max(granted.cores, time.limit / 10) : granted.cores;
    if (limit > granted.cores) shares.push(["lent", `${percent(time.limit)} allowed while the card is idle`]);
    shares.push(
      ["reach", `${Math.max(reach.cores, granted.cores)} % possible now`],
      ["most", `${maximum.cores} % at most`],
    );
    // a measurement may be a little beyond the limit; only memory can be over it
    const used = time ? Math.min(time.used / 10, limit) : 0;
    this.cores.draw(
      { used, granted: granted.cores, limit, reach: reach.cores, most: maximum.cores },
      `Compute share: ${shares.map(([, text]) => text).join(", ")}`,
      shares,
    );
    this.cores.note.textContent =
      compute === "elastic" ? "guaranteed, more when the card is idle (elastic)" : "held as a ceiling (hard)";
    this.cores.note.title = time?.note ?? "";
  }

  showState(slot, problem) {
    const [kind, text] = this.stateWords(slot, problem);
    this.state.className = `gaia-state gaia-${kind}`;
    this.state.textContent = text;
  }

  stateWords(slot, problem) {
    if (problem?.status === 404) return ["idle", "No slice"];
    if (problem)
      return ["bad", { unavailable: "Agent away", busy: "Kernel busy" }[problem.code] ?? "No connection"];
    if (!slot) return ["idle", "Connecting"];
    if (slot.state === "draining") return ["warn", `Draining, ${memoryText(missing(slot))} to free`];
    return slot.state === "releasing" ? ["warn", "Being released"] : ["good", "Applied"];
  }

  fill() {
    this.memory.value = this.slot.granted.memory;
    this.cores.value = this.slot.granted.cores;
    this.touched = false;
  }

  edited() {
    const { memory, cores } = this;
    this.touched = memory.value !== this.slot.granted.memory || cores.value !== this.slot.granted.cores;
    this.offer.hidden = true;
    this.draw();
    this.refresh();
  }

  refresh() {
    const off = this.inFlight || !this.writable || !this.slot;
    this.apply.disabled = off || !this.touched;
    this.offer.disabled = off;
    for (const dial of [this.memory, this.cores])
      dial.number.disabled = dial.slider.disabled = !this.writable || !this.slot;
    this.root.setAttribute("aria-busy", String(this.inFlight));
  }

  say(text, kind) {
    this.said.className = `gaia-said gaia-${kind}`;
    this.said.textContent = text;
    this.offer.hidden = true;
  }

  submit() {
    if (this.apply.disabled) return;
    for (const [dial, hint] of [
      [this.memory, "a number of GiB, such as 8"],
      [this.cores, "a whole number of percent, such as 50"],
    ]) {
      if (dial.value !== null) continue;
      dial.number.setAttribute("aria-invalid", "true");
      dial.number.focus();
      return this.say(`Write the ${dial === this.memory ? "memory" : "compute share"} as ${hint}.`, "bad");
    }
    this.ask({ memory: this.memory.value, cores: this.cores.value });
  }

  async ask(amounts) {
    const { granted } = this.slot;
    const wish = Object.fromEntries(
      Object.entries(amounts).filter(([name, value]) => value !== granted[name]),
    );
    if (Object.keys(wish).length === 0)
      return this.say(`The slice is ${amountsText(granted)} already.`, "good");
    this.inFlight = true;
    this.say("Asking the agent …", "info");
    this.refresh();
    try {
      const answer = await this.source.resize(wish, this.basis.generation);
      this.slot = this.basis = answer.slot;
      this.fill();
      this.draw();
      const draining = answer.state === "draining";
      const own = draining
        ? drainingText(answer.slot)
        : `Applied: the slice is ${amountsText(answer.slot.granted)} now.`;
      this.say(answer.message || own, draining ? "warn" : "good");
    } catch (problem) {
      await this.explain(problem);
    } finally {
      this.inFlight = false;
      this.refresh();
    }
  }

  async explain(problem) {
    if (problem.status === 412 || problem.code === "forbidden") await this.source.look().catch(() => {});
    if (problem.status === 412) {
      this.basis = this.slot;
      this.fill();
      this.draw();
      return this.say(STALE, "warn");
    }
    if (problem.code === "forbidden" && !this.writable) return this.say(READ_ONLY, "info");
    this.say(problem.detail ?? SERVER_AWAY, "bad");
    const best = problem.best_offer;
    if (best && !same(best, this.slot.granted)) this.propose(best);
  }

  propose(best) {
    const { granted } = this.slot;
    const words = [];
    if (best.memory !== granted.memory) words.push(memoryText(best.memory));
    if (best.cores !== granted.cores) words.push(`${best.cores} %`);
    this.offer.textContent = `Use ${words.join(" and ")} instead`;
    this.offer.onclick = () => {
      this.memory.value = best.memory;
      this.cores.value = best.cores;
      this.edited();
      this.ask(best);
    };
    this.offer.hidden = false;
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.dispose();
  },
};
