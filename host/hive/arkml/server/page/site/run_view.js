// The view of one run, or of several laid over each other.

import { isOver, remove, savePolicy, snapshot, stop } from "./actions.js";
import { MOST_METRICS } from "./address.js";
import { Charts } from "./chart.js";
import { chooseNames } from "./choices.js";
import { dashSign } from "./colors.js";
import { button, element, setShown, setText } from "./dom.js";
import { bytes, harmless, short, whole } from "./format.js";
import { evaluationsOf, groupChoices, groupsOf } from "./groups.js";
import { histogramsOf } from "./histograms.js";
import { labelsOf } from "./label_panel.js";
import { mayLabel, titleOf } from "./labels.js";
import { noteOf } from "./note_panel.js";
import { originOf } from "./origin_panel.js";
import { configurationOf, eventsOf, logOf, sessionsOf, versionsOf } from "./panels.js";
import { legendOf } from "./legend.js";
import { progressOf } from "./progress.js";
import { replaysOf } from "./replays.js";
import { resourceSpecs } from "./resources.js";
import { savedViews } from "./saved_views.js";
import { sectionsOf } from "./sections.js";
import { sessionSpecs } from "./session_samples.js";
import { sweepOf } from "./sweep.js";
import { isAlike } from "./traces.js";
import { groupSelect, toolbarOf } from "./toolbar.js";
import { watchOf } from "./watch.js";

const MOST_NAMED = 3; // runs in the title
const MOST_PINS = 24;
const MOST_CHARTS = 12;
const RETURNS = ["rollout/ep_rew_mean", "eval/mean_reward"]; // the charts in which versions are marked
const NONE = [];
const OF_ONE = ["origin", "versions", "log"]; // sections of one run alone
const DETAILS_EVERY = 10_000; // milliseconds, while one of the panels that show them is in view
const BRIEF = ["return", "evaluation", "rows"]; // figures that are left where all of them are folded
const NARROW = matchMedia("(max-width: 40rem)"); // as the style sheet has it

/** The view of the runs `view.runs`. `app` has store, view, colors(), who and what changes them. */
export class RunView {
  constructor(app) {
    this.app = app;
    this.element = element("main", { className: "run" });
    this.charts = null;
    this.shown = "";
    this.of = "";
    this.panels = [];
    this.known = { inputs: [], groups: [] };
    this.timer = setInterval(() => this.#loadDetails(), DETAILS_EVERY);
    app.wantDetails = () => this.#loadDetails();
    this.fold = () => this.#fold();
    NARROW.addEventListener("change", this.fold);
  }

  /** The runs of the view that there are. */
  runs() {
    return this.app.view.runs.map((id) => this.app.store.runs.get(id)).filter(Boolean);
  }

  /** Build the view anew for other runs, lay out other metrics, and bring all up to date. */
  update() {
    const who = this.app.who?.role;
    const of = JSON.stringify([this.runs().map((run) => run.id), who, this.app.store.hasLoaded]);
    const { metric, pins, charts } = this.app.view;
    const names = JSON.stringify([metric, pins, charts, [...this.#names()].sort()]);
    if (of !== this.of) this.#build();
    if (of !== this.of || names !== this.shown) this.#layOut();
    this.of = of;
    this.shown = names;
    this.#showFigures();
    this.#showRefusal();
    this.#showLegend();
    this.#showPins();
    for (const panel of this.panels) panel.update?.();
    this.charts.redraw();
  }

  /** Draw all charts in view at once, as after a change of the axis. */
  redraw() {
    this.charts?.redraw({ now: true });
    this.panels.forEach((panel) => panel.redraw?.());
  }

  /** Free everything. */
  free() {
    clearInterval(this.timer);
    NARROW.removeEventListener("change", this.fold);
    this.charts?.clear();
    this.panels.forEach((panel) => panel.free?.());
  }

  #names() {
    const { store } = this.app;
    return new Set(this.runs().flatMap((run) => [...(store.metrics.get(run.id)?.keys() ?? [])]));
  }

  #build() {
    const { app } = this;
    const runs = this.runs();
    this.charts?.clear();
    this.panels.forEach((panel) => panel.free?.());
    this.charts = new Charts({
      view: app.view,
      runs: () => this.runs(),
      groups: (colors) => this.#groups(colors),
      toolsOf: (spec) => this.#toolsOf(spec),
      colors: () => app.colors(),
      points: (id, name) => app.store.points(id, name),
      isLoaded: (id, name) => app.store.isLoaded(id, name),
      histories: () => app.store.histories,
      newest: (id, name) => app.store.metrics.get(id)?.get(name)?.value,
      zoom: (range) => app.change({ zoom: range }),
      versions: ({ name }) => (RETURNS.includes(name) ? this.watchable : NONE),
      watch: (version) => this.#watch(version),
    });
    this.figures = element("dl", { className: "figures" });
    this.brief = element("summary", {});
    this.facts = element("details", { className: "facts" }, this.brief, this.figures);
    this.#fold();
    this.shownGroups = null;
    this.legend = element("ul", { className: "legend", tabIndex: 0, "aria-label": "legend" });
    this.trouble = element("p", { className: "trouble", role: "status" });
    this.refusal = element("p", { className: "refusal", role: "status" });
    this.body = element("div", {});
    this.parts = new Map();
    this.panels = [];
    this.pinButtons = new Map(); // by the name of a chart
    this.rest = this.#panelParts(runs);
    const parts = [...this.#header(runs), this.trouble, this.refusal, this.facts, this.legend, ...this.#note(runs), this.#toolbar(runs), this.body];
    const isAwaited = app.view.runs.join() === "first";
    const none = isAwaited ? "The training has not started its run yet. " : "This run is not there (any more). ";
    const missing = app.store.hasLoaded ? none : "Loading … ";
    const gone = element("p", { className: "empty" }, missing, back());
    this.element.replaceChildren(...(runs.length ? parts : [gone]));
    this.#loadDetails();
  }

  #toolbar(runs) {
    const { app } = this;
    this.by = runs.length > 1 ? groupSelect(app, "group by ") : null;
    const add = button("Add chart …", () => this.#addChart(), { id: "add-chart" });
    return toolbarOf(app, ...(this.by ? [this.by.element] : []), add, savedViews(app));
  }

  /** Return the groups of the runs: the very same ones until what they are made of has changed. */
  #groups(colors) {
    const { store, view } = this.app;
    const runs = this.runs();
    const by = view.group || "seed";
    const made = runs.map((run) => JSON.stringify([run.id, titleOf(run), evaluationsOf(run)]));
    const inputs = [store.settings, by, colors, ...made];
    if (!isAlike(inputs, this.known.inputs)) {
      this.known = { inputs, groups: groupsOf(runs, store.settings, by, colors) };
    }
    return this.known.groups;
  }

  /** Return the buttons of a chart besides those that every chart has. */
  #toolsOf(spec) {
    if (spec.heat || spec.name.startsWith("sessions/")) return []; // they stay with their tables
    const { app } = this;
    const pin = button("Pin", () => {
      const others = app.view.pins.filter((name) => name !== spec.name);
      const isPinned = others.length < app.view.pins.length;
      if (!isPinned && others.length >= MOST_PINS) setText(this.trouble, `${MOST_PINS} charts are pinned: unpin one first`);
      else app.change({ pins: isPinned ? others : [...others, spec.name] });
    }, { title: "show it first" });
    this.pinButtons.set(spec.name, pin);
    if (!spec.names) return [pin];
    const drop = () => app.change({ charts: app.view.charts.filter((names) => nameOf(names) !== spec.name) });
    return [pin, button("Remove", drop, { title: "remove this chart" })];
  }

  #showPins() {
    for (const [name, pin] of this.pinButtons) {
      pin.setAttribute("aria-pressed", String(this.app.view.pins.includes(name)));
    }
  }

  #addChart() {
    const { charts } = this.app.view;
    if (charts.length >= MOST_CHARTS) {
      setText(this.trouble, `${MOST_CHARTS} charts were added: remove one first`);
      return;
    }
    const names = [...this.#names()].filter((name) => !name.startsWith("hist/")).sort();
    chooseNames({
      title: "Metrics of one chart", choices: [["Metrics", names.map((name) => [name, name])]],
      chosen: [], most: MOST_METRICS,
      take: (chosen) => {
        const others = charts.filter((one) => nameOf(one) !== nameOf(chosen));
        this.app.change({ charts: [...others, chosen] });
      },
    });
  }

  /** Return the parts besides charts of metrics. */
  #panelParts(runs) {
    const { app } = this;
    const parts = [];
    this.sweep = null;
    if (runs.length > 1) {
      this.sweep = sweepOf(app, () => this.runs());
      this.panels.push(this.sweep);
    }
    this.sessions = null;
    this.own = { resources: resourceSpecs(app).map((spec) => this.charts.add(spec)) };
    if (runs.length === 1) {
      const [{ id }] = runs;
      const specs = sessionSpecs(() => app.store.samples.get(id));
      const charts = specs.map((spec) => this.charts.add(spec));
      this.sessions = sessionsOf(app, runs[0], charts);
      this.panels.push(this.sessions);
    }
    this.watch = null;
    this.watchable = NONE; // versions
    this.replays = null;
    if (runs.length === 1) {
      const panel = replaysOf(runs[0], (isThere) => setShown(this.replays, isThere));
      this.replays = folded("replays", "Evaluated episodes", panel.element);
      this.replays.hidden = true;
      const watch = watchOf(app, runs[0], (kept) => panel.open(kept), (versions) => {
        this.watchable = versions;
        this.charts.redraw();
      });
      this.watch = folded("watch", "Watch", watch.element);
      this.watch.addEventListener("toggle", () => watch.fold(this.watch.open));
      this.watchVersion = watch.open;
      this.panels.push(panel, watch);
    }
    for (const [id, title, make, isFolded] of [
      ["origin", "Where it came from", originOf, false],
      ["events", "Events", eventsOf, false],
      ["configuration", "Configuration", configurationOf, false],
      ["versions", "Versions", versionsOf, false],
      ["log", "Log of the learner", logOf, true],
    ]) {
      if (runs.length !== 1 && OF_ONE.includes(id)) continue;
      const panel = make(app, runs);
      this.panels.push(panel);
      const part = folded(id, title, panel.element);
      if (isFolded) part.open = false;
      part.addEventListener("toggle", () => part.open && panel.open?.());
      parts.push(part);
    }
    return parts;
  }

  /** Watch a version that was chosen in a chart. */
  #watch(version) {
    this.watch.open = true;
    this.watchVersion(version);
    this.watch.scrollIntoView({ block: "nearest" });
  }

  /** Show the charts of all metrics that are searched for; those that were there stay. */
  #layOut() {
    const { metric: search, pins } = this.app.view;
    const shown = [];
    const pinned = new Map();
    for (const { id, title, charts } of this.#sections(search)) {
      const isOfSessions = id === "sessions" && this.sessions && !search;
      const own = search ? [] : this.own[id] ?? [];
      if (!charts.length && !own.length && !isOfSessions) continue;
      const figures = [...charts.map((spec) => this.charts.add(spec)), ...own];
      const stay = figures.filter((figure) => !pins.includes(figure.dataset.metric));
      for (const figure of figures) if (!stay.includes(figure)) pinned.set(figure.dataset.metric, figure);
      if (!stay.length && !isOfSessions) continue;
      const part = this.#part(id, title);
      replaceIfOther(part.querySelector(":scope > .charts"), stay);
      shown.push(part);
    }
    if (this.replays && !search) shown.splice(1, 0, this.watch, this.replays); // below the returns
    if (this.sweep && !search) shown.unshift(this.sweep.element);
    if (pinned.size) {
      const part = this.#part("pinned", "Pinned");
      const figures = pins.map((name) => pinned.get(name)).filter(Boolean);
      replaceIfOther(part.querySelector(":scope > .charts"), figures);
      shown.unshift(part);
    }
    replaceIfOther(this.body, search ? shown : [...shown, ...this.rest]);
    this.charts.sweep();
  }

  /** Return the sections of charts, of which those that were added are the first. */
  #sections(search) {
    const wanted = search.trim().toLowerCase();
    const own = this.app.view.charts
      .map((names) => ({ title: names.map((name, index) => `${dashSign(index)} ${name}`).join(", "), name: nameOf(names), names }))
      .filter(({ title }) => title.toLowerCase().includes(wanted));
    return [{ id: "added", title: "Added charts", charts: own }, ...sectionsOf(this.#names(), search)];
  }

  /** Return the part of a section, a new one where there is none. */
  #part(id, title) {
    let part = this.parts.get(id);
    if (part) return part;
    part = folded(id, title, element("div", { className: "charts" }));
    this.parts.set(id, part);
    if (id === "sessions" && this.sessions) part.querySelector("summary").after(this.sessions.element);
    if (["actions", "features"].includes(id) && this.runs().length === 1) {
      part.append(histogramsOf(this.runs()[0], id, () => this.charts));
    }
    return part;
  }

  #header(runs) {
    const { app } = this;
    if (runs.length !== 1) {
      const games = [...new Set(runs.map((run) => run.game))];
      const title = runs.length <= MOST_NAMED ? runs.map(titleOf).join(", ") : `${runs.length} runs of ${games.join(", ")}`;
      return [element("header", { className: "of-run" }, back(), element("h1", {}, harmless(title)))];
    }
    const [run] = runs;
    const labels = labelsOf(app, run.id, (text) => setText(this.trouble, text));
    this.panels.push(labels);
    const header = element("header", { className: "of-run" }, back(), ...labels.heading);
    this.status = element("span", { className: "pill" });
    header.append(this.status, element("span", { className: "quiet" }, harmless(run.game)));
    if (!mayLabel(app.who)) return [header, labels.element];
    const press = (text, act, properties) => button(text, () => this.#do(act), properties);
    this.stopButton = press("Stop", async () => (await stop(this.runs()[0])) && "stopped", {});
    const acts = [
      press("Save a checkpoint", async () => `saved ${await snapshot(this.runs()[0])}`),
      this.stopButton,
    ];
    acts.push(
      press("Remove", async () => {
        const [run] = this.runs();
        if (!(await remove(run))) return;
        app.store.takeRuns({ runs: [], removed: [run.id] }); // before the event says so
        app.change({ runs: [] });
      }, { className: "dangerous" })
    );
    header.append(element("span", { className: "buttons" }, ...acts));
    return [header, labels.element];
  }

  /** Return the section with the note of a run, none for several runs. */
  #note(runs) {
    if (runs.length !== 1) return [];
    const note = noteOf(this.app, runs);
    this.panels.push(note);
    const part = folded("note", "Note", note.element);
    if (note.isFolded) part.open = false;
    return [part];
  }

  async #do(act) {
    try {
      setText(this.trouble, "");
      setText(this.trouble, (await act()) || "");
      await this.app.store.loadRun(this.runs()[0]?.id);
    } catch (error) {
      setText(this.trouble, error.message);
    }
  }

  #showFigures() {
    const runs = this.runs();
    if (!runs.length) return;
    if (this.status && runs.length === 1) {
      const [run] = runs;
      const place = run.place ? `, number ${run.place}` : "";
      setText(this.status, run.status + place);
      this.status.dataset.status = run.status;
      if (this.stopButton) this.stopButton.disabled = isOver(run);
    }
    const facts = runs.length === 1 ? this.#factsOf(runs[0]) : [["runs", "runs", String(runs.length)]];
    if (this.figures.childElementCount !== facts.length) {
      this.figures.replaceChildren(
        ...facts.map(([key, label]) =>
          element("div", {}, element("dt", {}, label), element("dd", { "data-figure": key }))
        )
      );
    }
    facts.forEach(([, , text], index) => setText(this.figures.children[index].lastChild, text));
    const brief = facts.filter(([key]) => BRIEF.includes(key));
    setText(this.brief, brief.map(([, label, text]) => `${label} ${text}`).join(" · ") || `${runs.length} runs`);
  }

  /** Fold the figures where the screen is narrow, so that the first curve is on it. */
  #fold() {
    this.facts.open = !NARROW.matches;
  }

  #showRefusal() {
    const { troubles } = this.app.store;
    const reasons = this.runs().map((run) => troubles.get(run.id)).filter(Boolean);
    setText(this.refusal, [...new Set(reasons)].map(harmless).join(" "));
  }

  #factsOf(run) {
    const newest = this.app.store.metrics.get(run.id);
    const metric = (name) => short(newest?.get(name)?.value ?? run.latest[name]);
    const facts = [
      ["return", "mean return", metric("rollout/ep_rew_mean") || "–"],
      ["evaluation", "evaluation", metric("eval/mean_reward") || "–"],
      ["rows", "rows", whole(run.rows)],
      ["updates", "updates", whole(run.n_opts)],
      ["version", "policy version", whole(run.policy_version)],
      ["sessions", "sessions", whole(run.sessions)],
      ["time", run.ended_at ? "lasted" : "since", progressOf(run).text],
      ["memory", "memory", run.memory ? bytes(run.memory) : "–"],
      ["disk", "disk", run.disk ? bytes(run.disk) : "–"],
    ];
    if (run.workers) facts.push(["workers", "workers", whole(run.workers)]);
    if (run.lost) facts.push(["lost", "rows lost", whole(run.lost)]);
    if (run.reason) facts.push(["reason", "reason", harmless(run.reason)]);
    return facts;
  }

  #showLegend() {
    const runs = this.runs();
    this.legend.hidden = runs.length < 2;
    if (runs.length < 2) return;
    const { store, view } = this.app;
    const groups = this.#groups(this.app.colors());
    if (groups === this.shownGroups) return;
    this.shownGroups = groups;
    this.by.show(groupChoices(runs, store.settings), view.group || "seed");
    this.legend.replaceChildren(...legendOf(groups));
  }

  async #loadDetails() {
    const runs = this.runs();
    if (document.hidden || runs.length !== 1) return;
    if (!this.panels.some((panel) => panel.isWanted?.())) return;
    try {
      await this.app.store.loadDetails(runs[0].id);
    } catch (error) {
      if (error.status === undefined) throw error; // the stream shows a hive that is gone
    }
  }
}

/** Return the name of a chart of several metrics. */
function nameOf(names) {
  return `chart/${JSON.stringify(names)}`;
}

/** Replace the children of an element by others, unless they are the same. */
function replaceIfOther(target, children) {
  const isSame = target.childElementCount === children.length &&
    children.every((child, index) => target.children[index] === child);
  if (!isSame) target.replaceChildren(...children);
}

function back() {
  return element("a", { href: "#", className: "back", "aria-label": "all runs" }, "←", element("span", {}, " all runs"));
}

function folded(id, title, ...children) {
  const summary = element("summary", {}, element("h2", {}, title));
  return element("details", { className: "section", open: true, "data-section": id }, summary, ...children);
}
