// What the page knows of the hive: runs, their settings, curves, histories, and resources.

import { get } from "./api.js";
import { bounded, joined, MOST_POINTS } from "./curves.js";
import { SessionSamples } from "./session_samples.js";

const MOST_EVENTS = 500;
const MOST_USAGE = 900;
const MOST_REPLY_POINTS = 250_000; // of all runs together, as the hive bounds them
const MOST_RUNS = 64; // of one request
const SEVERAL = 8; // runs, beyond which a curve has fewer points
const FEW_POINTS = 200;
const AT_ONCE = 3; // runs that are loaded beside each other: the others of six connections stay free
const NONE = [];

/** True for an answer that says no, and would say it again: not that the session has ended. */
function isRefusal({ status }) {
  return status >= 400 && status < 500 && status !== 401 && status !== 429;
}

/**
 * The data of the page. `changed` is called with what has changed: "runs", "curves", "history",
 * "usage", "names" or "details".
 */
export class Store {
  constructor(changed) {
    this.changed = changed;
    this.runs = new Map();
    this.settings = { defaults: {}, runs: {} };
    this.details = new Map();
    this.troubles = new Map(); // by run: why the hive does not give all of it
    this.samples = new Map(); // by run: its SessionSamples
    this.metrics = new Map(); // by run: the newest value of each name
    this.curves = new Map(); // by run: by name: {points, isLoaded}
    this.histories = new Map();
    this.usage = [];
    this.axis = "rows";
    this.ready = () => Promise.resolve();
    this.runsShown = () => 1;
    this.wanted = new Map();
    this.hasLoaded = false;
  }

  /** Load the runs and what is open; throws ApiError. */
  async load(open) {
    const [runs, settings, usage] = await Promise.all([
      get("v1/runs"), get("v1/settings"), get("v1/usage"),
    ]);
    this.runs = new Map(runs.runs.map((run) => [run.id, run]));
    this.settings = settings;
    this.usage = usage.usage;
    this.hasLoaded = true;
    this.curves.clear();
    for (const run of open.map((id) => this.runs.get(id)).filter(Boolean)) this.#takeLatest(run);
    this.changed("runs", "names", "curves", "usage");
    await this.#loadRuns(open, { hasMetrics: true });
  }

  /** Load runs anew, with the newest value of each of their metrics; throws ApiError. */
  async loadLatest() {
    const { runs } = await get("v1/runs");
    this.runs = new Map(runs.map((run) => [run.id, run]));
    this.changed("runs");
  }

  /** Load the runs, some at once. */
  async #loadRuns(ids, known = {}) {
    const left = [...ids];
    const work = async () => {
      while (left.length) await this.loadRun(left.shift(), known);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** Take the names of a run's metrics from a list of runs: its curves need not wait for more. */
  #takeLatest({ id, latest }) {
    this.metrics.set(id, new Map(Object.entries(latest).map(([name, value]) => [name, { value }])));
  }

  /** Ask for what events would have said, as far as it is shown; throws ApiError. */
  async poll(open) {
    const runs = await get("v1/runs");
    this.runs = new Map(runs.runs.map((run) => [run.id, run]));
    if (runs.runs.some((run) => !this.settings.runs[run.id])) this.settings = await get("v1/settings");
    this.usage = (await get("v1/usage")).usage;
    await this.#pollCurves(open.filter((id) => this.runs.has(id)));
    this.changed("runs", "usage");
  }

  /**
   * Load the names of the metrics, the details and the history of a run; throws ApiError.
   *
   * What the hive refuses, as for a run that a newer release has written, becomes its trouble. The
   * metrics need no request of their own where the list of runs has just had them.
   */
  async loadRun(id, { hasMetrics = false } = {}) {
    if (!this.runs.has(id)) return;
    const reasons = [];
    const ask = (path) =>
      get(path).catch((error) => {
        if (!isRefusal(error)) throw error;
        reasons.push(error.message);
        return null;
      });
    const [metrics, details, history] = await Promise.all([
      hasMetrics ? null : ask(`v1/runs/${id}/metrics`), ask(`v1/runs/${id}`), ask(`v1/runs/${id}/events`),
    ]);
    if (metrics) {
      this.metrics.set(id, new Map(metrics.metrics.map(([name, value]) => [name, { value }])));
    }
    if (details) this.details.set(id, details);
    if (history) this.histories.set(id, history.events);
    if (reasons.length) this.troubles.set(id, reasons[0]);
    else this.troubles.delete(id);
    this.changed("names", "details", "history");
  }

  /** Load what is not known yet of runs; throws ApiError. */
  async loadNew(ids) {
    const isKnown = (id) => this.metrics.has(id) || this.troubles.has(id);
    await this.#loadRuns(ids.filter((id) => !isKnown(id)));
  }

  /** Load the details of a run anew, with its checkpoints; throws ApiError. */
  async loadDetails(id) {
    const [details, checkpoints] = await Promise.all([
      get(`v1/runs/${id}`), get(`v1/runs/${id}/checkpoints`),
    ]);
    this.details.set(id, { ...details, checkpoints: checkpoints.checkpoints });
    if (details.sessions) {
      if (!this.samples.has(id)) this.samples.set(id, new SessionSamples());
      this.samples.get(id).take(details.sessions);
    }
    this.changed("details");
  }

  /** Return the points of a curve, empty as long as they are not loaded, which this begins. */
  points(id, name) {
    const known = this.curves.get(id)?.get(name);
    if (known) return known.points;
    if (!this.wanted.has(id)) this.wanted.set(id, new Set());
    this.timer ??= setTimeout(() => this.#loadWanted(), 30);
    this.wanted.get(id).add(name);
    return NONE;
  }

  /** Return whether the hive has answered for a curve, which may have no points. */
  isLoaded(id, name) {
    return this.curves.get(id)?.get(name)?.isLoaded ?? false;
  }

  /** Draw curves over another axis, for which the server thins them anew. */
  setAxis(axis) {
    const asked = axis === "time" || axis === "age" ? "time" : "rows";
    if (asked !== this.axis) {
      this.axis = asked;
      this.curves.clear();
    }
  }

  /** Take in the event `runs`. */
  takeRuns({ runs, removed }) {
    let isNew = false;
    for (const run of runs) {
      const known = this.runs.get(run.id);
      isNew ||= !known;
      this.runs.set(run.id, { ...run, latest: { ...known?.latest, ...run.latest } });
    }
    for (const id of removed) this.runs.delete(id);
    if (isNew) {
      get("v1/settings").then((settings) => {
        this.settings = settings;
        this.changed("runs");
      }, () => {}); // the next new run, or the next load, asks again
    }
    this.changed("runs");
  }

  /** Take in the event `metrics`. */
  takeMetrics({ run, points }) {
    const metrics = this.metrics.get(run);
    if (!metrics) return;
    const before = metrics.size;
    const curves = this.curves.get(run);
    const fresh = new Map();
    for (const [name, step, value, at] of points) {
      metrics.set(name, { value });
      if (!curves?.get(name)?.isLoaded) continue;
      if (!fresh.has(name)) fresh.set(name, []);
      fresh.get(name).push([step, value, at]);
    }
    for (const [name, newer] of fresh) this.#join(curves.get(name), newer);
    if (metrics.size !== before) this.changed("names");
    this.changed("curves");
  }

  /** Take in the event `happened`. */
  takeHappened({ run, at, kind, text }) {
    const events = this.histories.get(run);
    if (!events || events.some((one) => one.at === at)) return;
    events.push({ at, kind, text });
    if (events.length > MOST_EVENTS) events.shift();
    this.changed("history");
  }

  /** Take in the event `usage`. */
  takeUsage(entry) {
    this.usage.push(entry);
    if (this.usage.length > MOST_USAGE) this.usage.shift();
    this.changed("usage");
  }

  #join(curve, newer) {
    const place = this.axis === "time" ? (point) => point[2] : (point) => point[0];
    curve.points = bounded(joined(curve.points, newer), place);
  }

  /** Load the curves that are wanted: those of several runs by one request for many of them. */
  async #loadWanted() {
    await this.ready(); // what is wanted meanwhile is asked for with the rest, once
    const wanted = this.wanted;
    this.wanted = new Map();
    this.timer = null;
    const alike = new Map(); // by the names that they want: runs
    for (const [id, names] of wanted) {
      const key = JSON.stringify([...names].sort());
      alike.set(key, [...(alike.get(key) ?? []), id]);
    }
    const points = this.runsShown() > SEVERAL ? FEW_POINTS : MOST_POINTS;
    for (const [key, ids] of alike) {
      for (const { runs, names } of portions(ids, JSON.parse(key), points)) {
        await this.#loadCurves(runs, names, points);
      }
    }
  }

  async #loadCurves(ids, names, points) {
    const axis = this.axis;
    const all = new Map(ids.map((id) => [id, this.curves.get(id) ?? new Map()]));
    for (const [id, curves] of all) {
      this.curves.set(id, curves);
      for (const name of names) if (!curves.has(name)) curves.set(name, { points: [], isLoaded: false });
    }
    try {
      const parameters = { runs: ids.join(","), names: JSON.stringify(names), x: axis, points };
      const answer = await get("v1/curves", parameters);
      for (const { run, curves } of answer.runs) {
        const known = all.get(run);
        if (axis !== this.axis || this.curves.get(run) !== known) continue;
        const points = new Map(curves.map((one) => [one.name, one.points])); // none of a refused run
        for (const name of names) known.set(name, { points: points.get(name) ?? [], isLoaded: true });
      }
    } catch (error) {
      if (isRefusal(error)) return; // it stays empty
      for (const curves of all.values()) {
        for (const name of names) if (!curves.get(name)?.isLoaded) curves.delete(name); // asked again
      }
      return;
    }
    this.changed("curves");
  }

  async #pollCurves(ids) {
    const loaded = (id) => [...(this.curves.get(id) ?? [])].filter(([, one]) => one.isLoaded);
    const all = ids.flatMap(loaded);
    if (!all.length) return;
    const since = Math.min(...all.map(([, { points }]) => points.at(-1)?.[2] ?? 0));
    const wanted = [...new Set(all.map(([name]) => name))];
    const points = this.runsShown() > SEVERAL ? FEW_POINTS : MOST_POINTS;
    for (const { runs, names } of portions(ids, wanted, points)) {
      const asked = { runs: runs.join(","), names: JSON.stringify(names), x: this.axis, points, since };
      for (const { run, curves } of (await get("v1/curves", asked)).runs) {
        const known = this.curves.get(run);
        for (const one of curves) if (known?.get(one.name)?.isLoaded) this.#join(known.get(one.name), one.points);
      }
    }
    this.changed("curves");
  }
}

/** Yield runs and names whose curves of so many points fit into one answer of the hive. */
export function* portions(ids, names, points) {
  for (let at = 0; at < ids.length; at += MOST_RUNS) {
    const runs = ids.slice(at, at + MOST_RUNS);
    const width = Math.max(1, Math.floor(MOST_REPLY_POINTS / (runs.length * points)));
    for (let first = 0; first < names.length; first += width) {
      yield { runs, names: names.slice(first, first + width) };
    }
  }
}
