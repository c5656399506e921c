// Charts: drawn while they are in view, and again once a second at most.

import { save } from "./api.js";
import { csv, curveRows, fileName, heatRows, lineRows } from "./csv.js";
import { button, element, setText } from "./dom.js";
import { harmless, short } from "./format.js";
import { loadPlotly } from "./plotly.js";
import { axisOfHeat, changesOf, groupsOf, heatOf, needsUpdates, tracesOf, UPDATES } from "./traces.js";

const EVERY = 1_000; // milliseconds between two drawings of one chart
const HEIGHT = 220;
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset+autosize" };
const AXIS = { rows: "rows", updates: "updates", time: "", age: "seconds since the start" };

/** Charts of one view. They draw what `context` gives: runs, settings, view, colors, points, histories. */
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
    this.timer = null;
    this.value = element("span", { className: "newest" });
    this.plot = element("div", { className: "plot" });
    this.note = element("p", { className: "quiet note" }, "…");
    this.element = element(
      "figure",
      { className: "chart", "data-metric": spec.name },
      element(
        "figcaption",
        {},
        element("span", { className: "title", title: spec.name }, harmless(spec.title)),
        this.value,
        element(
          "span",
          { className: "tools" },
          button("CSV", () => this.#saveCsv(), { title: "save as CSV" }),
          button("PNG", () => this.#savePng(), { title: "save as a picture" })
        )
      ),
      this.note,
      this.plot
    );
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
    if (this.isPlotted) window.Plotly.purge(this.plot);
  }

  async #draw() {
    this.timer = null;
    if (this.isFree || !this.isSeen || !this.isStale) return;
    this.isStale = false;
    this.drawn = performance.now();
    const colors = this.context.colors();
    const traces = await this.#traces(colors);
    this.#showNewest();
    if (!traces.length) {
      this.note.hidden = false;
      setText(this.note, "no values yet");
      return;
    }
    let plotly;
    try {
      plotly = await loadPlotly();
    } catch (error) {
      setText(this.note, error.message);
      return;
    }
    if (this.isFree) return;
    this.note.hidden = true;
    await plotly.react(this.plot, traces, this.#layout(colors), CONFIG);
    if (!this.isPlotted) {
      this.isPlotted = true;
      this.plot.on("plotly_relayout", (change) => this.#zoomed(change));
    }
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
    const groups = groupsOf(context.runs(), context.settings(), context.view, colors);
    return tracesOf(spec, groups, context.points, context.view);
  }

  /** Return the lines where the modules of guests have changed. */
  #changes(colors) {
    const { spec, context } = this;
    if (spec.lines || spec.heat) return [];
    const groups = groupsOf(context.runs(), context.settings(), context.view, colors);
    return changesOf(spec, groups, context.points, context.histories(), context.view);
  }

  /** Return the points of train/n_updates of the run of a histogram, if its axis needs them. */
  #updates() {
    const [run] = this.context.runs();
    return run && needsUpdates(this.context.view) ? this.context.points(run.id, UPDATES) : [];
  }

  #axis() {
    const { view } = this.context;
    return this.spec.heat ? axisOfHeat(view, this.#updates()) : view.x;
  }

  #layout(colors) {
    const { view } = this.context;
    const { spec } = this;
    const axis = {
      gridcolor: colors.line, zerolinecolor: colors.line, linecolor: colors.line,
      automargin: true,
    };
    const isOwn = spec.lines !== undefined;
    const x = this.#axis();
    const range = view.zoom && !isOwn && x === view.x ? { range: shifted(view, view.zoom, -1), autorange: false } : { autorange: true };
    const type = x === "time" || isOwn ? "date" : "linear";
    return {
      height: HEIGHT,
      margin: { l: 48, r: 12, t: 8, b: 34 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colors.quiet, size: 11, family: "system-ui, sans-serif" },
      hoverlabel: { namelength: 40, bgcolor: colors.card, font: { color: colors.text } },
      hovermode: spec.heat ? "closest" : "x unified",
      showlegend: false,
      dragmode: "zoom",
      shapes: this.#changes(colors),
      xaxis: { ...axis, ...range, type, title: { text: isOwn ? "" : AXIS[x], standoff: 6 } },
      yaxis: {
        ...axis, fixedrange: true, rangemode: spec.fromZero ? "tozero" : "normal",
        tickformat: spec.format ?? (spec.unit ? "~s" : ""), ticksuffix: spec.unit ?? "", type: view.log && !spec.heat && !isOwn ? "log" : "linear",
      },
    };
  }

  #zoomed(change) {
    if (this.spec.lines || this.#axis() !== this.context.view.x) return;
    if (change["xaxis.autorange"]) this.context.zoom(null);
    const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (range[0] === undefined) return;
    const numbers = range.map((end) => (typeof end === "string" ? Date.parse(`${end.replace(" ", "T")}Z`) : end));
    if (numbers.every(Number.isFinite)) this.context.zoom(shifted(this.context.view, numbers, 1));
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
    const names = [spec.name, spec.low, spec.high, spec.spread].filter(Boolean);
    const all = context.runs().flatMap((run) => names.map((name) => ({ run, name })));
    return curveRows(all.map(({ run, name }) => ({ run, name, points: context.points(run.id, name) })));
  }

  async #savePng() {
    if (!this.isPlotted) return;
    const asked = { format: "png", width: 1_000, height: 500 };
    const data = await window.Plotly.toImage(this.plot, asked);
    const bytes = Uint8Array.from(atob(data.split(",")[1]), (letter) => letter.charCodeAt(0));
    save(new Blob([bytes], { type: "image/png" }), `${fileName(this.spec.name)}.png`);
  }
}

/** Return a range of times as plotly has it (sign -1) or as it is (sign 1); others stay. */
function shifted(view, range, sign) {
  if (view.x !== "time") return range;
  return range.map((x) => x + sign * new Date(x).getTimezoneOffset() * 60_000);
}
