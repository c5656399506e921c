// The small curves of the table's rows: those in view, by one request for many of them.

import { isOver } from "./actions.js";
import { get } from "./api.js";
import { RETURN } from "./columns.js";
import { sparkline } from "./curves.js";
import { svg } from "./svg.js";

const SIZE = { width: 90, height: 22, points: 60 };
const EVERY = 30_000; // milliseconds between two looks at the curve of a run that goes on
const MOST_RUNS = 64; // of one request

/** The curves of runs whose rows are in view; `runOf(id)` is the run of an id. */
export class Sparks {
  constructor(runOf) {
    this.runOf = runOf;
    this.known = new Map(); // by run: {points, at}
    this.cells = new Map(); // by run: the element that shows its curve
    this.seen = new Set();
    this.observer = new IntersectionObserver((entries) => this.#see(entries));
    this.timer = setInterval(() => this.#load(), 2_000);
  }

  /** Show the curve of a run in a cell. */
  show(cell, id) {
    const before = this.cells.get(id);
    if (before) this.observer.unobserve(before);
    cell.dataset.run = id;
    this.cells.set(id, cell);
    this.observer.observe(cell);
    this.#draw(id);
  }

  free() {
    clearInterval(this.timer);
    this.observer.disconnect();
  }

  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.seen.add(target.dataset.run);
      else this.seen.delete(target.dataset.run);
    }
    this.#load();
  }

  async #load() {
    if (document.hidden || this.isLoading) return;
    const now = performance.now();
    const due = [...this.seen].filter((id) => {
      const run = this.runOf(id);
      const known = this.known.get(id);
      return run && (!known || (!isOver(run) && now - known.at > EVERY));
    });
    if (!due.length) return;
    this.isLoading = true;
    const asked = due.slice(0, MOST_RUNS);
    for (const id of asked) this.known.set(id, { points: this.known.get(id)?.points ?? [], at: now });
    try {
      const answer = await get("v1/curves", { runs: asked.join(","), names: RETURN, points: SIZE.points });
      for (const { run, curves } of answer.runs) {
        this.known.set(run, { points: curves[0]?.points ?? [], at: now });
        this.#draw(run);
      }
    } catch (error) {
      if (error.status === undefined) throw error; // else they are asked for again later
    } finally {
      this.isLoading = false;
    }
  }

  #draw(id) {
    const values = (this.known.get(id)?.points ?? []).map((point) => point[1]);
    const points = sparkline(values, SIZE.width, SIZE.height);
    const image = svg("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, "aria-hidden": "true" });
    image.append(svg("polyline", { points }));
    this.cells.get(id)?.replaceChildren(image);
  }
}
