// Answers questions about the modules of the hive's page that need no browser.

import { answerAll, module } from "./questions.mjs";

const { viewIn, fragmentOf, hiveAddress, takeToken } = await module("address");
const { cell, csv, curveRows, fileName, heatRows, lineRows } = await module("csv");
const curves = await module("curves");
const format = await module("format");
const { sectionsOf } = await module("sections");
const { sessionSpecs, SessionSamples } = await module("session_samples");
const { Store } = await module("store");
const { Stream } = await module("stream");
const { histogramSpec } = await module("histograms");
const groups = await module("groups");
const { axisOfHeat, changesOf, tracesOf, heatOf, versionsIn } = await module("traces");
const { columnOf, changedSettings, sorted } = await module("columns");
const { filterOf } = await module("filters");
const sweep = await module("sweep_points");
const { viewsIn } = await module("saved_views");
const { portions } = await module("store");

const COLORS = { runs: ["rgb(1, 2, 3)", "rgb(4, 5, 6)"], heat: ["a", "b", "c", "d"] };

class FakeSource {
  static made = [];
  constructor(path) {
    this.path = path;
    this.readyState = 0;
    this.listeners = {};
    FakeSource.made.push(this);
  }
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  close() {
    this.readyState = 2;
  }
  send(kind, data = {}, lastEventId = "") {
    this.readyState = 1;
    this.listeners[kind]({ data: JSON.stringify(data), lastEventId });
  }
}

/** Play a script of steps: what the stream does and which states it has had. */
async function streamed(steps) {
  FakeSource.made = [];
  const said = [];
  let time = 0;
  let status = 200;
  const answer = (name) => async () => {
    said.push(name);
    if (status !== 200) throw Object.assign(new Error(`status ${status}`), { status });
  };
  const page = { hidden: false, addEventListener: (_, listener) => (page.turn = listener) };
  const handlers = {
    load: answer("load"),
    open: answer("open"),
    poll: answer("poll"),
    metrics: (event) => said.push(`metrics ${event.run}`),
    changed: (state) => said.push(state),
  };
  const stream = new Stream(handlers, { page, Source: FakeSource, now: () => time });
  const begin = globalThis.setInterval;
  globalThis.setInterval = () => 0; // the script checks by itself
  stream.start();
  globalThis.setInterval = begin;
  for (const [what, ...values] of steps) {
    const source = FakeSource.made.at(-1);
    if (what === "event") source.send(...values);
    else if (what === "connected") {
      source.listeners.open({}); // an event of the browser's own
      source.send("open", {}, "7");
    } else if (what === "broken") source.readyState = 2;
    else if (what === "server") status = values[0] ? 200 : 0;
    else if (what === "status") status = values[0];
    else if (what === "need") stream.need();
    else if (what === "watch") stream.watch(values[0]);
    else if (what === "hidden") {
      page.hidden = values[0];
      page.turn();
    } else if (what === "wait") {
      time += values[0];
      stream.check();
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  return { said, paths: FakeSource.made.map((one) => one.path), open: FakeSource.made.filter((one) => one.readyState !== 2).length };
}

/** Load a run from a hive with these answers by path, {status, body}: what the store has of it. */
async function loaded(answers, run) {
  const asked = [];
  globalThis.fetch = async (path) => {
    asked.push(path.split("?")[0]);
    const { status = 200, body } = answers[path.split("?")[0]];
    return new Response(JSON.stringify(body), { status });
  };
  const store = new Store(() => {});
  let failure = null;
  await store.load([run]).catch((error) => (failure = error.message));
  for (let draw = 0; draw < 3; draw += 1) {
    store.points(run, "m");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    failure, trouble: store.troubles.get(run) ?? null, runs: [...store.runs.keys()],
    events: store.histories.get(run) ?? null,
    curves: asked.filter((path) => path.endsWith("/curves")).length,
  };
}

/** Load a run without metrics, of which the stream then has one: the names that the store has. */
async function reportedLater(answers) {
  globalThis.fetch = async (path) => new Response(JSON.stringify(answers[path.split("?")[0]]));
  const store = new Store(() => {});
  await store.load(["a"]);
  store.takeMetrics({ run: "a", points: [["m", 1, 2, 3]] });
  return [...store.metrics.get("a").keys()];
}

/** Ask for two curves of each of many runs: the requests, and the points that the store has. */
async function bulkLoaded({ runs, refused = [] }) {
  const asked = [];
  globalThis.fetch = async (path) => {
    const query = new URLSearchParams(path.split("?")[1]);
    asked.push([path.split("?")[0], query.get("runs").split(",").length, JSON.parse(query.get("names"))]);
    const replies = query.get("runs").split(",").map((run) => ({
      run, error: refused.includes(run) ? "no" : "",
      curves: refused.includes(run) ? [] : JSON.parse(query.get("names")).map((name) => ({ name, points: [[1, 2, 3]] })),
    }));
    return new Response(JSON.stringify({ runs: replies }));
  };
  const store = new Store(() => {});
  store.ready = () => new Promise((resolve) => setTimeout(resolve, 90)); // while it draws again
  for (let draw = 0; draw < 4; draw += 1) {
    for (const run of runs) for (const name of ["a", "b"]) store.points(run, name);
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  return { asked, points: runs.map((run) => store.points(run, "a").length) };
}

/** Add points one by one to a curve: its greatest length, and its last point. */
function grown(count) {
  const store = new Store(() => {});
  store.metrics.set("a", new Map());
  const curve = { points: [], isLoaded: true };
  store.curves.set("a", new Map([["m", curve]]));
  let longest = 0;
  for (let step = 1; step <= count; step += 1) {
    store.takeMetrics({ run: "a", points: [["m", step, Math.sin(step), step]] });
    longest = Math.max(longest, curve.points.length);
  }
  return { longest, last: curve.points.at(-1) };
}

/** Take samples [milliseconds, sessions]: the traces of their charts, and the newest rates. */
function sampled(samples) {
  const kept = new SessionSamples();
  for (const [at, sessions] of samples) kept.take(sessions, at);
  const traces = sessionSpecs(() => kept).map(({ name, lines }) => [name, lines(COLORS)]);
  return {
    kept: kept.all.length, refused: kept.rate(1, "refused"), dropped: kept.rate(1, "dropped"),
    charts: Object.fromEntries(traces),
  };
}

/** Draw a histogram at these seconds, [second, is the hive there]: the answers, and the requests. */
async function drawnHistogram(steps) {
  let time = 0;
  let isThere = true;
  const asked = [];
  const ask = async (path, { name }) => {
    asked.push(`${time / 1_000} ${path} ${name}`);
    if (!isThere) throw Object.assign(new Error("the hive does not answer"), { status: 0 });
    return asked.length;
  };
  const { heat } = histogramSpec({ id: "a" }, "actions", "actions/0", { ask, now: () => time });
  const drawn = [];
  for (const step of steps) {
    time = step[0] * 1_000;
    isThere = step[1];
    drawn.push(await heat());
  }
  return { asked, drawn };
}

const answers = {
  cell: (value) => cell(value),
  csv: (rows) => csv(rows),
  curveRows: (given) => curveRows(given),
  fileName: (...parts) => fileName(...parts),
  view: (fragment) => viewIn(fragment),
  fragment: (view) => fragmentOf({ ...viewIn(""), ...view }),
  again: (view) => viewIn(fragmentOf({ ...viewIn(""), ...view })),
  token: (hash) => {
    const page = { location: { hash, pathname: "/hive/", search: "" }, history: {} };
    page.history.replaceState = (_, __, address) => (page.address = address);
    return { token: takeToken(page), address: page.address ?? null };
  },
  hiveAddress: (link) => hiveAddress(new URL(link)),
  heatRows: (run, name, reply) => heatRows(run, name, reply),
  lineRows: (chart, lines) => lineRows(chart, lines),
  loaded: (answers, run) => loaded(answers, run),
  grown: (count) => grown(count),
  sampled: (samples) => sampled(samples),
  joined: (points, newer) => curves.joined(points, newer),
  thinned: (points, most) => curves.thinned(points, most),
  smoothed: (values, weight) => curves.smoothed(values, weight),
  onAxis: (points, kind, more) => curves.onAxis(points, kind, more),
  band: (given) => curves.band(given),
  seeds: (runs, settings) => groups.groupedBySeed(runs, settings).map((group) => group.map((run) => run.id)),
  spark: (values) => curves.sparkline(values, 90, 22),
  format: (name, value) => format[name](value),
  sections: (names, q) => sectionsOf(new Set(names), q),
  traces: (spec, runs, settings, points, view) => {
    const all = { ...viewIn(""), ...view };
    const made = groups.groupsOf(runs, { runs: settings, defaults: {} }, all.group || "seed", COLORS);
    return tracesOf(spec, made, (id, name) => points[id]?.[name] ?? [], all, COLORS);
  },
  changes: (runs, points, histories, view) => {
    const all = { ...viewIn(""), ...view };
    const made = groups.groupsOf(runs, { runs: {}, defaults: {} }, "seed", COLORS);
    const pointsOf = (id, name) => points[id]?.[name] ?? [];
    return changesOf({ name: "m" }, made, pointsOf, new Map(Object.entries(histories)), all);
  },
  versions: (run, points, versions, view) =>
    versionsIn({ name: "m" }, run, versions, (_, name) => points[name] ?? [], { ...viewIn(""), ...view }),
  heat: (reply, x = "rows", updates = []) => ({
    ...heatOf(reply, { x }, 0, COLORS, updates),
    axis: axisOfHeat({ x }, updates),
  }),
  histogram: (steps) => drawnHistogram(steps),
  changed: (runs, settings) => changedSettings(runs, settings),
  searched: (runs, q, settings) => runs.filter(filterOf(q, runs, settings).matches).map((run) => run.id),
  wrong: (runs, q, settings) => filterOf(q, runs, settings).error,
  groups: (runs, settings, by) =>
    groups.groupsOf(runs, settings, by, COLORS).map(({ label, runs, color, dash, mark }) => ({
      label, runs: runs.map((run) => run.id), looks: JSON.stringify([color, dash, mark]),
    })),
  choices: (runs, settings) => groups.groupChoices(runs, settings),
  median: (values) => groups.median(values) ?? null,
  cellText: (run, key, settings) => columnOf(key, settings)?.text(run) ?? null,
  medians: (runs, settings, of, bests) => {
    const yOf = (run) => sweep.returnOf(run, of, new Map(Object.entries(bests)));
    return sweep.axesOf(runs, settings).map((axis) => ({
      name: axis.name, isLog: axis.isLog, categories: axis.categories,
      medians: sweep.mediansOf(sweep.pointsOf(runs, axis, yOf)).map(({ x, y, count }) => [x, y, count]),
    }));
  },
  within: (runs, settings, brush) =>
    runs.filter((run) => sweep.isWithin(run, sweep.axesOf(runs, settings), brush)).map((run) => run.id),
  sweepRows: (runs, settings) => sweep.sweepRows(runs, sweep.axesOf(runs, settings), "r", (run) => run.rows),
  ticks: (axis) => sweep.ticksOf(axis),
  places: (axis, values) => values.map((value) => sweep.valueAtPlace(axis, sweep.placeOn(axis, value))),
  views: (text) => viewsIn(text),
  portions: (ids, names, points) => [...portions(ids, names, points)].map(({ runs, names }) => [runs.length, names.length]),
  bulk: (answers) => bulkLoaded(answers),
  reportedLater: (answers) => reportedLater(answers),
  sorted: (runs, sort, settings) => sorted(runs, sort, settings).map((run) => run.id),
  stream: (steps) => streamed(steps),
};

await answerAll(answers);
