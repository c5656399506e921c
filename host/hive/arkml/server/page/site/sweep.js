// Returns against settings: a chart of points and medians, and parallel coordinates.

import { get, save } from "./api.js";
import { EVALUATION } from "./columns.js";
import { csv } from "./csv.js";
import { button, element, setText } from "./dom.js";
import { harmless } from "./format.js";
import { parallelOf } from "./parallel.js";
import { scatterOf } from "./scatter.js";
import { axesOf, axisOf, isWithin, returnOf, sweepRows } from "./sweep_points.js";

const TITLES = { best: "best evaluation", evaluation: "last evaluation", return: "last mean return" };
const MOST_RUNS = 64; // of one request, and of runs laid over each other

/** Return a folded part {element, update, redraw} with the charts of the runs that `runs()` gives. */
export function sweepOf(app, runs) {
  const sweep = new Sweep(app, runs);
  return { element: sweep.element, update: () => sweep.update(), redraw: () => sweep.redraw() };
}

class Sweep {
  constructor(app, runs) {
    this.app = app;
    this.runs = runs;
    this.bests = new Map(); // by run: its highest evaluation
    this.shown = "";
    const { view } = app;
    this.setting = element("select", { id: "against", onchange: () => app.change({ against: this.setting.value }) });
    const returns = Object.entries(TITLES).map(([value, text]) => element("option", { value }, text));
    this.of = element("select", { id: "of", onchange: () => app.change({ of: this.of.value }) }, ...returns);
    this.figures = element("div", { className: "sweep" });
    this.note = element("p", { className: "quiet" });
    this.body = element(
      "div", {},
      element(
        "div", { className: "toolbar" },
        element("label", {}, "return: ", this.of), element("label", {}, "against: ", this.setting),
        button("CSV", () => this.#saveCsv(), { title: "save as CSV" })
      ),
      this.note, this.figures
    );
    const summary = element("summary", {}, element("h2", {}, "Returns against settings"));
    this.element = element("details", { className: "section", "data-section": "sweep", open: Boolean(view.against) }, summary, this.body);
    this.element.addEventListener("toggle", () => this.#turn());
  }

  /** Draw what has changed, if it is unfolded. */
  update() {
    const { app } = this;
    this.element.open = Boolean(app.view.against);
    if (!app.view.against) return;
    const runs = this.runs();
    this.axes = axesOf(runs, app.store.settings);
    const axis = this.axes.find(({ name }) => name === app.view.against) ?? this.axes[0];
    this.#loadBests(runs);
    const yOf = (run) => returnOf(run, app.view.of, this.bests);
    const key = JSON.stringify([
      app.view.of, axis?.name, app.view.brush,
      runs.map((run) => [run.id, yOf(run) ?? null, ...this.axes.map((one) => one.valueOf(run.id) ?? null)]),
    ]);
    if (key === this.shown) return;
    this.shown = key;
    this.#showChoices(axis);
    setText(this.note, noteOf(runs, axis, yOf));
    if (!axis) this.figures.replaceChildren();
    else this.#draw(runs, axis, yOf);
  }

  /** Draw all anew, as after a change of the colors. */
  redraw() {
    this.shown = "";
    this.update();
  }

  #draw(runs, axis, yOf) {
    const { app } = this;
    const title = TITLES[app.view.of];
    const colors = app.colors();
    const focused = document.activeElement?.dataset?.brush;
    const returns = axisOf(title, new Map(runs.map((run) => [run.id, yOf(run)])));
    const axes = [...this.axes, { ...returns, isLog: false }];
    const within = runs.filter((run) => isWithin(run, axes, app.view.brush));
    const brush = (name, range) => {
      const { [name]: _, ...others } = app.view.brush;
      app.change({ brush: range ? { ...others, [name]: range } : others });
    };
    const ids = within.slice(0, MOST_RUNS).map((run) => run.id);
    const show = button(`Lay these ${ids.length} runs over each other`, () => app.change({ runs: ids, brush: {} }), {
      disabled: ids.length < 2 || ids.length === app.view.runs.length,
    });
    this.figures.replaceChildren(
      scatterOf({ runs: within, axis, yOf, title, colors }),
      parallelOf({ runs, within, axes, brush, ranges: app.view.brush, colors }),
      element("p", { className: "quiet" }, `${within.length} of ${runs.length} runs are within the ranges. `, show)
    );
    if (focused) this.figures.querySelector(`[data-brush="${CSS.escape(focused)}"]`)?.focus();
  }

  #showChoices(axis) {
    const names = this.axes.map(({ name }) => name);
    this.setting.replaceChildren(...names.map((value) => element("option", { value }, harmless(value))));
    this.setting.value = axis?.name ?? "";
    this.of.value = this.app.view.of;
  }

  #turn() {
    if (this.element.open === Boolean(this.app.view.against)) return;
    const [first] = axesOf(this.runs(), this.app.store.settings);
    this.app.change({ against: this.element.open ? first?.name ?? "seed" : "" });
  }

  async #loadBests(runs) {
    const due = runs.filter(({ id }) => !this.bests.has(id)).map(({ id }) => id);
    if (!due.length || this.app.view.of !== "best") return;
    for (const id of due) this.bests.set(id, undefined);
    try {
      for (let at = 0; at < due.length; at += MOST_RUNS) {
        const asked = { runs: due.slice(at, at + MOST_RUNS).join(","), names: EVALUATION, points: 4 };
        for (const { run, curves } of (await get("v1/curves", asked)).runs) {
          this.bests.set(run, curves[0]?.highest ?? undefined);
        }
      }
    } catch (error) {
      for (const id of due) this.bests.delete(id); // asked for again at the next change
      if (error.status === undefined) throw error;
    }
    this.app.update();
  }

  #saveCsv() {
    const yOf = (run) => returnOf(run, this.app.view.of, this.bests);
    const rows = sweepRows(this.runs(), this.axes ?? [], TITLES[this.app.view.of], yOf);
    save(new Blob([csv(rows)], { type: "text/csv" }), "returns-against-settings.csv");
  }
}

function noteOf(runs, axis, yOf) {
  if (!axis) return "These runs differ in no setting.";
  const without = runs.filter((run) => !Number.isFinite(yOf(run))).length;
  return without ? `${without} of ${runs.length} runs have no such return, and are left out.` : "";
}
