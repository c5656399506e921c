// Charts: drawn while they are in view, and again once a second at most.

import { save } from "./api.js";
import { pictureOf } from "./chart_picture.js";
import { placeText, summaryOf, tableOf, tickTexts, valueText } from "./chart_text.js";
import { csv, curveRows, fileName, heatRows, lineRows } from "./csv.js";
import { describe } from "./descriptions.js";
import { button, element, setText, table } from "./dom.js";
import { harmless, short } from "./format.js";
import { Plot } from "./plot.js";
import { axisOfHeat, changesOf, heatOf, inputsOf, isAlike, needsUpdates, tracesOf, UPDATES, versionsIn } from "./traces.js";

const EVERY = 1_000; // milliseconds between two drawings of one chart
const AXIS = { time: "", age: "seconds since the start" }; // the names of others are their labels
let made = 0; // charts, whose parts have ids

/**
 * Charts of one view. They draw what `context` gives: runs, groups, view, colors, points, histories,
 * versions that may be watched, and `watch(version)`.
 */
export class Charts {
  constructor(context) {
    this.context = context;
    this.all = new Map(); // by the names of their metrics
    this.observer = new IntersectionObserver((entries) => this.#see(entries), {
      rootMargin: "150px",
    });
  }

  /** Return the element of the chart of a metric, a new one where there is none. */
  add(spec) {
    let chart = this.all.get(spec.name);
    if (!chart) {
      chart = new Chart(spec, this.context);
      this.all.set(spec.name, chart);
      this.observer.observe(chart.element);
    }
    return chart.element;
  }

  /** Free the charts of metrics that are not on the page. */
  sweep() {
    for (const [name, chart] of this.all) {
      const isKept = chart.spec.lines || chart.spec.heat; // shown again once nothing is searched
      if (isKept || chart.element.isConnected) continue;
      this.observer.unobserve(chart.element);
      chart.free();
      this.all.delete(name);
    }
  }

  /** Draw those in view anew, soon. */
  redraw({ now = false } = {}) {
    for (const chart of this.all.values()) chart.mark(now);
  }

  /** Free all charts. */
  clear() {
    this.observer.disconnect();
    for (const chart of this.all.values()) chart.free();
    this.all.clear();
  }

  #see(entries) {
    for (const { target, isIntersecting } of entries) {
      this.all.get(target.dataset.metric)?.show(isIntersecting);
    }
  }
}

class Chart {
  constructor(spec, context) {
    this.spec = spec;
    this.context = context;
    this.isSeen = false;
    this.isFree = false;
    this.drawn = -Infinity;
    this.inputs = []; // what it was drawn from
    this.timer = null;
    this.traces = [];
    this.zoom = null; // of a chart with an axis of its own
    made += 1;
    const id = `chart-${made}`;
    this.title = element("span", { className: "title", id: `${id}-title`, title: spec.name }, harmless(spec.title));
    this.value = element("span", { className: "newest" });
    this.about = element("p", { className: "unseen", id: `${id}-about` });
    this.target = element("div", { className: "plot" });
    this.scrolled = element("div", {
      className: "scrolled", tabIndex: 0, role: "region", "aria-label": `numbers of ${harmless(spec.title)}`,
    });
    this.more = element("p", { className: "quiet" });
    this.numbers = element("div", { className: "numbers", hidden: true }, this.scrolled, this.more);
    this.note = element("p", { className: "quiet note" }, "…");
    this.asTable = button("table", () => this.#turn(), { title: "show the numbers", "aria-pressed": "false" });
    this.element = element(
      "figure",
      { className: "chart", "data-metric": spec.name, "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-about` },
      element("figcaption", {}, this.title, this.value, this.#tools()),
      this.about,
      this.note,
      this.target,
      this.numbers
    );
    void this.#describe();
  }

  #tools() {
    const of = `of ${harmless(this.spec.title)}`;
    this.asTable.setAttribute("aria-label", `table ${of}`);
    return element(
      "span",
      { className: "tools" },
      ...this.context.toolsOf(this.spec),
      this.asTable,
      button("CSV", () => this.#saveCsv(), { title: "save as CSV", "aria-label": `CSV ${of}` }),
      button("PNG", () => this.#savePng(), { title: "save as a picture", "aria-label": `PNG ${of}` })
    );
  }

  /** Say what the metric is. */
  async #describe() {
    const { text, good } = await describe(this.spec.name);
    this.good = good;
    if (text) this.title.title = `${text} (${this.spec.name})`;
    this.description = text;
    if (this.about.textContent) this.#tell(); // it was drawn before
  }

  show(isSeen) {
    this.isSeen = isSeen;
    if (isSeen) this.mark(true);
  }

  mark(now) {
    this.isStale = true;
    if (!this.isSeen || this.isFree) return;
    if (now) {
      clearTimeout(this.timer);
      this.timer = null;
    }
    const due = now ? 0 : Math.max(0, this.drawn + EVERY - performance.now());
    this.timer ??= setTimeout(() => this.#draw(), due);
  }

  free() {
    this.isFree = true;
    clearTimeout(this.timer);
    this.plot?.free();
  }

  async #draw() {
    this.timer = null;
    if (this.isFree || !this.isSeen || !this.isStale) return;
    this.isStale = false;
    this.drawn = performance.now();
    const colors = this.context.colors();
    this.#showNewest();
    const inputs = this.#inputs(colors);
    if (inputs && isAlike(inputs, this.inputs)) return;
    this.inputs = inputs ?? [];
    const traces = await this.#traces(colors);
    if (this.isFree) return;
    this.traces = traces;
    const layout = this.#layout(colors);
    const isAwaited = inputs !== null && !traces.length && !this.#isLoaded();
    const reason = isAwaited ? "…" : reasonAgainst(traces, layout);
    if (!traces.length) this.drawn = -Infinity; // the first values are drawn as soon as they are there
    setText(this.note, reason);
    this.#tell();
    this.#arrange();
    if (reason || !this.numbers.hidden) return;
    this.plot ??= new Plot(this.target, `values of ${harmless(this.spec.title)}`, (range) => this.#zoomed(range));
    this.plot.draw(traces, layout);
  }

  /** Bring the words about the chart up to date: its summary, and its table if that is shown. */
  #tell() {
    const axis = this.#axis();
    const summary = summaryOf({ ...this.spec, title: harmless(this.spec.title) }, this.traces, axis, this.good);
    setText(this.about, [this.description, summary].filter(Boolean).join(" "));
    if (this.numbers.hidden) return;
    const { header, rows, left } = tableOf(this.spec, this.traces, axis);
    const grid = table(header, rows, "numbers");
    this.scrolled.replaceChildren(...grid.children); // which keeps its place and the focus
    setText(this.more, left ? `${left} more: see its CSV.` : "");
  }

  /** Show the numbers in place of the plot, or the plot again. */
  #turn() {
    this.numbers.hidden = !this.numbers.hidden;
    this.asTable.setAttribute("aria-pressed", String(!this.numbers.hidden));
    this.#arrange();
    this.mark(true);
  }

  /** Show one of the table, the plot, and the reason for which there is no plot. */
  #arrange() {
    const isTable = !this.numbers.hidden;
    this.note.hidden = isTable || !this.note.textContent;
    this.target.hidden = isTable || !this.note.hidden;
  }

  async #traces(colors) {
    const { spec, context } = this;
    if (spec.lines) return spec.lines(colors);
    if (spec.heat) {
      const [run] = context.runs();
      const found = await spec.heat();
      const updates = this.#updates();
      const trace = found && heatOf(found, context.view, run.started_at, colors, updates);
      return trace ? [trace] : [];
    }
    return tracesOf(spec, context.groups(colors), context.points, context.view, colors);
  }

  /** Return what the chart of metrics is drawn from, null for another chart. */
  #inputs(colors) {
    const { spec, context } = this;
    if (spec.lines || spec.heat) return null;
    const drawn = inputsOf(spec, context.groups(colors), context.points, context.histories(), context.view);
    return [colors, this.numbers.hidden, context.versions(spec), ...drawn];
  }

  #isLoaded() {
    const { spec, context } = this;
    const names = spec.names ?? [spec.name];
    return context.runs().every((run) => names.every((name) => context.isLoaded(run.id, name)));
  }

  /** Return the places where the modules of guests have changed. */
  #changes(colors) {
    const { spec, context } = this;
    if (spec.lines || spec.heat) return [];
    return changesOf(spec, context.groups(colors), context.points, context.histories(), context.view);
  }

  /** Return the versions of a run alone that may be watched, where they lie in the chart. */
  #versions() {
    const { spec, context } = this;
    const [run] = context.runs();
    return versionsIn(spec, run, context.versions(spec), context.points, context.view);
  }

  /** Return the points of train/n_updates of the run of a histogram, if its axis needs them. */
  #updates() {
    const [run] = this.context.runs();
    return run && needsUpdates(this.context.view) ? this.context.points(run.id, UPDATES) : [];
  }

  #axis() {
    const { view } = this.context;
    if (this.spec.lines) return this.spec.x ?? "time";
    return this.spec.heat ? axisOfHeat(view, this.#updates()) : view.x;
  }

  #layout(colors) {
    const { spec, context } = this;
    const axis = this.#axis();
    const isOwn = spec.lines !== undefined;
    const shared = axis === context.view.x ? context.view.zoom : null;
    return {
      isTime: axis === "time",
      isLog: context.view.log && !spec.heat && !isOwn,
      fromZero: spec.fromZero,
      range: isOwn ? this.zoom : shared,
      label: AXIS[axis] ?? axis,
      changes: this.#changes(colors),
      versions: this.#versions(),
      watch: (version) => context.watch(version),
      colors,
      where: (x) => placeText(axis, x),
      text: (value) => valueText(spec, value),
      ticks: (values, step) => tickTexts(spec, values, step),
    };
  }

  /** Take a range of the axis, null for all of it: of all charts, unless this one has its own. */
  #zoomed(range) {
    if (this.spec.lines) {
      this.zoom = range;
      this.mark(true);
    } else if (this.#axis() === this.context.view.x) this.context.zoom(range);
  }

  #showNewest() {
    const { spec, context } = this;
    if (spec.heat || spec.lines) return;
    const runs = context.runs();
    const newest = runs.length === 1 ? context.newest(runs[0].id, spec.name) : undefined;
    setText(this.value, newest === undefined ? "" : short(newest) + (spec.unit ?? ""));
    this.value.dataset.value = newest === undefined ? "" : String(newest);
  }

  async #saveCsv() {
    const rows = await this.#rows();
    save(new Blob([csv(rows)], { type: "text/csv" }), `${fileName(this.spec.name)}.csv`);
  }

  async #rows() {
    const { spec, context } = this;
    if (spec.lines) return lineRows(spec, spec.lines(context.colors()));
    if (spec.heat) return heatRows(context.runs()[0], spec.name, await spec.heat());
    const names = spec.names ?? [spec.name, spec.low, spec.high, spec.spread].filter(Boolean);
    const all = context.runs().flatMap((run) => names.map((name) => ({ run, name })));
    return curveRows(all.map(({ run, name }) => ({ run, name, points: context.points(run.id, name) })));
  }

  async #savePng() {
    if (!this.plot) return;
    const picture = await pictureOf(this.plot, harmless(this.spec.title), this.context.colors());
    save(picture, `${fileName(this.spec.name)}.png`);
  }
}

/** Return why traces cannot be drawn, empty if they can. */
function reasonAgainst(traces, { isLog }) {
  if (!traces.length) return "no values yet";
  const isShown = traces.some(({ y }) => y?.some((value) => value > 0));
  return isLog && !isShown ? "no values above 0, as a log scale has them" : "";
}
